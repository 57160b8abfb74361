"""Makes the file of Java's classes for the tests, whose JVMs have a compiler of their own.

    python -m tests.class_archive FILE

It is made for `tests/support/jvm_options.py` by ``scripts/class-archive``.
"""

from __future__ import annotations

import os
import sys

from tests.support.jvm_options import COMPILER
from watersmeet.cli import archive_job

if __name__ == "__main__":
    os.environ["SPARK_SUBMIT_OPTS"] = COMPILER
    sys.exit(archive_job.main(sys.argv[1]))
