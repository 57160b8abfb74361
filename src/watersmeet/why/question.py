"""Questions about rows of one input, and the inputs of a job whose rows can be asked about.

Queries are planned over records: a table with a primary key gives its records as they arrive, and not the
rows that are made of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from watersmeet.errors import SpecError, WatersmeetError, near_names
from watersmeet.event_time import Mask
from watersmeet.kernel.ordinals import known_times
from watersmeet.plan.conditions.conjuncts import split
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.nodes import DeltaPlan, MatchPlan
from watersmeet.plan.model.sides import KeyPlan, SidePlan
from watersmeet.plan.planner import plan_job
from watersmeet.plan.query_inputs import JoinInputs, unquoted_text
from watersmeet.spec.model import Branch, Expr, Insert, Job, Query, Sink, Source, with_branches
from watersmeet.spec.time_zones import UTC as UTC_ZONE
from watersmeet.types.arrow import sql_name
from watersmeet.why.expressions import columns_of, mentioned_columns, value_of
from watersmeet.why.rows import InputRows, joins_of
from watersmeet.zones import zone

NULL = "NULL"
MAX_ROWS = 20
"""Maximum number of rows of an answer, if nobody says otherwise."""


@dataclass(frozen=True)
class Question:
    """Question about rows of an input.

    Attributes:
        input: an alias; its case does not matter, nor does that of other names here.
        keys: texts of values of the join's equality keys, in order, or named (``key=value``), or of
            columns (``column=value``); `NULL` stands for NULL.
        time: the value of one of the row's event times.
        query: the query, if several have such an input.
    """

    input: str
    keys: Sequence[str] = ()
    time: str | None = None
    query: str | None = None
    most: int = MAX_ROWS


@dataclass(frozen=True)
class QuestionPlan:
    """A question, and the queries that it is about, planned over records (`record_queries`).

    Attributes:
        declared: All sources of the job, as they are declared.
    """

    question: Question
    queries: tuple[QueryPlan, ...]
    inserts: Mapping[str, Insert]
    declared: Mapping[str, Source]

    @classmethod
    def of(cls, question: Question, job: Job, plan: JobPlan) -> QuestionPlan:
        """Plan the queries that a question is about.

        Raises:
            SpecError: No query has such an input, or a key is not a column of it.
        """
        queries = record_queries(job, plan)
        if question.query is not None:
            names = [query.name for query in queries]
            queries = [query for query in queries if same_name(query.name, question.query)]
            if not queries:
                raise SpecError(
                    f'there is no query "{question.query}"',
                    code="unknown-query",
                    hint=near_names(question.query, names),
                )
        own = [query for query in queries if any(same_name(s.name, question.input) for s in query.sides)]
        if not own:
            names = list(dict.fromkeys(side.name for query in queries for side in query.sides))
            given = f'no query has an input "{question.input}"' if question.input else "--input is missing"
            raise SpecError(
                given,
                code="unknown-input",
                hint=f"use an alias of the query: --input {', '.join(names)}",
            )
        inserts = {insert.name: insert for insert in job.inserts}
        asked = cls(question, tuple(own), inserts, sources_of(job))
        for query in own:
            if not asked.side(query).sources:
                raise SpecError(
                    f'"{question.input}" has no source: its rows are results of other queries',
                    code="not-told",
                    hint="ask about rows of their inputs",
                )
            asked.comparisons(query)
        if question.time is not None and not any(asked.side(query).event_times for query in own):
            raise SpecError(
                f'--time: "{question.input}" has no event time',
                code="wrong-option",
                hint="select rows with --key column=value",
            )
        return asked

    def side(self, query: QueryPlan) -> SidePlan:
        return next(side for side in query.sides if same_name(side.name, self.question.input))

    @property
    def sources(self) -> dict[str, Source]:
        """All that the rows of these queries' inputs are of, streams alone."""
        return {
            branch.source.name: self.declared[branch.source.name]
            for query in self.queries
            for side in query.sides
            for _, branch in side.ingested
        }

    def comparisons(self, query: QueryPlan) -> list[tuple[Expr, str]]:
        """Return the expressions to compare, each with the text of the value.

        Raises:
            SpecError: a key matches no column or key of the input.
        """
        side = self.side(query)
        comparisons: list[tuple[Expr, str]] = []
        keys = keys_of(query, side, self.inserts[query.name])
        for number, text in enumerate(self.question.keys):
            named = _named_expression(side, keys, text)
            if named is not None:
                comparisons.append(named)
            elif number < len(keys):
                check_name(side, keys[number], text)
                comparisons.append((keys[number], text))
            else:
                said = ", ".join(map(unquoted_text, keys)) or "none"
                every = ", ".join(own.name for own in side.input.columns)
                raise SpecError(
                    f'--key "{text}" does not match a key: the equality keys of "{side.name}" are {said}',
                    code="wrong-option",
                    hint=f"use --key column=value with one of {every}",
                )
        return comparisons

    def meant(self, query: QueryPlan, branch: InputRows) -> Mask:
        """Return which rows of a branch are meant.

        Raises:
            EngineError: an expression is one that only Spark computes.
            SpecError: a value or a time is none of its column's type.
        """
        side, rows, zone_name = branch.side, branch.of.rows, query.options.time_zone
        meant: Mask = np.ones(rows.num_rows, dtype=np.bool_)
        own = side.input.branches[branch.number]
        assert isinstance(own, Branch)
        compared = self.comparisons(query)
        bare = replace(side.input, alias="")  # as keys have their columns
        table = columns_of(bare, own, mentioned_columns([expr for expr, _ in compared], ""), rows, zone_name)
        for expr, text in compared:
            array = value_of(expr, JoinInputs((bare,), time_zone=zone_name), table)
            meant &= _equals(array, text, unquoted_text(expr), zone_name)
        if self.question.time is not None:
            meant &= _at(branch, self.question.time, zone_name)
        return meant

    def unnamed_keys(self, query: QueryPlan) -> list[str]:
        """Return notes on texts that look like ``column=value`` but were read as values of a key."""
        side = self.side(query)
        keys = keys_of(query, side, self.inserts[query.name])
        return [
            f'--key "{text}" was taken for a value of {unquoted_text(key)}: no column or key is called'
            f' "{text.partition("=")[0]}"'
            for text, key in zip(self.question.keys, keys, strict=False)
            if "=" in text and _named_expression(side, keys, text) is None
        ]


