"""Apache Flink's interval join over a workload's files, in a process of its own: SQL, streaming, heap state.

It runs in a Python of its own with Flink in it, and is no dependency of anything here. To make one, with Java
17 and Maven there, and name it in ``FLINK_VENV``::

    python3.11 -m venv PATH
    PATH/bin/pip install apache-flink==2.3.0
    mvn dependency:copy -Dartifact=org.apache.flink:flink-sql-parquet:2.3.0 \\
        -DoutputDirectory=PATH/lib/python3.11/site-packages/pyflink/lib
    FLINK_VENV=PATH python -m benchmarks.bars --only flink-100k --only flink-500k

Hadoop's classes, which its reader of Parquet needs, are those that come with Spark (``HADOOP_CLASSPATH``).

Tuned: parallelism by cores, objects reused, no checkpoints, nothing of the state on disk, one JVM with a
mini-cluster. What Flink needs to come to the same rows:

* Its file source hands files out in no order (its assigner keeps them in a hash set): rows would be late, and
  lost. Variant ``default``: each file is a source, and a `HybridSource` for each side reads one after the
  other. ``sql``: tables of the ``filesystem`` connector, and a watermark that lags by all of event time, so
  that all rows stay in state. ``batch``: the same tables in batch mode; not a stream, for information.
* Its watermark moves with each row, where the other systems' moves with each file: it has to lag by a file's
  minute and `DISORDER_S`, not by the workload's lag.
* Its event time is in milliseconds: the interval is one of milliseconds, in which all matches are, and the
  exact times are compared besides.
* It can end its input, and pads the rows that are left: it does not read the sentinels.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.child import CORES, Arguments, parse
from benchmarks.workloads import BANDS, DISORDER_S, KINDS

VARIANTS = ("default", "sql", "batch")
FILE_LAG = f"INTERVAL '{60 + DISORDER_S}' SECOND"
"""By how much a row of a file can be behind the ones before it: a file is a minute in no order."""
ALL_LAG = "INTERVAL '10' DAY"
"""More than event time in any workload, less than the way to the sentinel."""
SETTINGS = {
    "parallelism.default": str(CORES),
    "pipeline.object-reuse": "true",
    "state.backend.type": "hashmap",
    "table.local-time-zone": "UTC",
    "rest.bind-port": "0",
    "rest.address": "localhost",
}
MISSING = "the variable FLINK_VENV names no virtual environment with it (see benchmarks/flink_own.py)"
PARQUET = "'format' = 'parquet', 'parquet.utc-timezone' = 'true'"


def python() -> Path | None:
    """The Python that has Flink, by the variable ``FLINK_VENV``; None without one."""
    venv = os.environ.get("FLINK_VENV")
    found = Path(venv, "bin", "python") if venv else None
    if found is None or not found.exists() or not any(Path(venv or "").glob("lib/*/site-packages/pyflink")):
        return None
    return found.absolute()


def lag(variant: str) -> str:
    """By how much the watermark lags."""
    return FILE_LAG if variant == "default" else ALL_LAG


def source_table(arguments: Arguments, side: str) -> str:
    """The statement that makes a side a table of the ``filesystem`` connector."""
    others = f"(?!.*/{arguments.workload.all_ticks:04d}-).*"  # than the sentinel's
    return (
        f"CREATE TABLE {side} (k BIGINT, t TIMESTAMP(6), v BIGINT, s STRING, e AS CAST(t AS TIMESTAMP(3)), "
        f"WATERMARK FOR e AS e - {lag(arguments.variant)}) WITH ("
        f"'connector' = 'filesystem', 'path' = '{(arguments.data / side).as_uri()}', "
        f"'source.path.regex-pattern' = '{others}', {PARQUET})"
    )


def sink_table(arguments: Arguments) -> str:
    """The statement that makes the table of the result."""
    types = {"k": "BIGINT", "t": "TIMESTAMP(6)", "v": "BIGINT", "s": "STRING"}
    columns = ", ".join(f"{name} {types[name[-1]]}" for _, name in KINDS[arguments.kind].outputs)
    return (
        f"CREATE TABLE joined ({columns}) WITH ("
        f"'connector' = 'filesystem', 'path' = '{arguments.out.as_uri()}', "
        f"{PARQUET}, 'parquet.write.int64.timestamp' = 'true', 'parquet.timestamp.time.unit' = 'micros')"
    )


def insert(kind: str) -> str:
    """The join. Milliseconds decide what Flink keeps, the exact times what matches."""
    of = KINDS[kind]
    columns = ", ".join(f"{column} AS {name}" for column, name in of.outputs)
    joins = "".join(
        f" {of.word} JOIN {s} ON {s}.k = l.k AND {s}.e BETWEEN l.e AND l.e + INTERVAL '{BANDS[s]}' MINUTES "
        f"AND {s}.t BETWEEN l.t AND l.t + INTERVAL '{BANDS[s]}' MINUTES"
        for s in of.sides[1:]
    )
    return f"INSERT INTO joined SELECT {columns} FROM l{joins}"


def files(arguments: Arguments, side: str) -> list[Path]:
    """Those of a side in the order of time, without the sentinel's."""
    sentinels = f"{arguments.workload.all_ticks:04d}-"
    found = sorted((arguments.data / side).glob("*.parquet"))
    return [path for path in found if not path.name.startswith(sentinels)]


