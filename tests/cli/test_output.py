"""Where nothing can be printed, and Ctrl-C before there is anything to stop: a line, and an exit status."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from watersmeet.cli.output import OutputError, guard_stdout, to_stderr
from watersmeet.runtime.spark.errors import readable_error

CASES = Path(__file__).resolve().parents[1] / "cases" / "inner.json"
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")}
START = "import sys; from watersmeet.cli.start import main; sys.exit(main())"
FULL = Path("/dev/full")

COMMANDS = [
    ("--help",), ("explain", "job.sql"), ("replay", str(CASES)),
    *(
        pytest.param(argv, marks=pytest.mark.full)
        for argv in (
            ("--version",), ("explain", "job.sql", "--mermaid"),
            ("replay", str(CASES), "--trace"), ("reset", "job.sql"),
        )
    ),
]  # fmt: skip


@pytest.fixture
def with_data(job):
    """A job whose path is there, so that there is nothing to be warned of."""
    (job.parent / "in").mkdir()


def started(*argv, **files):
    return subprocess.Popen(
        [sys.executable, "-c", START, *argv], stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, **files
    )


@pytest.mark.skipif(not FULL.exists(), reason="no device that is always full")
@pytest.mark.parametrize("argv", COMMANDS, ids=" ".join)
def test_full_standard_output_fails_with_a_hint(with_data, argv):
    with FULL.open("w") as full, started(*argv, stdout=full) as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 2, said
    lines = said.splitlines()
    assert lines[0] == (
        "OutputError[output-failed]: standard output cannot be written: No space left on device"
    )
    assert [line[:6] for line in lines[1:]] == ["Hint: "]


PRINTING = [
    ("run", "job.sql"),
    ("replay", str(CASES)),
    *(pytest.param((name, "job.sql"), marks=pytest.mark.full) for name in ("explain", "preview")),
]


@pytest.mark.parametrize("argv", PRINTING, ids=" ".join)
def test_no_standard_output(with_data, argv):
    """As after `>&-`; of a run it is said before it begins."""
    command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", START, *argv]
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, check=False)
    assert (ended.returncode, ended.stderr.splitlines()) == (
        2,
        [
            "OutputError[output-failed]: standard output cannot be written: it is closed",
            "Hint: use >/dev/null to discard the output",
        ],
    )


def test_where_the_status_is_the_answer_no_standard_output_is_needed():
    command = [
        "sh",
        "-c",
        'exec "$@" >&-',
        "sh",
        sys.executable,
        "-c",
        START,
        "replay",
        "--check",
        str(CASES),
    ]
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, check=False)
    assert (ended.returncode, "as expected" in ended.stderr) == (0, True)


def test_closed_streams_leave_no_places_for_files(tmp_path):
    """What libraries and Java print would come into a file that got such a number."""
    script = (
        "import sys, os; from watersmeet.cli import start, main;"
        f"main.app_main = lambda: os.write(1, b'lost') and open({str(tmp_path / 'f')!r}, 'w').fileno();"
        "sys.exit(start.main())"
    )
    command = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", script]
    assert subprocess.run(command, env=ENVIRONMENT, check=False).returncode > 2


def test_full_standard_error_does_not_change_the_exit_status(job):
    with FULL.open("w") as full:
        assert subprocess.run(
            [sys.executable, "-c", START, "explain", "nosuch.sql"], stderr=full, env=ENVIRONMENT, check=False
        ).returncode == 2  # fmt: skip


@pytest.mark.parametrize(
    "argv",
    [("replay", str(CASES)), pytest.param(("explain", "job.sql"), marks=pytest.mark.full)],
    ids=" ".join,
)
def test_closed_pipe_ends_the_command_silently(with_data, argv):
    with started(*argv, stdout=subprocess.PIPE) as process:
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (0, "")


class Unwritable:
    """A stream that fails once it is written to."""

    def __init__(self, error):
        self.error = error

    def write(self, text):
        raise self.error

    def flush(self):
        pass


@pytest.mark.parametrize(
    "error", [BrokenPipeError(32, "Broken pipe"), OSError(28, "No space left on device")]
)
def test_a_run_that_cannot_print_is_no_error_of_spark(watersmeet, job, engine, make_tick, monkeypatch, error):
    """The engine makes its own words of what a tick raises."""
    engine.ticks = [make_tick(1, **{"in": 1, "matched": 1})]
    run_job = engine.run_job

    def as_spark(*args, **kwargs):
        try:
            return run_job(*args, **kwargs)
        except Exception as raised:
            raise readable_error(raised) from None

    monkeypatch.setattr(sys.modules["watersmeet.runtime.spark.job.run"], "run_job", as_spark)
    monkeypatch.setattr(sys, "stdout", Unwritable(error))
    found = watersmeet("run", job, "--json")
    assert found.status == 2
    assert "standard output cannot be written" in found.err
    assert "run again" in found.err


def test_errors_of_output_travel():
    import copy

    for error in (OutputError(BrokenPipeError(32, "Broken pipe")), OutputError(OSError(28, "No space"))):
        assert str(copy.copy(error)) == str(error)


@pytest.mark.parametrize(
    "after_s", [0.05, 0.3, *(pytest.param(after_s, marks=pytest.mark.full) for after_s in (0.0, 0.15, 0.6))]
)
def test_ctrl_c_at_any_time_is_quiet(with_data, after_s):
    """From when the interpreter has begun with the command, which no signal can be sure of."""
    code = START.replace("sys.exit", "print('!', file=sys.stderr, flush=True); sys.exit")
    with subprocess.Popen(
        [sys.executable, "-c", code, "explain", "job.sql"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
    ) as process:  # fmt: skip
        assert process.stderr.readline() == "!\n"
        time.sleep(0.03 + after_s)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert (process.returncode, said) in [(130, ""), (-signal.SIGINT, ""), (0, "")]


def test_ctrl_c_within_a_class_that_is_being_made_is_quiet(watersmeet, job, monkeypatch):
    """Python 3.11 wraps what is raised there, as of libraries that are loaded by a command."""

    def raise_interrupt_in_class_body(*args):
        class Attribute:
            def __set_name__(self, owner, name):
                raise KeyboardInterrupt

        class Model:
            field = Attribute()

    monkeypatch.setattr(sys.modules["watersmeet.cli.main"], "text_of", raise_interrupt_in_class_body)
    ended = watersmeet("explain", job)
    assert (ended.status, ended.err) == (130, "")


def test_an_ignored_ctrl_c_stays_ignored(job):
    """As of ``nohup`` and of what a shell puts into the background."""
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN);" + START.replace(
        "sys.exit", "import os; os.kill(os.getpid(), signal.SIGINT); sys.exit"
    )
    process = subprocess.run(
        [sys.executable, "-c", code, "--version"],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        check=False,
    )
    assert process.returncode == 0


@pytest.mark.full
def test_a_closed_pipe_does_not_change_what_a_check_says(tmp_path):
    """The cases that differ come after those that fill the pipe."""
    case = {
        "case": "x",
        "query": "SELECT l.t FROM l JOIN r ON l.t = r.t",
        "streams": {name: {"columns": {"t": "BIGINT"}, "time": {"t": {"lag": 0}}} for name in "lr"},
        "steps": [{}] * 50,
        "expect": [{"rows": []}] * 50,
    }
    file = tmp_path / "cases.json"
    for last, status in ((case, 0), ({**case, "expect": [{"rows": [{"t": 1}]}]}, 1)):
        file.write_text(json.dumps([case] * 40 + [last]))
        with started("replay", "--check", str(file), stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            process.stdout.close()
            said = process.stderr.read()
            assert (process.wait(60), "Traceback" in said) == (status, False), said
            assert f"{41 - status} of 41 cases as expected" in said


def test_a_terminal_that_was_closed_is_no_error(monkeypatch):
    """SIGHUP stops a run; what it then prints nobody can read."""
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as terminal:
        os.close(master)
        monkeypatch.setattr(sys, "stdout", terminal)
        monkeypatch.setattr(sys, "stderr", terminal)
        with guard_stdout():
            print("a row", flush=True)
            to_stderr("a notice")
            print("another row", flush=True)
