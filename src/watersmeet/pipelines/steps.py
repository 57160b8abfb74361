"""The steps of a pipeline: rows of relations, joined, looked up in tables, grouped by windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from sqlglot import exp

from watersmeet.errors import SpecError, near_names
from watersmeet.pipelines.lengths import in_units, is_less
from watersmeet.pipelines.model import Join, Lookup, Window
from watersmeet.pipelines.problems import Key
from watersmeet.pipelines.rules import collision
from watersmeet.pipelines.told import Told
from watersmeet.relations.columns import column_of, named, tree_of
from watersmeet.relations.fragments import read_fragment
from watersmeet.relations.relation import Relation
from watersmeet.relations.terms import Length, hop, length_node, session, tumble
from watersmeet.spec.model import WINDOW_END, WINDOW_START
from watersmeet.types.sql_type import INTEGERS, SqlType


def joined(
    told: Told, key: Key, join: Join, names: tuple[str, str], relations: Mapping[str, Relation]
) -> Relation | None:
    """The pairs, and pads. ``names``: of both sources, as they are spelled. None: something is wrong, and
    told."""
    both = [relations[name.lower()].alias(name) for name in names]
    columns = [{column.name: column for column in rows.columns} for rows in both]
    sides = ("left", "right")

    def spelled(side: int, name: str, where: str) -> str:
        """The column as it is spelled."""
        own = next((column for column in columns[side] if column.lower() == name.lower()), None)
        if own is None:
            told.problem(
                (*key, where),
                f'"{names[side]}" has no column "{name}"',
                "unknown-column",
                near_names(name, columns[side]),
            )
        return own or name

    keys = [
        [spelled(side, name, f"{sides[side]}_keys") for name in given]
        for side, given in enumerate((join.left_keys, join.right_keys))
    ]
    times = [spelled(side, time, _time_key(join, sides[side])) for side, time in enumerate(join.event_times)]
    chosen = [
        list(columns[side])
        if asked is None
        else [spelled(side, n, f"output_{sides[side]}_columns") for n in asked]
        for side, asked in enumerate((join.output_left_columns, join.output_right_columns))
    ]
    outputs = _outputs(told, key, join, names, chosen)
    if told.errors:
        return None
    types = [columns[side][times[side]].type for side in (0, 1)]
    if (types[0] in INTEGERS) != (types[1] in INTEGERS):
        told.problem(
            (*key, _time_key(join, "right")),
            f'"{names[0]}.{times[0]}" is {types[0]} and "{names[1]}.{times[1]}" is {types[1]}: one is'
            " epoch milliseconds, the other is not",
            "mixed-times",
            "a source's query makes them alike: SELECT …,"
            f" timestamp_millis({times[types[1] in INTEGERS]}) AS …",
        )
        return None
    first, second = (tree_of(time, name) for time, name in zip(times, names, strict=True))
    equal = [
        exp.EQ(this=tree_of(one, names[0]), expression=tree_of(other, names[1]))
        for one, other in zip(*keys, strict=True)
    ]
    with told.at(key):
        low, high = (_moved(first, delta, types[0]) for delta in join.deltas)
        within = exp.Between(this=second, low=low, high=high)
        return both[0].join(both[1], on=[*equal, within], how=join.how).select(*outputs)
    return None


def _outputs(
    told: Told, key: Key, join: Join, names: Sequence[str], chosen: Sequence[Sequence[str]]
) -> list[exp.Expression]:
    seen: set[str] = set()
    outputs: list[exp.Expression] = []
    prefixes = (join.left_column_prefix, join.right_column_prefix)
    for side, prefix, columns in zip((0, 1), prefixes, chosen, strict=True):
        for column in columns:
            name = f"{prefix}{column}"
            if name.lower() in seen:
                where = "output_right_columns" if side else "output_left_columns"
                told.problems([collision((*key, where), name)])
            seen.add(name.lower())
            outputs.append(named(tree_of(column, names[side]), name))
    return outputs


def looked_up(
    rows: Relation, alias: str, name: str, lookup: Lookup, relations: Mapping[str, Relation]
) -> Relation:
    """The rows, with columns of the table. ``alias``, ``name``: by which both are known in the condition, the
    rows by another one where these are the same.

    Raises: SpecError, where columns are not there, or would come twice.
    """
    table = relations[lookup.source.lower()]
    alias = f"{alias}_" if alias.lower() == name.lower() else alias
    own, its = (
        {column.name.lower(): column.name for column in columns} for columns in (rows.columns, table.columns)
    )
    for wanted, there, of in (
        *((column, own, "the rows have") for column in lookup.keys),
        *(
            (column, its, f'"{lookup.source}" has')
            for column in (*lookup.keys.values(), *(lookup.columns or ()))
        ),
    ):
        if wanted.lower() not in there:
            raise SpecError(
                f'{of} no column "{wanted}"',
                code="unknown-column",
                hint=near_names(wanted, there.values()),
            )
    on: list[exp.Expression] = [
        exp.EQ(this=tree_of(own[key.lower()], alias), expression=tree_of(its[column.lower()], name))
        for key, column in lookup.keys.items()
    ]
    added = (
        [its[column.lower()] for column in lookup.columns]
        if lookup.columns is not None
        else list(its.values())
    )
    outputs = [
        *(named(tree_of(column, alias), column) for column in own.values()),
        *(named(tree_of(column, name), f"{lookup.column_prefix}{column}") for column in added),
    ]
    names = [output.alias.lower() for output in outputs]
    twice = next((output.alias for output in outputs if names.count(output.alias.lower()) > 1), None)
    if twice is not None:
        raise SpecError(
            f'two columns of the result would be named "{twice}"',
            code="duplicate-column",
            hint="use column_prefix to rename the table's columns, or columns to select some",
        )
    return rows.alias(alias).join(table.alias(name).as_of(), on=on, how=lookup.how).select(*outputs)


def windowed(told: Told, key: Key, rows: Relation, window: Window) -> Relation:
    """A row per window and key; the rows as they are where something is wrong, and told."""
    time = column_of(rows, window.event_time_column)
    if time is None:
        raise SpecError(
            f'the rows have no column "{window.event_time_column}", by which the window groups them',
            code="unknown-column",
            hint=near_names(window.event_time_column, [column.name for column in rows.columns]),
        )

    def length(given: timedelta | int | None) -> Length:
        assert given is not None  # `rules`
        return in_units(given, time.type)

    by = tree_of(time.name)
    if window.kind == "hop":
        made = hop(by, length(window.size), length(window.slide))
    elif window.kind == "session":
        made = session(by, length(window.gap))
    else:
        made = tumble(by, length(window.size))
    keys: list[exp.Expression] = []
    for name in window.group_by:
        column = column_of(rows, name)
        if column is None:
            hint = near_names(name, [other.name for other in rows.columns])
            message = f'the rows have no column "{name}"'
            told.problem((*key, "group_by"), message, "unknown-column", hint)
        elif name.lower() in (WINDOW_START, WINDOW_END):  # by that name the group has the window's
            hint = "a source's query gives it another name"
            told.problem((*key, "group_by"), f'"{name}" is that of the window', "duplicate-column", hint)
        else:
            keys.append(tree_of(column.name))
    grouped = rows.group_by(made, *keys)
    grouped.agg(named(exp.Count(this=exp.Star()), "n"))  # the window, without any aggregate of the pipeline's
    aggregates: list[exp.Expression] = []
    taken = {WINDOW_START, WINDOW_END, *(name.lower() for name in window.group_by)}
    for name, text in window.aggregates.items():
        if name.lower() in taken:
            told.problems([collision((*key, "aggregates", name), name)])
        taken.add(name.lower())
        with told.at((*key, "aggregates", name)):
            aggregate = named(_read(text), name)
            if len(keys) == len(window.group_by):  # else a key that is missing would be told again
                grouped.agg(aggregate.copy())  # by itself: what is wrong is told with its key
            aggregates.append(aggregate)
    if told.errors:
        return rows
    return grouped.agg(*aggregates)


def _time_key(join: Join, side: str) -> str:
    own = getattr(join, f"{side}_event_time_column")
    return "event_time_column" if own is None else f"{side}_event_time_column"


def _moved(time: exp.Expression, delta: timedelta | int, type_: SqlType) -> exp.Expression:
    if not delta:
        return time.copy()
    is_back = is_less(delta, 0)
    length: Length = in_units(-delta if is_back else delta, type_)
    if isinstance(length, timedelta):  # fingerprints in checkpoints have this unit
        length = f"{length // timedelta(microseconds=1)} microseconds"
    return (exp.Sub if is_back else exp.Add)(this=time.copy(), expression=length_node(length, "delta"))


def _read(text: str) -> exp.Expression:
    """A text of the pipeline's, which stands in no text that a later message could point into."""
    tree, _ = read_fragment(text, "")
    for node in tree.walk():
        node.meta.pop("start", None)
    return tree
