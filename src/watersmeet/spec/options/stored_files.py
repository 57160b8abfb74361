"""Options of file sinks whose path is in an object store, as far as a text tells."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

from watersmeet.errors import SpecError
from watersmeet.spec.options.lowered import lowered
from watersmeet.spec.options.model import ANY_CASE, Endpoint, SystemOptions, Text
from watersmeet.spec.options.values import wrong_value

STORES = {"s3": "s3", "s3a": "s3", "gs": "gs", "az": "az"}
"""Schemes of paths, and what clients call them."""
_CREDENTIALS = "set credentials in the environment of each process, such as AWS_ACCESS_KEY_ID"
_UNSAFE = re.compile(r"[%?#*\[\]{}\\^`|<>~\x00-\x1f\x7f]|//|/\.{1,2}(/|$)")
"""In a path: what clients, or readers, take for something else."""


class StoredFileOptions(SystemOptions):
    """The options of a file sink whose path is in an object store."""

    credentials = _CREDENTIALS

    path: Text
    format: Text = "parquet"
    compression: Annotated[Literal["snappy", "zstd", "gzip", "none"], ANY_CASE] = "snappy"
    endpoint: Endpoint = ""
    region: Text = ""

    @property
    def url(self) -> str:
        """The path without a slash at its end, by its client's scheme."""
        parts = urlsplit(self.path)
        return f"{STORES[parts.scheme]}://{parts.netloc}{parts.path.rstrip('/')}"


def in_store(path: str) -> bool:
    """Whether the path is one of an object store."""
    return urlsplit(path).scheme in STORES


def parts_in_store(path: str) -> tuple[str, ...]:
    """The bucket, and the names between slashes, of a path that is `in_store`; one tuple for one place."""
    parts = urlsplit(path)
    return (f"{STORES[parts.scheme]}://{parts.netloc}", *filter(None, parts.path.split("/")))


def stored_problems(what: str, options: Mapping[str, str]) -> Iterator[SpecError]:
    """What is wrong with the options of a file sink, ``what`` in words, whose path is `in_store`."""
    yield from StoredFileOptions.problems(what, options, where=" for an object store")
    given = lowered(options)
    if given.get("format", "parquet").strip().lower() in ("json", "csv"):
        yield SpecError(
            f'{what} writes Parquet to an object store, not "{given["format"].strip()}"',
            code="format-not-supported",
            hint="remove 'format', or write to a directory",
        )
    path, region = given["path"].strip(), given.get("region", "").strip()
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
    if region and STORES[parts.scheme] != "s3":
        yield wrong_value(what, "region", region, "remove it: it is for S3 only")
