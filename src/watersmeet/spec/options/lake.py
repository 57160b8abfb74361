"""Check the options of Delta and Iceberg sinks, as far as the job's text allows.

Each check returns all problems.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field

from watersmeet.errors import SpecError
from watersmeet.spec.model import Sink
from watersmeet.spec.options.files import local_path, path_of
from watersmeet.spec.options.model import STATED, Endpoint, SystemOptions, Text, TickNumber
from watersmeet.spec.options.values import lower_names

CATALOG = "catalog."
"""Options that begin so are the catalog's, by its own names."""
_OF_CATALOGS = (
    "catalog.type",
    "catalog.uri",
    "catalog.warehouse",
    "catalog.s3.endpoint",
    "catalog.s3.region",
)
"""Some of them, for hints."""
_OF_STORES = re.compile(
    r"catalog\.(s3\.(access-key|secret|session)|client\.(access-key|secret|session)|adls|gcs)"
)
"""Options with which tasks would need credentials."""
_CREDENTIALS = "set credentials in the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, …)"
_S3 = ("s3", "s3a")


class DeltaOptions(SystemOptions):
    """The options of a Delta sink."""

    credentials = _CREDENTIALS

    path: Annotated[str, BeforeValidator(str.strip), STATED] = Field(examples=["tables/delivered"])
    endpoint: Endpoint = ""
    region: Text = ""
    begins_after_tick: TickNumber = 0
    """The last tick of which, and of those before it, rows are elsewhere."""


def _read_table_name(written: str) -> str:
    name = written.strip()
    if not all(name.split(".")) or "." not in name:
        raise ValueError("use a namespace and a name: 'table' = 'shop.delivered'")
    return name


class IcebergOptions(SystemOptions):
    """The options of an Iceberg sink, but for its catalog's."""

    prefix = CATALOG

    table: Annotated[str, BeforeValidator(_read_table_name), STATED] = Field(examples=["shop.delivered"])
    begins_after_tick: TickNumber = 0
    """The last tick of which, and of those before it, rows are elsewhere."""


def delta_problems(sink: Sink) -> list[SpecError]:
    """Return problems of the options of a Delta sink."""
    what = f'delta sink "{sink.name}"'
    places = _place_problems(what, path_of(sink.options), sink.options)
    return [*DeltaOptions.problems(what, sink.options), *places]


def iceberg_problems(sink: Sink) -> list[SpecError]:
    """Return problems of the options of an Iceberg sink."""
    what = f'iceberg sink "{sink.name}"'
    problems = [*IcebergOptions.problems(what, sink.options, others=_OF_CATALOGS)]
    problems += (
        SpecError(f'{what} has no option "{name}"', code="unknown-option", hint=_CREDENTIALS)
        for name in filter(_OF_STORES.match, sink.options)
    )
    if not any(name.startswith(CATALOG) for name in sink.options):
        hint = "'catalog.type' = 'rest', 'catalog.uri' = 'https://…', for example"
        problems.append(SpecError(f"{what} needs a catalog", code="missing-option", hint=hint))
    return problems


def catalog_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of the catalog, by the catalog's names."""
    return {name.removeprefix(CATALOG): str(v) for name, v in options.items() if name.startswith(CATALOG)}


def library(module: str, extra: str, sink: Sink) -> None:
    """Check that the library that a sink needs is installed.

    Raises:
        SpecError: the library is not installed.
    """
    if find_spec(module) is None:
        raise SpecError(
            f'the {extra} sink "{sink.name}" needs the library {module}, which is not installed',
            code="missing-library",
            hint=f"pip install 'watersmeet[{extra}]'",
        )


def _place_problems(what: str, path: str, options: Mapping[str, str]) -> Iterator[SpecError]:
    scheme = urlsplit(path).scheme
    is_s3 = scheme in _S3
    if path and not is_s3 and local_path(path) is None:
        yield SpecError(
            f'{what} can write to local directories and S3, not to "{scheme}:"',
            code="file-system-not-supported",
            hint="use 'path' = 's3://bucket/table', and 'endpoint' = 'https://…' if the S3 server is"
            " not Amazon's",
        )
    if is_s3 and (
        not urlsplit(path).netloc or "@" in urlsplit(path).netloc or not urlsplit(path).path.strip("/")
    ):
        yield SpecError(
            f"{what}: 'path' must name a table inside a bucket",
            code="wrong-option",
            hint="for example 'path' = 's3://bucket/table', with the credentials in the environment",
        )
    if is_s3 and set(path) & set("%?#"):
        yield SpecError(
            f"{what}: 'path' contains % ? or #, which S3 libraries interpret differently",
            code="wrong-option",
            hint="use another name for the table",
        )
    given = lower_names(options)
    endpoint, region = (given.get(name, "").strip() for name in ("endpoint", "region"))
    if (endpoint or region) and path and not is_s3:
        yield SpecError(
            f"{what} has an S3 'endpoint' or 'region', but its 'path' is not in S3",
            code="wrong-option",
            hint="use 'path' = 's3://bucket/table', or remove 'endpoint' and 'region'",
        )
