"""The job that is disturbed, its processes, and whether what it made is right."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import duckdb
import psutil
import pyarrow as pa

from tests.kills.jobs import Process
from tests.soak.sent import LAG_S, TOPICS
from tests.support.jvm_options import OF_CLUSTERS
from tests.support.kafka import KafkaBroker
from tests.support.postgres import Postgres
from tests.support.standalone import Cluster

ROOT = Path(__file__).resolve().parents[2]
Tables = dict[str, pa.Table]

SOURCE = """
CREATE TABLE {topic} (k BIGINT, n BIGINT, at TIMESTAMP, v BIGINT,
    WATERMARK FOR at AS at - INTERVAL '{lag}' SECONDS)
  WITH ('connector' = 'kafka', 'bootstrap.servers' = '{servers}', 'topic' = '{topic}', 'format' = 'json');
"""
JOB = """
CREATE SINK delivered WITH ('connector' = 'postgres', 'url' = '{url}', 'table' = 'delivered');
CREATE SINK paired WITH ('connector' = 'delta', 'path' = '{folder}/paired');
CREATE SINK per_minute WITH ('connector' = 'postgres', 'url' = '{url}', 'table' = 'per_minute');
CREATE VIEW within AS
  SELECT o.k, o.n AS o_n, o.at, o.v AS o_v, d.n AS d_n, d.v AS d_v
  FROM orders o LEFT JOIN deliveries d
    ON d.k = o.k AND o.v < d.v + 700
    AND d.at BETWEEN o.at - INTERVAL '1' MINUTE AND o.at + INTERVAL '10' MINUTES;

INSERT INTO delivered SELECT k, o_n, at, o_v, d_n, d_v FROM within;

INSERT INTO paired
SELECT o.k AS o_k, o.n AS o_n, o.at AS o_at, d.k AS d_k, d.n AS d_n, d.at AS d_at, d.v AS d_v
FROM orders o FULL JOIN deliveries d
  ON d.k = o.k AND d.at BETWEEN o.at - INTERVAL '5' MINUTES AND o.at + INTERVAL '5' MINUTES;

