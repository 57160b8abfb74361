"""What an idle job costs: CPU seconds of all its processes while two Kafka topics give nothing.

    python -m benchmarks.idle [--seconds N] [--settle N] [--idle-timeout '10 seconds']

A broker, two topics of four partitions with a row each, a join of both, and then silence. Spark asks the
broker for new rows in every trigger (a second, as by default).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import measure
from benchmarks.side_by_side import ROOT, environment
from tests.support.kafka import KafkaBroker

PARTITIONS = 4
JOB = """
CREATE MAPPING l (k STRING, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '5' SECONDS)
  TYPE Kafka OPTIONS ('bootstrap.servers' = '{servers}', 'topic' = 'l'{more});
CREATE MAPPING r (k STRING, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '5' SECONDS)
  TYPE Kafka OPTIONS ('bootstrap.servers' = '{servers}', 'topic' = 'r'{more});
CREATE MAPPING out TYPE File OPTIONS ('path' = '{folder}/out');
INSERT INTO out SELECT l.k, l.t, r.t AS u
FROM l JOIN r ON l.k = r.k AND l.t BETWEEN r.t - INTERVAL '1' MINUTE AND r.t;
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--settle", type=int, default=60, help="seconds before the measure begins")
    parser.add_argument("--idle-timeout", help="of both sources")
    asked = parser.parse_args(argv)
    more = f", 'idle_timeout' = '{asked.idle_timeout}'" if asked.idle_timeout else ""
    with tempfile.TemporaryDirectory() as name, KafkaBroker() as broker:
        folder = Path(name)
        for topic in ("l", "r"):
            broker.create_topic(topic, partitions=PARTITIONS)
            row = '{"k": "a", "t": "2024-01-01T00:00:00Z"}'
            broker.produce(topic, [(number, None, row) for number in range(PARTITIONS)])
        job = folder / "job.sql"
        job.write_text(JOB.format(servers=broker.bootstrap_servers, folder=folder, more=more))
        begun = time.time() + asked.settle
        end = begun + asked.seconds
        command = ["timeout", "--preserve-status", "-s", "INT", str(asked.settle + asked.seconds + 2)]
        command += [sys.executable, "-m", "watersmeet.cli.main", "run", str(job), "--no-live"]
        command += ["--checkpoint", str(folder / "state"), "--master", "local[2]"]
        command += ["--jars", str(ROOT / ".jars" / "spark-kafka")]
        usage = measure.run(
            command, folder / "log", env=environment(), timeout_s=asked.settle + asked.seconds + 60
        )
        spent = usage.cpu_s(begun, end)
        print((folder / "log").read_text(), end="")
    total = sum(spent.values())
    shares = ", ".join(f"{kind} {seconds:.2f}" for kind, seconds in spent.items())
    print(f"{total:.2f} CPU seconds in {asked.seconds} s ({shares}): {total / asked.seconds:.1%} of a core")
    return 0


if __name__ == "__main__":
    sys.exit(main())
