"""EXPLAIN of a join with a table as of the tick: where the table is, what is asked of it, when it is read."""

from __future__ import annotations

from watersmeet.plan.explain.bands import band_lines
from watersmeet.plan.explain.durations import duration
from watersmeet.plan.explain.joins import key_lines, residual_line
from watersmeet.plan.explain.words import Sections
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import LookupPlan
from watersmeet.spec.model import JoinKind, Source


def lookup_sections(join: LookupPlan, _: QueryPlan) -> Sections:
    """What there is to say of it."""
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
    """The connector, and where the table is as far as that may be shown."""
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
