"""The page over HTTP, asked as a browser asks, and as others than its user may."""

from __future__ import annotations

import json
import signal
import socket
import sys
import urllib.error
import urllib.request
from http.client import HTTPConnection
from io import StringIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from watersmeet.cli.page_commands import ui
from watersmeet.errors import EngineError, SpecError, StateError
from watersmeet.history import segments
from watersmeet.history.plan_document import SideFiles
from watersmeet.history.points import Figures
from watersmeet.history.reader import HistoryReader, read
from watersmeet.history.segments import RunEnd, RunStart
from watersmeet.history.writer import HistoryWriter
from watersmeet.page.document import document_of, samples_of
from watersmeet.page.html import static
from watersmeet.page.live_server import listening_at
from watersmeet.page.server import STATIC, PageFeed, ServedPage
from watersmeet.spec.monitoring import Address, address_in, load_token
from watersmeet.state.store import MemoryStore


class History:
    """One that grows while the page is served."""

    def __init__(self):
        self.store = MemoryStore()
        self.keeping = HistoryWriter(self.store, pytest.fail, pause_s=0)
        self.tick = 0

    def grow(self) -> None:
        self.tick += 1
        levels = {("input/q/a", "retained"): self.tick, ("input/q/a", "in"): self.tick}
        self.keeping.add(self.tick, self.tick * 1_000_000, Figures({("source/a", "rows_in"): 1}, levels))
        assert self.keeping._writing is not None
        self.keeping._writing.result()


@pytest.fixture(scope="module")
def history():
    made = History()
    made.grow()
    yield made
    made.keeping.close()


@pytest.fixture(scope="module")
def url(history):
    serving = ServedPage.of(
        PageFeed(HistoryReader(history.store), "<job>", look_s=0.05), Address("127.0.0.1", 0), None
    )
    with serving.serve_in_thread():
        yield serving.url


def asked(url: str, **headers: str | bytes):
    """The status, the headers and the text of an answer; redirects are not followed."""
    host, _, path = url.removeprefix("http://").partition("/")
    connection = HTTPConnection(host, timeout=20)
    connection.request("GET", f"/{path}", headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.headers, answer.read().decode()


def test_page_and_all_that_it_asks_for(url):
    status, headers, page = asked(url)
    assert status == 200
    assert "<title>&lt;job&gt; – watersmeet</title>" in page
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'")
    for name in STATIC:
        assert name in page or name == "page.css"
        status, headers, text = asked(url + name)
        assert (status, text) == (200, static(name).decode())
        assert headers["Content-Type"].startswith(STATIC[name])
        assert headers["X-Content-Type-Options"] == "nosniff"
    document = json.loads(asked(url + "document.json")[2])
    assert document["title"] == "<job>"
    assert document["inputs"][0]["places"] == {"retained": document["ticks"]}


@pytest.mark.parametrize("path", ["page.html", "page.css.map", "..%2fhtml.py", "x", "static/page.js"])
def test_nothing_else_is_there(url, path):
    assert asked(url + path)[0] == 404


def test_it_cannot_be_changed(url):
    request = urllib.request.Request(url, data=b"x", method="POST")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=20)
    assert refused.value.code == 405


def test_pages_of_others_do_not_reach_it(url):
    """A name of theirs that leads here (DNS rebinding) is none of ours."""
    assert asked(url, Host="evil.example")[0] == 400
    assert asked(url, Host="localhost")[0] == 200


def test_news_come_as_the_job_goes_on(history, url):
    document = json.loads(asked(url + "document.json")[2])
    with urllib.request.urlopen(f"{url}events?after={document['last_tick_us']}", timeout=20) as stream:
        seen = {}
        for _ in range(3):
            history.grow()
            while history.tick not in seen:
                line = stream.readline().decode()
                if line.startswith("data: "):
                    more = json.loads(line.removeprefix("data: "))
                    for chart in more["charts"]:
                        for one in chart["series"]:
                            if chart["key"] == "retained":
                                for at, value in zip(chart["at"], one["values"], strict=True):
                                    assert value not in seen, "a point comes once"
                                    seen[value] = at
    assert seen == {tick: float(tick) for tick in range(document["ticks"] + 1, history.tick + 1)}


@pytest.mark.parametrize("after", ["", "x", "-1", "9" * 30])
def test_who_says_nothing_that_is_known_gets_all(history, url, after):
    with urllib.request.urlopen(f"{url}events?after={after}", timeout=20) as stream:
        line = next(line for line in iter(stream.readline, b"") if line.startswith(b"data: "))
    assert json.loads(line.removeprefix(b"data: "))["ticks"] == history.tick


