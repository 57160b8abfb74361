"""The process that others are forked from: ``python -m tests.support.forked.server SOCKET``. It says
``ready``, and ends when its standard input does.

It has one thread but for those of libraries that see to it themselves (jemalloc, OpenBLAS), for only that one
goes on in a fork. It tells each who asks the number of his process and then, in the words of `subprocess`,
its exit status.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import random
import runpy
import selectors
import signal
import socket
import sys
import threading
import traceback
from types import ModuleType
from typing import Any, NoReturn

IMPORTED = (
    "watersmeet.cli.run", "watersmeet.running", "watersmeet.pipelines", "watersmeet.observe.live",
    "watersmeet.runtime.spark.job.run", "watersmeet.runtime.spark.tick.daemon",
    "tests.kills.kill_at",
    "tests.kills.function_ticks", "tests.kills.kafka_ticks", "tests.kills.postgres_ticks",
    "pyspark.sql.classic.column", "pyspark.sql.classic.dataframe", "pyspark.testing",
    "encodings.idna", "rich.console", "pandas", "duckdb", "obstore", "confluent_kafka",
    "adbc_driver_postgresql.dbapi",
)  # fmt: skip
OWN = len(os.environ["PYTHONPATH"].split(os.pathsep)) + 1
"""So many places where modules are looked for are this process's, at the head of the path."""


def main(place: str) -> NoReturn:
    for name in IMPORTED:
        importlib.import_module(name)
    importlib.import_module("watersmeet.cli.main")._commands()  # made of annotations, which takes as long
    gc.collect()
    gc.freeze()
    assert threading.active_count() == 1
    woken, wakes = socket.socketpair()
    for end in (woken, wakes):
        end.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with socket.socket(socket.AF_UNIX) as listening, selectors.DefaultSelector() as watched:
        listening.bind(place)
        listening.listen()
        for each in (listening, woken, sys.stdin.fileno()):
            watched.register(each, selectors.EVENT_READ)
        print("ready", flush=True)
        asked: dict[int, socket.socket] = {}
        while True:
            found = [key.fileobj for key, _ in watched.select()]
            if sys.stdin.fileno() in found:
                os._exit(0)
            if listening in found:
                one, _ = listening.accept()
                told, places = _receive_request(one)
                if told is None:
                    one.close()
                    continue
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    for end in (one, listening, woken, wakes, *asked.values()):
                        end.close()
                    watched.close()
                    os._exit(status_of(told, places))
                for each in places:
                    os.close(each)
                asked[pid] = one
                _say(one, pid)
            if woken in found:
                woken.recv(1000)
                for pid, status in _reap_children():
                    with asked.pop(pid) as one:
                        _say(one, status)


def _receive_request(one: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """None: who asked has gone."""
    text, places = b"", []
    while not text.endswith(b"\n"):
        piece, more, _, _ = socket.recv_fds(one, 1 << 16, 3)
        if not piece:
            return None, []
        places += more
        text += piece
    return json.loads(text), places


def _say(one: socket.socket, number: int) -> None:
    try:
        one.sendall(b"%d\n" % number)
    except ConnectionError:
        return  # nobody waits for it any more


def _reap_children() -> list[tuple[int, int]]:
    ended: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append((pid, os.waitstatus_to_exitcode(status)))


def status_of(told: dict[str, Any], places: list[int]) -> int:
    """Do what was asked for, to the end of this process but for the taking apart of all that is imported."""
    status = 0
    try:
        become(told, places)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if status and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def become(told: dict[str, Any], places: list[int]) -> None:
    """Be the process that was asked for, and do what it does."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, place in enumerate(places):
        os.dup2(place, number)
        os.close(place)
    os.chdir(told["folder"])
    os.environ.clear()
    os.environ.update(told["environment"])
    random.seed()
    first, *words = told["arguments"]
    paths = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    start = os.path.dirname(os.path.abspath(first)) if not first.startswith("-") else os.getcwd()
    sys.path[:OWN] = [start, *paths]
    importlib.invalidate_caches()
    if first == "-c":
        text, *words = words
        sys.argv = ["-c", *words]
        module = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(text, "<string>", "exec"), module.__dict__)
    elif first == "-m":
        name, *words = words
        sys.argv = [name, *words]
        sys.modules.pop(name, None)  # it is run, and what imports it imports it anew
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *words]
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1])
