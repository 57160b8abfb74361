"""Spark's checkpoint: found damaged, and made anew from the manifest, which knows offsets and files.

A manifest's ``host`` has the text of the offsets of its batch, and names lists of all files read. From these
Spark goes on with the next batch as if its own files had never been lost. What a killed run had planned
beyond the manifest is planned anew.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from watersmeet.durable_files import make_folders, sync
from watersmeet.errors import StateError
from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.files.listing import (
    find_unpartitioned_file,
    format_path,
    is_unnameable,
    to_local_path,
)
from watersmeet.runtime.spark.checkpoint.directory import OLD, Checkpoint
from watersmeet.runtime.spark.checkpoint.spark_log import (
    COMPACT,
    SparkFiles,
    log_lines,
    log_text,
    read_file_text,
)
from watersmeet.runtime.spark.checkpoint.spark_positions import (
    BATCH,
    NOTHING_READ,
    OFFSETS,
    QUERY_ID,
    load_offsets,
)
from watersmeet.runtime.spark.sources.files.progress import last_read_step
from watersmeet.spec.connectors import Connector
from watersmeet.spec.model import Source
from watersmeet.state import file_lists
from watersmeet.state.file_lists import FileRead

_PARTITIONS = "spark.sql.shuffle.partitions"
"""Of the settings that a query keeps from batch to batch, the one without which Spark does not go on."""


def find_damage(checkpoint: Checkpoint, host: Mapping[str, Any], plan: JobPlan) -> str | None:
    """Describe damage to Spark's files up to the batch of ``host``; None if they are intact."""
    spark, batch = checkpoint.spark_files, int(host[BATCH])
    try:
        text = read_file_text(spark.root / "offsets" / str(batch))
    except (OSError, ValueError):
        return f"its offsets of batch {batch} cannot be read"
    if text != host[OFFSETS]:
        return f"its offsets of batch {batch} differ from those of the state"
    if batch > 0:
        try:
            checkpoint.offsets(batch - 1)
        except StateError:
            return f"its offsets of batch {batch - 1} cannot be read"
    offsets = load_offsets(host)
    read = list(file_lists.read(checkpoint.store, file_lists.lists_of(host)))
    try:
        for number in _file_sources(plan):
            expected = {(file.batch, file.path) for file in read if file.source == number and file.batch >= 0}
            spark.check_file_log(number, last_read_step(offsets, number), expected)
    except ValueError as error:
        return str(error)
    return None


def find_planned_damage(checkpoint: Checkpoint, host: Mapping[str, Any], plan: JobPlan) -> str | None:
    """Describe damage to Spark's files of the next batch, if one is planned; None if intact."""
    spark, batch = checkpoint.spark_files, int(host[BATCH]) + 1 if host else 0
    planned = batch in spark.numbers("offsets")
    before = load_offsets(host) if host else None
    try:
        if not planned:
            for number in _file_sources(plan):
                last = -1 if before is None else last_read_step(before, number)
                _check_log(spark, number, plan.sources[number], last + 1, spark.last_step(number))
            return None
        if spark.query_id() is None:
            return "its metadata cannot be read"
        offsets = checkpoint.offsets(batch)
        if len(offsets.sources) != len(plan.sources):
            return f"its offsets of batch {batch} are incomplete"
        kept = {} if before is None else before.settings
        if _PARTITIONS not in offsets.settings or not kept.items() <= offsets.settings.items():
            return f"its offsets of batch {batch} have different settings than the query"
        for number, source in enumerate(plan.sources):
            if before is not None and _reads_again(
                source.traits, before.sources[number], offsets.sources[number]
            ):
                return f"its offsets of batch {batch} are behind those of batch {batch - 1}"
        for number in _file_sources(plan):
            last = -1 if before is None else last_read_step(before, number)
            _check_log(spark, number, plan.sources[number], last + 1, last_read_step(offsets, number))
    except StateError:
        return f"its offsets of batch {batch} cannot be read"
    except ValueError as error:
        return str(error)
    return None


def _check_log(spark: SparkFiles, number: int, source: Source, first: int, last: int) -> None:
    """Check that Spark's log of files is complete and that ticks have read the files that it lists.

    Raises:
        ValueError: The log is not complete, or it lists a file that Spark does not read under that name.
    """
    entries = [line for step in range(first, last + 1) for line in spark.file_log(number, step)]
    paths = [path for line in entries if (path := to_local_path(str(line["path"]))) is not None]
    for path in paths:
        if is_unnameable(path):
            raise ValueError(f"it lists {format_path(path)}, which Spark reads as a pattern")
    plain = find_unpartitioned_file(source, paths)
    if plain is not None:
        raise ValueError(f"it lists {format_path(plain)}, which Spark ignores")


