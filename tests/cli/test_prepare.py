"""`prepare`: what a JVM takes classes from, and what not. ``scripts/class-archive`` makes the file itself."""

from __future__ import annotations

import os

import pytest

from watersmeet.cli import prepare
from watersmeet.cli.main import main
from watersmeet.runtime.spark.job import class_archive

pytestmark = pytest.mark.skipif(class_archive.archive_path() is None, reason="needs Java")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def stored_archive(tmp_path):
    path = class_archive.archive_path()
    path.parent.mkdir(parents=True, mode=0o700)
    made = tmp_path / "made.jsa"
    made.write_bytes(b"classes")
    class_archive.store_archive(made, path)
    return path


def test_options_name_the_stored_archive(stored_archive):
    assert class_archive.options() == f'-XX:SharedArchiveFile="{stored_archive}" -Xlog:cds*=off'


def test_options_are_empty_without_an_archive():
    assert class_archive.options() == ""


@pytest.mark.parametrize("told", ["-XX:SharedArchiveFile=x.jsa", "-XX:ArchiveClassesAtExit=y.jsa"])
def test_options_are_empty_if_the_user_sets_an_archive_flag(stored_archive, told):
    assert class_archive.options("-Xss4m")
    assert class_archive.options(f"-Xss4m {told}") == ""


@pytest.mark.parametrize("of", ["file", "folder"])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_classes_that_others_could_have_written_are_not_loaded(stored_archive, of, mode):
    path = stored_archive if of == "file" else stored_archive.parent
    path.chmod(path.stat().st_mode | mode)
    assert class_archive.options() == ""


def test_a_link_is_not_followed(stored_archive, tmp_path):
    other = tmp_path / "other.jsa"
    stored_archive.rename(other)
    stored_archive.symlink_to(other)
    assert class_archive.options() == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_classes_of_another_user_are_not_loaded(stored_archive):
    os.chown(stored_archive, 12345, -1)
    assert class_archive.options() == ""


def test_other_jars_are_another_file(monkeypatch, tmp_path):
    (tmp_path / "jars").mkdir()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    before = class_archive.archive_path()
    (tmp_path / "jars" / "a.jar").write_bytes(b"a")
    assert class_archive.archive_path() != before


def test_what_is_there_is_not_made_again(stored_archive, capsys):
    assert main(["prepare"]) == 0
    assert "exists already" in capsys.readouterr().out
    assert stored_archive.read_bytes() == b"classes"


def test_remove_deletes_it(stored_archive, capsys):
    assert main(["prepare", "--remove"]) == 0
    assert not stored_archive.exists()
    assert "1 deleted" in capsys.readouterr().out
    assert main(["prepare", "--remove"]) == 0


def _child(monkeypatch, tmp_path, text):
    """In the place of the job that is run."""
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    monkeypatch.setattr(prepare.sys, "executable", str(script))


def test_a_file_is_there_as_a_whole_or_not_at_all(monkeypatch, tmp_path, capsys):
    _child(monkeypatch, tmp_path, 'printf half > "$3"; echo "no space left" >&2; exit 1')
    assert main(["prepare"]) == 2
    said = capsys.readouterr().err
    assert "no space left" in said
    assert "[not-prepared]" in said or "not-prepared" in said
    assert list(class_archive.cache_folder().iterdir()) == []


def test_a_file_that_was_made_is_the_users_alone(monkeypatch, tmp_path, capsys):
    _child(monkeypatch, tmp_path, 'printf classes > "$3"')
    assert main(["prepare"]) == 0
    (made,) = class_archive.cache_folder().glob("*.jsa")
    assert made == class_archive.archive_path()
    assert made.stat().st_mode & 0o777 == 0o600
    assert class_archive.options()


def test_without_java_it_says_so(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(["prepare"]) == 2
    assert "Java" in capsys.readouterr().err
    assert class_archive.options() == ""


@pytest.mark.parametrize("size", ["3", "", None])
def test_a_file_that_was_cut_off_is_not_loaded(stored_archive, size):
    """A JVM that maps one dies of it."""
    stamp = stored_archive.with_suffix(".size")
    stamp.unlink() if size is None else stamp.write_text(size)
    assert class_archive.options() == ""


def test_a_file_that_was_cut_off_is_made_again(stored_archive, monkeypatch, tmp_path):
    stored_archive.write_bytes(b"cla")
    assert class_archive.options() == ""
    _child(monkeypatch, tmp_path, 'printf classes > "$3"')
    assert main(["prepare"]) == 0
    assert class_archive.options()


def test_prepare_rejects_a_path_that_contains_a_separator(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a:b"))
    assert main(["prepare"]) == 2
    assert "several paths" in capsys.readouterr().err


def test_what_was_left_by_a_kill_is_removed(stored_archive):
    left = class_archive.cache_folder() / f"{class_archive.STAGING_PREFIX}1"
    left.mkdir()
    (left / "half.jsa").write_bytes(b"half")
    assert main(["prepare", "--remove"]) == 0
    assert list(class_archive.cache_folder().iterdir()) == []
