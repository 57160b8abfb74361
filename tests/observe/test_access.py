"""The token of pages and metrics: in a file of its user's, made once, refused where others may know it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from watersmeet.errors import EngineError
from watersmeet.spec.monitoring import load_token

GOOD = "a" * 16


def expect_token_error(file) -> EngineError:
    with pytest.raises(EngineError) as found:
        load_token(str(file))
    assert found.value.code == "token-file"
    assert found.value.hint
    return found.value


def test_it_is_made_once_for_its_user_alone(tmp_path):
    before = os.umask(0)
    try:
        token = load_token(str(tmp_path / "a" / "b" / "token"))
    finally:
        os.umask(before)
    assert token.file == tmp_path / "a" / "b" / "token"
    assert token.file.stat().st_mode & 0o7777 == 0o600
    assert {folder.stat().st_mode & 0o777 for folder in token.file.parents[:2]} == {0o700}
    assert os.listdir(token.file.parent) == ["token"]
    assert len(token.text) >= 32
    assert load_token(str(token.file)) == token
    assert load_token(str(tmp_path / "other")) != token


def test_several_processes_that_make_it_have_one(tmp_path):
    with ThreadPoolExecutor(8) as threads:
        tokens = list(threads.map(lambda _: load_token(str(tmp_path / "x" / "token")).text, range(64)))
    assert len(set(tokens)) == 1


@pytest.mark.parametrize("setting", ["none", "None", " NONE "])
def test_setting_none_disables_the_token(setting):
    assert load_token(setting) is None


def test_it_is_where_configuration_is(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert load_token(None).file == tmp_path / "config" / "watersmeet" / "token"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    assert load_token(None).file == tmp_path / "home" / ".config" / "watersmeet" / "token"


@pytest.mark.parametrize("content", ["", "\n", "a" * 15, f"{GOOD} {GOOD}", f"{GOOD}\n{GOOD}", f"{GOOD}\xe9"])
def test_what_is_no_token_is_refused(tmp_path, content):
    file = tmp_path / "token"
    file.write_bytes(content.encode("latin-1"))
    file.chmod(0o600)
    message = expect_token_error(file).message
    assert message.endswith("it does not have one line of at least 16 letters, digits or signs")
    assert "aaaa" not in message


def test_line_ends_and_blanks_around_it_are_no_part_of_it(tmp_path):
    file = tmp_path / "token"
    file.write_text(f" {GOOD}\r\n")
    file.chmod(0o600)
    assert load_token(str(file)).text == GOOD


def build_file_status(file, uid: int, mode: int):
    """The status of a file that belongs to somebody."""
    found = list(os.stat(file))
    found[0], found[4] = found[0] & ~0o777 | mode, uid
    return os.stat_result(found)


@pytest.mark.parametrize(
    ("uid", "mode", "reason"),
    [
        (1000, 0o600, None),
        (1000, 0o400, None),
        (1000, 0o644, "other users may read it"),
        (1000, 0o640, "other users may read it"),
        (1000, 0o620, "other users may read it"),
        (1001, 0o600, "it belongs to another user"),
        (0, 0o644, None),  # a secret that is mounted into a container
    ],
)
def test_whose_it_is(tmp_path, monkeypatch, uid, mode, reason):
    file = tmp_path / "token"
    file.write_text(GOOD)
    status = build_file_status(file, uid, mode)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "fstat", lambda _: status)
    if reason is None:
        assert load_token(str(file)).text == GOOD
    else:
        assert expect_token_error(file).message.endswith(f'"{file}": {reason}')
        assert GOOD not in expect_token_error(file).message


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in expect_token_error(tmp_path / "pipe").message
    assert "Is a directory" in expect_token_error(tmp_path).message
    (tmp_path / "dangling").symlink_to(tmp_path / "none")
    assert "No such file" in expect_token_error(tmp_path / "dangling").message
    (tmp_path / "file").touch()
    assert "File exists" in expect_token_error(tmp_path / "file" / "token").message
