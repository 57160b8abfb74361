"""The names that the engine gives to columns of its own, beside those of users: all begin with `OURS`, and no
name of a user's may. And the few names that belong to a format users see.

Which of them there are, each module says where it makes them: ``SLOT = ours("slot")``.
"""

from __future__ import annotations

import re

OURS = "__ws_"

_NODE = re.compile(r"#[0-9]+")


def ours(what: str) -> str:
    """A name that no user's column has."""
    return OURS + what


def is_ours(name: str) -> bool:
    """Whether `ours` may have made ``name``; in any case, since Spark tells no cases apart."""
    return name[: len(OURS)].lower() == OURS


def is_computed(name: str) -> bool:
    """Whether ``name`` is one of ours, or one of ours of an input (``alias.column``)."""
    return is_ours(name) or f".{OURS}" in name


def format_column_name(name: str) -> str:
    """A column's name for people."""
    return name.replace(OURS, "#", 1) if is_computed(name) else name


def node_alias(number: int) -> str:
    """What rows of a query's node are called where inputs have aliases; ``number``: from 0."""
    return f"#{number + 1}"


def copy_name(alias: str, number: int) -> str:
    """What the ``number``-th way of holding the rows of an input is called, from the second on."""
    return ours(f"copy{number}.{alias}")


def input_of(name: str) -> str:
    """The alias of the input whose rows are held under a name, that of `copy_name` or the input's own."""
    return name.partition(".")[2] if name.startswith(ours("copy")) else name


def index_query(index: str) -> str:
    """The name by which an index is one of the queries of a job."""
    return f"index {index}"


def format_query_name(query: str) -> str:
    """What messages call a query of a job: an INSERT by the name of its sink, or an index."""
    index = query.removeprefix(index_query(""))
    return f'query "{query}"' if index == query else f'index "{index}"'


def is_node_alias(alias: str) -> bool:
    """No alias of a user's is one."""
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
