"""Options of the JVMs with Spark that tests start, also by the command line and on clusters."""

from __future__ import annotations

from pathlib import Path

COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""None lives so long that the optimising compiler would earn what it takes. What it compiled all have room
for, as with that compiler; without it there are 48 MB, which the session of all tests fills, and then looks
all the time for code to throw out."""
CLASSES = Path(__file__).resolve().parents[2] / ".cache" / "spark-classes.jsa"
"""Made by ``scripts/class-archive``: another third of what a start takes. A JVM passes over one that is not
there, or is of other jars."""
ALL = f'{COMPILER} -XX:SharedArchiveFile="{CLASSES}" -Xlog:disable'
"""Of every one."""
OF_CLUSTERS = f"{ALL} -XX:+UseSerialGC"
"""Of masters, workers and executors, which are told of in other ways: a start takes a third of the CPU."""