def _named_expression(side: SidePlan, keys: Sequence[Expr], text: str) -> tuple[Expr, str] | None:
    """Return the column or key that a text names, and its value; None if the text names neither."""
    name, equals, value = text.partition("=")
    for column in side.input.columns:
        if equals and same_name(column.name, name):
            return exp.column(column.name), value
    for key in keys:
        if same_name(f"{unquoted_text(key)}=", text[: len(unquoted_text(key)) + 1]):
            return key, text[len(unquoted_text(key)) + 1 :]
    return None


def _equals(array: pa.Array, text: str, name: str, zone_name: str) -> Mask:
    if text == NULL:
        missing: Mask = array.is_null().to_numpy(zero_copy_only=False)
        return missing
    value = parse_value(text, array.type, name, zone_name)
    is_nan = pa.types.is_floating(array.type) and math.isnan(value.as_py())
    equal = pc.is_nan(array) if is_nan else pc.equal(array, value)  # NaN equals NaN
    same: Mask = pc.fill_null(equal, False).to_numpy(zero_copy_only=False)
    return same


def _at(branch: InputRows, text: str, zone_name: str) -> Mask:
    """Return the mask of rows that have the given event time."""
    meant: Mask = np.zeros(len(branch.came_to), dtype=np.bool_)
    for column, times in branch.own.times.items():
        present = branch.own.present[column]
        same = times == np.int64(canonical(text, branch.side, column, zone_name))
        meant |= same if present is None else same & present
    return meant


@dataclass(frozen=True)
class InputDescription:
    """Input about which users can ask.

    Attributes:
        keys: the equality keys of its join, as texts.
        columns, times: names.
        is_told: whether its rows come from sources and not from other queries' output.
    """

    query: str
    input: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    times: tuple[str, ...]
    is_told: bool


def inputs_of_job(job: Job, plan: JobPlan) -> list[InputDescription]:
    """Describe the inputs of all queries, in order."""
    inserts = {insert.name: insert for insert in job.inserts}
    return [
        InputDescription(
            query.name,
            side.name,
            tuple(map(unquoted_text, keys_of(query, side, inserts[query.name]))),
            tuple(column.name for column in side.input.columns),
            tuple(side.event_times),
            bool(side.sources),
        )
        for query in record_queries(job, plan)
        for side in query.sides
    ]


def same_name(one: str, other: str) -> bool:
    """Return True if SQL treats two names as the same."""
    return one.lower() == other.lower()


def key_plans_of(query: QueryPlan, side: SidePlan) -> list[tuple[KeyPlan, bool]]:
    """Return the equality keys of the join that reads the input, each with its side.

    The flag is True if the key is a left one. For a delta join these are the keys by which any input
    looks up its rows.
    """
    for node in query.every(MatchPlan):
        for number, own in enumerate((node.left, node.right)):
            if own.name == side.name:
                return [(key, number == 0) for key in node.keys]
    by_text: dict[str, KeyPlan] = {}
    for join in (lookup.join for delta in query.every(DeltaPlan) for lookup in delta.lookups):
        if side.name in (join.right.name, join.right.copy_of):
            for key in join.keys:
                by_text.setdefault(unquoted_text(key.right), key)
    return [(key, False) for key in by_text.values()]