def test_a_state_that_cannot_be_read_is_told_in_its_words():
    class Away(MemoryStore):
        def names(self, folder):
            raise StateError("the store does not answer", code="store-away")

    serving = ServedPage.of(PageFeed(HistoryReader(Away()), "job"), Address("127.0.0.1", 0), None)
    with serving.serve_in_thread():
        status, _, told = asked(serving.url + "document.json")
        assert (status, told) == (503, "the store does not answer")
        with urllib.request.urlopen(serving.url + "events", timeout=20) as stream:
            lines = [next(stream).strip() for _ in range(2)]
    assert lines == [b"event: problem", b'data: "the store does not answer"']


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_samples_of_rows_that_were_set_aside_are_served_and_in_no_report(tmp_path, kind):
    rows = [
        {"input": "q/a", "reason": "late", "late_by": n, "watermark_key": "a.t", "record": f'{{"k": {n}}}'}
        for n in range(30)
    ]
    first, last = "late-000000000009-00001", "late-000000000010-00000-c000.x"
    for name, own in (
        (first, rows[:15]), (last, rows[15:]), ("_late-000000000011-00000", rows), ("_x/part-3", rows),
        (".late-000000000011-00000", rows),
    ):  # fmt: skip
        file = tmp_path / f"{name}.{kind}"
        file.parent.mkdir(exist_ok=True)
        if kind == "json":
            file.write_text("".join(json.dumps(row) + "\n" for row in own))
        else:
            pq.write_table(pa.Table.from_pylist(own), file)
    store = MemoryStore()
    files = SideFiles(path=str(tmp_path), format=kind)
    segments.begin(store, "0" * 8, RunStart(started_us=1, version="1", machine="here", late_files=files))
    feed = PageFeed(HistoryReader(store), "job")
    samples = json.loads(feed.document(0.0))["samples"]
    assert samples == [*rows[15:], *rows[:5]]
    assert str(tmp_path) not in feed.document(0.0)
    assert "samples" not in document_of(read(store), "job")
    (tmp_path / f"{last}.{kind}").write_bytes(b"\xff")
    assert samples_of(files) == []
    assert samples_of(SideFiles(path=str(tmp_path / "none"), format=kind)) == samples_of(None) == []


def test_samples_of_broken_records_are_served_beside_late_rows(tmp_path):
    files = {}
    for reason in ("late", "broken"):
        folder = tmp_path / reason
        folder.mkdir()
        (folder / f"{reason}-000000000001-00000.json").write_text(
            json.dumps({"reason": reason, "record": "x"})
        )
        files[f"{reason}_files"] = SideFiles(path=str(tmp_path / reason), format="json")
    same = dict.fromkeys(files, files["late_files"])
    for begun, reasons in ((files, ["late", "broken"]), (same, ["late"])):
        store = MemoryStore()
        segments.begin(store, "0" * 8, RunStart(started_us=1, version="1", machine="here", **begun))
        samples = json.loads(PageFeed(HistoryReader(store), "job").document(0.0))["samples"]
        assert [one["reason"] for one in samples] == reasons


def test_a_run_is_killed_when_its_process_has_gone_and_not_while_it_ends():
    store, held = MemoryStore(), [True, True, False, False, True, False]
    run = segments.begin(store, "0" * 8, RunStart(started_us=1, version="1", machine="here"))
    feed = PageFeed(HistoryReader(store), "job", look_s=0, is_held=lambda: held.pop(0))

    def status():
        return json.loads(feed.document(0.0))["status"]

    assert [status() for _ in range(5)] == ["running", "running", "running", "killed", "running"]
    segments.end(store, run, RunEnd(ended_us=2, how="stopped"))
    assert status() == "stopped"


def test_the_clock_of_a_document_is_never_old(history, monkeypatch):
    feed = PageFeed(HistoryReader(history.store), "job")
    for now in (5.0, 6.5):
        monkeypatch.setattr("watersmeet.page.server.time.time", lambda now=now: now)
        assert json.loads(feed.document(0.0))["now"] == now


@pytest.fixture(scope="module")
def token(tmp_path_factory):
    return load_token(str(tmp_path_factory.mktemp("access") / "token"))


@pytest.fixture(scope="module", params=["127.0.0.1", "0.0.0.0"])
def guarded(request, history, token):
    """A page that asks for a token; its address."""
    serving = ServedPage.of(
        PageFeed(HistoryReader(history.store), "job", look_s=0.05), Address(request.param, 0), token
    )
    with serving.serve_in_thread():
        yield serving, serving.url.replace("0.0.0.0", "127.0.0.1")


