"""The command line, killed (SIGKILL) at a tick of the SQLite sink: ``killed.py POINT TICK run JOB.SQL …``.

Points: ``staged``: rows are staged, none is published; ``published``: the transaction is committed, and no
manifest has the tick.
"""

from __future__ import annotations

import os
import signal
import sys

from watersmeet_sqlite.sink import SqliteSink

from watersmeet.cli.main import main


def kill_at(point: str, at: int) -> None:
    """Patch the sink so that this process dies at the point."""
    publish = SqliteSink.publish

    def patched(self, insert, tick, attempt, identity):
        if tick == at and point == "staged":
            os.kill(os.getpid(), signal.SIGKILL)
        is_there = publish(self, insert, tick, attempt, identity)
        if tick == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return is_there

    SqliteSink.publish = patched


if __name__ == "__main__":
    kill_at(sys.argv[1], int(sys.argv[2]))
    sys.exit(main(sys.argv[3:]))
