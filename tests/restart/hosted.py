"""A job in this process with all that a run on Spark has around it: the checkpoint directory, Spark's own
files (as far as a restart looks at them), a sink of Parquet parts. Killed where one likes."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from tests.support.columns import column
from tests.support.parquet_rows import table_in
from tests.support.ticks import QUERY, Rows
from watersmeet.plan.identity.settings import digest_of, settings_of
from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.coordinator.commit import StagedParts
from watersmeet.runtime.coordinator.driver import Restored, TickDriver
from watersmeet.runtime.coordinator.ledger import Identity
from watersmeet.runtime.coordinator.run_context import TickSettings
from watersmeet.runtime.coordinator.tick_phases import RunningTick
from watersmeet.runtime.local import LocalJob
from watersmeet.runtime.local.output import format_case_rows
from watersmeet.runtime.local.tick import SinkStaging
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint, Intent
from watersmeet.runtime.spark.checkpoint.restart import (
    build_batch_identity,
    build_host,
    check_checkpoint,
    check_settings,
    is_committed,
)
from watersmeet.runtime.spark.checkpoint.spark_positions import BATCH
from watersmeet.runtime.spark.sources.files.progress import BatchFiles
from watersmeet.sinks.file_sink import FileSink
from watersmeet.sinks.part_mark import Resumed
from watersmeet.spec.model import Sink

COLUMNS = ("a", "b")
QUERY_ID = "of-this-checkpoint"


class Killed(BaseException):
    """Stands for kill -9: nothing after it runs."""


class Frame:
    """What the sink sees of a Spark frame."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._rows = rows
        self.sparkSession = SimpleNamespace(conf=SimpleNamespace(set=lambda name, value: None))

    @property
    def write(self) -> Frame:
        return self

    def format(self, name: str) -> Frame:
        return self

    def mode(self, name: str) -> Frame:
        return self

    def option(self, name: str, value: str) -> Frame:
        return self

    def options(self, **options: str) -> Frame:
        return self

    def save(self, uri: str) -> None:
        folder = Path(uri.removeprefix("file://"))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        table = pa.Table.from_pylist(self._rows, schema=pa.schema([(name, pa.int64()) for name in COLUMNS]))
        parquet.write_table(table, folder / "part-00000.parquet")


class Hosted:
    """Runs of one job in one folder.

    Args:
        batches: what there is to be read, one batch after the other.
    """

    def __init__(self, folder: Path, plan: JobPlan, batches: Sequence[Rows]) -> None:
        self.folder = folder
        self.plan = plan
        self.batches = batches

    def visible(self) -> Counter[tuple[Any, ...]]:
        """The rows that readers of the sink see."""
        return Counter(
            tuple(row[name] for name in COLUMNS)
            for file in (self.folder / "out").glob("*.parquet")
            if not file.parent.name.startswith("_")
            for row in table_in(file).to_pylist()
        )

    def run(
        self, *, until: int | None = None, kill: tuple[int, str] | None = None, finish: bool = False
    ) -> None:
        """One run, as `runtime.spark.job.run.JobRun` does it.

        Args:
            until: it stops when so many batches are planned.
            kill: in which tick, and before what, it is killed.
            finish: the input ends.
        """
        checkpoint = Checkpoint(self.folder / "checkpoint")
        sink = FileSink(Sink("out", "file", {"path": str(self.folder / "out")}))
        with checkpoint.lock():
            try:
                _Run(self, checkpoint, sink, kill).execute(until, finish)
            finally:
                sink.close()


