"""Rooms and pages stay small: at most 20 modules in a folder of the package, 500 lines in a module."""

from __future__ import annotations

from tests.support.package_paths import PACKAGE, find_paths

MODULES = 20
LINES = 500


def test_no_folder_has_too_many_modules():
    folders = {path.parent for path in find_paths(PACKAGE, "**/*.py")}
    counts = {
        str(f.relative_to(PACKAGE)): len([m for m in f.glob("*.py") if m.stem != "__init__"]) for f in folders
    }
    assert {folder: count for folder, count in counts.items() if count > MODULES} == {}


def test_no_module_is_too_long():
    lines = {
        str(path.relative_to(PACKAGE)): len(path.read_text().splitlines())
        for path in find_paths(PACKAGE, "**/*.py")
    }
    assert {path: count for path, count in lines.items() if count > LINES} == {}
