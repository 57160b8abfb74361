"""Options of file sinks whose path is in an object store, as far as a text tells."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from watersmeet.errors import SpecError, near_names
from watersmeet.spec.options.values import wrong_value
from watersmeet.spec.secrets import public

STORES = {"s3": "s3", "s3a": "s3", "gs": "gs", "az": "az"}
"""Schemes of paths, and what clients call them."""
OPTIONS = ("path", "format", "compression", "endpoint", "region")
COMPRESSIONS = ("snappy", "zstd", "gzip", "none")
_CREDENTIALS = "set credentials in the environment of each process, such as AWS_ACCESS_KEY_ID"
_UNSAFE = re.compile(r"[%?#*\[\]{}\\^`|<>~\x00-\x1f\x7f]|//|/\.{1,2}(/|$)")
"""In a path: what clients, or readers, take for something else."""


def in_store(path: str) -> bool:
    """Whether the path is one of an object store."""
    return urlsplit(path).scheme in STORES


def parts_in_store(path: str) -> tuple[str, ...]:
    """The bucket, and the names between slashes, of a path that is `in_store`; one tuple for one place."""
    parts = urlsplit(path)
    return (f"{STORES[parts.scheme]}://{parts.netloc}", *filter(None, parts.path.split("/")))


def place_of(options: Mapping[str, str]) -> tuple[str, str, str]:
    """The path without a slash at its end and by its client's scheme, the endpoint and the region; empty
    without."""
    given = {name.lower(): value.strip() for name, value in options.items()}
    parts = urlsplit(given["path"])
    path = f"{STORES[parts.scheme]}://{parts.netloc}{parts.path.rstrip('/')}"
    return path, given.get("endpoint", ""), given.get("region", "")


def compression_of(options: Mapping[str, str]) -> str:
    """The option 'compression' in lower case."""
    given = {name.lower(): value.strip().lower() for name, value in options.items()}
    return given.get("compression", COMPRESSIONS[0])


def stored_problems(what: str, options: Mapping[str, str]) -> Iterator[SpecError]:
    """What is wrong with the options of a file sink, ``what`` in words, whose path is `in_store`."""
    given = {name.lower(): value.strip() for name, value in options.items()}
    for name, value in options.items():
        if name.lower() not in OPTIONS:
            is_secret = "key" in name.lower() or public(name, "x") != "x"
            yield SpecError(
                f'{what} has no option "{name}" for an object store',
                code="unknown-option",
                hint=_CREDENTIALS if is_secret else near_names(name, OPTIONS),
            )
        elif name.lower() == "compression" and value.strip().lower() not in COMPRESSIONS:
            yield wrong_value(what, name, value, f"it can be {', '.join(COMPRESSIONS)}")
    if given.get("format", "parquet").lower() in ("json", "csv"):
        yield SpecError(
            f'{what} writes Parquet to an object store, not "{given["format"]}"',
            code="format-not-supported",
            hint="remove 'format', or write to a directory",
        )
    path, endpoint, region = given["path"], given.get("endpoint", ""), given.get("region", "")
    parts = urlsplit(path)
    if not parts.netloc or "@" in parts.netloc or not parts.path.strip("/"):
        yield SpecError(
            f"{what}: 'path' must name a directory inside a bucket",
            code="wrong-option",
            hint=f"for example 'path' = '{parts.scheme}://bucket/delivered'; {_CREDENTIALS}",
        )
    elif _UNSAFE.search(path.split("://", 1)[1].rstrip("/")):
        yield SpecError(
            f"{what}: 'path' contains characters that object stores interpret differently",
            code="wrong-option",
            hint="use only letters, digits, spaces and - _ . = ! between single slashes",
        )
    if endpoint and (urlsplit(endpoint).scheme not in ("http", "https") or "@" in urlsplit(endpoint).netloc):
        hint = "use the URL of an S3 server, such as 'http://localhost:9000'"
        yield wrong_value(what, "endpoint", public("url", endpoint), hint)
    if region and STORES[parts.scheme] != "s3":
        yield wrong_value(what, "region", region, "remove it: it is for S3 only")
