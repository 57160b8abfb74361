"""A pytest plugin: how much of the package the tests run, lines and branches, and a floor under it.

``-p tests.coverage --coverage-floor 90`` fails a run of less than 90 %; with ``--coverage-json FILE`` it says
of each file what was run and what was missed. What other processes run, those of the command line and
Spark's workers, does not count. Code that has run loses its probes (`tests/probes.py`), so that a long run
costs little; importing the package takes each process some 8 CPU seconds more.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.package_paths import PACKAGE


def pytest_addoption(parser):
    group = parser.getgroup("coverage")
    group.addoption("--coverage-floor", type=float, metavar="PERCENT", help="least share of the package")
    group.addoption("--coverage-json", type=Path, metavar="FILE", help="where to say what was missed")


def pytest_configure(config):
    if config.getoption("--coverage-floor") is None:
        return
    if config.getoption("numprocesses", None):  # the others run the tests
        config.pluginmanager.register(Floor(config), "coverage-floor")
    else:
        config.pluginmanager.register(Probes(config), "coverage-probes")
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(Floor(config), "coverage-floor")


class Probes:
    """In a process that runs tests: what it ran of the package."""

    def __init__(self, config):
        from tests.probes import FadingProbes, KeptFinder

        self.config = config
        self.slipcover = FadingProbes(branch=True, source=[str(PACKAGE)])
        self.finder = KeptFinder(self.slipcover)
        sys.meta_path.insert(0, self.finder)

    @pytest.hookimpl(tryfirst=True)  # what is frozen then cannot be looked through any more
    def pytest_collection_finish(self):
        self.slipcover.know_functions()

    def pytest_runtest_logfinish(self):
        self.slipcover.fade()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session):
        text = json.dumps(self.slipcover.get_coverage())
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["coverage"] = text
        else:
            self.config.pluginmanager.get_plugin("coverage-floor").take(text)

    def pytest_unconfigure(self):
        sys.meta_path.remove(self.finder)


class Floor:
    """In the process that people look at: what all of them ran together."""

    def __init__(self, config):
        self.floor = config.getoption("--coverage-floor")
        self.file = config.getoption("--coverage-json")
        self.report = None

    @property
    def percent(self):
        return 0.0 if self.report is None else self.report["summary"]["percent_covered"]

    def take(self, text):
        import slipcover

        of_process = json.loads(text)
        if self.report is None:
            self.report = of_process
        else:
            slipcover.merge_coverage(self.report, of_process)

    def pytest_testnodedown(self, node):
        text = getattr(node, "workeroutput", {}).get("coverage")
        if text is not None:  # a process that died fails the run anyway
            self.take(text)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        if self.file is not None:
            self.file.write_text(json.dumps(self.report))
        if session.exitstatus == pytest.ExitCode.OK and self.percent < self.floor:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        terminalreporter.write_line(
            f"coverage: {self.percent:.2f} % of lines and branches, {self.floor} at least"
        )
        if self.percent < self.floor:
            terminalreporter.write_line("FAILED: the tests run less of the package than before", red=True)
