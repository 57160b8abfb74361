"""JVMs that processes of tests are lent: the same one for the next, without what the one before left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.support.lent_jvms import lent

pytestmark = [pytest.mark.spark, pytest.mark.full]

SCRIPT = """
import os, sys, time
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
for setting in sys.argv[2:]:
    builder = builder.config(*setting.split("="))
spark = builder.getOrCreate()
system = spark._jvm.java.lang
(paths,) = spark.range(100).rdd.map(lambda row: os.environ["PYTHONPATH"]).distinct().collect()
assert os.environ["PYTHONPATH"] in paths.split(":"), paths
print(system.ProcessHandle.current().pid(),
      spark.conf.get("spark.given", "none"), system.System.getenv("GIVEN"), flush=True)
if sys.argv[1] == "stays":
    spark.range(10).rdd.foreach(lambda row: time.sleep(600))
"""


def started(how: str, *settings: str, **variables: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": f"/nowhere/{how}"} | lent() | variables
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, how, *settings], env=environment, stdout=subprocess.PIPE, text=True
    )


def read_jvm_report(process: subprocess.Popen[str]) -> list[str]:
    """Its JVM, its setting, its variable."""
    assert process.stdout is not None
    return process.stdout.readline().split()


def test_one_after_the_other_has_it_as_new():
    with started("ends", "spark.given=1") as first:
        (jvm, *rest) = read_jvm_report(first)
    assert rest == ["1", "None"]
    with started("stays") as second:
        try:
            assert read_jvm_report(second) == [jvm, "none", "None"], "the same, and nothing of what was set"
            with started("ends", GIVEN="x") as other:
                beside, *rest = read_jvm_report(other)
            assert rest == ["none", "x"]
            assert beside != jvm, "of another environment, and that one is lent"
        finally:
            second.send_signal(signal.SIGKILL)
    with started("ends", "spark.given=4") as last:
        again, *rest = read_jvm_report(last)
    assert rest == ["4", "None"]
    assert again == jvm, "its tasks were ended, and its context stopped"
    assert {run.returncode for run in (first, other, last)} == {0}
