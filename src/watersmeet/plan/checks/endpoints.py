"""Rules about the sources and sinks of a job: options of files, and sinks that feed its own sources."""

from __future__ import annotations

import os
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from watersmeet.errors import PlanError, WatersmeetError, near_names
from watersmeet.names import CHANGE_COLUMNS
from watersmeet.plan.nodes.columns import with_mode
from watersmeet.regular_files import alternatives
from watersmeet.spec.model import Insert, Job, OutputMode, Query, Sink, Source
from watersmeet.spec.options.files import (
    format_of,
    path_of,
    sink_problems,
    source_problems,
    type_problems,
)
from watersmeet.spec.options.kafka import parser_of, records_of, servers_in, topics_in
from watersmeet.spec.options.names import (
    shared_target_problems,
    sink_option_problems,
    source_option_problems,
)
from watersmeet.spec.options.targets import path_parts
from watersmeet.spec.uncountable_sinks import untold

SIDE_OUTPUT_SETTINGS = ("late_output", "broken_output", "shed_output", "progress_output")
"""Settings that name sinks for rows beside those of queries: set aside, and one per tick."""


def check_sources(queries: Iterable[Query]) -> list[WatersmeetError]:
    """Check the options and column types of all sources; report each problem once."""
    errors: list[WatersmeetError] = []
    for source, table in _read(queries):
        if source.traits.files:
            errors += source_problems(source, table=table)
            errors += type_problems(source, format_of(source.options))
            continue
        errors += source_option_problems(source)
        if source.traits.log:
            errors += type_problems(source, parser_of(records_of(source.options)))
    return errors


def check_endpoints(job: Job) -> list[WatersmeetError]:
    """Check everything that a job reads and writes, and return the errors."""
    queries = [insert.query for insert in job.inserts]
    written = written_sinks(job)
    sinks = [sink for sink in written if sink.traits.files]
    errors = check_sources(queries)
    errors += [error for sink in written for error in sink_option_problems(sink)]
    errors += [error for sink in sinks for error in sink_problems(sink)]
    errors += shared_target_problems(written, [source for source, _ in _read(queries)])
    errors += [
        PlanError(
            f'{name} = {sink.name}: rows of {name} have no key, but the sink "{sink.name}" has a PRIMARY KEY',
            code="primary-key",
            hint="use a sink without a PRIMARY KEY",
        )
        for name in SIDE_OUTPUT_SETTINGS
        for sink in job.sinks
        if sink.primary_key and sink.name == job.run.get(name)
    ]
    errors += _unknown_side_outputs(job)
    errors += _by_one_key(job)
    errors += _names_of_changes(job)
    errors += _shared_progress_output(job)
    for sink in sinks:
        for source, table in _read(queries):
            if source.traits.files and _overlap(source, sink):
                what = "table" if table else "file source"
                errors.append(
                    PlanError(
                        f'file sink "{sink.name}" would write into the files of {what} "{source.name}":'
                        f' "{path_of(sink.options)}" and "{path_of(source.options)}"',
                        code="sink-in-source",
                        hint="give the sink a directory that is not inside a source's directory and does not"
                        " contain one",
                    )
                )
    return errors


def check_checkpoint(job: Job, directory: str) -> list[PlanError]:
    """Return errors if checkpoint files would lie among files that the job reads or writes.

    Readers skip paths below a name that begins with a dot or an underscore, so those are allowed.
    """
    place = Path(os.path.abspath(os.path.expanduser(directory))).parts
    read = [source for source, _ in _read(insert.query for insert in job.inserts)]
    named = [
        (f'what "{source.name}" reads', path)
        for source in read
        if source.traits.files
        for path in alternatives(path_of(source.options))
    ]
    named += [
        (f'what "{sink.name}" writes', path_of(sink.options))
        for sink in written_sinks(job)
        if sink.traits.files
    ]
    return [
        PlanError(
            f'the checkpoint "{directory}" would be inside {what}: "{path}"',
            code="checkpoint-in-files",
            hint="use a checkpoint directory outside of all sources and sinks",
        )
        for what, path in named
        if (parts := path_parts(path))
        and _is_within(place, parts)
        and not any(part.startswith((".", "_")) for part in place[len(parts) :])
    ]


def _unknown_side_outputs(job: Job) -> list[PlanError]:
    """Return an error per side output whose sink the job does not declare."""
    declared = {sink.name for sink in (*job.sinks, *(insert.sink for insert in job.inserts))}
    return [
        PlanError(
            f'{setting} = "{wanted}", but this job has no such sink',
            code="unknown-sink",
            hint=near_names(wanted, declared)
            or "declare one: CREATE MAPPING late TYPE File OPTIONS ('path' = 'out/late')",
        )
        for setting in SIDE_OUTPUT_SETTINGS
        if (wanted := job.run.get(setting)) is not None and wanted not in declared
    ]


