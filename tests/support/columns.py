"""Columns for tests, with their types as people write them."""

from __future__ import annotations

from watersmeet.spec.model import Column
from watersmeet.types.parser import sql_type


def column(name: str, type_: str) -> Column:
    return Column(name, sql_type(type_))
