"""Questions of the page: each in a process of its own, bounded, one at a time, not for pages of others."""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from watersmeet.history.reader import HistoryReader
from watersmeet.page.questions import MAX_QUESTION_CHARACTERS, JobReference, QuestionRunner
from watersmeet.page.server import PageFeed, ServedPage
from watersmeet.spec.monitoring import Address
from watersmeet.state.store import MemoryStore

JOB = JobReference("SELECT 1", "a job's.sql", "state/x", {"trigger": "1s"})
ECHO = "import sys, json; json.dump({'asked': json.load(sys.stdin)}, sys.stdout)"
SLOW = (
    "import os, sys, time, pathlib; pathlib.Path({!r}).write_text(str(os.getpid()) + chr(10)); time.sleep(60)"
)


@contextmanager
def served(code: str, job: JobReference = JOB, **limits: Any):
    asker = QuestionRunner(job, command=("-c", code), **limits)
    serving = ServedPage.of(
        PageFeed(HistoryReader(MemoryStore()), "job", asker=asker), Address("127.0.0.1", 0), None
    )
    with serving.serve_in_thread():
        yield serving.url.removeprefix("http://").rstrip("/")


def asked(host: str, path: str, **headers: str) -> tuple[int, Any]:
    connection = HTTPConnection(host, timeout=100)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    return answer.status, json.loads(text) if answer.status == 200 else text


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def pid_in(file: Path) -> int:
    until = time.monotonic() + 20
    while not (file.exists() and file.read_text().endswith("\n")):
        assert time.monotonic() < until
        time.sleep(0.02)
    return int(file.read_text())


def until_gone(pid: int) -> None:
    until = time.monotonic() + 10
    while is_there(pid):
        assert time.monotonic() < until, "the process goes on"
        time.sleep(0.02)


def test_what_is_asked_comes_to_the_process_as_it_was_said():
    keys = ["k=</script>\x00' \"", "--json", "ключ", "NULL"]
    said = urlencode([("input", "O"), ("query", "q"), ("time", "t"), *(("key", key) for key in keys)])
    with served(ECHO) as host:
        status, told = asked(host, f"/why.json?{said}")
        assert status == 200
        assert told["asked"]["question"] == {"input": "O", "query": "q", "time": "t", "keys": keys}
        assert told["asked"]["text"] == JOB.text
        assert told["asked"]["checkpoint"] == "state/x"
        assert told["asked"]["overrides"] == {"trigger": "1s"}
        assert asked(host, "/inputs.json")[1]["asked"]["question"] is None
        why = asked(host, "/document.json")[1]["why"]
    assert why["command"] == "watersmeet why 'a job'\"'\"'s.sql' --checkpoint state/x"
    assert why["answers"]


def test_pages_of_others_and_what_is_too_long_are_refused():
    with served("raise SystemExit('no process is to be started')") as host:
        assert asked(host, "/why.json?input=a", **{"Sec-Fetch-Site": "cross-site"})[0] == 403
        status, told = asked(host, f"/why.json?input=a&key={'x' * MAX_QUESTION_CHARACTERS}")
        assert (status, told) == (413, "the question has more than 2,000 characters")
    with served(ECHO, JobReference(None, "state/x", "state/x")) as host:
        status, told = asked(host, "/why.json?input=a")
        assert (status, told) == (
            409,
            "the text of the job is not known here: watersmeet ui JOB.sql --checkpoint state/x",
        )
        assert not asked(host, "/document.json")[1]["why"]["answers"]
    serving = ServedPage.of(PageFeed(HistoryReader(MemoryStore()), "job"), Address("127.0.0.1", 0), None)
    with serving.serve_in_thread():
        assert asked(serving.url.removeprefix("http://").rstrip("/"), "/why.json?input=a")[0] == 404


def test_it_is_stopped_when_it_takes_too_long(tmp_path):
    file = tmp_path / "pid"
    with served(SLOW.format(str(file)), most_s=1) as host:
        status, told = asked(host, "/why.json?input=a")
    assert status == 504
    assert told == "it took more than 1 second, and was stopped: the command has no limit"
    assert not is_there(pid_in(file))


def test_one_at_a_time_and_none_for_whom_nobody_waits(tmp_path):
    file = tmp_path / "pid"
    with served(SLOW.format(str(file)), wait_s=0.2) as host:
        name, _, port = host.partition(":")
        with socket.create_connection((name, int(port))) as left:
            left.sendall(f"GET /why.json?input=a HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            pid = pid_in(file)
            status, told = asked(host, "/why.json?input=b")
            assert (status, told.startswith("another question")) == (429, True)
            assert is_there(pid)
        until_gone(pid)
        file.unlink()
        with socket.create_connection((name, int(port))) as next_one:
            next_one.sendall(f"GET /why.json?input=a HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            pid = pid_in(file)  # its turn came
            assert is_there(pid)
    until_gone(pid)


def test_a_page_that_ends_leaves_no_question_behind_and_says_nothing(tmp_path, caplog, capfd):
    file, connection = tmp_path / "pid", socket.socket()
    with connection, served(SLOW.format(str(file))) as host:
        name, _, port = host.partition(":")
        assert asked(host, f"/why.json?key={'x' * 100_000}")[0] in (400, 413)
        with socket.create_connection((name, int(port))) as nonsense:
            nonsense.sendall(b"nonsense\r\n\r\n")
            assert b" 400 " in nonsense.recv(1000)
        connection.connect((name, int(port)))
        connection.sendall(f"GET /why.json?input=a HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        pid = pid_in(file)
    until_gone(pid)
    assert "Traceback" not in caplog.text
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        ("import os; os.abort()", 500, "ended without an answer (status -6): try the command"),
        ("print('no JSON')", 500, "ended without an answer (status 0)"),
        # the real one, which is given more rows than its memory holds
        (
            "import sys; from watersmeet.cli.why import page_answers; "
            "page_answers.answer_question = lambda *given: [bytearray(1 << 29)]; page_answers.main()",
            507,
            "takes more than 0.293 GB of memory",
        ),
    ],
)
def test_a_process_that_fails_is_told_of(code, status, said):
    with served(code, most_bytes=300 << 20) as host:
        told = asked(host, "/why.json?input=a")
    assert told[0] == status
    assert said in told[1]


def test_no_process_can_be_started(monkeypatch):
    monkeypatch.setattr("watersmeet.page.questions.sys.executable", "/none")
    with served(ECHO) as host:
        status, told = asked(host, "/why.json?input=a")
    assert (status, told) == (503, "no process can be started for it: No such file or directory")
