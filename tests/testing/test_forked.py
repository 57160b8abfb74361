"""Processes that are forked from one that has imported everything: as those that start as ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.support.forked import Forked, run_forked

pytestmark = pytest.mark.full

SAYS = """
import os, sys
said = [__name__, sys.argv[1:], os.getcwd(), dict(os.environ)["GIVEN"]]
said += [os.getsid(0) == os.getpid(), sys.path[1]]
print(said, sys.stdin.read(), file=sys.stderr)
sys.exit(7)
"""


@pytest.mark.parametrize("form", ["text", "file", "module"])
def test_arguments_folder_and_environment_are_its_own(tmp_path, form):
    (tmp_path / "says.py").write_text(SAYS)
    (tmp_path / "lib").mkdir()
    words = {"text": ["-c", SAYS], "file": ["says.py"], "module": ["-m", "says"]}[form]
    environment = {"GIVEN": "x", "PYTHONPATH": str(tmp_path / "lib")}
    status, said = run_forked([*words, "a b", "-m"], 60, cwd=tmp_path, env=environment)
    expected = ["__main__", ["a b", "-m"], str(tmp_path), "x", True, str(tmp_path / "lib")]
    assert (status, said) == (7, f"{expected} \n")
    real = subprocess.run(
        [sys.executable, *words, "a b", "-m"],
        cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        start_new_session=True, check=False,
    )  # fmt: skip
    assert (real.returncode, real.stderr) == (status, said)


@pytest.mark.parametrize(
    ("text", "status", "said", "last_words"),
    [
        ("import atexit; atexit.register(print, 'at the end')", 0, b"at the end\n", ""),
        ("print('out'); raise SystemExit('why')", 1, b"out\n", "why"),
        ("1 / 0", 1, b"", "ZeroDivisionError: division by zero"),
        ("import threading, time; threading.Timer(0.1, print, ['later']).start()", 0, b"later\n", ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, b"", ""),
    ],
)
def test_it_ends_as_python_does(tmp_path, text, status, said, last_words):
    with (tmp_path / "errors").open("w+b") as errors:
        process = Forked(["-c", text], stdout=subprocess.PIPE, stderr=errors)
        assert process.stdout is not None
        with process.stdout as out:
            assert out.read() == said
        assert process.wait(60) == status
        assert process.poll() == process.returncode == status
    last = (tmp_path / "errors").read_text().splitlines()[-1:]
    assert last == ([last_words] if last_words else [])


def test_several_run_at_once_and_hear_signals(tmp_path):
    sleeps = "import time; print('there', flush=True); time.sleep(600)"
    with (tmp_path / "out").open("wb") as out, pytest.raises(subprocess.TimeoutExpired):
        run_forked(["-c", sleeps], 0.1, stdout=out)
    with pytest.raises(OSError, match="Bad file descriptor"):
        Forked(["-c", sleeps], stdout=-7)
    several = [Forked(["-c", sleeps], stdout=subprocess.PIPE) for _ in range(2)]
    for one in several:
        assert one.stdout is not None
        assert one.stdout.readline() == b"there\n"
        one.stdout.close()
        assert one.poll() is None
    first, second = several
    os.killpg(first.pid, signal.SIGTERM)
    assert first.wait(60) == -signal.SIGTERM
    time.sleep(0.05)
    assert second.poll() is None
    second.kill()
    assert second.wait(60) == -signal.SIGKILL
    second.kill()  # nobody any more
