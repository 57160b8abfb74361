"""JVMs with Spark that processes of tests are lent, one after the other.

A process that runs a job starts a JVM, which loads and compiles the same classes as the one before: three
quarters of the CPU that a short job takes. Here a JVM outlives the job. `lent` gives the environment by which
PySpark, instead of starting one, borrows one (`borrow`) of those that `lender` has: with a gateway and a
secret of its own, Spark's settings as asked for, and by the same signs: it goes when its standard input ends.
The job's Spark context is then stopped, as a JVM whose Python died stops its own. What cannot be had by
borrowing (an environment of its own gets a JVM of its own to borrow; packages, clusters) starts one as ever.

Not for tests of what a JVM is: killed, of a size, how it starts and what it prints.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

from tests.support.serving import REPOSITORY, folder_of, serve

HERE = Path(__file__).parent
SOCKET = "LENT_JVMS_SOCKET"
OWN_HOME = "LENT_JVMS_SPARK_HOME"


def lent() -> dict[str, str]:
    """Variables for a process that may borrow a JVM. The lender of this process starts at the first call."""
    return dict(_lender())


@cache
def _lender() -> dict[str, str]:
    import pyspark

    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    folder = folder_of("jvms")
    shadow = folder / "spark"
    (shadow / "bin").mkdir(parents=True)
    for entry in home.iterdir():
        if entry.name != "bin":
            (shadow / entry.name).symlink_to(entry)
    script = shadow / "bin" / "spark-submit"
    # the interpreter alone: no site, no paths of others
    script.write_text(f"#!{sys.executable} -SEs\n" + (HERE / "borrow.py").read_text())
    script.chmod(0o755)
    variables = {SOCKET: str(folder / "socket"), OWN_HOME: str(home), "SPARK_HOME": str(shadow)}
    serve("tests.support.lent_jvms.lender", variables[SOCKET], [REPOSITORY])
    return variables
