"""Check Spark's checkpoint against the manifest before a job resumes."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from watersmeet.errors import StateError
from watersmeet.plan.identity.settings import differences, digest_of
from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.files.inference import COLUMNS, encode_columns
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint, Offsets
from watersmeet.runtime.spark.checkpoint.rebuild import (
    archive_spark_files,
    find_damage,
    find_planned_damage,
    rebuild,
)
from watersmeet.runtime.spark.checkpoint.spark_log import REBUILD
from watersmeet.runtime.spark.checkpoint.spark_positions import (
    BATCH,
    NOTHING_READ,
    OFFSETS,
    QUERY_ID,
    SOURCES,
    TOPICS,
)
from watersmeet.runtime.spark.sources.files.progress import CHANGED, BatchFiles
from watersmeet.runtime.spark.sources.topics import TopicIds
from watersmeet.spec.model import Column
from watersmeet.state import file_lists
from watersmeet.state.manifest import Manifest
from watersmeet.state.store import Store

# What must fit before a job goes on: Spark's checkpoint against our manifest.
#
# Spark may repeat the last batch (killed between our commit and Spark's); nothing else. A repeated batch
# is skipped only if everything recorded about it is equal; whatever does not fit stops the job with what
# to do.

READ = "read"
"""Where a host has the digest of the batch's own files."""

_INPUT_FIELDS = (QUERY_ID, BATCH, OFFSETS, SOURCES, TOPICS, READ)
"""Of a host, what tells one tick's input from another's."""

_START_OVER_HINT = (
    "restore the checkpoint directory from a copy; or delete what is left of it and what the sinks hold, and"
    " run again: the job then reads and writes all rows again"
)


def build_host(
    query_id: str,
    offsets: Offsets,
    plan: JobPlan,
    topics: TopicIds,
    files: BatchFiles,
    inferred: Mapping[str, Sequence[Column]] | None = None,
) -> dict[str, Any]:
    """Build the fields of a manifest that describe a batch of Spark.

    Spark's checkpoint can be rebuilt from these fields, and they distinguish one batch from another. A
    repeated batch with the same rows has the same fields. They include the ``inferred`` columns,
    because
    later input might lead to different ones.
    """
    return {
        **_build_batch(query_id, offsets, plan),
        TOPICS: topics,
        READ: files.digest,
        **files.host,
        COLUMNS: {name: encode_columns(columns) for name, columns in (inferred or {}).items()},
    }


def _build_batch(query_id: str, offsets: Offsets, plan: JobPlan) -> dict[str, Any]:
    return {QUERY_ID: query_id, BATCH: offsets.batch, OFFSETS: offsets.text, SOURCES: list_sources(plan)}


def load_batch(manifest: Manifest | None) -> dict[str, Any]:
    """Return the fields of a manifest that describe the last batch; empty if there was none.

    The manifest may still contain fields about counted files.
    """
    host = {} if manifest is None else dict(manifest.host)
    return host if QUERY_ID in host else {}


def list_sources(plan: JobPlan) -> list[str]:
    """List the sources in the order of the union."""
    return [f"{source.connector} {source.name}" for source in plan.sources]


def build_batch_identity(host: Mapping[str, Any], settings: str) -> dict[str, str]:
    """Build the identity of a tick apart from its rows; see `runtime.coordinator.ledger`.

    Args:
        settings: the digest of the settings.
    """
    batch = json.dumps([host.get(name) for name in _INPUT_FIELDS])
    return {"offsets": batch, "settings": settings}


def check_settings(
    checkpoint: Checkpoint, settings: Mapping[str, str], begun: str | None, may_be_out: Sequence[str]
) -> bool:
    """Return True if this run has the settings with which an earlier run began the next tick.

    With other settings the tick is not repeated if the sinks may have some of its rows: old and new
    rows
    would be computed differently.

    Args:
        settings: the settings of this run.
        begun: the digest of the settings with which the next tick began; None if no run began it, so
            that none of its rows were emitted.
        may_be_out: descriptions of the sinks that have rows of the tick, or may have some.

    Raises:
        StateError: the settings differ, and rows may have been emitted.
    """
    digest, kept = digest_of(settings), checkpoint.settings(begun)
    as_begun = begun in (None, digest)
    if not as_begun and may_be_out:
        before = kept[1] if kept is not None and kept[0] == begun else None
        raise StateError(
            "the last run ended in the middle of a tick, and some of its rows may be in the sinks"
            f" ({', '.join(may_be_out)}). The tick must be repeated with the same settings, but they"
            f" have changed. {_describe_differences(before, settings)}",
            code="interrupted-tick",
            hint="run the job once with the old settings and --until-caught-up, then change it. If that"
            " fails, `watersmeet state restore JOB --tick N` returns to an earlier tick"
            " (`watersmeet state ls` lists them), and the sinks receive its rows again",
        )
    if kept is None or kept[0] != digest:
        checkpoint.keep_settings(digest, settings)
    return as_begun