def archive_spark_files(checkpoint: Checkpoint) -> Path:
    """Move Spark's files out of the way; where they are now."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    names = (f"{OLD}{stamp}{more}" for more in ("", *(f"-{n}" for n in range(2, 1000))))
    kept = next(path for path in map(checkpoint.root.joinpath, names) if not path.exists())
    os.rename(checkpoint.spark, kept)
    sync(checkpoint.root)
    return kept


def rebuild(
    checkpoint: Checkpoint,
    host: Mapping[str, Any],
    plan: JobPlan,
    interval: int,
    *,
    planned: Mapping[str, Any] | None = None,
) -> Path | None:
    """Make Spark's files anew; where the old ones are, if there were any.

    Args:
        host: of the batch that was committed last; empty, where there is one that was planned: there is none.
        interval: every how many steps Spark compacts the log of a file source.
        planned: of the batch after that, if it was begun: Spark gives it as it was.

    Raises:
        StateError: a list of files read is damaged, or of a source it is not known what Spark keeps
            beside its offsets.
    """
    others = [source.name for source in plan.sources if source.traits.kept_by_spark]
    if others:
        raise StateError(
            f"Spark's checkpoint cannot be rebuilt from the state: for {', '.join(others)} Spark stores"
            " more than offsets, which the state does not have",
            code="not-rebuilt",
            hint="restore the checkpoint directory from a copy, or start over with an empty directory"
            " and an empty sink",
        )
    newest = host if planned is None else planned
    offsets = load_offsets(newest)
    by_source: dict[int, dict[int, list[FileRead]]] = {}
    for file in file_lists.read(checkpoint.store, file_lists.lists_of(newest)):
        if file.batch >= 0:
            by_source.setdefault(file.source, {}).setdefault(file.batch, []).append(file)
    fresh = checkpoint.root / "spark.new"
    shutil.rmtree(fresh, ignore_errors=True)
    _write(fresh / "metadata", json.dumps({"id": newest[QUERY_ID]}, separators=(",", ":")))
    if host:
        batch = int(host[BATCH])
        for number in range(
            max(0, batch - 1), batch + 1
        ):  # Spark wants the one before, and makes no use of it
            _write(fresh / "offsets" / str(number), str(host[OFFSETS]))
        _write(fresh / "commits" / str(batch), log_text([{"nextBatchWatermarkMs": 0}]))
    if planned is not None:
        _write(fresh / "offsets" / str(planned[BATCH]), str(planned[OFFSETS]))
    for number in _file_sources(plan):
        folder, steps = fresh / "sources" / str(number), by_source.get(number, {})
        for name, lines in _log(steps, last_read_step(offsets, number), interval):
            _write(folder / name, log_text(lines))
    return _install_spark_files(checkpoint, fresh)


def rewrite_file_paths(checkpoint: Checkpoint, path_of: Mapping[int, Callable[[str], str]]) -> Path | None:
    """Write Spark's lists of files with other paths; where the old files are, if there was anything to write.

    Args:
        path_of: per source, by number, the path that a file is to have.

    Raises:
        ValueError: a list is damaged.
    """
    texts: dict[Path, str] = {}
    for number, other in path_of.items():
        for log in checkpoint.spark_files.file_logs(number):
            lines = log_lines(log)
            moved = [{**line, "path": other(line["path"])} for line in lines]
            if moved != lines:
                texts[log] = log_text(moved)
    if not texts:
        return None
    fresh = checkpoint.root / "spark.new"
    shutil.rmtree(fresh, ignore_errors=True)
    for path in checkpoint.spark.rglob("*"):
        if path.is_file() and not path.name.endswith(".crc"):  # checksums, which may be missing
            text = texts.get(path) or path.read_text(encoding="utf-8")
            _write(fresh / path.relative_to(checkpoint.spark), text)
    return _install_spark_files(checkpoint, fresh)


def _install_spark_files(checkpoint: Checkpoint, fresh: Path) -> Path | None:
    kept = archive_spark_files(checkpoint) if checkpoint.spark.exists() else None
    os.rename(fresh, checkpoint.spark)
    sync(checkpoint.root)
    return kept


def _log(
    steps: Mapping[int, Sequence[FileRead]], last: int, interval: int
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the files of a source's log: one compacted file, then one file per later step.

    The compacted file contains all steps up to the last compaction.
    """
    compacted = (last + 1) // interval * interval - 1
    if compacted >= 0:
        every = [file for step in range(compacted + 1) for file in steps.get(step, ())]
        yield f"{compacted}{COMPACT}", _log_entries(every)
    for step in range(compacted + 1, last + 1):
        yield str(step), _log_entries(steps.get(step, ()))


def _log_entries(files: Iterable[FileRead]) -> list[dict[str, Any]]:
    return [{"path": file.path, "timestamp": file.time_ms, "batchId": file.batch} for file in files]


def _write(path: Path, text: str) -> None:
    make_folders(path.parent)
    path.write_text(text, encoding="utf-8")
    sync(path)
    sync(path.parent)


def _file_sources(plan: JobPlan) -> list[int]:
    return [number for number, source in enumerate(plan.sources) if source.traits.files]


def _reads_again(traits: Connector, before: str, after: str) -> bool:
    """Return True if a source would read again what it has already read."""
    if before == NOTHING_READ:
        return False
    if after == NOTHING_READ:
        return True
    old, new = json.loads(before), json.loads(after)
    if traits.files:
        return bool(new["logOffset"] < old["logOffset"])
    if traits.log:
        return any(
            new.get(topic, {}).get(number, -1) < end
            for topic, ends in old.items()
            for number, end in ends.items()
        )
    return False
