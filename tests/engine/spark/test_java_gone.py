"""Java has died under a program that goes on."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.spark

PROGRAM = """
import sys
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

import watersmeet
from watersmeet import WatersmeetError

folder = Path(sys.argv[1])
(folder / "in").mkdir()
TEXT = f'''CREATE TABLE a (id BIGINT) WITH ('connector' = 'file', 'path' = '{folder}/in', 'format' = 'json');
CREATE SINK out WITH ('connector' = 'file', 'path' = '{folder}/out', 'format' = 'json');
INSERT INTO out SELECT id FROM a'''
SETTINGS = {"checkpoint": str(folder / "state"), "until_caught_up": True, "master": "local[1]"}


def run(number):
    (folder / "in" / f"{number}.json").write_text('{"id": %d}' % number)
    return watersmeet.run(TEXT, SETTINGS).ticks


def kill_java():
    javas = [child for child in psutil.Process().children() if child.name() == "java"]
    for java in javas:
        java.kill()
    psutil.wait_procs(javas)
    print("killed", len(javas))


print("ticks", run(1))
kill_java()
print("ticks", run(2))
frame = SparkSession.getActiveSession().readStream.format("rate").load()
rates = watersmeet.stream(frame, time="timestamp", lag="1 second", name="rates")
job = watersmeet.job(rates.to_sink(watersmeet.console()), checkpoint=str(folder / "other"))
kill_java()
try:
    job.start().await_termination()
except WatersmeetError as error:
    print(error.code)
print("ticks", run(3))
"""


@pytest.mark.full
def test_a_program_begins_another_java_when_one_has_died(tmp_path):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert "Error" not in run.stderr, run.stderr
    assert run.stdout.split("\n")[:-1] == [
        *("ticks 1", "killed 1", "ticks 1", "killed 1", "spark-gone", "ticks 1"),
    ], run.stderr
