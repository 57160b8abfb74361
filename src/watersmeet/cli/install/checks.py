"""Checks of what is installed and of what a machine lacks, with what to type."""

from __future__ import annotations

import fcntl
import os
import platform
import re
import shutil
import socket
import sys
import tempfile
import time
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path

from watersmeet import __version__
from watersmeet.cli.install.origin import NAME, describe_origin
from watersmeet.durable_files import sync
from watersmeet.errors import WatersmeetError
from watersmeet.runtime.spark.start_failures import (
    JARS_VARIABLE,
    check_bash,
    check_pyspark,
    check_user,
    find_java,
    pyspark_version,
)
from watersmeet.spec.connectors import find_connector, list_name_problems
from watersmeet.spec.entry_points import FUNCTIONS, SINKS, SOURCES, list_entry_points, package_of
from watersmeet.spec.functions import find_function, list_function_name_problems
from watersmeet.spec.monitoring import Address, cannot_listen

# One line of what `doctor` says: what was looked at, and how it is.


class Status(StrEnum):
    """``NOTE``: some jobs miss it. ``FAIL``: no job can be run, or not the one that was named."""

    OK = "ok"
    NOTE = "note"
    FAIL = "FAIL"


@dataclass(frozen=True)
class Check:
    """Result of a check: its subject, the status, details, and what to type if it failed."""

    name: str
    status: Status
    detail: str
    hint: str | None = None

    @classmethod
    def of(cls, name: str, detail: Callable[[], str]) -> Check:
        """Return what ``detail`` says, or the error that it raises as a failed check."""
        try:
            return cls(name, Status.OK, detail())
        except WatersmeetError as error:
            return cls(name, Status.FAIL, error.message, error.hint)

    def as_note(self) -> Check:
        """Return the check for what only some jobs need: a failed one is a note."""
        return Check(self.name, Status.NOTE, self.detail, self.hint) if self.status is Status.FAIL else self


# What a machine gives a job: disk, memory, time, ports.

GIB = 1 << 30
MIN_FREE, LITTLE_FREE = GIB // 10, 2 * GIB
"""Bytes of disk: with less no job is begun; less is worth a note."""
MIN_MEMORY_BYTES = 3 * GIB // 2
"""Bytes: Spark's Java takes 1 GiB by default, and Python the rest."""
FIRST_YEAR, LAST_YEAR = 2025, 2100
"""A clock outside of these is wrong."""
_LISTENS = "0A"
"""State of a socket in /proc/net/tcp."""


def check_folder(name: str, path: Path, variable: str) -> Check:
    """Check that files can be made, locked and put on disk in a folder, or in the one above it that exists.

    Args:
        variable: what names another folder.
    """
    folder = path.absolute()
    while not os.path.lexists(folder):
        folder = folder.parent
    try:
        seconds = _write_file(folder)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        reason = error.strerror or str(error)
        return Check(name, Status.FAIL, f"{folder}: {reason}", f"name another directory: {variable}")
    detail = f"{path}: {_gib(free)} free, fsync takes {seconds * 1000:.0f} ms"
    if free < LITTLE_FREE:
        status = Status.FAIL if free < MIN_FREE else Status.NOTE
        return Check(name, status, detail, f"make room, or name another directory: {variable}")
    return Check(name, Status.OK, detail)


def _write_file(folder: Path) -> float:
    """Make a file as a checkpoint does, and return the seconds that fsync takes. Raises: OSError."""
    with tempfile.TemporaryDirectory(prefix="_writable-", dir=folder) as place:
        file = Path(place) / "file"
        with file.open("xb") as written:
            fcntl.flock(written, fcntl.LOCK_EX | fcntl.LOCK_NB)
            written.write(b"x")
            written.flush()
            began = time.perf_counter()
            os.fsync(written.fileno())
            seconds = time.perf_counter() - began
        file.rename(Path(place) / "renamed")
        sync(place)
    return seconds


