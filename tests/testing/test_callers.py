"""Tests do not depend on what the process that starts them leaves behind."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.support.package_paths import REPOSITORY

IGNORE_AND_EXECUTE = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_process_that_a_test_starts(number):
    code = f"import signal; signal.raise_signal({int(number)})"
    ended = subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL, check=False)
    assert ended.returncode == -number


def test_signals_that_the_caller_ignores_end_processes_of_tests():
    """As in `make test &`, which a shell starts with SIGINT ignored."""
    test = f"{__file__}::{test_a_signal_ends_a_process_that_a_test_starts.__name__}"
    pytest_command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    ran = subprocess.run(
        [sys.executable, "-c", IGNORE_AND_EXECUTE, *pytest_command],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
