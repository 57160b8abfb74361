"""`state show` and `state ls`."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from watersmeet.errors import SpecError, StateError, WatersmeetError
from watersmeet.event_time import Watermark, shown_time
from watersmeet.names import input_of, is_ours
from watersmeet.objects.settings import CACHE, STORE, store_of
from watersmeet.plan.explain.wording import node_name, size_of
from watersmeet.plan.identity.completeness import SHED, shown_times
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.sides import joined_name
from watersmeet.runtime.coordinator.restore.changed_queries import Change, describe_source_changes
from watersmeet.runtime.coordinator.results import count_shed_rows
from watersmeet.runtime.coordinator.shared_inputs import home_of, side_home
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint, check_reset_finished
from watersmeet.state.manifest import Arrangement, Manifest, load, manifest_names
from watersmeet.state.store import object_of


def needs_job(named: Path | str) -> WatersmeetError:
    """Return the error for a directory where a command needs the text of a job."""
    if not any((Path(named) / name).exists() for name in ("state", "spark", "job")):
        return StateError(
            f"{named} is not a checkpoint directory",
            code="not-a-checkpoint",
            hint="name the job's file, or its checkpoint directory, such as .watersmeet/job",
        )
    return SpecError(
        f"{named} is a checkpoint directory, which does not record the columns of the job",
        code="no-job",
        hint="name the job's file; --checkpoint DIR if its state is in another directory",
    )


@dataclass(frozen=True)
class StateLocation:
    """Location of the state that the user named.

    Attributes:
        named: the name as the user wrote it.
        text: the job's text, if the user named the job.
        settings: the settings of the job's run.
    """

    named: str
    checkpoint: Checkpoint
    text: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, named: Path, checkpoint: str | None, default: Path) -> StateLocation:
        """Find the state of a job's file or of a checkpoint directory.

        Args:
            named: A job's file or a checkpoint directory.
            checkpoint: Checkpoint directory of the job, if the user gave one.
            default: Checkpoint directory if the job's text names none.

        Raises:
            SpecError: ``named`` is neither, or the text cannot be read.
            StateError: A reset was interrupted there.
        """
        if checkpoint is None and named.is_dir():
            return cls(str(named), Checkpoint(named)).whole()
        from watersmeet.cli.job_file import read_text

        return cls.from_text(read_text(named), named, checkpoint, default)

    @classmethod
    def from_text(
        cls,
        text: str,
        named: Path,
        checkpoint: str | None,
        default: Path,
        overrides: Mapping[str, str] = MappingProxyType({}),
    ) -> StateLocation:
        """Find the state of a job's text.

        Args:
            overrides: Settings that take precedence over those in the text.

        Raises:
            SpecError, StateError: As `of`.
        """
        from watersmeet.cli.job_file import settings_in

        settings = settings_in(text, str(named), overrides)
        if STORE in settings:  # what is there is meant, not what this machine has of it
            settings = {**settings, CACHE: "none"}
        directory = checkpoint or settings.get("checkpoint", str(default))
        return cls(str(named), Checkpoint(directory, store_of(settings)), text, settings).whole()

    def whole(self) -> StateLocation:
        """Return this location after checking that no reset was interrupted there.

        Raises:
            StateError: A reset was interrupted.
        """
        root = self.checkpoint.root
        check_reset_finished(self.checkpoint, f"watersmeet reset JOB.sql --checkpoint {root}")
        return self

    def require_directory(self) -> None:
        """Check that the state is in a directory.

        Raises:
            StateError: the state is in an object store, where a command cannot tell whether the job runs.
        """
        if self.checkpoint.stored_job is not None:
            raise StateError(
                f"the state is in {self.checkpoint.place}, where a command cannot tell whether the job runs",
                code="not-in-a-store",
                hint="the job itself removes files that it no longer needs",
            )

    def check_outside(self, to: Path) -> None:
        """Check that a path is outside of the checkpoint directory, which may be removed as a whole.

        Raises:
            StateError: the path is within the checkpoint directory.
        """
        if self.checkpoint.root.resolve() in to.resolve().parents:
            raise StateError(
                f"{to} is inside the checkpoint directory {self.checkpoint.root}, and would be removed with"
                " it",
                code="not-outside",
                hint="use a directory outside of it",
            )

    def ticks(self) -> list[str]:
        """Return the names of all manifests, oldest first.

        Raises:
            StateError: There is none.
        """
        names = manifest_names(self.checkpoint.store)
        if not names:
            raise self.checkpoint.no_state_error()
        return names


# `state ls`: the ticks that a state can be taken as of.


@dataclass(frozen=True)
class RetainedTick:
    """Retained tick of the state.

    Attributes:
        clock_us: the tick's clock, in µs.
        rows: the number of retained rows.
        files: the number of files of its runs, each counted once.
        bytes: the size of its runs, each counted once.
        problem: why the tick cannot be read; then only its number is known.
    """

    tick: int
    clock_us: int = 0
    rows: int = 0
    files: int = 0
    bytes: int = 0
    finished: bool = False
    problem: str | None = None

    @classmethod
    def of(cls, manifest: Manifest) -> RetainedTick:
        runs = {live.run.name: live.run.nbytes for live in manifest.runs()}
        nodes = (node for query in manifest.queries.values() for node in query.nodes)
        rows = sum(kept.stored for node in nodes for kept in node.arrangements.values())
        files = len(set(map(object_of, runs)))
        return cls(manifest.tick, manifest.clock_us, rows, files, sum(runs.values()), manifest.finished)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary for JSON."""
        return asdict(self)


