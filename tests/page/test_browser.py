"""The page as Chromium shows it: fast, for everybody, and without a word to anybody else."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import expect

from tests.page.histories import HOSTILE, QUERIES, SHOWN_PARTITIONS, TICKS, Large, hostile
from tests.support.browser import browser, faults
from watersmeet.history.past import Reader, read
from watersmeet.history.planned import SideFiles
from watersmeet.page.asking import AskedJob, Asker
from watersmeet.page.document import document_of
from watersmeet.page.html import page_of
from watersmeet.page.served import Feed
from watersmeet.page.serving import Serving
from watersmeet.spec.watched.access import load_token
from watersmeet.spec.watched.addresses import Address

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def chromium():
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    folder = tmp_path_factory.mktemp("late")
    row = {"input": "paid_0/o", "reason": "late", "late_by": 150_000_000, "record": HOSTILE}
    (folder / "late-000000000001").mkdir()
    (folder / "late-000000000001/part.json").write_text(json.dumps(row | {"watermark_key": "o.at"}))
    made = Large(late_files=SideFiles(path=str(folder), format="json"))
    yield made
    made.keeping.close()


@pytest.fixture(scope="module")
def url(large):
    serving = Serving.of(Feed(Reader(large.store), "large", look_s=0.2), Address("127.0.0.1", 0), None)
    with serving.beside():
        yield serving.url


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A file of a job of two queries."""
    made = Large(queries=2, ticks=40)
    made.keeping.close()
    file = tmp_path_factory.mktemp("small") / "report.html"
    file.write_text(page_of(document_of(read(made.store), "small")), encoding="utf-8")
    return file.as_uri()


ANSWERING = """
import json, sys, time
asked = json.load(sys.stdin)
question, hostile = asked["question"], asked["text"]
if question is None:
    one = {"query": "paid_0", "input": "p", "keys": ["id"], "columns": ["id", "at"], "times": ["at"]}
    print(json.dumps({"inputs": [{**one, "is_told": True}]}))
elif question["time"] == "never":
    time.sleep(60)
elif not question["keys"]:
    print(json.dumps({"problem": hostile, "hint": hostile}))
else:
    from watersmeet.why.answer import Answer, Fate, Met, Near, Record, Tick

    tick = Tick(7)
    near = Near({"id": hostile}, "there", [hostile + ": 3 against 4"])
    met = Met({"id": None}, "there", tick, left_out=hostile, until=Tick(9))
    reached = [Met({hostile: number}, "there", tick) for number in (1, 2)]
    row = {"keys": question["keys"], "of": hostile}
    more = {"met": [met], "more_met": 2, "near": [near], "reached": reached}
    more |= {"by": Record({"at": hostile}, "here"), "instead_of": Record({"at": 3}, hostile)}
    fate = Fate(row, "payments", hostile, "late", "late by 5 s", tick, **more)
    of = (question["query"], question["input"], (1, 9))
    print(json.dumps({"answers": [Answer(*of, [fate], more=3, notes=[hostile]).document()]}))
"""


