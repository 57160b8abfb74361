"""Paths of the repository that tests name by strings.

A test that searches a folder for mistakes passes when the folder has been renamed: it finds no files and so
no mistakes. `find_paths` raises an error instead.
"""

from __future__ import annotations

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def find_paths(folder: Path, *patterns: str) -> list[Path]:
    """Return the paths in `folder` that match glob patterns, sorted within each pattern.

    Folders without files and `__pycache__` do not count: a renamed folder leaves them behind.

    Raises:
        LookupError: A pattern matches no path.
    """
    found: list[Path] = []
    for pattern in patterns:
        matches = sorted(filter(_has_source, folder.glob(pattern)))
        if not matches:
            raise LookupError(
                f"{pattern!r} matches nothing in {folder}. Hint: correct the test that names it."
            )
        found += matches
    return found


def _has_source(path: Path) -> bool:
    return "__pycache__" not in path.parts and (path.is_file() or any(map(_has_source, path.iterdir())))


(PACKAGE,) = find_paths(REPOSITORY, "src/watersmeet")
