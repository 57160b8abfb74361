"""The process that has the JVMs: ``python -m tests.support.lent_jvms.lender SOCKET``. It says ``ready``, and
ends when its standard input does.

A JVM is lent to one at a time, and to those alone whose environment, heap, options and jars are those that it
was started with. There are at most `MOST`; one that nobody asked for longest makes room.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

MOST = 3
LENDS = 60
"""After so many a JVM is let go: what each leaves behind adds up."""
CLEANED_S = 30.0
OF_EACH = {"PYTHONPATH", "PWD", "OLDPWD", "SHLVL", "_", "PYSPARK_PYTHON", "PYTEST_CURRENT_TEST"}
"""Variables that differ between processes, and mean nothing to a JVM but for `PYTHONPATH`, which is handed
to workers as a setting."""
AT_START = (
    "spark.driver.memory",
    "spark.driver.extraJavaOptions",
    "spark.driver.extraClassPath",
    "spark.jars",
)
"""Settings that a JVM has from its start."""
OF_THE_COMPILER = ("-XX:Tier", "-XX:ReservedCodeCacheSize=")
"""Words of a JVM's options that do not count: how those of tests compile is said for all (`jvm_options`)."""
ALONE = ("spark.jars.packages", "spark.jars.ivy", "spark.files", "spark.archives", "spark.submit")
"""Settings that ``spark-submit`` itself acts on."""


@dataclass(frozen=True)
class Wish:
    """What a process asks for: Spark's settings, and the environment."""

    settings: dict[str, str]
    environment: dict[str, str]

    @property
    def kind(self) -> tuple[Any, ...]:
        """Two of one kind can have one JVM."""
        variables = {name: value for name, value in self.environment.items() if name not in OF_EACH}
        return (*sorted(variables.items()), *(self._said(name) for name in AT_START))

    def _said(self, name: str) -> str | None:
        said = self.settings.get(name)
        return said and " ".join(word for word in said.split() if not word.startswith(OF_THE_COMPILER))


def wish_of(words: list[str], environment: dict[str, str]) -> Wish | None:
    """None: it is nothing that can be lent."""
    settings = {}
    while len(words) >= 2 and words[0] == "--conf":
        name, _, settings[name] = words[1].partition("=")
        words = words[2:]
    alone = any(name.startswith(ALONE) for name in settings)
    local = settings.get("spark.master", "").startswith("local[")
    return Wish(settings, environment) if words == ["pyspark-shell"] and local and not alone else None


@dataclass
class Jvm:
    """One that is up, with what it says going to ``borrower``."""

    kind: tuple[Any, ...]
    gateway: Any = None
    server: Any = None
    own: dict[str, str] = field(default_factory=dict)
    borrower: socket.socket | None = None
    lends: int = 0
    asked_s: float = 0.0

    def start(self, wish: Wish) -> None:
        conf = SparkConf(loadDefaults=False)
        conf.setAll([(name, wish.settings[name]) for name in AT_START if name in wish.settings])
        with _IN_ENVIRONMENT:
            before = dict(os.environ)
            os.environ.clear()
            os.environ.update(wish.environment)
            try:
                words = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL}
                self.gateway = launch_gateway(conf, words)  # type: ignore[no-untyped-call]
            finally:
                os.environ.clear()
                os.environ.update(before)
        threading.Thread(target=self._pass_on, daemon=True).start()
        self.own = self._properties()

    def lend(self, wish: Wish) -> tuple[int, str]:
        """Port and secret of a gateway of the borrower's own."""
        system = self.gateway.jvm.java.lang.System
        for name, value in wish.settings.items():
            if name not in AT_START:
                system.setProperty(name, value)
        paths = wish.environment.get("PYTHONPATH")
        if paths:
            system.setProperty("spark.executorEnv.PYTHONPATH", paths)
        python = self.gateway.jvm.org.apache.spark.api.python
        self.server = python.Py4JServer(self.gateway.jvm.org.apache.spark.SparkConf())
        self.server.start()
        self.lends += 1
        return self.server.getListeningPort(), self.server.secret()

    def clean(self) -> None:
        """Stop what the borrower left: its gateway first, by which it sees that its JVM is gone."""
        jvm: Any = self.gateway.jvm
        self.server.shutdown()
        sessions = jvm.org.apache.spark.sql.classic.SparkSession
        active = getattr(getattr(jvm.org.apache.spark, "SparkContext$"), "MODULE$").getActive()
        if active.isDefined():
            active.get().stop()
        sessions.clearActiveSession()
        sessions.clearDefaultSession()
        jvm.org.apache.hadoop.fs.FileSystem.closeAll()
        for name in self._properties():
            if name not in self.own:
                jvm.java.lang.System.clearProperty(name)
        threads = jvm.java.lang.Thread.getAllStackTraces().keySet().toArray()
        alive = [name for name in (thread.getName() for thread in threads) if "stream execution" in name]
        if alive:
            raise RuntimeError(f"still running: {alive}")

    def _properties(self) -> dict[str, str]:
        found = self.gateway.jvm.java.lang.System.getProperties()
        return {name: found[name] for name in found if name.startswith("spark.")}

    def _pass_on(self) -> None:
        out = self.gateway.proc.stderr.fileno()
        while words := os.read(out, 1 << 16):
            borrower = self.borrower
            if borrower is not None:
                with suppress(OSError):
                    borrower.sendall(words)
        borrower = self.borrower
        if borrower is not None:
            with suppress(OSError):
                borrower.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        if self.gateway is not None:
            self.gateway.proc.kill()
            self.gateway.proc.wait()


