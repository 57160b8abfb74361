"""Options of sinks that are tables of Delta or Iceberg, as far as a text tells. Each check returns all
that it finds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from urllib.parse import urlsplit

from watersmeet.errors import SpecError, near_names
from watersmeet.spec.model import Sink
from watersmeet.spec.options.files import local_path, path_of
from watersmeet.spec.options.values import wrong_value
from watersmeet.spec.secrets import public

BEGINS_AFTER = "begins_after_tick"
"""The last tick of which, and of those before it, rows are elsewhere."""
DELTA = ("path", "endpoint", "region", BEGINS_AFTER)
_PATH = "'path' = 'tables/delivered'"
CATALOG = "catalog."
"""Options that begin so are the catalog's, by its own names."""
_TABLE = "'table' = 'shop.delivered'"
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


def delta_problems(sink: Sink) -> list[SpecError]:
    """What is wrong with the options of a Delta sink."""
    what = f'delta sink "{sink.name}"'
    problems = [
        SpecError(
            f'{what} has no option "{name}"',
            code="unknown-option",
            hint=_no_secret(name) or near_names(name, DELTA),
        )
        for name in sink.options
        if name.lower() not in DELTA
    ]
    path = path_of(sink.options)
    if not path:
        problems.append(
            SpecError(
                f'{what} needs the option "path"', code="missing-option", hint="'path' = 'tables/delivered'"
            )
        )
    problems += _place_problems(what, path, sink.options)
    problems += _begin_problems(what, sink.options)
    return problems


def iceberg_problems(sink: Sink) -> list[SpecError]:
    """What is wrong with the options of an Iceberg sink."""
    what = f'iceberg sink "{sink.name}"'
    problems = []
    for name in sink.options:
        if name.lower() in ("table", BEGINS_AFTER) or (name.startswith(CATALOG) and name != CATALOG):
            hint = _CREDENTIALS if _OF_STORES.match(name) else None
        else:
            hint = near_names(name, ["table", BEGINS_AFTER, *_OF_CATALOGS])
        if hint is not None:
            problems.append(SpecError(f'{what} has no option "{name}"', code="unknown-option", hint=hint))
    problems += _begin_problems(what, sink.options)
    table = table_name(sink.options)
    if not table:
        problems.append(
            SpecError(
                f'{what} needs the option "table"', code="missing-option", hint="'table' = 'shop.delivered'"
            )
        )
    elif not all(table.split(".")) or "." not in table:
        hint = "use a namespace and a name: 'table' = 'shop.delivered'"
        problems.append(wrong_value(what, "table", table, hint))
    if not any(name.startswith(CATALOG) for name in sink.options):
        problems.append(
            SpecError(
                f"{what} needs a catalog",
                code="missing-option",
                hint="'catalog.type' = 'rest', 'catalog.uri' = 'https://…', for example",
            )
        )
    return problems


def table_name(options: Mapping[str, str]) -> str:
    """The option 'table'; empty without one."""
    return next((value.strip() for name, value in options.items() if name.lower() == "table"), "")


def begins_after(options: Mapping[str, str]) -> int:
    """The option `BEGINS_AFTER`; 0 without one."""
    return int(next((value for name, value in options.items() if name.lower() == BEGINS_AFTER), "0"))


def _begin_problems(what: str, options: Mapping[str, str]) -> Iterator[SpecError]:
    for name, value in options.items():
        if name.lower() == BEGINS_AFTER and not re.fullmatch("[0-9]{1,12}", value):
            hint = f"use the number of the last tick whose rows are elsewhere: '{BEGINS_AFTER}' = '5'"
            yield wrong_value(what, BEGINS_AFTER, value, hint)


def catalog_options(options: Mapping[str, str]) -> dict[str, str]:
    """Those of the catalog, by its own names."""
    return {name.removeprefix(CATALOG): str(v) for name, v in options.items() if name.startswith(CATALOG)}


def place_options(options: Mapping[str, str]) -> tuple[str, str]:
    """Endpoint and region of S3; empty without."""
    lowered = {name.lower(): value.strip() for name, value in options.items()}
    return lowered.get("endpoint", ""), lowered.get("region", "")


def library(module: str, extra: str, sink: Sink) -> None:
    """Raises: SpecError if the library that a sink needs is not installed."""
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
    endpoint, region = place_options(options)
    if endpoint and (urlsplit(endpoint).scheme not in ("http", "https") or "@" in urlsplit(endpoint).netloc):
        hint = "use the URL of an S3 server, such as 'http://localhost:9000'"
        yield wrong_value(what, "endpoint", public("url", endpoint), hint)
    if (endpoint or region) and path and not is_s3:
        yield SpecError(
            f"{what} has an S3 'endpoint' or 'region', but its 'path' is not in S3",
            code="wrong-option",
            hint="use 'path' = 's3://bucket/table', or remove 'endpoint' and 'region'",
        )


def _no_secret(name: str) -> str | None:
    if public(name, "x") == "x" and "key" not in name.lower():
        return None
    return _CREDENTIALS
