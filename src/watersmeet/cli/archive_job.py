"""Runs a small job and has the JVM write at its end the classes that it loaded.

python -m watersmeet.cli.archive_job FILE
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

JOB = """
CREATE TABLE g (n BIGINT, k STRING, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '5' SECONDS)
  WITH ('connector' = 'generator', 'rate' = '50', 'rows' = '100', 'keys' = '5');
CREATE TABLE f (n BIGINT, k STRING, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '5' SECONDS)
  WITH ('connector' = 'file', 'path' = '{folder}/in', 'format' = 'json');
CREATE TABLE out WITH ('connector' = 'file', 'path' = '{folder}/out', 'format' = 'parquet');
INSERT INTO out SELECT g.n, upper(f.k) AS k, f.t FROM g LEFT JOIN f
  ON g.k = f.k AND g.t BETWEEN f.t AND f.t + INTERVAL '1' MINUTE AND soundex(g.k) = soundex(f.k);
"""
"""It reads text, makes Arrow of rows, compiles expressions, and has a condition that Spark computes."""


def main(archive: str) -> int:
    told = os.environ.get("SPARK_SUBMIT_OPTS", "")
    os.environ["SPARK_SUBMIT_OPTS"] = f'{told} -XX:ArchiveClassesAtExit="{archive}" -Xlog:cds*=off'
    from watersmeet.cli.main import main as watersmeet
    from watersmeet.runtime.spark.job.session import build_session_settings, end_java, start

    with tempfile.TemporaryDirectory() as folder:
        spark = start(
            build_session_settings(
                master="local[2]", conf={"spark.local.dir": folder, "spark.driver.memory": "1g"}
            )
        )
        (Path(folder) / "in").mkdir()
        (Path(folder) / "in" / "1.json").write_text('{"n": 1, "k": "k1", "t": "2024-01-01T00:00:00Z"}\n')
        job = Path(folder) / "job.sql"
        job.write_text(JOB.format(folder=folder))
        words = ["run", str(job), "--until-caught-up", "--finish", "--checkpoint", f"{folder}/state"]
        with redirect_stdout(io.StringIO()):
            status = watersmeet([*words, "--json"])
        rows = spark.read.parquet(f"{folder}/out/*").groupBy("k").count().collect()
        end_java(spark)
    return 0 if status == 0 and rows and Path(archive).exists() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
