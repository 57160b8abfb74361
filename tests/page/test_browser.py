"""The page as Chromium shows it: fast, for everybody, and without a word to anybody else."""

from __future__ import annotations

import json
import re
import threading
import time
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import expect

from tests.page.histories import (
    HOSTILE,
    LONG,
    QUERIES,
    SHOWN_PARTITIONS,
    SOURCES,
    START_US,
    TICKS,
    US,
    Large,
    hostile,
    odd,
)
from tests.support.browser import browser, faults
from watersmeet.history.plan_document import SideFiles
from watersmeet.history.reader import HistoryReader, read
from watersmeet.page.document import document_of
from watersmeet.page.html import page_of
from watersmeet.page.questions import JobReference, QuestionRunner
from watersmeet.page.server import PageFeed, ServedPage
from watersmeet.spec.monitoring import Address, load_token

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def chromium():
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    folder = tmp_path_factory.mktemp("late")
    row = {"input": "paid_0/o", "reason": "late", "late_by": 150_000_000, "record": HOSTILE}
    (folder / "late-000000000001-00000.json").write_text(json.dumps(row | {"watermark_key": "o.at"}))
    made = Large(late_files=SideFiles(path=str(folder), format="json"))
    yield made
    made.keeping.close()


@pytest.fixture(scope="module")
def url(large):
    serving = ServedPage.of(
        PageFeed(HistoryReader(large.store), "large", look_s=0.2), Address("127.0.0.1", 0), None
    )
    with serving.serve_in_thread():
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
    asker = QuestionRunner(JobReference(HOSTILE, "job.sql", "state"), command=("-c", ANSWERING))
    serving = ServedPage.of(
        PageFeed(HistoryReader(made.store), "asking", look_s=0.2, asker=asker), Address("127.0.0.1", 0), None
    )
    with serving.serve_in_thread():
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
        page.wait_for_selector(".plot svg")
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
        assert re.match(r"payments/7 holds the watermark of at back, 5 min \d s behind", words), words
        assert "since 2026-09-21 14:18:25 UTC" in words, words
        assert page.locator("details[open] .plot svg").count() == 1
        assert page.locator("details[open] .legend bdi").count() == SHOWN_PARTITIONS


def test_late_and_broken_rows_are_shown_with_how_late_they_were_and_samples(chromium, url):
    with opened(chromium, url) as page:
        section = page.locator("section:has(#late)")
        assert section.locator("figure").count() == 2 * QUERIES
        assert section.locator(".track div").first.bounding_box()["width"] > 20
        counts, samples = (section.locator("table").nth(n).locator("tbody tr") for n in (0, 1))
        row = r"paid_0\.o\t30,\d+\t30\t(< )?0\.1 %\t3\t< 0\.1 %"  # other tests may have added ticks
        assert re.fullmatch(row, counts.first.inner_text())
        assert samples.all_inner_texts() == [f"late\tpaid_0/o\t2 min 30 s\t{HOSTILE}"]
        assert page.locator("img").count() == 0


@pytest.mark.parametrize(
    ("width", "scheme"), [pytest.param(1280, "light", marks=pytest.mark.full), (400, "dark")]
)
def test_everybody_can_read_it(chromium, small, width, scheme):
    with opened(chromium, small, width=width, scheme=scheme) as page:
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert faults(page) == []


