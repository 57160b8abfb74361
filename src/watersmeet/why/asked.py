"""A question, and its answer: which rows of an input are meant, and the fate of each."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from watersmeet.errors import SpecError, StateError, counted, near_names
from watersmeet.event_time import Mask
from watersmeet.history.points import subject_of
from watersmeet.plan.evaluated import shown
from watersmeet.plan.join_inputs import JoinInputs
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.spec.model import Branch, Expr, Input, Insert, Job, JoinKind, Source
from watersmeet.whatif.pairs import Pairs
from watersmeet.why.answer import Answer, Fate, Tick
from watersmeet.why.chains import Chain
from watersmeet.why.changed.changing import Changing
from watersmeet.why.changed.held import changes, is_of_records
from watersmeet.why.columns import columns_of, mentioned, value_of
from watersmeet.why.fates import Fates, not_told
from watersmeet.why.inputs import check_name, keys_of, same_name
from watersmeet.why.judged import LATE, MAY_MATCH, NOT_YET, InputRows, SourceRows, inputs_of, placed
from watersmeet.why.matches import pairs_of
from watersmeet.why.over_records import asked_queries, sources_of
from watersmeet.why.recorded import Recorded
from watersmeet.why.replayed import aliases_of, is_chain
from watersmeet.why.reread import UNREAD, Reread
from watersmeet.why.rows import Certainty, QueryRows
from watersmeet.why.times import canonical, of_a_time, parsed

NULL = "NULL"
MOST = 20
"""So many rows an answer has, if nobody says otherwise."""


@dataclass(frozen=True)
class Question:
    """``input``: an alias, in whatever case, as all names here. ``keys``: texts of values of the join's
    equality keys, in their order, or named (``key=value``), or of columns (``column=value``); `NULL` for what
    is NULL. ``time``: of one of the row's event times. ``query``:
    of which query, if several have such an input."""

    input: str
    keys: Sequence[str] = ()
    time: str | None = None
    query: str | None = None
    most: int = MOST


@dataclass(frozen=True)
class Asked:
    """A question, and the queries that it is about, over records (`asked_queries`). ``declared``: all sources
    of the job, as they are."""

    question: Question
    queries: tuple[QueryPlan, ...]
    inserts: Mapping[str, Insert]
    declared: Mapping[str, Source]

    @classmethod
    def of(cls, question: Question, job: Job, plan: JobPlan) -> Asked:
        """Raises: SpecError, if no query has such an input, or a key is none of it."""
        queries = asked_queries(job, plan)
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
            asked.compared(query)
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

    def compared(self, query: QueryPlan) -> list[tuple[Expr, str]]:
        """What is compared, and the text that it is compared with. Raises: SpecError."""
        side = self.side(query)
        comparisons: list[tuple[Expr, str]] = []
        keys = keys_of(query, side, self.inserts[query.name])
        for number, text in enumerate(self.question.keys):
            named = _named(side, keys, text)
            if named is not None:
                comparisons.append(named)
            elif number < len(keys):
                check_name(side, keys[number], text)
                comparisons.append((keys[number], text))
            else:
                said = ", ".join(map(shown, keys)) or "none"
                every = ", ".join(own.name for own in side.input.columns)
                raise SpecError(
                    f'--key "{text}" does not match a key: the equality keys of "{side.name}" are {said}',
                    code="wrong-option",
                    hint=f"use --key column=value with one of {every}",
                )
        return comparisons

    def unnamed(self, query: QueryPlan) -> list[str]:
        """What is said of texts that look as if they named a column, and are taken for values of a key."""
        side = self.side(query)
        keys = keys_of(query, side, self.inserts[query.name])
        return [
            f'--key "{text}" was taken for a value of {shown(key)}: no column or key is called'
            f' "{text.partition("=")[0]}"'
            for text, key in zip(self.question.keys, keys, strict=False)
            if "=" in text and _named(side, keys, text) is None
        ]


def _named(side: SidePlan, keys: Sequence[Expr], text: str) -> tuple[Expr, str] | None:
    """What a text names and the value behind it; None: it names neither a column of the input nor a key."""
    name, equals, value = text.partition("=")
    for column in side.input.columns:
        if equals and same_name(column.name, name):
            return exp.column(column.name), value
    for key in keys:
        if same_name(f"{shown(key)}=", text[: len(shown(key)) + 1]):
            return key, text[len(shown(key)) + 1 :]
    return None


def answers(asked: Asked, job: Job, history: Recorded, reread: Mapping[str, Reread]) -> list[Answer]:
    """One per query.

    Args:
        history: of at least one tick.
        reread: of `Asked.sources`, all of them.

    Raises:
        StateError: the history does not say which tick read what.
        EngineError: an expression is one that only Spark computes, or fails for a row.
        SpecError: a value or a time is none of its column's type.
    """
    _check_told(history, reread)
    sources = {name: placed(own, history) for name, own in reread.items()}
    return [_answer(asked, query, job, history, sources, reread) for query in asked.queries]


def _check_told(history: Recorded, reread: Mapping[str, Reread]) -> None:
    is_read = any(portion.position != UNREAD for own in reread.values() for portion in own.portions)
    if is_read and not history.tells_reading:
        raise StateError(
            "the history does not record what each tick read: an older version wrote it",
            code="no-history",
            hint="continue the job with this version, which records it for new ticks",
        )


def _answer(
    asked: Asked,
    query: QueryPlan,
    job: Job,
    history: Recorded,
    sources: Mapping[str, SourceRows],
    reread: Mapping[str, Reread],
) -> Answer:
    alias = asked.side(query).name
    insert = asked.inserts[query.name]
    left_out = {name: _left_out(query, name, history, reread[name]) for name in reread}
    rows = _query_rows(query, insert, history, sources, reread, left_out)
    inputs = rows.inputs
    masks = [_mask(asked, query, branch) for branch in inputs[alias]]
    numbers = np.flatnonzero(np.concatenate([np.zeros(0, dtype=np.bool_), *masks]))
    pairs = _pairs(rows, job, alias, masks) if len(numbers) else None
    shown_numbers = numbers[: asked.question.most]
    chain = Chain(rows, job, alias, shown_numbers) if len(numbers) and is_chain(query, insert) else None
    changing = None
    is_lacking = any(reread[branch.source.name].missing for _, branch in asked.side(query).sources)
    if (
        (len(numbers) or is_lacking)
        and changes(insert, query.options.mode)
        and is_of_records(_input(insert, alias))
    ):
        is_hidden = alias not in aliases_of(insert.query.relation)
        words = "which rows a SEMI or ANTI join released by it is not known" if is_hidden else not_told(query)
        changing = Changing(rows, job, alias, shown_numbers, asked.declared, words)
    fates = Fates(rows, alias, pairs, chain, changing)
    most = asked.question.most
    told = [fates.fate(int(number)) for number in numbers[:most]]
    named = {branch.source.name for _, branch in asked.side(query).sources}
    records = [fate for name in sorted(named) for fate in _of_left_out(asked, name, left_out[name])]
    count = len(numbers) + len(records)
    notes = _notes(asked, query, history, reread, left_out, min(count, most))
    if changing is not None and changing.note is not None:
        notes.append(changing.note)
    told += records[: most - len(told)]
    return Answer(
        query.name,
        alias,
        (history.ticks[0], history.ticks[-1]),
        told,
        count - len(told),
        tuple(notes),
    )


def query_rows(
    query: QueryPlan, insert: Insert, history: Recorded, reread: Mapping[str, Reread]
) -> QueryRows:
    """A query and its rows.

    Args:
        query: planned over records (`asked_queries`).
        reread: of all its sources.

    Raises: as `answers`.
    """
    _check_told(history, reread)
    sources = {name: placed(own, history) for name, own in reread.items()}
    left_out = {name: _left_out(query, name, history, reread[name]) for name in reread}
    return _query_rows(query, insert, history, sources, reread, left_out)


def _query_rows(
    query: QueryPlan,
    insert: Insert,
    history: Recorded,
    sources: Mapping[str, SourceRows],
    reread: Mapping[str, Reread],
    left_out: Mapping[str, Sequence[LeftOut]],
) -> QueryRows:
    unseen = {
        side.name: [
            place
            for _, branch in side.sources
            for place in _unseen(reread[branch.source.name], history, left_out[branch.source.name])
        ]
        if side.sources
        else [None]
        for side in query.sides
    }
    shed = any(
        figure == "shed"
        for side in query.sides
        for figure in history.past.figures(subject_of("input", query.name, side.name))
    )
    certainty = {name: _certainty(own, history, left_out[name]) for name, own in reread.items()}
    inputs = inputs_of(query, sources, history)
    return QueryRows(query, insert, history, inputs, unseen, shed, certainty)


def _input(insert: Insert, alias: str) -> Input:
    return next(own for own in insert.query.inputs if own.alias == alias)


def _unseen(reread: Reread, history: Recorded, left_out: Sequence[LeftOut]) -> list[int | None]:
    """Of rows of a source that are not seen here, though a tick may have read them, the slot of that tick;
    None: it may have been any."""
    slots: list[int | None] = []
    for own in reread.missing:
        if own.position == UNREAD:
            continue
        read_by = None
        if own.position is not None:
            read_by = history.slot_of(reread.source.name, own.part, own.position)
        slots.append(read_by[0] if read_by is not None and read_by[1] else None)
    for record in left_out:
        if record.is_read and not record.certain:
            exact = record.tick if record.tick is not None and record.tick.exact else None
            slots.append(None if exact is None else history.ticks.index(exact.number))
    return slots


def _pairs(rows: QueryRows, job: Job, alias: str, masks: Sequence[Mask]) -> Pairs | None:
    if rows.join is None:
        return None
    may = {
        name: [
            (own.came_to == MAY_MATCH) | (own.unsure & np.isin(own.came_to, (LATE, NOT_YET)))
            for own in branches
        ]
        for name, branches in rows.inputs.items()
    }
    if rows.join.kind is not JoinKind.SEMI:  # there what a row met goes by what others had met before
        may[alias] = [own & mask for own, mask in zip(may[alias], masks, strict=True)]
    return pairs_of(rows.insert, job, rows.inputs, may)


def _mask(asked: Asked, query: QueryPlan, branch: InputRows) -> Mask:
    """Which rows of a branch are meant."""
    side, rows, zone_name = branch.side, branch.of.rows, query.options.time_zone
    meant: Mask = np.ones(rows.num_rows, dtype=np.bool_)
    own = side.input.branches[branch.number]
    assert isinstance(own, Branch)
    compared = asked.compared(query)
    bare = replace(side.input, alias="")  # as keys have their columns
    table = columns_of(bare, own, mentioned([expr for expr, _ in compared], ""), rows, zone_name)
    for expr, text in compared:
        array = value_of(expr, JoinInputs((bare,), time_zone=zone_name), table)
        meant &= _equals(array, text, shown(expr), zone_name)
    if asked.question.time is not None:
        meant &= _at(branch, asked.question.time, zone_name)
    return meant


def _equals(array: pa.Array, text: str, name: str, zone_name: str) -> Mask:
    if text == NULL:
        missing: Mask = array.is_null().to_numpy(zero_copy_only=False)
        return missing
    value = parsed(text, array.type, name, zone_name)
    is_nan = pa.types.is_floating(array.type) and math.isnan(value.as_py())
    equal = pc.is_nan(array) if is_nan else pc.equal(array, value)  # NaN equals NaN
    same: Mask = pc.fill_null(equal, False).to_numpy(zero_copy_only=False)
    return same


def _at(branch: InputRows, text: str, zone_name: str) -> Mask:
    """Which rows have that event time."""
    meant: Mask = np.zeros(len(branch.came_to), dtype=np.bool_)
    for column, times in branch.own.times.items():
        present = branch.own.present[column]
        same = times == np.int64(canonical(text, branch.side, column, zone_name))
        meant |= same if present is None else same & present
    return meant


# records that are no rows


@dataclass(frozen=True)
class LeftOut:
    """A record that was not read here. ``certain``: it is broken, for its tick counted as many broken records
    as were left out of what that tick read, and all of that was read again; ``is_read``: some tick has read
    it, be it which."""

    record: str
    place: str
    tick: Tick | None
    certain: bool
    is_read: bool


def _left_out(query: QueryPlan, source: str, history: Recorded, reread: Reread) -> list[LeftOut]:
    """The records of a source that were left out."""
    by_slot: dict[int | None, list[LeftOut]] = {}
    for portion in reread.portions:
        read_by = None
        if portion.position != UNREAD and portion.left_out:
            read_by = history.slot_of(source, portion.part, portion.position)
        tick = None if read_by is None else Tick(history.ticks[read_by[0]], read_by[1])
        by_slot.setdefault(None if read_by is None else read_by[0], []).extend(
            LeftOut(record, portion.place, tick, False, portion.position != UNREAD)
            for record in portion.left_out
        )
    is_keyed = reread.source.primary_key is not None
    counts = _counted_broken(query, source, history, is_keyed=is_keyed)
    whole = _whole(reread, history)
    return [
        replace(own, certain=slot in whole and _is_exact(own) and counts[slot] == len(records))
        for slot, records in by_slot.items()
        for own in records
    ]


def _whole(reread: Reread, history: Recorded) -> set[int]:
    """The slots of ticks of whose rows of a source none is missing."""
    name, slots = reread.source.name, set(range(len(history)))
    for own in reread.missing:
        if own.position == UNREAD:
            continue
        if own.position is None:
            return set()
        first = history.slot_of(name, own.part, own.position)
        if first is None and history.is_beyond(name, own.part, own.position):
            continue
        if first is None:
            return set()
        least, is_exact = first
        if not is_exact and least and not history.is_after_slot_before(name, own.part, own.position, least):
            return set()
        last = None if own.until is None else history.slot_of(name, own.part, own.until - 1)
        most = least if own.until is None else len(history) - 1 if last is None else last[0]
        slots -= set(range(least, most + 1))
    return slots


def _certainty(reread: Reread, history: Recorded, left_out: Sequence[LeftOut]) -> Certainty:
    unclear = [own for own in left_out if own.is_read and not own.certain]
    ticks = {own.tick.number for own in unclear if own.tick is not None}
    whole = {slot for slot in _whole(reread, history) if history.ticks[slot] not in ticks}
    if not all(map(_is_exact, unclear)):
        whole = set()
    whys = {own.why for own in reread.missing}
    is_compacted = whys - {"before"} == {"compacted"} and not left_out
    return Certainty(frozenset(whole), "unordered" not in whys, is_compacted)


def _is_exact(own: LeftOut) -> bool:
    return own.tick is not None and own.tick.exact


def _counted_broken(query: QueryPlan, source: str, history: Recorded, *, is_keyed: bool) -> list[int]:
    """Per slot how many broken records the input counted that is of that source alone."""
    for side in query.sides:
        if [branch.source.name for _, branch in side.sources] == [source]:
            alias = side.name if not is_keyed else f"{side.name}.{source}"
            levels = history.levels(subject_of("input", query.name, alias), "broken")
            every = [0, *(level or 0 for level in levels)]
            return [after - before for before, after in pairwise(every)]
    return [-1] * len(history)


def _of_left_out(asked: Asked, source: str, left_out: Sequence[LeftOut]) -> list[Fate]:
    """Those of them that mention all keys that are asked for."""
    keys = [key.rpartition("=")[2] for key in asked.question.keys]
    return [
        Fate(
            {"record": own.record},
            source,
            own.place,
            "broken" if own.certain else "not_known",
            f"a broken record, dropped {own.tick}"
            if own.certain
            else "a record that was not read here: it is broken, or only Spark knows what it is",
            own.tick,
        )
        for own in left_out
        if keys and all(re.search(rf"(?<!\w){re.escape(key)}(?!\w)", own.record) for key in keys)
    ]


def _notes(
    asked: Asked,
    query: QueryPlan,
    history: Recorded,
    reread: Mapping[str, Reread],
    left_out: Mapping[str, Sequence[LeftOut]],
    told: int,
) -> list[str]:
    notes: list[str] = []
    for name, own in reread.items():
        notes += dict.fromkeys(f'"{name}": {missing.words}' for missing in own.missing)
        unsure = [record for record in left_out[name] if not record.certain]
        if unsure:
            notes.append(
                f'"{name}": {counted(len(unsure), "record")} not read here: broken, or only Spark knows what'
                f" they are, such as {unsure[0].record} ({unsure[0].place})"
            )
    side = asked.side(query)
    if asked.question.time is not None and any(reread[b.source.name].missing for _, b in side.sources):
        notes += of_a_time(asked.question.time, query, side, history)
    if not told:
        names = {branch.source.name for _, branch in side.sources}
        rows = sum(portion.rows.num_rows for name in names for portion in reread[name].portions)
        notes.insert(0, f"no such row is among the {counted(rows, 'row')} of {', '.join(sorted(names))}")
        notes[1:1] = asked.unnamed(query)
    return notes