INSERT INTO per_minute
SELECT window_start, count(*) AS rows_in, count(d_n) AS with_d, sum(d_v) AS total
FROM TABLE(TUMBLE(TABLE within, DESCRIPTOR(at), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end;
"""

WITHIN = """
SELECT o.k, o.n AS o_n, o.at, o.v AS o_v, d.n AS d_n, d.v AS d_v FROM {orders} o LEFT JOIN {deliveries} d
  ON d.k = o.k AND d.at BETWEEN o.at - INTERVAL 1 MINUTE AND o.at + INTERVAL 10 MINUTE AND o.v < d.v + 700
"""
BATCH = {
    "delivered": WITHIN,
    "paired": """
SELECT o.k, o.n, o.at, d.k, d.n, d.at, d.v FROM {orders} o FULL JOIN {deliveries} d
  ON d.k = o.k AND d.at BETWEEN o.at - INTERVAL 5 MINUTE AND o.at + INTERVAL 5 MINUTE""",
    "per_minute": f"""
SELECT date_trunc('minute', w.at), count(*), count(d_n), sum(d_v)::BIGINT FROM ({WITHIN}) w GROUP BY ALL""",
}
"""What DuckDB makes of all that was sent, per table."""

CONF = {
    "spark.executor.memory": "512m",
    "spark.task.maxFailures": "8",
    "spark.excludeOnFailure.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": OF_CLUSTERS,
    "spark.ui.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "20",  # or its files grow through a slow machine's first third
}


class Job:
    """One job on a cluster, run after run. ``size``: of the run in hand, tasks per join and cores."""

    def __init__(self, folder: Path, cluster: Cluster, broker: KafkaBroker, postgres: Postgres) -> None:
        self.folder, self._cluster = folder, cluster
        self._postgres = postgres
        self.run: Process | None = None
        self.size = (2, 2)
        self.runs = self._ticks = 0
        self._lingering: list[Process] = []
        named = {"servers": broker.bootstrap_servers, "url": postgres.url, "folder": folder, "lag": LAG_S}
        sources = [SOURCE.format(topic=topic, **named) for topic in TOPICS]
        (folder / "job.sql").write_text("".join(sources) + JOB.format(**named))

    def start(self, *arguments: str) -> None:
        """The next run, of the size that is set."""
        tasks, cores = self.size
        conf = CONF | {"spark.cores.max": str(cores), "spark.local.dir": str(self.folder / "local")}
        words = [word for pair in conf.items() for word in ("--conf", "=".join(pair))]
        jars = ["--jars", str(ROOT / ".jars" / "spark-kafka"), "--master", self._cluster.url]
        asked = ["--partitions", str(tasks), "--trigger", "500 milliseconds", *arguments]
        self.runs += 1
        errors = f"stderr-{self.runs:03d}"
        self.run = Process(self.folder, *jars, *words, *asked, conf=(), errors=errors, own_jvm=True)

    @property
    def ticks(self) -> int:
        """Of all runs; a tick that was repeated counts once."""
        return self._ticks + (self.run.ticks if self.run is not None else 0)

    def look(self) -> None:
        """Read what it has said, if it runs. Takes a moment."""
        if self.run is None or self.run.look(0.2):
            time.sleep(0.2)

    @property
    def ended(self) -> bool:
        return self.run is not None and self.run.process.poll() is not None

    def detach(self, *, lingers: bool = False) -> tuple[int, str]:
        """Of a run that has ended or was killed: its ticks are counted. What it returned, and what it said on
        its standard error. ``lingers``: what is left of it may be at work beside the next run."""
        assert self.run is not None
        run, self.run = self.run, None
        until = time.monotonic() + (0 if lingers else 10)
        while not run.look(0.5) and time.monotonic() < until:
            pass
        self._ticks += run.ticks
        if lingers:
            self._lingering.append(run)
        else:
            run.clean_up()
        return run.process.wait(10), run.errors.read_text(errors="replace")

    def close(self) -> None:
        """Nothing of any run lives on."""
        for run in [*self._lingering, *([self.run] if self.run is not None else [])]:
            run.clean_up()

    def executors(self) -> list[psutil.Process]:
        with suppress(psutil.Error):
            return self._cluster.executors()
        return []

    def tables(self) -> Tables:
        """What the job's tables hold."""
        from adbc_driver_postgresql import dbapi
        from deltalake import DeltaTable

        got = {"paired": DeltaTable(str(self.folder / "paired")).to_pyarrow_table()}
        with dbapi.connect(self._postgres.url) as connected, connected.cursor() as cursor:
            for name in ("delivered", "per_minute"):
                cursor.execute(f"SELECT * FROM {name}")
                got[name] = cursor.fetch_arrow_table()
        return got


def differences(got: Tables, sent: Mapping[str, str]) -> list[str]:
    """What tables have too many or too few of, beside the batch answer over what was ``sent``: per topic a
    table expression of DuckDB."""
    found = []
    with duckdb.connect() as base:
        base.execute("SET TimeZone = 'UTC'")
        for name, table in got.items():
            base.register("of_the_job", table)
            base.execute(f"CREATE TABLE got_{name} AS FROM of_the_job")
            base.execute(f"CREATE TABLE batch_{name} AS {BATCH[name].format(**sent)}")
            for sign, one, other in (("too many", "got", "batch"), ("missing", "batch", "got")):
                rows = base.execute(f"(FROM {one}_{name}) EXCEPT ALL (FROM {other}_{name})").fetchall()
                if rows:
                    found.append(f"{name}: {len(rows):,} rows {sign}, such as {rows[:3]}")
    return found


def environment() -> dict[str, str]:
    """Of the cluster's processes."""
    return {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "PYSPARK_PYTHON": sys.executable,
        "LC_ALL": "C.UTF-8",
    }
