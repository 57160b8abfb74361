"""Create a project of one kind from the files of a template (`init`).

A kind is a folder of `cli/templates`. Its files are copied unchanged, without the ending ``.template``, which
hides them from this package's own tools. Only `REQUIREMENTS` differs: it names the installed version of
watersmeet. To add a kind, add a folder: the first line of its ``README.md`` describes it, and the first
block of ``sh`` there is the command to run.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated

import typer

from watersmeet.cli.install.origin import requirement
from watersmeet.errors import SpecError, format_count, near_names, printable

ENDING = ".template"
DEFAULT_KIND = "files"
README = "README.md"
REQUIREMENTS = "requirements.txt"
_OURS = re.compile(r"^watersmeet\[(?P<extras>[a-z,]+)\]$", re.MULTILINE)
MAX_LISTED_FILES = 5
"""So many files are named that are in the way."""


@dataclass(frozen=True)
class Project:
    """A project that was made: where, its files in order, and the text of its README."""

    directory: Path
    paths: tuple[str, ...]
    readme: str

    def told(self) -> str:
        """Return a terminal message with the created files and the commands to run next."""
        title = self.readme.splitlines()[0].lstrip("# ")
        block = re.search(r"^```sh\n(.*?)^```", self.readme, re.DOTALL | re.MULTILINE)
        commands = block.group(1).splitlines() if block else []
        if self.directory != Path():
            way = f"./{self.directory}" if str(self.directory).startswith("-") else str(self.directory)
            commands.insert(0, f"cd {shlex.quote(way)}")
        where = "here" if self.directory == Path() else f'in "{self.directory}"'
        made = f"{title}: made {format_count(len(self.paths), 'file')} {where}"
        return printable(
            "\n".join([made, *(f"  {path}" for path in self.paths), "next:", *(f"  {c}" for c in commands)])
        )


def kinds() -> tuple[str, ...]:
    """Return the kinds of projects that have a template."""
    return tuple(sorted(folder.name for folder in _templates().iterdir() if folder.is_dir()))


def kinds_that_begin(incomplete: str) -> list[str]:
    """Return the kinds that begin with ``incomplete``, for completion by a shell."""
    return [kind for kind in kinds() if kind.startswith(incomplete)]


def make_project(kind: str, directory: Path) -> Project:
    """Make one in ``directory``, which is made as well. Nothing is overwritten: all of it is made, or none.

    Raises:
        SpecError: there is no such kind, files are in the way, or the place cannot be written to.
    """
    if kind not in kinds():
        raise SpecError(
            f'there is no project template "{kind}"',
            code="unknown-template",
            hint=f"{near_names(kind, kinds())} (to name a directory, write watersmeet init"
            f" {DEFAULT_KIND} {shlex.quote(kind)})",
        )
    wanted = dict(_files(_templates().joinpath(kind)))
    named = _OURS.sub(lambda ours: requirement(ours["extras"]), wanted[REQUIREMENTS].decode())
    wanted[REQUIREMENTS] = named.encode()
    taken = [path for path in wanted if os.path.lexists(directory / path)]
    if taken:
        more = f" and {len(taken) - MAX_LISTED_FILES} more" if len(taken) > MAX_LISTED_FILES else ""
        raise SpecError(
            f"init overwrites nothing, but there is already {', '.join(taken[:MAX_LISTED_FILES])}{more} in"
            f' "{directory.resolve()}"',
            code="already-there",
            hint=f"use a new directory: watersmeet init {kind} DIR",
        )
    try:
        _written(wanted, directory)
    except OSError as error:
        raise SpecError(
            f'"{error.filename or directory}" cannot be written: {error.strerror or error}',
            code="not-writable",
            hint=f"use another directory: watersmeet init {kind} DIR",
        ) from error
    return Project(directory, tuple(wanted), wanted[README].decode())


def _templates() -> Traversable:
    return files("watersmeet.cli").joinpath("templates")


def _files(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    """Yield the paths within a project with their contents, in order."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _files(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(ENDING):
            yield prefix + entry.name.removesuffix(ENDING), entry.read_bytes()


def _written(wanted: dict[str, bytes], directory: Path) -> None:
    """Write files below a directory, or remove everything that was created if one cannot be written.

    Args:
        wanted: contents by relative path.

    Raises:
        OSError: a file or folder cannot be created, or exists already. Nothing that this call created
            remains.
    """
    made: list[Path] = []
    try:
        for path, content in wanted.items():
            target = directory / path
            for folder in reversed([target.parent, *target.parent.parents]):
                if not folder.is_dir():
                    if os.path.lexists(folder):
                        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
                    folder.mkdir()
                    made.append(folder)
            with target.open("xb") as file:  # whoever makes one meanwhile keeps it
                made.append(target)
                file.write(content)
    except BaseException:
        for mine in reversed(made):
            with contextlib.suppress(OSError):
                mine.rmdir() if mine.is_dir() else mine.unlink()
        raise


def init(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help=f"The kind of project: {', '.join(kinds())}.",
            autocompletion=kinds_that_begin,
        ),
    ] = DEFAULT_KIND,
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Directory of the project; existing files are never overwritten."),
    ] = Path(),
) -> None:
    """Create a project: a join of two streams, sample rows, and a test."""
    print(make_project(kind, directory).told())
