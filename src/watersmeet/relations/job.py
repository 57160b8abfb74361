"""Outputs of relations as one job: its description, its plan, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from watersmeet.errors import SpecError, SqlError, WatersmeetError, raise_all
from watersmeet.front.ddl.settings import Settings
from watersmeet.front.query.inserts import free_name, insert_of
from watersmeet.front.text.place import Text
from watersmeet.plan.explain import explain
from watersmeet.plan.explain.mermaid import mermaid
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.planner import plan_job
from watersmeet.relations.fragments import whole_error
from watersmeet.relations.given import Given, together
from watersmeet.relations.relation import Output
from watersmeet.spec.model import Insert, Sink
from watersmeet.spec.model import Job as Description

if TYPE_CHECKING:
    from watersmeet.observe.progress import TickReport
    from watersmeet.started import StartedJob


@dataclass(frozen=True)
class Job:
    """Outputs that are run together and share what they keep. Made by `job`."""

    outputs: Sequence[Output]
    settings: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def description(self) -> Description:
        """What is asked, as `spec` has it. Raises: SqlError, SeveralErrors, with all that is wrong."""
        settings, problems = Settings(), list[WatersmeetError]()
        for key, value in self.settings.items():
            try:
                settings.set(key, str(value).lower() if isinstance(value, bool) else str(value))
            except SqlError as error:
                problems.append(error)
        inserts: list[Insert] = []
        for output in self.outputs:
            try:
                query = replace(output.relation.query(), mode=output.mode)
                name = free_name(output.sink.name, [insert.name for insert in inserts])
                inserts.append(insert_of(name, output.sink, (query, None, 0), Text("")))
            except WatersmeetError as error:
                problems.append(error)
        sinks: dict[str, Sink] = {}
        for output in self.outputs:
            if sinks.setdefault(output.sink.name.lower(), output.sink) != output.sink:
                message = f'two sinks are named "{output.sink.name}"'
                hint = "give one of them another name: files('out', name='…')"
                problems.append(SpecError(message, code="duplicate-name", hint=hint))
        raise_all(problems)
        return Description(
            tuple(inserts), settings.options, settings.spark, settings.run, (), tuple(sinks.values())
        )

    @cached_property
    def plan(self) -> JobPlan:
        """How it is run. Raises: WatersmeetError, with all that is wrong."""
        return plan_job(self.description)

    @property
    def frames(self) -> Mapping[str, Any]:
        """The DataFrame of every stream that has one, by its name."""
        return {given.source.name: given.frame for given in self._given.values() if given.frame is not None}

    @cached_property
    def _given(self) -> Mapping[str, Given]:
        given: dict[str, Given] = {}
        for output in self.outputs:
            given = together(given, output.relation._given)
        return given

    def start(self, *, on_tick: Callable[[TickReport], None] | None = None) -> StartedJob:
        """Run it in a thread of its own, in the Spark session of its DataFrames, which goes on when the job
        ends.

        Args:
            on_tick: called after every tick, in that thread.

        Raises:
            WatersmeetError: what is wrong before anything is read.
        """
        from watersmeet.started import StartedJob

        return StartedJob(self.description, self.plan, self.frames, on_tick)

    def explain(self) -> str:
        """How it would be run, in words."""
        return explain(self.plan)

    def mermaid(self) -> str:
        """The same as a drawing, the text of a Mermaid flowchart."""
        return mermaid(self.plan)


def job(*outputs: Output, checkpoint: str | None = None, settings: Mapping[str, Any] | None = None) -> Job:
    """A job of these outputs.

    Args:
        checkpoint: the directory of its state.
        settings: those of SET in SQL: ``{"max_rows": 1_000_000}``.

    Raises:
        WatersmeetError: what is wrong with it, all of it.
    """
    if not outputs:
        raise whole_error("job", "is given nothing to run", "job(relation.to_sink(…), checkpoint='state')")
    other = next((output for output in outputs if not isinstance(output, Output)), None)
    if other is not None:
        raise whole_error("job", f"is given {other!r}", "what relation.to_sink(…) gives")
    said = dict(settings or {})
    if checkpoint is not None:
        if said.get("checkpoint", checkpoint) != checkpoint:
            raise SpecError("two checkpoints are said", code="bad-argument", hint="leave one of them out")
        said["checkpoint"] = checkpoint
    made = Job(tuple(outputs), said)
    _ = made.plan
    return made
