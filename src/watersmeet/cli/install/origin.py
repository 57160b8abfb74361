"""Where the installed watersmeet came from, as pip records it, so that others can install the same."""

from __future__ import annotations

import json
import shlex
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any
from urllib.parse import unquote, urlsplit

NAME = "watersmeet"
_RECORD = "direct_url.json"
"""https://packaging.python.org/en/latest/specifications/direct-url/"""


def requirement(extras: str = "") -> str:
    """Return the line of a requirements file that installs this watersmeet again.

    What came from a repository is pinned to its commit. Without a record an index or a folder of wheels had
    it, and has it again.

    Args:
        extras: names, separated by commas.
    """
    return requirement_of(_record(), _version(), extras)


def requirement_of(record: dict[str, Any] | None, version: str | None, extras: str) -> str:
    """Return that line for a record of pip and a version; None: there is no such record or version."""
    name = f"{NAME}[{extras}]" if extras else NAME
    if record is None:
        return name if version is None else f"{name}=={version}"
    url = str(record["url"])
    if record.get("dir_info", {}).get("editable"):  # or pip puts a copy in the place of the link to the clone
        path = unquote(urlsplit(url).path)
        return f"-e {shlex.quote(f'{path}[{extras}]' if extras else path)}"
    repository = record.get("vcs_info")
    if repository is not None:
        url = url.replace("file:///", "file://localhost/")  # pip below 24 asks for a host there
        url = f"{repository['vcs']}+{url}@{repository['commit_id']}"
    if "subdirectory" in record:
        url += f"#subdirectory={record['subdirectory']}"
    return f"{name} @ {url}"


def describe_origin() -> str:
    """Describe where this watersmeet was installed from."""
    record, version = _record(), _version()
    if version is None:
        return "from its sources, not installed"
    if record is None:
        return "from an index"
    is_link = record.get("dir_info", {}).get("editable")
    return f"from {record['url']}" + (", editable" if is_link else "")


def _record() -> dict[str, Any] | None:
    try:
        text = distribution(NAME).read_text(_RECORD)
    except PackageNotFoundError:
        return None
    record: dict[str, Any] | None = json.loads(text) if text else None
    return record


def _version() -> str | None:
    try:
        return distribution(NAME).version
    except PackageNotFoundError:
        return None
