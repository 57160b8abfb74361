"""The options of the connectors."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field

from watersmeet.extensions import STATED, Options, SinkDeclaration


class SqliteOptions(Options):
    """Options of a SQLite sink: the database's file, its table, and how long to wait for other writers."""

    path: Annotated[str, STATED, Field(examples=["shop.db"])]
    table: Annotated[str, STATED, Field(examples=["delivered"], pattern="^[A-Za-z_][A-Za-z0-9_]*$")]
    timeout_s: Annotated[int, Field(ge=1, le=3600)] = 60


class RampOptions(Options):
    """Options of a source that counts: the rows of each tick."""

    step: Annotated[int, Field(ge=1, le=1000)] = 2


def read_hint(sink: SinkDeclaration) -> str:
    """Return the command that reads the table."""
    options = SqliteOptions.of(sink.options)
    return f"sqlite3 {json.dumps(options.path)} 'SELECT * FROM {options.table}'"
