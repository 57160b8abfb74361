"""`run --ui`: the page is there while the job runs; what is wrong with it is told before Spark is started."""

from __future__ import annotations

import io
import socket
import sys
import urllib.error
import urllib.request

import pytest

from watersmeet.cli.main import main
from watersmeet.cli.page_commands import insert_default_port


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_page_is_there_while_the_job_runs(watersmeet, job, engine, make_tick, port, tmp_path, host):
    url, asked, token = f"http://127.0.0.1:{port}/", [], tmp_path / "token"

    class Ticks(list):
        def __iter__(self):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(url, timeout=20)
            header = {"Authorization": f"Bearer {token.read_text().strip()}"}
            request = urllib.request.Request(url, headers=header)
            asked.append(urllib.request.urlopen(request, timeout=20).read().decode())
            return super().__iter__()

    engine.ticks = Ticks([make_tick(1, **{"in": 1, "matched": 1})])
    found = watersmeet("run", job, "--ui", f"{host}:{port}", "--token-file", token)
    assert found.status == 0
    assert "<title>job – watersmeet</title>" in asked[0]
    assert f"notice: the page of the job is at http://{host}:{port}/ (token in {token})\n" in found.err
    assert token.read_text().strip() not in found.err + found.out
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=20)


def test_link_with_the_token_is_shown_on_a_terminal(job, engine, tmp_path, monkeypatch):
    token = tmp_path / "token"

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    assert main(["run", str(job), "--ui", "0", "--token-file", str(token)]) == 0
    assert f"/?token={token.read_text().strip()}\n" in terminal.getvalue()


def test_a_page_without_a_token_says_who_may_see_it(watersmeet, job, engine, tmp_path):
    told = watersmeet("run", job, "--ui", "0", "--no-token").err
    assert "/ (no token: open to every user of this machine)\n" in told
    job.write_text(f"SET token_file = 'none'; {job.read_text()}")
    told = watersmeet("run", job, "--ui", "0.0.0.0:0", "--metrics", "0").err
    assert "/ (no token: open to everyone who can reach this address)\n" in told
    assert "/metrics (no token: open to every user of this machine)\n" in told
    told = watersmeet("run", job, "--ui", "0", "--token-file", tmp_path / "token").err
    assert f"/ (token in {tmp_path / 'token'})\n" in told


def test_invalid_ui_options_are_rejected_before_spark_starts(watersmeet, job, engine, monkeypatch):
    def get_rejection(*flags: str) -> str:
        found = watersmeet("run", job, *flags)
        assert (found.status, found.out, engine.job) == (2, "", None)
        return found.err

    with socket.create_server(("127.0.0.1", 0)) as other:
        told = get_rejection("--ui", str(other.getsockname()[1]))
    assert told.startswith("EngineError[port-taken]: the page cannot be shown at 127.0.0.1:")
    assert "another program uses this port\nHint: use another port, such as 8766" in told
    assert "ui is '70000'" in get_rejection("--ui", "70000")
    assert "ui is 'localhost'" in get_rejection("--ui", "localhost")
    assert "exclude each other" in get_rejection("--ui", "0", "--token-file", "x", "--no-token")
    for asked in ("--ui", "--metrics"):
        assert (
            '[token-file]: the token for page and metrics cannot be read from "/dev/null"'
            in get_rejection(asked, "0", "--token-file", "/dev/null")
        )
    job.write_text(f"SET history = 'off'; {job.read_text()}")
    assert "needs its history, but history = 'off'" in get_rejection("--ui", "0")
    job.write_text(job.read_text().partition(";")[2])
    monkeypatch.delitem(sys.modules, "watersmeet.page.server", raising=False)
    monkeypatch.setitem(sys.modules, "sse_starlette.sse", None)
    assert "pip install 'watersmeet[ui]'" in get_rejection("--ui", "0")


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
    assert insert_default_port(words.split()) == spelled.split()