@pytest.fixture(scope="module")
def asking():
    """The page of a job of two queries, whose questions are answered with words that want to be markup."""
    made = Large(queries=2, ticks=10)
    made.keeping.close()
    asker = Asker(AskedJob(HOSTILE, "job.sql", "state"), command=("-c", ANSWERING))
    serving = Serving.of(
        Feed(Reader(made.store), "asking", look_s=0.2, asker=asker), Address("127.0.0.1", 0), None
    )
    with serving.beside():
        yield serving.url


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A file of the history whose words want to be markup."""
    file = tmp_path_factory.mktemp("report") / "report.html"
    file.write_text(page_of(document_of(read(hostile()), HOSTILE)), encoding="utf-8")
    return file.as_uri()


@contextmanager
def opened(chromium, url, *, width=1280, scheme="light", is_drawn=True):
    """The page, drawn, or one that is empty so far. Whatever it asks for elsewhere, or says of errors, fails
    the test."""
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page, asked, said = context.new_page(), [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    try:
        if is_drawn:
            page.goto(url)
            page.wait_for_selector("#plan")
        yield page
        assert said == []
        own = url if url.startswith("file:") else url.split("?")[0]
        assert [at for at in asked if not at.startswith((own, "data:"))] == []
    finally:
        context.close()


class Processor:
    """Seconds of the processor: of this process, which serves, and of the page's own thread. What other
    programs do on the machine meanwhile has no part in them."""

    def __init__(self, page):
        self._devtools = page.context.new_cdp_session(page)
        self._devtools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def __call__(self):
        told = {one["name"]: one["value"] for one in self._devtools.send("Performance.getMetrics")["metrics"]}
        return time.process_time(), told["TaskDuration"]


def test_it_opens_within_a_second_and_goes_on_without_stalling(chromium, url, large):
    with opened(chromium, url, is_drawn=False) as page:
        processor = Processor(page)
        served, drawn = processor()
        page.goto(url)
        page.wait_for_selector("#plan")
        page.wait_for_selector("canvas")
        took = sum(processor()) - served - drawn
        assert took < 1, f"it was opened in {took:.2f} s of the processor"
        assert page.locator("#plan ~ .plan a.node").count() == 2 * QUERIES
        for tick in range(TICKS + 1, TICKS + 6):
            before = processor()[1]
            large.add()
            large.write()
            expect(page.locator("#head")).to_contain_text(f"ticks {tick}")
            took = processor()[1] - before
            assert took < 0.2, f"a tick's news took {took:.2f} s of the page's thread"


def test_an_input_says_who_holds_it_back_and_for_how_long(chromium, url):
    with opened(chromium, url) as page:
        page.get_by_role("link", name="input paid_3.p:").press("Enter")
        told = page.locator("details[open] .holder")
        told.wait_for()
        words = told.text_content()
        assert words.startswith("payments/7 holds at back, 5."), words
        assert "since 2026-09-21 14:18:25 UTC" in words, words
        assert page.locator("details[open] canvas").count() == 1
        assert page.locator("details[open] .legend li").count() == SHOWN_PARTITIONS


def test_late_rows_are_shown_by_how_late_they_were_with_samples(chromium, url):
    with opened(chromium, url) as page:
        section = page.locator("section:has(#late)")
        assert section.locator("figure").count() == 2 * QUERIES
        assert section.locator(".track div").first.bounding_box()["width"] > 20
        assert section.locator("tbody tr").all_inner_texts() == [f"late\tpaid_0/o\t2.5 min\t{HOSTILE}"]
        assert page.locator("img").count() == 0


@pytest.mark.parametrize(
    ("width", "scheme"), [pytest.param(1280, "light", marks=pytest.mark.full), (400, "dark")]
)
def test_everybody_can_read_it(chromium, small, url, width, scheme):
    with opened(chromium, small, width=width, scheme=scheme) as page:
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert faults(page) == []
    with opened(chromium, url, width=width, scheme=scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "dark"), pytest.param(400, "light", marks=pytest.mark.full)]
)
def test_why_a_row_is_not_there_is_asked_with_the_keyboard(chromium, asking, width, scheme):
    with opened(chromium, asking, width=width, scheme=scheme) as page:
        answer = page.locator("#why-answer")
        page.get_by_role("link", name="input paid_0.p:").press("Enter")
        page.get_by_role("link", name="Why is a row of paid_0.p not there?").press("Enter")
        expect(page.get_by_label("Input", exact=True)).to_be_focused()
        expect(page.get_by_label("Key, or column", exact=True)).to_have_value("id")
        page.get_by_label("is", exact=True).fill("o'17")
        page.get_by_role("button", name="Another column").press("Enter")
        page.keyboard.type("at")
        page.get_by_label("is 2").fill(HOSTILE)
        said = (
            "watersmeet why job.sql --checkpoint state --input p --query paid_0 --key='id=o'\"'\"'17' --key="
        )
        expect(page.locator("#why-command")).to_contain_text(said)
        page.get_by_label("Event time").press("Enter")
        expect(answer.locator(".fate")).to_have_text("late by 5 s")
        keys = json.dumps(["id=o'17", f"at={HOSTILE}"], separators=(",", ":"))
        expect(answer).to_contain_text(f"keys {keys}, of {HOSTILE}")
        expect(answer.locator("h3")).to_have_text("paid_0: p, by ticks 1 to 9")
        expect(answer.locator(".near")).to_have_text(f"id {HOSTILE}{HOSTILE}: 3 against 4")
        expect(answer).to_contain_text(f"by at {HOSTILE} from here")
        expect(answer).to_contain_text(f"instead of at 3 from {HOSTILE}")
        expect(answer).to_contain_text(f"id NULL, in tick 7; left out by {HOSTILE}, taken back in tick 9")
        joined = f"It was joined with{HOSTILE} 1, in tick 7{HOSTILE} 2, in tick 7"
        expect(answer).to_contain_text(joined)
        expect(answer.locator(".note")).to_have_text(f"Note: {HOSTILE}")
        assert answer.get_attribute("aria-live") == "polite"
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert faults(page) == []
        page.get_by_label("is", exact=True).fill("")
        page.get_by_label("is 2").fill("")
        page.get_by_role("button", name="Ask").click()
        expect(answer).to_have_text(f"{HOSTILE}What to do: {HOSTILE}")
        page.get_by_label("Event time").fill("never")
        page.get_by_role("button", name="Ask").click()
        page.get_by_role("button", name="Stop").click()
        expect(answer).to_have_text("Stopped.")
        page.get_by_label("Event time").fill("")
        page.get_by_role("button", name="Ask").click()  # the one before it has gone
        expect(answer).to_have_text(f"{HOSTILE}What to do: {HOSTILE}")
        assert page.evaluate("window.harmed") is None


def test_a_page_that_does_not_know_the_job_says_what_to_run(chromium, small):
    made = Large(queries=1, ticks=3)
    made.keeping.close()
    asker = Asker(AskedJob(None, "state/x y", "state/x y"))
    serving = Serving.of(Feed(Reader(made.store), "x", asker=asker), Address("127.0.0.1", 0), None)
    with serving.beside(), opened(chromium, serving.url) as page:
        page.get_by_label("is", exact=True).fill("17")
        form = page.locator("form")
        expect(form).to_contain_text("served by watersmeet ui JOB.sql --checkpoint 'state/x y'.")
        said = "Run watersmeet why JOB.sql --checkpoint 'state/x y' --input o --key=17"
        expect(form).to_contain_text(said)
        assert page.get_by_role("button", name="Ask").count() == 0
        assert faults(page) == []
    with opened(chromium, small) as page:  # a report cannot ask anybody
        assert page.locator("#why").count() == 0


def test_a_link_shows_the_page_also_from_a_page_of_others(chromium, tmp_path):
    """As a message in a chat does. The cookie that takes the token's place goes along."""
    made = Large(queries=1, ticks=3)
    made.keeping.close()
    token = load_token(str(tmp_path / "token"))
    serving = Serving.of(Feed(Reader(made.store), "x"), Address("127.0.0.1", 0), token)
    elsewhere = tmp_path / "message.html"
    elsewhere.write_text(f'<a href="{serving.link}">the page</a>')
    server = ThreadingHTTPServer(("localhost", 0), partial(SimpleHTTPRequestHandler, directory=tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    context = chromium.new_context()
    try:
        with serving.beside():
            page = context.new_page()
            page.goto(f"http://localhost:{server.server_port}/message.html")
            page.get_by_role("link").click()
            page.wait_for_selector("#plan")
            assert page.url == serving.url
            page.goto(serving.url)  # once more, without the token
            page.wait_for_selector("#plan")
            assert context.new_page().goto(serving.url).status == 200
            assert chromium.new_page().goto(serving.url).status == 401
    finally:
        context.close()
        server.shutdown()
        server.server_close()


def test_words_of_others_stay_words(chromium, report):
    with opened(chromium, report) as page:
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        assert page.evaluate("window.harmed") is None
        assert page.locator("img").count() == 0
        assert page.locator("h1").text_content() == HOSTILE
        for place in ("account", "state", "heavy", "late", "told", "runs", "settings", "plan", "errors"):
            assert HOSTILE in page.locator(f"section:has(#{place})").text_content(), place
        assert page.locator("#errors ~ figure p").text_content() == f"What to do: {HOSTILE}"


def test_scripts_of_others_do_not_run_and_nothing_is_sent(chromium, url, report):
    """Were there a way to put markup into the page, its policy would stop it there."""
    for at in (url, report):
        context = chromium.new_context()
        page = context.new_page()
        page.goto(at)
        page.wait_for_selector("#plan")
        sent = page.evaluate("fetch('http://127.0.0.2:9/').then(() => 'sent', (error) => String(error))")
        assert "Failed to fetch" in sent
        page.evaluate(
            "{ const s = document.createElement('script'); s.textContent = 'window.harmed = 1';"
            " document.body.append(s); const i = document.createElement('div');"
            " i.innerHTML = '<img src=x onerror=\"window.harmed=1\">'; document.body.append(i); }"
        )
        page.wait_for_timeout(50)
        assert page.evaluate("window.harmed") is None
        context.close()