def load_ticks(place: StateLocation) -> Iterator[RetainedTick]:
    """Yield the retained ticks, oldest first.

    The job may be running: a tick that is deleted in the meantime is left out.

    Raises:
        StateError: There is no state.
    """
    store = place.checkpoint.store
    for name in place.ticks():
        try:
            yield RetainedTick.of(load(store, name))
        except StateError as error:
            if name in manifest_names(store):
                yield RetainedTick(tick_of(name), problem=error.message)


def tick_of(name: str) -> int:
    """Return the tick number in a manifest's name."""
    return int(name.rpartition("/")[2].removesuffix(".json"))


def table_of(ticks: list[RetainedTick]) -> Table:
    table = Table(title="Restorable ticks", title_justify="left", header_style="bold")
    for name in ("tick", "rows", "files", "size"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("clock (UTC)", overflow="fold")
    for tick in ticks:
        if tick.problem is None:
            ended = ", its input has ended" if tick.finished else ""
            clock = f"{shown_time(tick.clock_us, False)}{ended}"
            table.add_row(f"{tick.tick:,}", f"{tick.rows:,}", f"{tick.files:,}", size_of(tick.bytes), clock)
        else:
            table.add_row(f"{tick.tick:,}", "", "", "", tick.problem)
    return table


# What a job keeps, as its newest manifest says: rows and files per input, and which others have these
# files.
#
# Nothing is changed, no file of rows is opened, and the job may be running.


@dataclass(frozen=True)
class SideState:
    """State that one node of a query retains for one of its sides, or for an AS OF table.

    Args:
        rows: Retained rows, or partial aggregates.
        max_rows: The largest number of rows after any tick.
        files: Number of runs with these rows, which may also contain released rows.
        bytes: Size of these runs.
        shared_bytes: Size of those runs that another side also has.
        shared_with: These sides as ``query/input``, and the sides of queries that retain no rows
            themselves but use these.
        times: For each event time, lower and upper bounds of the retained rows' values; missing if the
            query's text has changed.
    """

    query: str
    node: str
    input: str
    rows: int
    max_rows: int
    files: int
    bytes: int
    shared_bytes: int
    shared_with: tuple[str, ...]
    times: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.query}/{self.input}"


