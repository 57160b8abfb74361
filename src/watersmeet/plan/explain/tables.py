"""EXPLAIN of tables: lookups, primary keys, snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from sqlglot import exp

from watersmeet.names import is_computed
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.explain.joins import band_lines, key_lines, residual_line
from watersmeet.plan.explain.wording import Sections, duration, plain
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import LookupPlan, SnapshotPlan, UpsertPlan
from watersmeet.spec.change_kinds import PrimaryKey
from watersmeet.spec.model import Expr, JoinKind, Source
from watersmeet.spec.options.changes import DEBEZIUM, UPSERT
from watersmeet.spec.options.kafka import records_of
from watersmeet.spec.records.changes import computed_of_changes

# EXPLAIN of a join with a table as of the tick: where the table is, what is asked of it, when it is read.


def lookup_sections(join: LookupPlan, _: QueryPlan) -> Sections:
    """Return the sections of a look-up in a table."""
    alias, source = join.table.name, join.source
    conditions = [f"{name}: {text}" for name, text in (*join.one_sided, *join.filters)]
    return [
        (
            "Table",
            [
                f"{alias}: {source.name} ({place_of(source)})",
                f"as it is in the tick in which the row of {join.left.title} comes, not as it was at an event"
                " time",
                _reading(source),
            ],
        ),
        ("Keys", list(key_lines(join)) or ["none: each row is compared with all rows of the table"]),
        ("Bands", list(band_lines(join))),
        (
            "Retention",
            [f"{join.left.title}: not at all: {_fate(join)} in the tick in which it comes"],
        ),
        ("Conditions on one input", conditions),
        (
            "Checked on each candidate pair",
            [] if join.residual is None else [residual_line(join)],
        ),
        ("Columns of the table that are copied", [", ".join(join.table.kept)]),
        (
            "Task partitions",
            ["by ranges of the key's hash" if join.keys else "each task looks its share of the rows up"],
        ),
    ]


def place_of(source: Source) -> str:
    """Return the connector and, as far as it may be shown, the location of the table."""
    named = {name.lower(): value for name, value in source.options.items()}
    where = next((named[name] for name in ("path", "dbtable") if name in named), None)
    return source.connector if where is None else f"{source.connector} {where}"


def _reading(source: Source) -> str:
    if source.traits.snapshot:
        default = f"{(source.traits.refresh_us or 0) // 1_000_000} s"
        every = default if source.refresh_us is None else duration(source.refresh_us)
        return f"reread after {every}, when a row arrives"
    if source.refresh_us is None:
        return "reread if it has changed, when a row arrives"
    return f"checked after {duration(source.refresh_us)}, when a row arrives; reread if it has changed"


def _fate(join: LookupPlan) -> str:
    fates = {
        JoinKind.INNER: "it is emitted with each matching row, or dropped,",
        JoinKind.LEFT: "it is emitted with each matching row, or with NULLs,",
        JoinKind.SEMI: "it is emitted if it matches a row, or dropped,",
        JoinKind.ANTI: "it is emitted if it matches no row, or dropped,",
    }
    return fates[join.kind]


# EXPLAIN of tables with a primary key: what a record does, what is kept, and for how long deletes are.


def describe_changes(source: Source) -> str | None:
    """Describe how the records of a source express changes.

    Returns:
        None if they express no changes.
    """
    if not (source.traits.log or source.traits.files):
        return None
    records = records_of(source.options)
    if records == DEBEZIUM:
        return "as Debezium tells them"
    return "a record without a value deletes the row of its key" if records == UPSERT else None


def primary_key_lines(key: PrimaryKey, *, in_order: bool) -> Iterator[str]:
    yield f"primary key: {', '.join(key.columns)}; a record takes the place of its key's row"
    if key.sequence is None:
        yield "of the records of a key the last one counts"
        return
    yield f"sequence: {key.sequence}; a record with a lesser one than its key has had is dropped (stale)"
    if not in_order:
        yield "of equal ones in a tick one counts: a row before a delete, of rows the greatest by its columns"


def computed_lines(source: Source) -> Iterator[str]:
    """Yield what is computed of records to tell which change each is."""
    computed = [f"{own.column.name} AS {text_of(own.expr)}" for own in computed_of_changes(source)]
    if computed:
        yield f"computed of its records: {plain(', '.join(computed))}"


def _strip_guards(expr: Expr) -> Expr:
    """Strip the parts of an expression that only select its rows or turn NULL into FALSE."""
    if isinstance(expr, exp.Case) and expr.args.get("default") is None and len(expr.args["ifs"]) == 1:
        return _strip_guards(expr.args["ifs"][0].args["true"])
    if isinstance(expr, exp.Coalesce) and expr.expressions == [exp.false()]:
        return cast(Expr, expr.this.unnest())
    return expr


def upsert_sections(node: UpsertPlan, _: QueryPlan) -> Sections:
    """Return the sections of an upsert."""
    key, name = node.primary_key, node.side.title
    branch = node.side.sources[0][1]
    made = {
        column: plain(text_of(_strip_guards(expr))) for column, expr in branch.columns if is_computed(column)
    }
    columns = ", ".join(made.get(column, column) for column in node.side.kept)
    kept = [f"{name}: one row per key ({columns}), until it is deleted"]
    if key.sequence is not None and key.tombstones_us is not None:
        kept.append(
            f"{name}: of a deleted one {', '.join(key.named)}, for {duration(key.tombstones_us)} by the clock"
        )
    elif key.sequence is not None:
        kept.append(f"{name}: nothing of deleted ones: an older change that comes later brings the row back")
    return [
        ("Retention", kept),
        ("Task partitions", ["by ranges of the key's hash"]),
    ]


# EXPLAIN of tables that are compared with what they held before: how often, by what, and what is kept.


def compared_lines(source: Source) -> Iterator[str]:
    """Yield how changes are found in a source that is compared with its former contents."""
    every_us = source.traits.refresh_us if source.refresh_us is None else source.refresh_us
    how_often = f"every {duration(every_us)}" if every_us else "in every tick"
    yield f"changes: what it held before is compared with what it holds, looked at {how_often}"
    if source.primary_key is None:
        yield "by whole rows, each as often as it is there"
        return
    yield f"primary key: {', '.join(source.primary_key.columns)}; one row of a key, others are broken"
    yield from computed_lines(source)


def snapshot_sections(node: SnapshotPlan, _: QueryPlan) -> Sections:
    """Return the sections of a snapshot."""
    name, key = node.side.title, node.primary_key
    columns = ", ".join(node.side.kept)
    by = "a row's hash" if key is None else "the key's hash"
    return [
        ("Retention", [f"{name}: all its rows ({columns}), as they were read last"]),
        ("Task partitions", [f"by ranges of {by}"]),
    ]