_IN_ENVIRONMENT = threading.Lock()


class Lender:
    """The JVMs, and which of them are lent."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._cleaned: list[Jvm] = []
        """Those that were given back, and are idle in a moment."""
        self._idle: list[Jvm] = []
        self._jvms: list[Jvm] = []

    def serve(self, borrower: socket.socket) -> None:
        with borrower, borrower.makefile("rb") as asked:
            line = asked.readline()
            if not line:
                return
            wish = wish_of(**json.loads(line))
            jvm = None if wish is None else self._take(wish.kind)
            if wish is None or jvm is None:
                borrower.sendall(b"{}\n")
                return
            keep = False
            try:
                if jvm.gateway is None:
                    jvm.start(wish)
                port, secret = jvm.lend(wish)
                borrower.sendall(json.dumps({"port": port, "secret": secret}).encode() + b"\n")
                jvm.borrower = borrower
                asked.read()  # until it ends
                with self._lock:
                    self._cleaned.append(jvm)
                keep = self._is_clean(jvm)
            finally:
                jvm.borrower = None
                self._give_back(jvm, keep and jvm.lends < LENDS)

    def _is_clean(self, jvm: Jvm) -> bool:
        late = threading.Timer(CLEANED_S, jvm.end)
        late.start()
        try:
            jvm.clean()
        except Exception as problem:
            print(f"lent JVMs: one is let go: {problem}", file=sys.stderr, flush=True)
            return False
        finally:
            late.cancel()
        return True

    def _take(self, kind: tuple[Any, ...]) -> Jvm | None:
        """One of this kind that is idle, or in a moment, or one to be started; None: all are lent."""
        with self._lock:
            self._lock.wait_for(lambda: all(jvm.kind != kind for jvm in self._cleaned), CLEANED_S)
            fitting = [jvm for jvm in self._idle if jvm.kind == kind]
            if fitting:
                jvm = max(fitting, key=lambda each: each.asked_s)
                self._idle.remove(jvm)
            else:
                if len(self._jvms) >= MOST:
                    if not self._idle:
                        return None
                    oldest = min(self._idle, key=lambda each: each.asked_s)
                    self._idle.remove(oldest)
                    self._jvms.remove(oldest)
                    oldest.end()
                jvm = Jvm(kind)
                self._jvms.append(jvm)
            jvm.asked_s = time.monotonic()
            return jvm

    def _give_back(self, jvm: Jvm, keep: bool) -> None:
        with self._lock:
            if jvm in self._cleaned:
                self._cleaned.remove(jvm)
            self._lock.notify_all()
            if keep:
                self._idle.append(jvm)
            else:
                self._jvms.remove(jvm)
                jvm.end()

    def end(self) -> None:
        with self._lock:
            for jvm in self._jvms:
                jvm.end()


def main(place: str) -> None:
    lender = Lender()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(place)
    listening.listen()
    print("ready", flush=True)

    def accept() -> None:
        while True:
            borrower, _ = listening.accept()
            threading.Thread(target=lender.serve, args=[borrower], daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.read()
    lender.end()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
