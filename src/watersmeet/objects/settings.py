"""Settings of a run that say in which store its state is: of objects, or in tables of PostgreSQL.

Credentials of object stores are none of them: those come from the environment of each process
(AWS_ACCESS_KEY_ID and its like, or the machine's role).
"""

from __future__ import annotations

from collections.abc import Mapping

from watersmeet.errors import SpecError
from watersmeet.objects.cache import DEFAULT_BYTES, MIN_BYTES, Cache
from watersmeet.objects.object_store import ObjectLocation, ObjectStore
from watersmeet.objects.postgres_location import TablesPlace, names_tables
from watersmeet.objects.postgres_store import TablesStore
from watersmeet.objects.remote import RemoteStore
from watersmeet.spec.secrets import Secret

STORE, CACHE, ENDPOINT, REGION, ALLOW_HTTP = (
    "state_store",
    "state_cache",
    "state_store_endpoint",
    "state_store_region",
    "state_store_allow_http",
)
STORE_SETTINGS = (STORE, CACHE, ENDPOINT, REGION, ALLOW_HTTP)

_UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


def store_of(settings: Mapping[str, str]) -> RemoteStore | None:
    """Return the store that a run's settings name.

    None: the state is in the checkpoint directory.

    Raises:
        SpecError: the setting does not name a store, a size is invalid, or a store setting is given
            without a store.
    """
    url = settings.get(STORE)
    if url is None:
        for name in STORE_SETTINGS:
            if name in settings:
                raise SpecError(
                    f"{name} is set, but the state is not in an object store",
                    code="bad-setting",
                    hint=f"SET {STORE} = 's3://bucket/prefix', or remove {name}",
                )
        return None
    limit = _bytes(settings.get(CACHE))
    if names_tables(url):
        return _tables(url, settings, limit)
    given = {"endpoint": settings.get(ENDPOINT), "region": settings.get(REGION)}
    options = tuple((name, value) for name, value in given.items() if value is not None)
    allow_http = settings.get(ALLOW_HTTP, "false").strip().lower() in ("true", "1", "yes", "on")
    place = ObjectLocation(url, options, allow_http=allow_http)
    return ObjectStore(place, Cache(place.url, limit) if limit else None)


def store_at(url: str, settings: Mapping[str, str]) -> RemoteStore | None:
    """Return the store at ``url``, without a cache.

    It uses the access ``settings`` if they are for a store of its kind.

    Raises:
        SpecError: as `store_of`.
    """
    is_alike = STORE in settings and names_tables(settings[STORE]) == names_tables(url)
    kept = settings if is_alike else {name: settings[name] for name in settings if name not in STORE_SETTINGS}
    return store_of({**kept, STORE: url, CACHE: "none"})


def _tables(url: str, settings: Mapping[str, str], limit: int) -> TablesStore:
    """Build a PostgreSQL store.

    Raises:
        SpecError: the URL is invalid, or a setting applies to object stores only.
    """
    for name in (ENDPOINT, REGION, ALLOW_HTTP):
        if name in settings:
            raise SpecError(
                f"{name} is set, but the state is in PostgreSQL",
                code="bad-setting",
                hint=f"remove {name}: the URL has all settings",
            )
    place = TablesPlace(Secret(url))
    return TablesStore(place, Cache(place.url, limit) if limit else None)


def _bytes(value: str | None) -> int:
    """Parse a size such as ``1 GB`` or ``512mb``; ``none`` is 0.

    A kilobyte has 1,024 bytes.
    """
    if value is None:
        return DEFAULT_BYTES
    text = value.strip().upper().replace(" ", "")
    if text in ("NONE", "OFF", "0"):
        return 0
    number = text.rstrip("KMGTB")
    unit = text[len(number) :]
    if number.isdecimal() and unit in _UNITS and int(number) * _UNITS[unit] >= MIN_BYTES:
        return int(number) * _UNITS[unit]
    raise SpecError(
        f"{CACHE} = '{value}' is not a valid size",
        code="bad-setting",
        hint="use a size of at least 1 MB, such as '1 GB', or 'none'",
    )