@dataclass(frozen=True)
class StateSummary:
    """State at a tick.

    Args:
        files: Number of all runs, each once.
        bytes: Size of all runs, each once.
        differences: How the queries and sources of the job's text differ from those of the state.
        complete_from: For each changed query and event time, the value from which results are
            complete.
        unknown: For each changed query, the rows that were not padded because they may have had a
            match.
        shed: For each query and input, the number of rows evicted at a limit since the start.
        shed_joined: For each combination of joined inputs, the number of such rows that were joined.
    """

    tick: int
    clock_us: int
    finished: bool
    inputs: tuple[SideState, ...]
    files: int
    bytes: int
    differences: tuple[str, ...] = ()
    rows_out: Mapping[str, int] = field(default_factory=dict)
    complete_from: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    unknown: Mapping[str, int] = field(default_factory=dict)
    shed: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    shed_joined: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary for JSON."""
        return asdict(self)

    def head(self) -> str:
        ended = ", its input has ended" if self.finished else ""
        return f"as of tick {self.tick:,} ({shown_time(self.clock_us, False)} UTC){ended}"

    def table(self) -> Table:
        """Build a table with one line per side that retains rows."""
        table = Table(title="State", title_justify="left", header_style="bold")
        for name in ("input", "node"):
            table.add_column(name, overflow="fold")
        for name in ("rows", "at most", "files", "size", "shared"):
            table.add_column(name, justify="right", no_wrap=True)
        for kept in self.inputs:
            shared = size_of(kept.shared_bytes) if kept.shared_bytes else ""
            numbers = (f"{kept.rows:,}", f"{kept.max_rows:,}", f"{kept.files:,}", size_of(kept.bytes), shared)
            table.add_row(Text(kept.name), Text(kept.node), *numbers)
        return table

    def lines(self) -> Iterator[str]:
        """Yield the facts that the table does not contain."""
        said = set[frozenset[str]]()
        for kept in self.inputs:
            together = frozenset((kept.name, *kept.shared_with))
            if kept.shared_with and together not in said:
                said.add(together)
                yield f"{kept.name} shares its rows with {', '.join(kept.shared_with)}"
        for kept in self.inputs:
            for name, (least, most) in kept.times.items() if kept.rows else ():
                yield f"{kept.name}: {name} from {least} to {most}"
        for query, times in self.complete_from.items():
            from_when = " and ".join(f"{key} >= {time}" for key, time in times.items())
            withheld = f"; {self.unknown[query]:,} rows may have had a match and were not padded"
            but = SHED if self.shed.get(query) or self.shed_joined.get(query) else ""
            yield f"{query} was changed: its results are complete{but} with {from_when}{withheld}"
        for shed, what in ((self.shed, "rows"), (self.shed_joined, "joined rows")):
            for query, by_name in shed.items():
                for name, count in by_name.items():
                    lost = "they match no more rows and are not padded"
                    yield f"{query}/{name}: {count:,} {what} shed so far: {lost}"
        files = "1 file" if self.files == 1 else f"{self.files:,} files"
        yield f"total: {size_of(self.bytes)} in {files}, each counted once"
        if self.differences:
            yield "the job's text differs from that of the state:"
            yield from (f"  {text}" for text in self.differences)


def state_text(
    text: str, source_name: str, overrides: Mapping[str, str], default: Path, *, as_json: bool
) -> None:
    """Return a description of the state that the job retains.

    Raises:
        StateError: there is no state, or it cannot be read.
    """
    from watersmeet.cli.job_file import job_in, settings_in
    from watersmeet.cli.state_measurements import manifest_in
    from watersmeet.objects.settings import store_of
    from watersmeet.plan.planner import plan_job
    from watersmeet.runtime.coordinator.restore.plan_for_state import plan_for_state
    from watersmeet.runtime.spark.job.column_inference import ColumnInference

    settings = settings_in(text, source_name, overrides)
    directory, store = settings.get("checkpoint", str(default)), store_of(settings)
    manifest = manifest_in(directory, store)
    infer = ColumnInference(directory, store=store)
    job = job_in(text, source_name, overrides, infer=infer)
    report = state_report(manifest, plan_for_state(plan_job(job), manifest))
    if as_json:
        print(json.dumps(report.as_dict()))
        return
    print(f"{directory if store is None else store.place.url}: {report.head()}")
    Console(file=sys.stdout, highlight=False).print(report.table())
    for line in report.lines():
        print(line)


def state_report(manifest: Manifest, plan: JobPlan) -> StateSummary:
    """Build the summary of the state in a manifest.

    Args:
        plan: Plan of the job's current text. Queries that differ there have the names of the state.
    """
    plans = {query.name: query for query in plan.queries}
    change = Change.of(manifest, plan)
    held = list(_retained_sides(manifest))
    holders = Counter(name for side in held for name in side.runs)
    sizes = {live.run.name: live.run.nbytes for live in manifest.runs()}
    taken, kept = _consumers_by_side(manifest), []
    for side in held:
        own = plans.get(side.query) if side.query not in change.changed else None
        shared = {name for name in side.runs if holders[name] > 1}
        others = [other.name for other in held if other is not side and shared & other.runs]
        others += taken.get((side.query, side.node, side.side), [])
        kept.append(
            SideState(
                query=side.query,
                node=_node_name(own, side.node),
                input=_input_name(own, side),
                rows=side.rows,
                max_rows=side.max_rows,
                files=len(set(map(object_of, side.runs))),
                bytes=sum(sizes[name] for name in side.runs),
                shared_bytes=sum(sizes[name] for name in shared),
                shared_with=tuple(others),
                times=_times(own, side),
            )
        )
    return StateSummary(
        tick=manifest.tick,
        clock_us=manifest.clock_us,
        finished=manifest.finished,
        inputs=tuple(kept),
        files=len(set(map(object_of, sizes))),
        bytes=sum(sizes.values()),
        differences=(*_differences(change, plan), *describe_source_changes(manifest, plan)),
        rows_out={name: query.rows_out for name, query in manifest.queries.items()},
        complete_from={
            name: _format_times(plans.get(name), query.complete_from)
            for name, query in manifest.queries.items()
            if query.complete_from
        },
        unknown={name: query.unknown for name, query in manifest.queries.items() if query.complete_from},
        shed={
            name: shed for name, query in manifest.queries.items() if (shed := count_shed_rows(query.account))
        },
        shed_joined={
            name: query.shed_joined for name, query in manifest.queries.items() if query.shed_joined
        },
    )


def _format_times(query: QueryPlan | None, times: Mapping[str, Watermark]) -> dict[str, str]:
    """Format the time of each watermark key for people.

    Uses plain numbers where the plan does not say what the keys are.
    """
    return shown_times(query, times) if query is not None else {key: str(time) for key, time in times.items()}


class _StoredSide(NamedTuple):
    """Side as stored in the manifest.

    Attributes:
        runs: the runs by their names.
    """

    query: str
    node: int
    side: str
    rows: int
    max_rows: int
    runs: frozenset[str]
    spans: Mapping[str, tuple[float, int]]

    @property
    def name(self) -> str:
        return f"{self.query}/{_side_name(self.side)}"


def _retained_sides(manifest: Manifest) -> Iterator[_StoredSide]:
    """Yield all sides that retain rows or have retained some."""
    for name, query in manifest.queries.items():
        for number, node in enumerate(query.nodes):
            for side, arrangement in node.arrangements.items():
                if arrangement.runs or arrangement.most:
                    runs = frozenset(live.run.name for live in arrangement.runs)
                    yield _StoredSide(
                        name, number, side, arrangement.stored, arrangement.most, runs, _spans(arrangement)
                    )
            if node.table is not None:
                runs = frozenset(run.name for run in node.table.runs)
                yield _StoredSide(name, number, "table", node.table.rows, node.table.rows, runs, {})


def _spans(kept: Arrangement) -> dict[str, tuple[float, int]]:
    """Return the range of each measured value over all runs, without released rows' values."""
    spans: dict[str, tuple[float, int]] = {}
    for live in kept.runs:
        for name, (low, high) in live.run.spans.items() if live.stored else ():
            least, most = spans.get(name, (low, high))
            spans[name] = (max(min(least, low), kept.limits.get(name, low)), max(most, high))
    return spans