class _Run:
    def __init__(
        self, hosted: Hosted, checkpoint: Checkpoint, sink: FileSink, kill: tuple[int, str] | None
    ) -> None:
        self.plan, self.batches = hosted.plan, hosted.batches
        self.checkpoint, self.sink, self.kill = checkpoint, sink, kill
        self.host: dict[str, Any] = {}
        self.repeated: Intent | None = None
        settings = TickSettings(digest=digest_of(settings_of(self.plan)))
        self.job = LocalJob(self.plan, checkpoint.store, partitions=2, settings=settings, drive=self.drive)
        self.driver = self.job.driver
        self.number = self.driver.tick

    def drive(self, restored: Restored) -> TickDriver:
        manifest, intent = restored.manifest, self.checkpoint.intent()
        if manifest is not None and manifest.finished:
            return TickDriver(restored)
        self.host = dict(manifest.host) if manifest is not None else {}
        check_checkpoint(self.checkpoint, None if manifest is None else self.host, self.plan)
        self.repeated = intent if intent is not None and intent.tick == restored.tick + 1 else None
        planned = self.checkpoint.last_planned()
        pending = self.repeated is not None or (planned is not None and planned > self.host.get(BATCH, -1))
        begun = restored.load_pending_settings() if pending else None
        out = ["part"] if begun is not None and self.sink.has_part(QUERY, restored.tick + 1) else []
        as_begun = check_settings(self.checkpoint, settings_of(self.plan), begun, out)
        if not as_begun:
            restored.forget_begun()
        owner = self.checkpoint.owner(manifest.owner if manifest is not None else None)
        self.sink.prepare([column(name, "BIGINT") for name in COLUMNS], owner)
        known = {} if manifest is None else {n: (p.tick, p.identity) for n, p in manifest.parts.items()}
        self.sink.resume([QUERY], Resumed(restored.tick, pending, known))
        return TickDriver(restored, owner, repeats=pending and as_begun)

    def execute(self, until: int | None, finish: bool) -> None:
        if self.driver.is_finished:
            return
        if self.repeated is not None:
            self.own_tick(self.repeated)
        self.stream(len(self.batches) if until is None else until)
        if self.driver.manifest is not None and self.driver.manifest.finished:
            return
        if until is None:
            self.own_tick(self.record_intent(end=False))  # as one that a source's idleness brings about
        if finish:
            self.own_tick(self.record_intent(end=True))

    def stream(self, until: int) -> None:
        """Spark's part: the batch that was planned and not committed, then the next ones."""
        self._write("metadata", json.dumps({"id": QUERY_ID}), anew=False)
        if self.driver.manifest is not None and self.driver.manifest.finished:
            return
        committed = self.checkpoint.last_committed()
        batch = 0 if committed is None else committed + 1
        while batch < until:
            text = "\n".join(
                ["v1", json.dumps({"batchTimestampMs": batch * 1000}), json.dumps({"at": batch})]
            )
            self._write(f"offsets/{batch}", text, anew=False)
            offsets = self.checkpoint.offsets(batch)
            query_id = self.checkpoint.query_id() or ""
            if not is_committed(self.driver.manifest, query_id, offsets, self.plan):
                host = build_host(query_id, offsets, self.plan, {}, BatchFiles([], [], {}))
                self.tick(self.batches[batch], offsets.clock_us, host)
                self.host = host
            self.killed("spark-commit")
            self._write(f"commits/{batch}", "v1\n{}", anew=False)
            batch += 1

    def record_intent(self, *, end: bool) -> Intent:
        intent = Intent(self.driver.tick + 1, 1_000_000 * (self.driver.tick + 1), end)
        self.checkpoint.intend(intent)
        return intent

    def own_tick(self, intent: Intent) -> None:
        self.tick({}, intent.clock_us, self.host, end=intent.end)

    def tick(self, rows: Rows, clock_us: int, host: Mapping[str, Any], *, end: bool = False) -> None:
        self.number = self.driver.tick + 1
        self.killed("begin")

        def stage(tick: RunningTick, outputs: Mapping[str, tuple[list[str], Any]]) -> StagedParts:
            names, table = outputs.get(QUERY, ([], None))
            self.killed("write")
            frame = Frame([] if table is None else format_case_rows(table.rename_columns(names)))
            self.sink.write(frame, QUERY, self.number, tick.start.attempt)
            return StagedParts([(self, QUERY)])

        told = build_batch_identity(host, self.driver.settings.digest)
        self.job.tick(rows, clock_us=clock_us, end=end, to_sinks=SinkStaging(stage, host, told))
        self.driver.ledger.check()

    def check(self, insert: str, tick: int, identity: Identity) -> None:
        self.sink.check(insert, tick, identity)

    def publish(self, insert: str, tick: int, attempt: str, identity: Identity) -> bool:
        self.killed("publish")
        part = self.sink.publish(insert, tick, attempt, identity)
        self.killed("commit")
        return part

    def killed(self, where: str) -> None:
        if self.kill == (self.number, where):
            raise Killed

    def _write(self, name: str, text: str, *, anew: bool) -> None:
        path = self.checkpoint.spark / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if anew or not path.exists():
            path.write_text(text)