def check_memory(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> Check:
    """Check the memory that is left on the machine, or to this container."""
    available = _available_bytes(proc, groups)
    if available is None:
        return Check("Memory", Status.OK, "not known on this system")
    if available < MIN_MEMORY_BYTES:
        hint = "give the machine or container more, or Java less: --conf spark.driver.memory=512m"
        return Check("Memory", Status.NOTE, f"{_gib(available)} available", hint)
    return Check("Memory", Status.OK, f"{_gib(available)} available")


def _available_bytes(proc: Path, groups: Path) -> int | None:
    try:
        lines = dict(line.split(":", 1) for line in (proc / "meminfo").read_text().splitlines())
        available = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
    try:
        limit = (groups / "memory.max").read_text().strip()
        used = int((groups / "memory.current").read_text())
        parts = dict(line.split() for line in (groups / "memory.stat").read_text().splitlines())
        used -= int(parts["inactive_file"])  # of the page cache, which gives way
    except (OSError, ValueError, KeyError):
        return available
    return available if limit == "max" else max(0, min(available, int(limit) - used))


def check_clock(now: datetime | None = None) -> Check:
    """Check that the clock is set, and that Python knows the machine's time zone."""
    now = now or datetime.now(UTC)
    local = now.astimezone()
    detail = f"{local.isoformat(timespec='seconds')} ({local.tzname()})"
    if not FIRST_YEAR <= now.year < LAST_YEAR:
        return Check("Clock", Status.FAIL, detail, "set the clock: watermarks of jobs are compared with it")
    zone = os.environ.get("TZ", "").removeprefix(":")
    try:
        if zone and not zone.startswith("/"):
            zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):  # a folder of zones is none
        hint = "a name such as TZ=Europe/Berlin; or leave TZ out, and say the job's zone: SET time_zone = '…'"
        return Check("Clock", Status.NOTE, f"{detail}; TZ is {zone}, which is not a known time zone", hint)
    return Check("Clock", Status.OK, detail)


def check_port(name: str, address: Address, option: str) -> Check:
    """Check that this process could listen at an address. ``option``: what names another one."""

    def listen() -> str:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        try:
            with socket.socket(family) as taken:
                taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                taken.bind((address.host, address.port))
        except OSError as error:
            user = user_of(address.port)
            what = f"{user} listens" if user else "nobody can listen"
            raise cannot_listen(what, address, error, f"another port: {option}") from None
        return f"{address.words} is free"

    return Check.of(name, listen)


def user_of(port: int, proc: Path = Path("/proc")) -> str | None:
    """Return the process that listens at a port, as far as this user may know; None: unknown."""
    sockets = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                sockets.add(f"socket:[{fields[9]}]")
    if not sockets:
        return None
    for process in proc.glob("[0-9]*"):
        try:
            if any(os.readlink(handle) in sockets for handle in (process / "fd").iterdir()):
                return f"process {process.name} ({(process / 'comm').read_text().strip()})"
        except OSError:  # another user's, or it has ended
            continue
    return None


def _gib(nbytes: int) -> str:
    return f"{nbytes / GIB:.1f} GiB"


# What a job needs that is installed: Python, Java, PySpark, libraries of the extras.

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


def check_extensions() -> list[Check]:
    """Import each connector and function that installed packages declare, and return what came of it."""
    taken = [*list_name_problems(), *list_function_name_problems()]
    if taken:
        return [Check("Extensions", Status.FAIL, problem.message, problem.hint) for problem in taken]
    return [
        Check.of("Extensions", partial(_load_extension, group, name, package_of(entries[0]))).as_note()
        for group in (SINKS, SOURCES, FUNCTIONS)
        for name, entries in list_entry_points(group).items()
    ]


def _load_extension(group: str, name: str, package: str) -> str:
    if group == FUNCTIONS:
        find_function(name)
    else:
        find_connector(name)
    return f"{name} ({group}), of the package {package}"


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
