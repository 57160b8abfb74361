"""The sources of a pipeline as relations: declared by their connections, with the event times that the steps
ask of them."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from sqlglot import exp

from watersmeet.errors import SpecError, WatersmeetError, near_names
from watersmeet.front.ddl.create import Infer, TimeOf, described_source
from watersmeet.front.types.columns import type_named
from watersmeet.pipelines.around import connector_of
from watersmeet.pipelines.lengths import in_units
from watersmeet.pipelines.model import EVENT_TS, Description, Source
from watersmeet.pipelines.problems import Key
from watersmeet.pipelines.told import OF_TIMES, Told
from watersmeet.pipelines.values import Elsewhere
from watersmeet.relations.columns import column_of, tree_of
from watersmeet.relations.inputs import relation_of, selected
from watersmeet.relations.relation import Relation
from watersmeet.relations.terms import length_node
from watersmeet.spec.connectors import BY_NAME
from watersmeet.spec.model import Column
from watersmeet.spec.model import Source as Stream
from watersmeet.types.sql_type import INTEGERS, TIMES, TIMESTAMP, SqlType


class Sources:
    def __init__(
        self, description: Description, told: Told, elsewhere: Elsewhere, infer: Infer | None
    ) -> None:
        self._asked = description
        self._told = told
        self._elsewhere = elsewhere
        self._infer = infer

    def spelled(self, name: str) -> str:
        """The name of a source as the source has it."""
        return next(source.name for source in self._asked.sources if source.name.lower() == name.lower())

    def time_of(self, source: Source) -> str | None:
        """The event time that transforms ask of a source."""
        join = self._asked.join
        name = source.name.lower()
        if join is not None:
            sides = (join.left_source.lower(), join.right_source.lower())
            return next(
                (time for side, time in zip(sides, join.event_times, strict=True) if side == name), None
            )
        windows = [step.window for step in self._asked.transform if step.window is not None]
        return windows[0].event_time_column if windows and source is self._asked.sources[0] else None

    def _key_of_time(self, source: Source) -> Key:
        for number, step in enumerate(self._asked.transform):
            if step.window is not None and step.join is None and self._asked.join is None:
                return (*self._asked.step(number), "window", "event_time_column")
            if step.join is not None:
                side = "left" if step.join.left_source.lower() == source.name.lower() else "right"
                own = getattr(step.join, f"{side}_event_time_column")
                name = "event_time_column" if own is None else f"{side}_event_time_column"
                return (*self._asked.step(number), "join", name)
        return ("sources",)

    def _key_of(self, source: Source, key: Key, error: WatersmeetError) -> Key:
        """Of what is wrong with a declaration."""
        if error.code in OF_TIMES:
            return self._key_of_time(source)
        if error.code == "unknown-connector":
            spelled = next(name for name in source.connection if name.lower() == "connector")
            return (*key, "connection", spelled)
        return key

    def relation(self, number: int, source: Source) -> Relation | None:
        """All its rows, or those of its query; None: something is wrong with it, and told."""
        key: Key = ("sources", number)
        columns: list[Column] = []
        before = len(self._told.errors)
        for name, type_ in source.columns.items():
            with self._told.at((*key, "columns", name)):
                columns.append(Column(name, type_named(type_)))
        options = self._elsewhere.options((*key, "connection"), source.connection)
        time = self.time_of(source)
        if time is not None:
            with self._told.at(self._key_of_time(source)):
                _with_record_time(source, time, options, columns)
        if len(self._told.errors) > before:
            return None
        ordered = (
            None if time is None or source.query is not None else TimeOf(time, partial(_length, source.lag))
        )
        declared: Stream | None = None
        with self._told.by(partial(self._key_of, source, key)):
            declared = described_source(source.name, options, columns, ordered, self._infer)
        if declared is None:
            return None
        rows = relation_of(declared)
        return rows if source.query is None else self._queried(rows, key, source, time)

    def _queried(self, rows: Relation, key: Key, source: Source, time: str | None) -> Relation | None:
        assert source.query is not None
        with self._told.at((*key, "query")):
            rows = selected(rows, source.query, "query").alias(source.name)
            if time is None:
                return rows
            column = column_of(rows, time)
            if column is None:
                raise SpecError(
                    f'the source has no column "{time}", the event time',
                    code="unknown-column",
                    hint=near_names(time, [c.name for c in rows.columns]),
                )
            if column.type not in TIMES and column.type not in INTEGERS:
                raise _no_time(column)
            return rows.impose_order(tree_of(column.name), _lag(source.lag, column.type))
        return None


def _with_record_time(source: Source, time: str, options: dict[str, str], columns: list[Column]) -> None:
    """Adds the record's time to the columns, where that is asked for and rows have no such column.

    Raises: SpecError, where records have no time.
    """
    if time.lower() != EVENT_TS or any(column.name.lower() == EVENT_TS for column in columns) or not columns:
        return
    connector, _ = connector_of(options)
    traits = BY_NAME.get(connector.lower())
    if traits is None:
        return  # told with the source
    if not traits.log:
        if source.query is not None:
            return  # which may make it
        raise SpecError(
            f'"{source.name}" is a {traits.name} source, whose records have no timestamp',
            code="no-record-time",
            hint="set its event_time_column",
        )
    columns.append(Column(EVENT_TS, TIMESTAMP))
    options[f"metadata.{EVENT_TS}"] = "timestamp"


def _no_time(column: Column) -> SpecError:
    return SpecError(
        f'"{column.name}" is {column.type} and cannot be an event time',
        code="wrong-type",
        hint="event times are TIMESTAMP, DATE or an integer type",
    )


def _lag(lag: timedelta | int, type_: SqlType) -> timedelta | int:
    """Return the lag in the unit of an event time; none is none in each."""
    return in_units(lag or timedelta(0), type_)


def _length(lag: timedelta | int, type_: SqlType) -> exp.Expression:
    return length_node(_lag(lag, type_), "lag")
