"""Results of tests do not depend on who starts them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.support.caller import PREFIXES, VARIABLES, inherited_variables
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


def test_variables_of_the_caller_are_unset():
    assert inherited_variables() == []


def test_a_caller_that_ignores_signals_and_sets_variables_changes_nothing():
    """As in `make test &`, which a shell starts with SIGINT ignored."""
    variables = [*VARIABLES, *(f"{prefix}OTHER" for prefix in PREFIXES)]
    options = ["-q", "-p", "no:cacheprovider", "-k", "not changes_nothing"]
    ran = subprocess.run(
        [sys.executable, "-c", IGNORE_AND_EXECUTE, "-m", "pytest", *options, __file__],
        cwd=REPOSITORY,
        env=os.environ | dict.fromkeys(variables, "1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "3 passed" in ran.stdout
