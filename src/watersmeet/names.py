"""Names of the columns that the engine adds to those of users.

All begin with `OURS`; a user's name must not. Each module defines its own: ``SLOT = ours("slot")``. A few
other names here belong to a format that users see.
"""

from __future__ import annotations

import re

OURS = "__ws_"

_NODE = re.compile(r"#[0-9]+")


def ours(what: str) -> str:
    """Build a reserved name, which no user's column has."""
    return OURS + what


def is_ours(name: str) -> bool:
    """Return True if `ours` may have built ``name``, in any case: Spark ignores case."""
    return name[: len(OURS)].lower() == OURS


def is_computed(name: str) -> bool:
    """Return True if ``name`` is reserved, or a reserved name of an input (``alias.column``)."""
    return is_ours(name) or f".{OURS}" in name


def format_column_name(name: str) -> str:
    """Format a column's name for people."""
    return name.replace(OURS, "#", 1) if is_computed(name) else name


def node_alias(number: int) -> str:
    """Return the alias of a query node's rows; ``number`` counts from 0.

    It stands where inputs have their aliases.
    """
    return f"#{number + 1}"


def copy_name(alias: str, number: int) -> str:
    """Return the name of the ``number``-th copy of an input's rows in another layout.

    The first layout has the input's own name.
    """
    return ours(f"copy{number}.{alias}")


def input_of(name: str) -> str:
    """Return the alias of the input for a name from `copy_name` or the input's own name."""
    return name.partition(".")[2] if name.startswith(ours("copy")) else name


def index_query(index: str) -> str:
    """Return the name of an index as one of the queries of a job."""
    return f"index {index}"


def format_query_name(query: str) -> str:
    """Format the name of a job's query for messages: an INSERT by its sink's name, or an index."""
    index = query.removeprefix(index_query(""))
    return f'query "{query}"' if index == query else f'index "{index}"'


def is_node_alias(alias: str) -> bool:
    """Return True if ``alias`` is the alias of a node; no user's alias is one."""
    return _NODE.fullmatch(alias) is not None


FLAG = ours("flag")
"""What a row of an input is worth, see `spec.flags`."""

PARTITION = ours("partition")
"""The source partition that a row came from."""

DIFF = ours("diff")
"""+1 or −1: how often a row is inserted."""

ROW = ours("row")
"""The number of a row of a case that is played on Spark."""

TICK = ours("tick")
"""The number of the tick that a row went out with."""

KEY_ROWS = ours("key_rows")
"""How many rows a result has of a key of its sink."""

DELETED = ours("deleted")
"""Whether a key of a sink has no row any more."""

SHOWN_DIFF = "_diff"
"""`DIFF` where users see it: in results of output_mode changelog."""

SHOWN_TICK = "_tick"
"""`TICK`, beside it."""

CHANGE_COLUMNS = (SHOWN_DIFF, SHOWN_TICK)
"""What results of output_mode changelog have behind the query's own columns, in this order; both BIGINT."""

CASE_PARTITION = "_partition"
"""`PARTITION` of a row in case files."""