def _describe_differences(before: Mapping[str, str] | None, now: Mapping[str, str]) -> str:
    if before is None:
        return "The old settings are no longer known"
    return "; ".join(differences(before, now))


def check_checkpoint(checkpoint: Checkpoint, host: Mapping[str, Any] | None, plan: JobPlan) -> None:
    """Check that Spark's checkpoint matches the state, after `recover`, before the query starts.

    Args:
        host: the batch fields of the manifest; None if there is no manifest.

    Raises:
        StateError: one of the two is lost, belongs to another job, or is older than the other.
    """
    _check_time(checkpoint, host, plan)
    damage = find_damage(checkpoint, host, plan) if host else None
    if damage is not None:
        raise StateError(
            f"Spark's checkpoint in {checkpoint.spark} is damaged: {damage}; the state is intact",
            code="spark-checkpoint-damaged",
            hint=REBUILD,
        )


def check_recoverable(checkpoint: Checkpoint, host: Mapping[str, Any] | None, plan: JobPlan) -> None:
    """Check that Spark's checkpoint and the state are of the same time, before `recover` runs.

    The check repairs nothing. It accepts what `recover` would repair, and does not compare the lists of files
    that were read.

    Raises:
        StateError: as `check_checkpoint`.
    """
    try:
        _check_time(checkpoint, host, plan)
    except StateError as error:
        if not host or error.code == "sources-changed":
            raise
        if checkpoint.spark_files.torn_commits():
            return
        if find_damage(checkpoint, host, plan) or not find_planned_damage(checkpoint, host, plan):
            raise


def _check_time(checkpoint: Checkpoint, host: Mapping[str, Any] | None, plan: JobPlan) -> None:
    query_id, planned = checkpoint.query_id(), checkpoint.last_planned()
    committed = checkpoint.last_committed()
    if host is None:
        if committed is not None:
            raise StateError(
                f"the state in {checkpoint.state} is missing, but Spark has committed batch"
                f" {committed}, whose rows are in the sinks",
                code="state-lost",
                hint=_START_OVER_HINT,
            )
        return
    if not host:
        return
    check_sources(host, plan)
    if query_id is None or planned is None:
        raise StateError(
            f"Spark's checkpoint in {checkpoint.spark}, or its metadata, is missing; the state is"
            f" intact, as of batch {host[BATCH]}",
            code="spark-checkpoint-lost",
            hint=REBUILD,
        )
    if host[QUERY_ID] != query_id:
        raise StateError(
            f"Spark's checkpoint in {checkpoint.spark} does not belong to this state",
            code="spark-checkpoint-changed",
            hint=REBUILD,
        )
    if (
        planned < host[BATCH]
        or planned > host[BATCH] + 1
        or (committed is not None and committed > host[BATCH])
    ):
        raise StateError(
            f"Spark's checkpoint is at batch {planned if committed is None else committed}, but the"
            f" state is at batch {host[BATCH]}: they are copies from different times",
            code="checkpoint-gap",
            hint=f"to continue from the state in {checkpoint.state}, {REBUILD}",
        )


def recover(
    checkpoint: Checkpoint,
    manifest: Manifest | None,
    plan: JobPlan,
    note: Callable[[str], None],
    *,
    interval: int,
    accepted: Mapping[str, str] | None = None,
    asked: bool = False,
    other_sources: bool = False,
) -> dict[str, Any]:
    """Recover Spark's checkpoint where that loses nothing; return the host to continue from.

    A batch that was only planned is dropped if a power failure destroyed its files: nothing of it was
    published, because a run publishes only after the files are on disk. Incomplete commits are deleted,
    too; Spark then repeats these batches.

    Args:
        note: receives a message for each repair.
        interval: see `rebuild`.
        accepted: sources that continue from other offsets at the user's request.
        asked: rebuild the checkpoint in any case.
        other_sources: the checkpoint belongs to a job with other sources.

    Raises:
        StateError: there is no state to rebuild the checkpoint from.
    """
    host = load_batch(manifest)
    if not host:
        if asked:
            raise StateError(
                f"Spark's checkpoint cannot be rebuilt: {checkpoint.state} has no state",
                code="state-lost" if manifest is None else "nothing-to-rebuild",
                hint="remove --rebuild-spark-checkpoint to start from the beginning of the input",
            )
        if other_sources and checkpoint.spark.exists():
            aside = archive_spark_files(checkpoint)
            note(
                f"Spark had completed no batch with the earlier sources; its checkpoint was moved to {aside}"
            )
        elif checkpoint.last_committed() is None and find_planned_damage(checkpoint, host, plan):
            note(
                "the first batch was planned, but not run, when the machine failed: "
                f"{archive_spark_files(checkpoint)}"
            )
        return host
    check_sources(host, plan)
    if accepted:
        host |= _build_resume_offsets(host, plan, accepted)
    torn = checkpoint.spark_files.drop_torn_commits()
    if torn:
        note(
            f"Spark's commits of batches {torn} were incomplete: Spark repeats these batches, and the"
            " job skips them"
        )
    ahead = None
    asked = asked or other_sources
    if not (asked or accepted or find_damage(checkpoint, host, plan)):
        ahead = find_planned_damage(checkpoint, host, plan)
    if asked or accepted or ahead:
        kept = rebuild(checkpoint, host, plan, interval)
        why = f" ({ahead}: a batch that was planned, but not run)" if ahead else ""
        note(
            f"Spark's checkpoint was rebuilt from the state of batch {host[BATCH]}{why}"
            + (f"; the old one was moved to {kept}" if kept else "")
        )
    return host


