"""`why`: what became of rows of an input, from the history and the sources of a job, in this process."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from watersmeet.cli.job_file import job_in
from watersmeet.cli.state_commands.show import StateLocation
from watersmeet.cli.why.sources import reread
from watersmeet.errors import SpecError, StateError, format_count, printable
from watersmeet.history.reader import read
from watersmeet.objects.settings import store_of
from watersmeet.plan.explain import explain
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.spark.job.column_inference import ColumnInference
from watersmeet.spec.model import Job
from watersmeet.state.manifest import load_newest
from watersmeet.why.answer import Answer, Fate
from watersmeet.why.outcomes import answers
from watersmeet.why.question import Question, QuestionPlan
from watersmeet.why.ticks import tick_history


def why_text(
    text: str, named: Path, question: Question, checkpoint: str | None, default: Path, *, as_json: bool
) -> None:
    """Print what became of the rows that the question asks about.

    Raises:
        WatersmeetError: The job is wrong; there is no such input, no state, or no history; or only
            Spark can evaluate part of a query or a file.
    """
    for answer in answer_question(text, named, question, checkpoint, default):
        if as_json:
            print(json.dumps(answer.document(), ensure_ascii=False, allow_nan=False, default=str))
        else:
            for line in _lines(answer):
                print(printable(line))


def answer_question(
    text: str,
    named: Path,
    question: Question,
    checkpoint: str | None,
    default: Path,
    overrides: Mapping[str, str] = MappingProxyType({}),
) -> list[Answer]:
    """Return one answer per query that has such an input.

    Args:
        overrides: Settings that take precedence over those of the text.
    """
    place = StateLocation.from_text(text, named, checkpoint, default, overrides)
    store = place.checkpoint.store
    job, plan = plan_text(text, named, place, overrides)
    asked = QuestionPlan.of(question, job, plan)
    place.ticks()
    manifest, past = load_newest(store), read(store)
    history = tick_history(past, None if manifest is None else manifest.tick)
    if manifest is None or not len(history):
        raise StateError(
            f"there is no history in {place.checkpoint.place}",
            code="no-history",
            hint="a job writes a history from its next tick on, unless SET history = off",
        )
    rows = reread(asked.sources, asked.queries, store, manifest.host, history)
    notes = [f"the history lacks something: {problem}" for problem in past.problems]
    if past.runs and past.runs[-1].begun.plan not in ("", explain(plan)):
        notes.append("the job last ran by another text, or other settings, than this: its plan was another")
    if history.ticks[-1] < manifest.tick:
        notes.append(f"the state is of tick {manifest.tick}, up to which the history is not written yet")
    return [answer.with_notes(notes) for answer in answers(asked, job, history, rows)]


def plan_text(
    text: str, named: Path, place: StateLocation, overrides: Mapping[str, str]
) -> tuple[Job, JobPlan]:
    """Parse the job and plan it.

    Raises:
        SpecError: The job has no query.
        WatersmeetError: All problems of the job.
    """
    infer = ColumnInference(str(place.checkpoint.root), store=store_of(place.settings))
    job = job_in(text, str(named), overrides, infer)
    if not job.inserts:
        raise SpecError("the job has no query", code="no-query", hint="add an INSERT, or a SELECT")
    return job, plan_job(job)


def _lines(answer: Answer) -> Iterator[str]:
    first, last = answer.ticks
    yield f"{answer.query}: {answer.input}, by ticks {first} to {last}"
    for fate in answer.fates:
        yield from _of_fate(fate)
    if answer.more:
        yield f"… and {format_count(answer.more, 'more row')}: --limit, --key and --time say which"
    yield from (f"note: {note}" for note in answer.notes)


def _of_fate(fate: Fate) -> Iterator[str]:
    yield ""
    yield f"  {_row(fate.row)}"
    came = "" if fate.tick is None else f", read {fate.tick}"
    if fate.place:
        yield f"    from {_near_by(fate.place)}{came}"
    yield f"    {fate.text}"
    for words, record in (("by", fate.by), ("instead of", fate.instead_of)):
        if record is not None:
            yield f"    {words} {_row(record.row)} from {_near_by(record.place)}"
    for met in fate.met if len(fate.met) > 1 or any(met.left_out for met in fate.met) else ():
        left_out = "" if met.left_out is None else f"; left out by {met.left_out}"
        left_out += "" if met.until is None else f", taken back {met.until}"
        yield f"    met {_row(met.row)} {met.tick}{left_out}"
    for own in fate.reached if len(fate.reached) > 1 else ():
        yield f"    was joined with {_row(own.row)} {own.tick}"
    if fate.more_met:
        yield f"    … and {format_count(fate.more_met, 'other row')}"
    for near in fate.near:
        yield f"    near: {_row(near.row)}"
        yield from (f"      {failed}" for failed in near.failed)


def _near_by(place: str) -> str:
    """Return a path relative to the working directory if it is inside it."""
    return place.removeprefix(os.path.join(os.getcwd(), ""))


def _row(row: object) -> str:
    return json.dumps(row, ensure_ascii=False, default=str)
