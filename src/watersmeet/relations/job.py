"""Combine outputs of relations into one job: its description, its plan, and its problems."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from watersmeet.errors import SpecError, collect_errors, printable, raise_all, without_hidden
from watersmeet.parser.ddl.settings import Settings, as_text, is_same_setting
from watersmeet.parser.query.inserts import free_name, insert_of
from watersmeet.parser.statements import parse_job
from watersmeet.parser.text.source_position import Text
from watersmeet.plan.explain import explain
from watersmeet.plan.explain.graph import mermaid
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.planner import plan_job
from watersmeet.relations.expressions import check_duplicates, whole_error
from watersmeet.relations.relation import Output, Relation
from watersmeet.relations.source_frames import Given, by_spark, together
from watersmeet.spec.model import Column, Insert, Sink, Source
from watersmeet.spec.model import Job as Description
from watersmeet.spec.options.function import OfBatches

if TYPE_CHECKING:
    from watersmeet.background_job import StartedJob
    from watersmeet.observe.progress import TickReport
    from watersmeet.running import OnTick, RunResult, RunSettings

Place = str | os.PathLike[str]


@dataclass(frozen=True)
class Job:
    """Queries that run together and share their state. Create one with `job` or `sql`.

    Attributes:
        description: the job as a description of `spec`.

    >>> from watersmeet import files, job, stream
    >>> clicks = stream({"id": "BIGINT", "at": "TIMESTAMP"}, time="at", lag="5 seconds", name="clicks")
    >>> copied = job(clicks.to_sink(files("out/clicks")), checkpoint="state/clicks")
    >>> print(copied.explain().splitlines()[0])
    Query "clicks" into file "clicks" (out/clicks)
    """

    description: Description
    _given: Mapping[str, Given]
    _functions: Mapping[str, OfBatches] = field(default_factory=dict)
    _inferred: Mapping[str, Sequence[Column]] = field(default_factory=dict)
    """Columns of sources that declare none, which its state remembers."""
    _notices: Sequence[str] | None = None
    """What a person should know before it runs; None: the warnings of its plan."""

    @cached_property
    def plan(self) -> JobPlan:
        """Plan of the job.

        Raises:
            WatersmeetError: the job cannot be planned; the error lists all problems.
        """
        return plan_job(self.description)

    @property
    def frames(self) -> Mapping[str, Any]:
        """DataFrames of streams by name; for tables, the functions that build them."""
        return {given.source.name: given.frame for given in self._given.values() if given.frame is not None}

    def start(self, *, on_tick: Callable[[TickReport], None] | None = None) -> StartedJob:
        """Start the job in a thread and a Spark session of its own, next to that of its DataFrames.

        Args:
            on_tick: called after every tick, in another thread than this one; the tick waits for it. An error
                that it raises ends the job.

        Raises:
            WatersmeetError: the job has no checkpoint, or its files and topics do not match their
                declarations, as far as this is known before Spark starts. Later errors are printed to
                stderr, or raised by `StartedJob.await_termination`.
        """
        from watersmeet.background_job import StartedJob

        return StartedJob(
            self.description, self.plan, self._settings(), on_tick=on_tick, notices=self._notices_before()
        )

    def run(
        self, *, on_tick: OnTick | None = None, on_notice: Callable[[str], None] | None = None
    ) -> RunResult:
        """Run the job until it ends or is stopped, as `watersmeet.run` runs a text.

        Args:
            on_tick: called after every tick with its result, its seconds, and the seconds of its parts.
            on_notice: called with each notice for people; None: notices are printed to standard error.

        Raises:
            WatersmeetError: the run failed; nothing is lost, and the job can be run again.
        """
        from watersmeet.running import run_planned

        say = on_notice or _to_stderr
        settings = replace(self._settings(), on_notice=say, on_tick=on_tick)
        for notice in self._notices_before():
            say(notice)
        return run_planned(self.description, self.plan, settings)

    def _notices_before(self) -> Sequence[str]:
        return self.plan.warnings if self._notices is None else self._notices

    def _settings(self) -> RunSettings:
        """Build the run settings of the job.

        Raises:
            SpecError: the job has no checkpoint.
        """
        from watersmeet.running import RunSettings, no_checkpoint

        checkpoint = self.description.run.get("checkpoint")
        if checkpoint is None:
            raise no_checkpoint("job(…, checkpoint='state/delivered')")
        return RunSettings(checkpoint, frames=self.frames, functions=self._functions, inferred=self._inferred)

    def explain(self) -> str:
        """Explain how the job would run."""
        return explain(self.plan)

    def _repr_html_(self) -> str:
        from watersmeet.observe.notebook import plan_page  # loads rich

        return plan_page(self.plan)

    def mermaid(self) -> str:
        """Render the plan as the text of a Mermaid flowchart."""
        return mermaid(self.plan)


def job(*outputs: Output, checkpoint: Place | None = None, settings: Mapping[str, Any] | None = None) -> Job:
    """Create a job of these outputs.

    Args:
        checkpoint: the directory of its state.
        settings: settings as with SET in SQL: ``{"max_rows": 1_000_000}``.

    Raises:
        WatersmeetError: the job is wrong; the error lists all problems.

    >>> from watersmeet import files, job, stream
    >>> clicks = stream({"id": "BIGINT", "at": "TIMESTAMP"}, time="at", lag="5 seconds", name="clicks")
    >>> made = job(
    ...     clicks.where("id > 0").to_sink(files("out/good")),
    ...     clicks.where("NOT id > 0").to_sink(files("out/bad")),
    ...     checkpoint="state/clicks", settings={"max_rows": 1_000_000})
    >>> [query.name for query in made.plan.queries]
    ['good', 'bad']
    """
    if not outputs:
        raise whole_error(
            "job", "needs at least one sink", "for example job(relation.to_sink(…), checkpoint='state')"
        )
    other = next((output for output in outputs if not isinstance(output, Output)), None)
    if other is not None:
        raise whole_error("job", f"is given {other!r}", "pass the result of relation.to_sink(…)")
    given = _all_given(output.relation for output in outputs)
    functions = {output.sink.name: output.function for output in outputs if output.function is not None}
    made = Job(description_of(outputs, _collect_settings(checkpoint, settings)), given, functions)
    _ = made.plan
    return made


def sql(
    text: str,
    *,
    checkpoint: Place | None = None,
    settings: Mapping[str, Any] | None = None,
    **relations: Relation,
) -> Job:
    """Create a job from SQL text that may name relations.

    Args:
        text: as in a file for ``watersmeet run``; it may declare sources and sinks of its own.
        relations: relations that the text reads by these names, like views.
        checkpoint, settings: as in `job`; they take precedence over SET.

    Raises:
        WatersmeetError: the job is wrong; the error lists all problems.

    >>> from watersmeet import sql, stream
    >>> clicks = stream({"id": "BIGINT", "at": "TIMESTAMP"}, time="at", lag="5 seconds", name="clicks")
    >>> counted = sql('''
    ...     CREATE SINK per_minute WITH ('connector' = 'file', 'path' = 'out', 'format' = 'csv');
    ...     INSERT INTO per_minute SELECT window_start, count(*) AS n
    ...     FROM TABLE(TUMBLE(TABLE c, DESCRIPTOR(at), INTERVAL '1' MINUTE))
    ...     GROUP BY window_start, window_end''', c=clicks)
    >>> [query.name for query in counted.plan.queries]
    ['per_minute']
    """
    for name, relation in relations.items():
        if not isinstance(relation, Relation):
            raise whole_error(
                f'"{name}"', f"is given {type(relation).__name__}", "stream(df, time=…, name=…)"
            )
    if not isinstance(text, str):
        raise whole_error("sql", f"is given {type(text).__name__}", "pass SQL text")
    if len({name.lower() for name in relations}) < len(relations):
        raise whole_error("sql", f"has the same name twice: {', '.join(relations)}")
    given = _all_given(relations.values())
    description = parse_job(
        text,
        overrides={key: as_text(value) for key, value in _collect_settings(checkpoint, settings).items()},
        given={name: relation.flow() for name, relation in relations.items()},
        own_functions=by_spark(given),
    )
    _check_sources(description)
    made = Job(description, given)
    if not made.description.inserts:
        raise whole_error("sql", "has no query other than EXPLAIN", "add INSERT INTO sink SELECT …")
    _ = made.plan
    return made


def _to_stderr(notice: str) -> None:
    print(printable(without_hidden(notice)), file=sys.stderr)


def _check_sources(description: Description) -> None:
    """Check that the job declares each source name once.

    Raises:
        SpecError: the SQL text declares a source of the same name as a relation's source.
    """
    by_name: dict[str, Source] = {}
    for insert in description.inserts:
        for source in (s for query in insert.query.every for i in query.inputs for s in i.sources):
            if by_name.setdefault(source.name.lower(), source) != source:
                raise SpecError(
                    f'two streams or tables are named "{source.name}": one in the SQL text, and one of'
                    " a relation",
                    code="duplicate-name",
                    hint="give one of them another name: stream(…, name='…')",
                )


def _all_given(relations: Iterable[Relation]) -> dict[str, Given]:
    given: dict[str, Given] = {}
    for relation in relations:
        given = together(given, relation._given)
    return given


def _collect_settings(checkpoint: Place | None, settings: Mapping[str, Any] | None) -> dict[str, Any]:
    if settings is not None and not isinstance(settings, Mapping):
        raise whole_error("settings", f"is {settings!r}", "{'max_rows': 1_000_000}")
    check_duplicates(settings or {}, "setting", is_same_setting)
    said = {str(key): value for key, value in (settings or {}).items()}
    if checkpoint is not None:
        place = str(checkpoint) if isinstance(checkpoint, str | os.PathLike) else ""
        if not place.strip():
            raise whole_error("checkpoint", f"is {checkpoint!r}", "pass a directory for the job's state")
        if any(key.strip().lower() == "checkpoint" and str(value) != place for key, value in said.items()):
            raise whole_error("checkpoint", "is also in the settings", "remove one of them")
        said["checkpoint"] = place
    return said


def description_of(outputs: Sequence[Output], said: Mapping[str, Any]) -> Description:
    """Build the description of a job from its outputs and settings.

    Raises:
        SqlError: the description has an error.
        SeveralErrors: the description has several errors; it contains all of them.
    """
    settings = Settings()
    problems = settings.set_all(said)
    inserts: list[Insert] = []
    sinks: dict[str, tuple[Sink, OfBatches | None]] = {}
    for output in outputs:
        with collect_errors(problems):
            query = replace(output.relation.query(), mode=output.mode)
            name = free_name(output.sink.name, [insert.name for insert in inserts])
            inserts.append(insert_of(name, output.sink, (query, None, None), Text("")))
        target = output.sink, output.function
        if sinks.setdefault(output.sink.name.lower(), target) != target:
            message = f'two sinks are named "{output.sink.name}"'
            hint = "give one of them another name: files('out', name='…')"
            problems.append(SpecError(message, code="duplicate-name", hint=hint))
    raise_all(problems)
    declared = tuple(sink for sink, _ in sinks.values())
    return Description(tuple(inserts), settings.options, settings.spark, settings.run, (), declared)