def _build_resume_offsets(
    host: Mapping[str, Any], plan: JobPlan, accepted: Mapping[str, str]
) -> dict[str, Any]:
    lines = str(host[OFFSETS]).split("\n")
    for number, source in enumerate(plan.sources):
        lines[2 + number] = accepted.get(source.name, lines[2 + number])
    topics = {name: ids for name, ids in host.get(TOPICS, {}).items() if name not in accepted}
    return {OFFSETS: "\n".join(lines), TOPICS: topics}


def check_sources(host: Mapping[str, Any], plan: JobPlan) -> None:
    """Check that the job reads the sources of its state, in the same order.

    Raises:
        StateError: the state belongs to other sources, or to another order of them.
    """
    if host[SOURCES] != list_sources(plan):
        raise StateError(
            f"the job reads the sources {_format_names(list_sources(plan))}, but its state belongs to"
            f" {_format_names(host[SOURCES])}, in this order",
            code="sources-changed",
            hint="use the same sources in the same order, or start over with an empty checkpoint directory",
        )


def is_committed(manifest: Manifest | None, query_id: str, offsets: Offsets, plan: JobPlan) -> bool:
    """Return True if the batch that Spark starts is the last committed one.

    Raises:
        StateError: it is neither the last committed batch nor the next one.
    """
    host = load_batch(manifest)
    last = int(host.get(BATCH, -1))
    if offsets.batch == last + 1:
        return False
    offsets_of_batch = _build_batch(query_id, offsets, plan)
    if host and offsets_of_batch == {name: host.get(name) for name in offsets_of_batch}:
        return True
    raise StateError(
        f"Spark starts batch {offsets.batch}, but the state is at batch {last}"
        + (", with other offsets" if offsets.batch == last else "")
        + ": Spark's checkpoint and the state are copies from different times; nothing of this batch"
        " was written",
        code="checkpoint-gap",
        hint=_START_OVER_HINT,
    )


def _format_names(sources: list[str]) -> str:
    return ", ".join(f'"{source}"' for source in sources)


# What a manifest remembers of a batch, for a job that reads other sources now, or in another order.
#
# Spark knows sources by their numbers, and refuses another count of them. So its checkpoint is made anew
# from this (`rebuild`): sources that stay go on from their offsets, those that come have none.

_HEADER = 2
"""Lines of Spark's offsets before those of the sources."""


def adapt_host_to_sources(
    host: Mapping[str, Any],
    before: Sequence[str],
    plan: JobPlan,
    stay: Collection[str],
    store: Store,
    inferred: Mapping[str, Sequence[Column]],
) -> dict[str, Any]:
    """Return the host adapted to the sources of ``plan``.

    Args:
        before: the names of the sources that the host describes.
        stay: those of them that continue from their positions.
        inferred: the inferred columns per source of the plan.

    Raises:
        StateError: a list of files read is damaged.
    """
    places = {name: number for number, name in enumerate(before)}
    numbers = {places[s.name]: number for number, s in enumerate(plan.sources) if s.name in stay}
    changed = dict(host)
    for of_sources in (TOPICS, CHANGED):
        if of_sources in host:
            changed[of_sources] = {name: of for name, of in host[of_sources].items() if name in stay}
    changed[COLUMNS] = {name: encode_columns(columns) for name, columns in inferred.items()}
    if OFFSETS in host:
        lines = str(host[OFFSETS]).split("\n")
        texts = dict.fromkeys(range(len(plan.sources)), NOTHING_READ)
        texts |= {number: lines[_HEADER + old] for old, number in numbers.items()}
        changed |= {SOURCES: list_sources(plan), OFFSETS: "\n".join([*lines[:_HEADER], *texts.values()])}
    if any(old != numbers.get(old) for old in places.values()):
        files = file_lists.read(store, file_lists.lists_of(host))
        moved = (file._replace(source=numbers[file.source]) for file in files if file.source in numbers)
        changed[file_lists.KEY] = [entry.model_dump() for entry in file_lists.add(store, [], moved)]
    return changed