def keys_of(query: QueryPlan, side: SidePlan, insert: Insert) -> list[Expr]:
    """Return the equality keys as expressions over the input's columns, in the query's order."""
    asked = insert.query
    conditions = [*(join.on for join in joins_of(asked.relation)), asked.where]
    texts = [own.text for condition in conditions for own in split(condition)]
    plans = key_plans_of(query, side)
    if query.every(DeltaPlan):
        plans.sort(key=lambda own: texts.index(own[0].text) if own[0].text in texts else len(texts))
    return [key.left if is_left else key.right for key, is_left in plans]


def check_name(side: SidePlan, key: Expr, text: str) -> None:
    """Raise: SpecError for COLUMN=VALUE of an unknown column; a value of a text key may look like that."""
    name, equals, _ = text.partition("=")
    column = side.input.column(key.name) if isinstance(key, exp.Column) else None
    is_text = column is not None and column.type.name.startswith(("STRING", "BINARY"))
    if equals and name.isidentifier() and column is not None and not is_text:
        raise SpecError(
            f'input "{side.name}" has no column "{name}" (--key {text})',
            code="unknown-column",
            hint=near_names(name, [own.name for own in side.input.columns]),
        )


def sources_of(job: Job) -> dict[str, Source]:
    """Return all sources that the job's queries read, as declared, by name."""
    return {
        source.name: source
        for insert in job.inserts
        for query in insert.query.every
        for given in query.inputs
        for source in given.sources
    }


def record_queries(job: Job, plan: JobPlan) -> list[QueryPlan]:
    """Plan the queries that a user wrote, each by itself, over the records of sources.

    The step that maintains a table with a primary key is left out of queries that read one.
    """
    queries = [query for query in plan.apart or plan.queries if not query.is_index]
    keyed = {name for name, source in sources_of(job).items() if source.primary_key is not None}
    inserts = [
        replace(insert, sink=Sink(insert.sink.name, "console"), query=_of_records(insert.query))
        for insert in job.inserts
        if not insert.is_index
        and any(
            source.name in keyed for query in insert.query.every for i in query.inputs for source in i.sources
        )
    ]
    if not inserts:
        return queries
    try:
        planned = plan_job(replace(job, inserts=tuple(inserts), run={}, sinks=(), explains=()))
    except WatersmeetError:  # then their records are not told of
        return queries
    by_name = {query.name: query for query in planned.apart or planned.queries}
    return [by_name.get(query.name, query) for query in queries]


def _of_records(query: Query) -> Query:
    return with_branches(
        query, lambda branch: replace(branch, source=replace(branch.source, primary_key=None))
    )


def parse_value(text: str, kind: pa.DataType, name: str, zone_name: str) -> pa.Scalar:
    """Parse a text as a column value.

    Raises:
        SpecError: the text is not a value of the type, or is out of its range.
    """
    try:
        return pa.scalar(_plain(text, kind, zone_name), kind)
    except (ValueError, KeyError, InvalidOperation, OverflowError, pa.ArrowException):
        raise SpecError(
            f'"{text}" is not a value of {name} ({sql_name(kind)})',
            code="wrong-option",
            hint="--key takes VALUE for the join key, or COLUMN=VALUE for a column of the input",
        ) from None


def _plain(text: str, kind: pa.DataType, zone_name: str) -> Any:
    if pa.types.is_integer(kind):
        return int(text)
    if pa.types.is_floating(kind):
        return float(text)
    if pa.types.is_decimal(kind):
        return Decimal(text)
    if pa.types.is_boolean(kind):
        return {"true": True, "false": False}[text.lower()]
    if pa.types.is_date(kind):
        return date.fromisoformat(text)
    if pa.types.is_timestamp(kind):
        return _moment(text, zone_name)
    return text


def _moment(text: str, zone_name: str) -> datetime:
    """Parse a moment as source columns store it: in UTC, without a zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not None:
        return moment.astimezone(UTC).replace(tzinfo=None)
    if zone_name == UTC_ZONE:
        return moment
    epoch = datetime(1970, 1, 1)
    wall = np.array([(moment - epoch) // datetime.resolution], dtype=np.int64)
    return epoch + datetime.resolution * int(zone(zone_name).to_instant(wall)[0])


def canonical(text: str, side: SidePlan, column: str, zone_name: str) -> int:
    """Parse a text as an event time of an input.

    Raises:
        SpecError: the text is not a time of the column's type.
    """
    declared = side.input.column(column)
    kind = pa.int64() if declared is not None and declared.type.is_integer else pa.timestamp("us")
    value = parse_value(text, kind, f"{side.name}.{column}", zone_name)
    return int(known_times(pa.array([value]))[0].as_py())
