"""Stores of state in tables of PostgreSQL, for tests."""

from __future__ import annotations

import itertools
from typing import Any

from watersmeet.objects.postgres_location import TablesPlace
from watersmeet.objects.postgres_store import TablesStore
from watersmeet.spec.secrets import Secret

_NUMBER = itertools.count(1)


def new_pipeline() -> str:
    """A name that no other test has."""
    return f"pipeline-{next(_NUMBER)}"


def tables_at(url: str, pipeline: str, **place: Any) -> TablesStore:
    """A store there, which waits for little."""
    return TablesStore(TablesPlace(Secret(f"{url}?pipeline={pipeline}"), **{"patience_s": 20.0} | place))
