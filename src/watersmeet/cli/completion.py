"""What a shell offers where words of the command line are being typed: jobs, words of options, templates.

Looked at anew with every press of a key: little is loaded, and few folders are listed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import islice

MAX_FOLDERS = 200
"""So many folders are listed at most."""

MAX_COMPLETIONS = 100


def job_files(incomplete: str) -> list[str]:
    """Return SQL files and pipelines whose paths begin with ``incomplete``, also in subfolders.

    If there are none, the shell offers any file.
    """
    return list(islice(_find_files(incomplete, (".sql", ".toml")), MAX_COMPLETIONS))


def pipeline_files(incomplete: str) -> list[str]:
    """Return pipelines whose paths begin with ``incomplete``, also in subfolders."""
    return list(islice(_find_files(incomplete, (".toml",)), MAX_COMPLETIONS))


def case_files(incomplete: str) -> list[str]:
    """Return JSON files whose paths begin with ``incomplete``, also in subfolders."""
    return list(islice(_find_files(incomplete, (".json",)), MAX_COMPLETIONS))


def words_of(kind: type[Enum]) -> Callable[[str], list[str]]:
    """Offers the words of an option that has few."""

    def list_completions(incomplete: str) -> list[str]:
        return [word.value for word in kind if word.value.startswith(incomplete)]

    return list_completions


def _find_files(incomplete: str, endings: tuple[str, ...]) -> Iterator[str]:
    """Yield files whose paths begin with ``incomplete``, the nearest folders first.

    Hidden files are included only if the dot is typed.
    """
    folder, _, start = incomplete.rpartition("/")
    waiting = [(f"{folder}/" if folder or incomplete.startswith("/") else "", start)]
    for _ in range(MAX_FOLDERS):
        if not waiting:
            return
        prefix, start = waiting.pop(0)
        try:
            with os.scandir(prefix or ".") as listed:
                entries = sorted(listed, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if not entry.name.startswith(start) or (entry.name.startswith(".") and not start.startswith(".")):
                continue
            if _is_folder(entry):
                waiting.append((f"{prefix}{entry.name}/", ""))
            elif entry.name.endswith(endings):
                yield prefix + entry.name


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