PATHS = ("", "document.json", "events", "why.json?input=a", "inputs.json", "page.js", "page.css", "nothing")


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_shown_without_the_token(guarded, token, path):
    """To any user of the machine: loopback is open to all of them."""
    _, url = guarded
    sign = "&" if "?" in path else "?"
    for query in ("", f"{sign}token=", f"{sign}token=x", f"{sign}token={token.text}x", f"{sign}token=%ff"):
        status, headers, text = asked(f"{url}{path}{query}")
        assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
        assert text.startswith("this page asks for a token: open the link")
    for header in ("", "Bearer", "Bearer x", f"Basic {token.text}", f"Bearer {token.text[:-1]}", "Bearer é"):
        assert asked(f"{url}{path}", Authorization=header.encode("latin-1"))[0] == 401
    for cookie in ("", "watersmeet=x", f"watersmeet={token.text}", f"watersmeet-1={token.text}"):
        assert asked(f"{url}{path}", Cookie=cookie)[0] == 401
    for method in ("HEAD", "OPTIONS", "POST"):
        connection = HTTPConnection(url.removeprefix("http://").rstrip("/"), timeout=20)
        connection.request(method, f"/{path}")
        assert connection.getresponse().status == 401


def test_a_program_sends_the_token_in_a_header(guarded, token):
    _, url = guarded
    for scheme in ("Bearer", "bearer"):
        status, _, text = asked(f"{url}document.json", Authorization=f"{scheme} {token.text}")
        assert (status, json.loads(text)["title"]) == (200, "job")


def test_a_browser_sends_the_token_once_and_then_a_cookie_of_this_port(guarded, token):
    """Browsers send cookies to all ports of a host: this one does not tell what the token is."""
    serving, url = guarded
    assert serving.link == f"{serving.url}?token={token.text}"
    status, headers, _ = asked(f"{url}?token={token.text}")
    assert (status, headers["Location"]) == (303, "/")
    cookie = headers["Set-Cookie"]
    port = url.rpartition(":")[2].rstrip("/")
    assert cookie.startswith(f"watersmeet-{port}=")
    assert {"HttpOnly", "SameSite=lax"} <= set(cookie.split("; "))
    assert token.text not in cookie
    shown = cookie.partition(";")[0]
    for path in ("", "document.json", "page.js"):
        assert asked(f"{url}{path}", Cookie=shown)[0] == 200
    assert asked(url, Cookie=shown.replace(port, "1"))[0] == 401
    assert asked(f"{url}document.json", Authorization=f"Bearer {shown.partition('=')[2]}")[0] == 401


def test_the_link_is_shown_on_a_terminal_and_stands_in_no_log(guarded, token):
    serving, _ = guarded
    terminal, log = StringIO(), StringIO()
    terminal.isatty = lambda: True
    assert serving.describe(terminal) == serving.link
    assert serving.describe(log) == serving.describe(None) == f"{serving.url} (token in {token.file})"
    assert str(token.text) not in repr(token)


@pytest.mark.parametrize(
    ("host", "who"),
    [("127.0.0.1", "every user of this machine"), ("0.0.0.0", "everyone who can reach this address")],
)
def test_a_page_without_a_token_says_who_may_see_it(history, host, who):
    serving = ServedPage.of(PageFeed(HistoryReader(history.store), "job"), Address(host, 0), None)
    serving.listening.close()
    assert serving.describe(StringIO()) == f"{serving.url} (no token: open to {who})"


@pytest.mark.parametrize("text", ["", "x", "70000", "host:", "-1", "::1:80", "1.5"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(SpecError, match="not a port") as refused:
        ui("job.sql", text)
    assert refused.value.code == "wrong-option"


@pytest.mark.parametrize(
    ("handler", "is_stopped"), [(signal.SIG_IGN, False), (signal.SIG_DFL, True)], ids=["ignored", "default"]
)
def test_ctrl_c_stops_the_page_unless_the_process_ignores_it(history, handler, is_stopped):
    before = signal.signal(signal.SIGINT, handler)
    try:
        serving = ServedPage.of(PageFeed(HistoryReader(history.store), "job"), Address("127.0.0.1", 0), None)
        server = serving._server()
    finally:
        signal.signal(signal.SIGINT, before)
    serving.listening.close()
    server.handle_exit(signal.SIGINT, None)
    assert server.should_exit is is_stopped
    server.handle_exit(signal.SIGTERM, None)
    assert server.should_exit


def test_a_library_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "watersmeet.page.server")
    with pytest.raises(EngineError, match="not installed: uvicorn") as refused:
        listening_at(Address("127.0.0.1", 0), MemoryStore(), "job", token=None)
    assert refused.value.code == "missing-library"
    assert "watersmeet[ui]" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("text", "wanted", "loopback"),
    [
        ("8080", Address("127.0.0.1", 8080), True),
        ("0.0.0.0:1", Address("0.0.0.0", 1), False),
        ("[::1]:9", Address("::1", 9), True),
        ("localhost:9", Address("localhost", 9), True),
        ("example.org:9", Address("example.org", 9), False),
    ],
)
def test_addresses(text, wanted, loopback):
    assert (address_in(text), wanted.is_loopback) == (wanted, loopback)


def test_a_port_that_is_taken_is_said(history):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(EngineError) as refused:
            ServedPage.of(PageFeed(HistoryReader(history.store), "job"), address, None)
    assert refused.value.code == "port-taken"
