"""EXPLAIN of tables with a primary key: what a record does, what is kept, and for how long deletes are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from sqlglot import exp

from watersmeet.names import is_computed
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.explain.durations import duration
from watersmeet.plan.explain.words import Sections, plain
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import UpsertPlan
from watersmeet.spec.changing import PrimaryKey
from watersmeet.spec.model import Expr, Source
from watersmeet.spec.options.changes import DEBEZIUM, UPSERT
from watersmeet.spec.options.kafka import records_of
from watersmeet.spec.records.changes import computed_of_changes


def changes_told(source: Source) -> str | None:
    """How the records of a source tell changes by themselves; None: they do not."""
    if not (source.traits.log or source.traits.files):
        return None
    records = records_of(source.options)
    if records == DEBEZIUM:
        return "as Debezium tells them"
    return "a record without a value deletes the row of its key" if records == UPSERT else None


def key_lines(key: PrimaryKey, *, in_order: bool) -> Iterator[str]:
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


def _asked(expr: Expr) -> Expr:
    """Without what only says for which rows, and that NULL is not TRUE."""
    if isinstance(expr, exp.Case) and expr.args.get("default") is None and len(expr.args["ifs"]) == 1:
        return _asked(expr.args["ifs"][0].args["true"])
    if isinstance(expr, exp.Coalesce) and expr.expressions == [exp.false()]:
        return cast(Expr, expr.this.unnest())
    return expr


def upsert_sections(node: UpsertPlan, _: QueryPlan) -> Sections:
    """What there is to say of it."""
    key, name = node.primary_key, node.side.title
    branch = node.side.sources[0][1]
    made = {column: plain(text_of(_asked(expr))) for column, expr in branch.columns if is_computed(column)}
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