def in_order(env: Any, tables: Any, arguments: Arguments, side: str) -> None:
    """Make a side a view that reads its files one after the other."""
    from pyflink.common import WatermarkStrategy
    from pyflink.datastream.connectors.file_system import FileSource
    from pyflink.datastream.connectors.hybrid_source import HybridSource
    from pyflink.datastream.formats.parquet import ParquetColumnarRowInputFormat
    from pyflink.java_gateway import get_gateway
    from pyflink.table import DataTypes, Schema
    from pyflink.table.types import _to_java_data_type

    row = DataTypes.ROW(
        [
            DataTypes.FIELD("k", DataTypes.BIGINT()),
            DataTypes.FIELD("t", DataTypes.TIMESTAMP(6)),
            DataTypes.FIELD("v", DataTypes.BIGINT()),
            DataTypes.FIELD("s", DataTypes.STRING()),
        ]
    )
    given = ParquetColumnarRowInputFormat(row, batch_size=2048, is_utc_timestamp=True)
    first, *others = (
        FileSource.for_bulk_file_format(given, path.as_uri()).build() for path in files(arguments, side)
    )
    builder = HybridSource.builder(first)
    for source in others:
        builder = builder.add_source(source)
    # what a hybrid source makes has to be said: rows as SQL holds them, for which PyFlink has no name
    types = get_gateway().jvm.org.apache.flink.table.runtime.typeutils.InternalTypeInfo
    internal = types.of(_to_java_data_type(row).getLogicalType())
    typed = SimpleNamespace(get_java_type_info=lambda: internal)
    rows = env.from_source(builder.build(), WatermarkStrategy.no_watermarks(), side, typed).set_parallelism(1)
    schema = (
        Schema.new_builder()
        .column("k", DataTypes.BIGINT())
        .column("t", DataTypes.TIMESTAMP(6))
        .column("v", DataTypes.BIGINT())
        .column("s", DataTypes.STRING())
        .column_by_expression("e", "CAST(t AS TIMESTAMP(3))")
        .watermark("e", f"e - {lag(arguments.variant)}")
        .build()
    )
    tables.create_temporary_view(side, rows, schema)


def main() -> None:
    arguments = parse(__doc__ or "", VARIANTS)
    os.environ["JVM_ARGS"] = f"-Xmx{arguments.workload.heap}"
    os.environ["FLINK_LOG_DIR"] = str(arguments.work)
    from pyflink.common import Configuration
    from pyflink.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
    from pyflink.table import StreamTableEnvironment

    conf = Configuration()
    for name, value in {**SETTINGS, "io.tmp.dirs": str(arguments.work / "tmp")}.items():
        conf.set_string(name, value)
    env = StreamExecutionEnvironment.get_execution_environment(conf)
    batch = arguments.variant == "batch"
    env.set_runtime_mode(RuntimeExecutionMode.BATCH if batch else RuntimeExecutionMode.STREAMING)
    tables = StreamTableEnvironment.create(env)
    for side in KINDS[arguments.kind].sides:
        if arguments.variant == "default" and files(arguments, side):
            in_order(env, tables, arguments, side)
        else:
            tables.execute_sql(source_table(arguments, side))
    tables.execute_sql(sink_table(arguments))
    tables.execute_sql(insert(arguments.kind)).wait()


if __name__ == "__main__":
    main()
