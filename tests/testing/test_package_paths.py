"""Names of files and folders that do not exist."""

from __future__ import annotations

import pytest

from tests.support.package_paths import PACKAGE, REPOSITORY, find_paths


def test_a_pattern_that_matches_nothing_is_an_error():
    with pytest.raises(LookupError, match=r"'kernal/' matches nothing in .*watersmeet\. Hint: "):
        find_paths(PACKAGE, "kernel/", "kernal/")
    with pytest.raises(LookupError, match=r"'kernel/\*\.sql' matches nothing"):
        find_paths(PACKAGE, "kernel/*.sql")


def test_a_folder_that_has_been_renamed_does_not_count(tmp_path):
    cache = tmp_path / "renamed" / "nested" / "__pycache__"
    cache.mkdir(parents=True)
    (cache / "module.cpython-311.pyc").touch()
    for pattern in ("renamed", "renamed/**/*"):
        with pytest.raises(LookupError):
            find_paths(tmp_path, pattern)
    (tmp_path / "renamed" / "nested" / "module.py").touch()
    assert find_paths(tmp_path, "renamed") == [tmp_path / "renamed"]


def test_paths_are_sorted_within_each_pattern():
    found = find_paths(REPOSITORY, "tests/conftest.py", "src/watersmeet/state/[ms]*t*.py")
    names = [path.relative_to(REPOSITORY).as_posix() for path in found]
    assert names[0] == "tests/conftest.py"
    assert names[1:] == sorted(names[1:])
    assert len(names) > 2