def _times(query: QueryPlan | None, held: _StoredSide) -> dict[str, tuple[str, str]]:
    """Return the range of each event time, if the plan says which columns are event times."""
    sides = () if query is None or held.node >= len(query.nodes) else query.nodes[held.node].sides
    side = next((side for side in sides if side.name == held.side), None)
    if side is None:
        return {}
    numbers = {
        name
        for i in side.inputs
        for column in i.columns
        if column.type.is_integer
        for name in (column.name, joined_name(i.alias, column.name))
    }
    return {
        name: (
            shown_time(held.spans[name][0], name in numbers),
            shown_time(held.spans[name][1], name in numbers),
        )
        for name in side.event_times
        if name in held.spans
    }


def _consumers_by_side(manifest: Manifest) -> dict[tuple[str, int, str], list[str]]:
    """Map each side, as (query, node, name), to the sides of other queries that use its rows."""
    taken: dict[tuple[str, int, str], list[str]] = {}
    for name, query in manifest.queries.items():
        for node in query.nodes:
            if node.elsewhere is not None:
                home = home_of(manifest, node.elsewhere)
                for own, there in home.sides.items():
                    taken.setdefault((home.query, home.node, there), []).append(f"{name}/{_side_name(own)}")
            for own, kept in node.kept_by.items():
                home_side = side_home(manifest, kept.query, kept.node, kept.side)
                taken.setdefault(home_side, []).append(f"{name}/{_side_name(own)}")
    return taken


def _node_name(query: QueryPlan | None, number: int) -> str:
    if query is None or number >= len(query.nodes):
        return f"node {number + 1}"
    return node_name(query, query.nodes[number])


def _input_name(query: QueryPlan | None, held: _StoredSide) -> str:
    sides = () if query is None or held.node >= len(query.nodes) else query.nodes[held.node].sides
    titles = (side.title for side in sides if side.name == held.side and not is_ours(side.name))
    return next(titles, _side_name(held.side))


def _side_name(name: str) -> str:
    """Return the name of a side; for a copy of an input with another key, the input's name."""
    alias = input_of(name)
    return name if alias == name else f"{alias} (copy)"


def _differences(change: Change, plan: JobPlan) -> Iterator[str]:
    resumes = {name: own.resumes for name, own in change.changed.items()}
    for names, what in (
        (change.added, "new"),
        ([name for name in resumes if not resumes[name]], "changed: it would start without state"),
        ([name for name in resumes if resumes[name]], "changed: it would keep its state"),
        (change.removed, "removed: its state would be deleted"),
    ):
        for name in names:
            own = change.changed.get(name)
            told = "; ".join([] if own is None else filter(None, [*own.how, own.judgement.reason]))
            yield f'query "{name}" is {what}{" (" if told else ""}{told}{")" if told else ""}' + (
                change.from_when(plan, name)
            )