@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "dark"), pytest.param(400, "light", marks=pytest.mark.full)]
)
def test_why_a_row_is_not_there_is_asked_with_the_keyboard(chromium, asking, width, scheme):
    with opened(chromium, asking, width=width, scheme=scheme) as page:
        answer = page.locator("#why-answer")
        page.get_by_role("link", name="input paid_0.p:").press("Enter")
        page.get_by_role("link", name="Why is a row of paid_0.p missing?").press("Enter")
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
        expect(answer).to_contain_text(f"id NULL, in tick 7; left out by {HOSTILE}, retracted in tick 9")
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
    asker = QuestionRunner(JobReference(None, "state/x y", "state/x y"))
    serving = ServedPage.of(
        PageFeed(HistoryReader(made.store), "x", asker=asker), Address("127.0.0.1", 0), None
    )
    with serving.serve_in_thread(), opened(chromium, serving.url) as page:
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
    serving = ServedPage.of(PageFeed(HistoryReader(made.store), "x"), Address("127.0.0.1", 0), token)
    elsewhere = tmp_path / "message.html"
    elsewhere.write_text(f'<a href="{serving.link}">the page</a>')
    server = ThreadingHTTPServer(("localhost", 0), partial(SimpleHTTPRequestHandler, directory=tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    context = chromium.new_context()
    try:
        with serving.serve_in_thread():
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


SHOWN = {
    "words.lasting(125)": "2 min 5 s",
    "words.lasting(120)": "2 min",
    "words.lasting(3599.7)": "1 h",
    "words.lasting(59.99)": "1 min",
    "words.lasting(0)": "0 s",
    "words.lasting(0.0046)": "4.6 ms",
    "words.lasting(-90061)": "-1 d 1 h",
    "words.percent(46, 1000)": "4.6 %",
    "words.percent(1, 1e6)": "< 0.1 %",
    "words.percent(0, 7)": "0 %",
    "words.percent(1, 0)": "–",
    "words.shown('rows', 1999)": "1,999",
    "words.shown('rows', 12345678)": "12.3M",
    "words.exact('rows', 12345678)": "12,345,678",
    "words.shown('bytes', 32412345)": "32.4 MB",
    "words.shown('bytes', 999999)": "1 MB",
    "words.exact('bytes', 32412345)": "32,412,345 bytes",
    "words.shown('rate', 8.64197)": "8.64 rows/s",
    "words.shown('time', 1790000000500000)": "2026-09-21 14:13:20",
    "words.exact('time', 1790000000500000)": "2026-09-21 14:13:20.500000 UTC",
    "words.shown('time', 253402300800000000)": "10000-01-01 00:00:00",
    "words.figure('rows', 12345678).title": "12,345,678",
}
"""Figures as people read them; the exact ones are at hand."""
OVERLAPS = """() => {
  const shown = (of) => [of.textContent, of.getBoundingClientRect()];
  const boxes = (all) => [...all].map(shown).filter(([, box]) => box.width);
  const faults = [];
  const meet = ([name, a], [other, b]) => {
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (wide > 1 && high > 2) faults.push(name + " | " + other);
  };
  const apart = (all, others) => {
    all.forEach((one, n) => (others || all.slice(n + 1)).forEach((other) => meet(one, other)));
  };
  const within = (all, box) => {
    for (const [name, a] of all) {
      const is_wide = a.left < box.left - 1 || a.right > box.right + 1;
      if (is_wide || a.top < box.top - 1 || a.bottom > box.bottom + 1) faults.push(name + " is cut");
    }
  };
  for (const svg of document.querySelectorAll(".plot svg")) {
    const texts = boxes(svg.querySelectorAll("text"));
    apart(texts);
    within(texts, svg.getBoundingClientRect());
    const ticks = [...svg.querySelectorAll("text[text-anchor=end]")].map((one) => one.textContent);
    if (new Set(ticks).size < ticks.length) faults.push("twice: " + ticks);
  }
  const plan = document.querySelector(".plan svg"), lines = boxes(plan.querySelectorAll("tspan"));
  apart(lines);
  within(lines, plan.getBoundingClientRect());
  apart(boxes(plan.querySelectorAll(".flow")), boxes(plan.querySelectorAll("rect")));
  for (const node of plan.querySelectorAll(".node")) {
    const box = node.querySelector("rect").getBoundingClientRect();
    within(boxes(node.querySelectorAll("tspan")), box);
  }
  for (const figure of document.querySelectorAll("figure")) {
    const parts = boxes(figure.querySelectorAll("figcaption, .plot, .legend li, .bars > *"));
    apart(parts);
    within(parts, figure.getBoundingClientRect());
  }
  apart(boxes(document.querySelectorAll(".facts > span, nav li, h1, h2")));
  const all = document.querySelectorAll("header *, main > section, main p, main summary");
  within(boxes(all), document.documentElement.getBoundingClientRect());
  return faults;
}"""
"""Texts that overlap or reach out of their places: in charts and figures, in the plan, on the page."""
ODD = {
    "huge": (lambda: odd(6), [(400, "light"), (1280, "dark"), (1920, "light")]),
    "one tick": (lambda: odd(1, scale=50), [(400, "dark")]),
    "no tick": (lambda: odd(0), [(400, "light")]),
    "failed": (lambda: odd(3, scale=1_999, pause_s=7_200, ended="failed"), [(1280, "light")]),
}


def drawn_odd(page, file, name):
    """Show an odd job at all of its widths, with all that can be opened and drawn. Nothing overlaps."""
    history, screens = ODD[name]
    document = document_of(read(history()), LONG, is_held=name != "failed", now=START_US / US + 100)
    file.write_text(page_of(document), encoding="utf-8")
    page.goto(file.as_uri())
    page.wait_for_selector("#plan")
    page.evaluate("for (const of of document.querySelectorAll('details')) of.open = true")
    for width, scheme in screens:
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator(".plot:not(:has(svg))").count() == 0
        assert page.evaluate(OVERLAPS) == [], f"{name}, {width} pixels"
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{name}, {width} pixels"
        is_wide = page.locator(".plan").evaluate("(of) => of.scrollWidth > of.clientWidth")
        expect(page.locator("#plan-hint")).to_be_visible(visible=is_wide)


def test_nothing_overlaps_or_is_cut_whatever_the_job_and_the_width(chromium, tmp_path):
    with opened(chromium, tmp_path.as_uri(), is_drawn=False) as page:
        drawn_odd(page, tmp_path / "page.html", "no tick")
        expect(page.locator(".facts")).to_contain_text("status running")
        assert page.evaluate(f"[{','.join(SHOWN)}]") == list(SHOWN.values())

        drawn_odd(page, tmp_path / "page.html", "one tick")
        assert {"0", "1", "2"} <= set(axis_labels(page, "Late rows"))

        drawn_odd(page, tmp_path / "page.html", "failed")
        expect(page.locator("#head .bad")).to_have_text(["failed", re.compile("the disk is full")])
        assert {"0 s", "1 h", "3 h"} <= set(axis_labels(page, "Watermark lag behind the clock"))

        drawn_odd(page, tmp_path / "page.html", "huge")
        expect(page.locator(".facts")).to_contain_text("last tick 1 min 34 s ago")
        read_rows = page.locator("figure:has(figcaption:text-is('Rows read (rows/s)'))")
        assert read_rows.locator(".legend bdi").all_inner_texts() == list(SOURCES)
        read_rows.locator(".plot").hover()
        expect(read_rows.locator(".legend b").first).to_have_text("142,857,142,857 rows/s")


def axis_labels(page, title):
    """The texts at both axes of a chart."""
    return page.locator(f"figure:has(figcaption:text-is('{title}')) .plot text").all_text_contents()


@contextmanager
def followed(chromium, store, is_held):
    """A page of a job that goes on, with a clock of its own, and its server's."""
    feed = PageFeed(HistoryReader(store), "job", look_s=0.05, is_held=is_held)
    serving = ServedPage.of(feed, Address("127.0.0.1", 0), None)
    context = chromium.new_context()
    page = context.new_page()
    try:
        with serving.serve_in_thread():
            page.clock.install()
            page.goto(serving.url)
            page.wait_for_selector("#plan")
            yield page
        expect(page.locator(".facts")).not_to_contain_text("status running")
    finally:
        context.close()


def test_a_job_that_waits_runs_and_its_watermarks_fall_behind(chromium, monkeypatch):
    monkeypatch.setattr("watersmeet.page.server.time.time", lambda: START_US / US + 43)
    monkeypatch.setattr("watersmeet.page.document.time.time", lambda: START_US / US + 43)
    made = Large(queries=1, ticks=40)
    held = threading.Event()
    held.set()
    with followed(chromium, made.store, held.is_set) as page:
        facts = page.locator(".facts")
        expect(facts).to_contain_text("status running")
        expect(facts).to_contain_text(re.compile(r"last tick \d+ s ago"))
        lag = page.locator("figure:has(figcaption:text-is('Watermark lag behind the clock')) .plot")
        lag.scroll_into_view_if_needed()
        expect(lag).to_contain_text("14:1")
        page.clock.fast_forward(600_000)  # a long tick, or nothing comes
        expect(facts).to_contain_text("status running")
        expect(facts).to_contain_text(re.compile(r"last tick 10 min( \d+ s)? ago"))
        expect(lag).to_contain_text("10 min")
        held.clear()
        expect(facts).to_contain_text("status killed")
        held.set()
        expect(facts).to_contain_text("status running")
        made.keeping.close()
    # its server has gone
