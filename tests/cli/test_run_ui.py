"""`run --ui`: the page is there while the job runs; what is wrong with it is told before Spark is started."""

from __future__ import annotations

import socket
import sys
import urllib.error
import urllib.request

import pytest

from watersmeet.cli.ui import with_port


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_page_is_there_while_the_job_runs(watersmeet, job, engine, make_tick, port):
    url, asked = f"http://127.0.0.1:{port}/", []

    class Ticks(list):
        def __iter__(self):
            asked.append(urllib.request.urlopen(url, timeout=20).read().decode())
            return super().__iter__()

    engine.ticks = Ticks([make_tick(1, **{"in": 1, "matched": 1})])
    found = watersmeet("run", job, "--ui", port)
    assert found.status == 0
    assert "<title>job – watersmeet</title>" in asked[0]
    assert found.err.count(url) == 1
    assert url not in found.out
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=20)


def test_page_for_other_machines_has_a_token(watersmeet, job, engine):
    found = watersmeet("run", job, "--ui", "0.0.0.0:0")
    assert found.status == 0
    assert "notice: the page of the job is at http://0.0.0.0:" in found.err
    assert "/?token=" in found.err


def test_what_is_wrong_is_told_before_spark_is_started(watersmeet, job, engine, monkeypatch):
    def refused(*flags: str) -> str:
        found = watersmeet("run", job, *flags)
        assert (found.status, found.out, engine.job) == (2, "", None)
        return found.err

    with socket.create_server(("127.0.0.1", 0)) as other:
        told = refused("--ui", str(other.getsockname()[1]))
    assert told.startswith("EngineError[port-taken]: the page cannot be shown at 127.0.0.1:")
    assert "another program listens there\nHint: another port, such as 8766" in told
    assert "ui is '70000'" in refused("--ui", "70000")
    assert "ui is 'localhost'" in refused("--ui", "localhost")
    job.write_text(f"SET history = 'off'; {job.read_text()}")
    assert "is drawn from its history, and none is kept" in refused("--ui", "0")
    job.write_text(job.read_text().partition(";")[2])
    monkeypatch.delitem(sys.modules, "watersmeet.page.served", raising=False)
    monkeypatch.setitem(sys.modules, "sse_starlette.sse", None)
    assert "pip install 'watersmeet[ui]'" in refused("--ui", "0")


@pytest.mark.parametrize(
    ("words", "spelled"),
    [
        ("run job.sql --ui", "run job.sql --ui 8765"),
        ("run --ui job.sql", "run --ui 8765 job.sql"),
        ("run --ui --json job.sql", "run --ui 8765 --json job.sql"),
        ("run --ui 0.0.0.0:80 job.sql", "run --ui 0.0.0.0:80 job.sql"),
        ("run --ui=80 job.sql", "run --ui=80 job.sql"),
        ("run --ui localhost job.sql", "run --ui localhost job.sql"),
        ("run job.sql --ui 0.0.0.0", "run job.sql --ui 0.0.0.0"),
        ("run --ui Job.TOML", "run --ui 8765 Job.TOML"),
        ("ui job.sql", "ui job.sql"),
    ],
)
def test_port_may_be_left_out(words, spelled):
    assert with_port(words.split()) == spelled.split()
