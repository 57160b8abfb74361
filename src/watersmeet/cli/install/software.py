"""What a job needs that is installed: Python, Java, PySpark, libraries of the extras."""

from __future__ import annotations

import os
import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, distribution, requires

from watersmeet import __version__
from watersmeet.cli.install.check import Check, Status
from watersmeet.cli.install.origin import NAME, describe_origin
from watersmeet.engine.spark.start_failures import (
    JARS_VARIABLE,
    check_bash,
    check_pyspark,
    check_user,
    find_java,
    pyspark_version,
)

NOT_OF_JOBS = ("spark", "dev", "docs", "demo")
"""Extras that no job asks for, or that have a line of their own."""
_LIBRARY = re.compile(r"(?P<name>[A-Za-z0-9._-]+).*;\s*extra\s*==\s*['\"](?P<extra>[a-z]+)['\"]")


def check_programs() -> list[Check]:
    """Return what each job needs: this package, Python, a user with a name, PySpark, Java."""
    return [
        Check("watersmeet", Status.OK, f"{__version__}, {describe_origin()}"),
        Check("Python", Status.OK, f"{platform.python_version()}, {sys.executable}"),
        Check.of("User", check_user),
        Check.of("PySpark", _pyspark),
        Check.of("Java", _java),
        Check.of("bash", _bash).as_note(),
    ]


def check_extras() -> list[Check]:
    """Return which extras are whole, and which miss a library."""
    libraries = libraries_of_extras()
    missing = {extra: names for extra, names in libraries.items() if not all(map(_is_installed, names))}
    checks = []
    if set(libraries) - set(missing):
        checks.append(Check("Extras", Status.OK, ", ".join(sorted(set(libraries) - set(missing)))))
    if missing:
        detail = f"not installed: {', '.join(sorted(missing))}"
        hint = f"pip install '{NAME}[{min(missing)}]', or another of them, for jobs that need it"
        checks.append(Check("Extras", Status.NOTE, detail, hint))
    jars = os.environ.get(JARS_VARIABLE)
    detail = f"{JARS_VARIABLE} = {jars}" if jars else "from Maven, at the first job with topics"
    return [*checks, Check("Kafka's jars", Status.OK, detail)]


def libraries_of_extras() -> dict[str, list[str]]:
    """Return the libraries of each extra that jobs may need, as the installed package declares them."""
    try:
        declared = requires(NAME) or []
    except PackageNotFoundError:  # used from its sources
        return {}
    libraries: dict[str, list[str]] = {}
    for line in declared:
        said = _LIBRARY.match(line)
        if said is not None and said["extra"] not in NOT_OF_JOBS:
            libraries.setdefault(said["extra"], []).append(said["name"])
    return libraries


def _is_installed(library: str) -> bool:
    try:
        distribution(library)
    except PackageNotFoundError:
        return False
    return True


def _pyspark() -> str:
    check_pyspark("running a job")
    return pyspark_version() or "version not known"


def _java() -> str:
    java = find_java(os.environ)
    return f"{java.version or 'version not known'}, {java.program}"


def _bash() -> str:
    check_bash(os.environ)
    return "for spark-submit"
