"""Objects that other installed packages declare as entry points: sinks, sources and functions.

Nothing is looked for until a job uses a name that is not built in; then the names of all packages are listed,
and only the package that declares this name is imported.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from watersmeet.errors import SpecError, WatersmeetError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

SINKS, SOURCES, FUNCTIONS = "watersmeet.sinks", "watersmeet.sources", "watersmeet.functions"

_Declared = TypeVar("_Declared")


@cache
def list_entry_points(group: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    """Return the entry points of a group by their names; several packages may declare one name."""
    from importlib.metadata import entry_points

    named: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in sorted(set(entry_points(group=group)), key=lambda entry: (entry.name, entry.value)):
        named[entry.name] = (*named.get(entry.name, ()), entry)
    return named


def name_problems(group: str, built_in: Container[str]) -> Iterator[SpecError]:
    """Yield a problem for each declared name that is built in, declared twice, or no name in SQL.

    No package is imported.
    """
    for name, entries in list_entry_points(group).items():
        if name.lower() in built_in:
            does: str | None = "is built in and cannot be replaced"
        elif not (name.isidentifier() and name == name.lower()):
            does = "is not a lower-case name"
        else:
            does = "is declared twice" if len(entries) > 1 else None
        if does is not None:
            packages = " and ".join(dict.fromkeys(map(package_of, entries)))
            yield SpecError(
                f'"{name}" of the package {packages} {does} ({group})',
                code="extension-name",
                hint=f"uninstall {package_of(entries[0])}, or rename its entry point",
            )


def load_declared(group: str, name: str, kind: type[_Declared], built_in: Container[str]) -> _Declared | None:
    """Import and return what a package declares under a name; None if no package declares it.

    Raises:
        SpecError: a declared name is built in or declared twice, the package cannot be imported, or the
            object is not a ``kind`` of this name.
    """
    if name not in list_entry_points(group):
        return None
    for problem in name_problems(group, built_in):
        raise problem
    (entry,) = list_entry_points(group)[name]
    try:
        declared = entry.load()
    except WatersmeetError as error:  # its own check of what it declares
        raise extension_error(group, name, str(error)) from error
    except (Exception, SystemExit) as error:
        raise extension_error(group, name, f"{type(error).__name__}: {error}") from error
    if not isinstance(declared, kind) or getattr(declared, "name", None) != name:
        what = f'{entry.value} is not a {kind.__name__} named "{name}"'
        raise extension_error(group, name, what)
    return declared


def extension_error(group: str, name: str, what: str) -> SpecError:
    """Build the error for an entry point that cannot be used, with its package."""
    entry = list_entry_points(group)[name][0]
    package = package_of(entry)
    return SpecError(
        f'"{name}" of the package {package} cannot be used: {what}',
        code="extension-failed",
        hint=f"correct or uninstall {package}, which declares {entry.value} as {name} in {group}",
    )


def package_of(entry: EntryPoint) -> str:
    """Return the name of the package that declares an entry point."""
    return "an unknown package" if entry.dist is None else str(entry.dist.name)


def load_reference(reference: str) -> Any:
    """Import and return the object that ``module:name`` names."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def load_code(group: str, name: str, reference: str) -> Any:
    """Import and return what the connector or function ``name`` names as its code.

    Raises:
        SpecError: the package that declares it cannot be imported, or has no such object.
    """
    try:
        return load_reference(reference)
    except (Exception, SystemExit) as error:
        if name not in list_entry_points(group):  # it is built in
            raise
        raise extension_error(group, name, f"{reference}: {type(error).__name__}: {error}") from error