def _by_one_key(job: Job) -> list[PlanError]:
    """Return an error per sink with a PRIMARY KEY that several INSERTs write to.

    Each INSERT knows only its own rows of a key, so it would delete another INSERT's row of that key.
    """
    return [
        PlanError(
            f'{len(names)} INSERTs write to "{sink.name}", which has a PRIMARY KEY:'
            f" {', '.join(names)}. They would replace or delete each other's rows with the same key",
            code="primary-key",
            hint="write one INSERT with UNION ALL, or use a separate sink for each INSERT",
        )
        for sink in written_sinks(job)
        if sink.primary_key
        and len(names := [insert.name for insert in job.inserts if insert.sink.name == sink.name]) > 1
    ]


def _names_of_changes(job: Job) -> list[PlanError]:
    """Return an error per output column of a keyed sink that has the name of a change column.

    Sinks with a PRIMARY KEY have no columns for the number of changes, so these names are reserved.
    """
    return [
        PlanError(
            f'the column name "{output.name}" ({output.origin}) is reserved in "{insert.sink.name}",'
            " because sinks with a PRIMARY KEY drop this column of changes",
            code="reserved-name",
            hint=f"rename it: {output.origin} AS {output.name}_2",
        )
        for insert in job.inserts
        if insert.sink.primary_key and not insert.sink.traits.log
        if with_mode(job.options, insert.query).output_mode is not OutputMode.CHANGELOG
        for output in insert.query.outputs
        if output.name.lower() in CHANGE_COLUMNS
    ]


def _shared_progress_output(job: Job) -> list[PlanError]:
    """Return an error if the sink of `progress_output` also receives other rows.

    Progress rows have their own columns and arrive after all other rows of their tick.
    """
    name = job.run.get("progress_output")
    users = [insert.name for insert in job.inserts if insert.sink.name == name]
    users += [setting for setting in SIDE_OUTPUT_SETTINGS[:-1] if job.run.get(setting) == name]
    if name is None or not users:
        return []
    return [
        PlanError(
            f"progress_output = {name}: this sink also receives other rows ({', '.join(users)})",
            code="progress-output",
            hint="declare a sink only for progress_output",
        )
    ]


def warnings_of(job: Job, insert: Insert) -> tuple[str, ...]:
    """Return the warnings for the sink of an INSERT.

    The first INSERT of the job also carries the warnings for sinks that only receive side outputs.
    """
    aside = [
        sink for sink in written_sinks(job) if all(other.sink.name != sink.name for other in job.inserts)
    ]
    others = aside if insert is job.inserts[0] else []
    return (*_loops(job, insert), *(said for sink in (insert.sink, *others) for said in untold(sink)))


def _loops(job: Job, insert: Insert) -> tuple[str, ...]:
    """Return a warning per topic that `insert` writes and the job reads.

    This is a warning and not an error because some jobs want such a loop.
    """
    if not insert.sink.traits.log:
        return ()
    topics, servers = set(topics_in(insert.sink.options)), set(servers_in(insert.sink.options))
    return tuple(
        f'"{insert.sink.name}" writes to the topic {topic}, which "{source.name}" of this job reads, so'
        " the job reads its own results"
        for source, _ in _read(other.query for other in job.inserts)
        if source.traits.log and servers.intersection(servers_in(source.options))
        for topic in sorted(topics.intersection(topics_in(source.options)))
    )


def _read(queries: Iterable[Query]) -> list[tuple[Source, bool]]:
    """Return each source once, with True if the job reads it as a table."""
    sources = {
        (branch.name, i.as_of or branch.compared): branch
        for query in queries
        for inner in query.every
        for i in inner.inputs
        for branch in i.sources
    }
    return [(source, table) for (_, table), source in sources.items()]


def written_sinks(job: Job) -> list[Sink]:
    """Return the sinks of INSERTs and of side outputs, each once."""
    beside = {job.run.get(name) for name in SIDE_OUTPUT_SETTINGS}
    sinks = [insert.sink for insert in job.inserts if not insert.is_index]
    sinks += [sink for sink in job.sinks if sink.name in beside]
    return list({sink.name: sink for sink in sinks}.values())


def _overlap(source: Source, sink: Sink) -> bool:
    """Return True if the path of the source equals, contains or lies in the path of the sink.

    The path of the source may contain wildcards.
    """
    written = path_parts(path_of(sink.options))
    read = [path_parts(path) for path in alternatives(path_of(source.options))]
    return bool(written) and any(parts and _match(parts, written) for parts in read)


def _is_within(place: tuple[str, ...], above: tuple[str, ...]) -> bool:
    """Return True if `place` equals `above` or lies in it; `above` may contain wildcards."""
    return len(place) >= len(above) and _match(above, place)


def _match(read: tuple[str, ...], written: tuple[str, ...]) -> bool:
    """Return True if both paths match as far as the shorter one reaches.

    Args:
        read: Path that may contain wildcards.
    """
    return all(one == other or fnmatchcase(other, one) for one, other in zip(read, written, strict=False))
