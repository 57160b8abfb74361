"""Makes the pictures of docs/users/page.md: a job of two queries in this process over rows of a fixed seed,
its history, and the page of it in Chromium.

    scripts/pictures
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from PIL import Image

from tests.support.browser import browser
from tests.support.package_paths import find_paths
from tests.support.recorded import OPEN, RecordedJob
from watersmeet.history.reader import read
from watersmeet.page.document import document_of
from watersmeet.page.html import page_of
from watersmeet.state.store import MemoryStore

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
START_US = int(datetime(2026, 11, 2, 8, tzinfo=UTC).timestamp()) * 1_000_000
TICK_S, TICKS, QUIET_FROM = 30, 240, 170
TEXT = """
    SET max_rows = 8000;
    CREATE TABLE orders (order_id BIGINT, order_time TIMESTAMP, shop STRING,
      WATERMARK FOR order_time AS order_time - INTERVAL '10' SECONDS) WITH ('connector' = 'memory');
    CREATE TABLE deliveries (order_id BIGINT, delivery_time TIMESTAMP,
      WATERMARK FOR delivery_time AS delivery_time - INTERVAL '1' MINUTE) WITH ('connector' = 'memory');
    CREATE SINK delivered WITH ('connector' = 'memory');
    CREATE SINK busy WITH ('connector' = 'memory');
    INSERT INTO delivered SELECT o.order_id, o.order_time, d.delivery_time
      FROM orders o LEFT JOIN deliveries d ON o.order_id = d.order_id
      AND d.delivery_time BETWEEN o.order_time AND o.order_time + INTERVAL '1' HOUR;
    INSERT INTO busy SELECT a.shop, a.order_time, b.order_id
      FROM orders a JOIN orders b ON a.shop = b.shop
      AND b.order_time BETWEEN a.order_time AND a.order_time + INTERVAL '2' MINUTES"""


def history() -> MemoryStore:
    """Two hours of orders and their deliveries, of which partition 2 falls silent after 85 minutes."""
    rng, store = random.Random(7), MemoryStore()
    clock = SimpleNamespace(us=START_US)
    job = RecordedJob(TEXT, store, clock_us=START_US, clock=lambda: clock.us)
    waiting: list[tuple[float, int]] = []
    number = 0

    def at(second: float) -> str:
        return datetime.fromtimestamp(START_US / 1_000_000 + second, UTC).strftime("%Y-%m-%dT%H:%M:%S")

    with (
        patch("platform.node", lambda: "worker-1"),
        patch("time.monotonic", lambda: clock.us / 1_000_000),
        job.run(OPEN),
    ):
        for tick in range(TICKS):
            now = tick * TICK_S
            for n in range(rng.randint(18, 26)):
                number += 1
                late = rng.random() < 0.01
                time = now + n - (rng.uniform(20, 400) if late else rng.uniform(0, 9))
                shop = rng.choice(["harbour"] * 3 + ["market", "old town", "station", "university"])
                row = {"order_id": number, "order_time": at(max(0, time)), "shop": shop}
                job.job.push("orders", [row], partition=str(number % 3))
                if rng.random() < 0.8:
                    waiting.append((now + n + rng.uniform(300, 3_000), number))
            due = [one for one in waiting if one[0] <= now + TICK_S]
            waiting = [one for one in waiting if one[0] > now + TICK_S]
            for time, order in due:
                if order % 3 != 2 or tick < QUIET_FROM:
                    row = {"order_id": order, "delivery_time": at(time - rng.uniform(0, 30))}
                    job.job.push("deliveries", [row], partition=str(order % 3))
            clock.us = START_US + (now + TICK_S) * 1_000_000
            took = 0.6 + 0.2 * rng.random() + 0.002 * tick
            parts = {"read": 0.3 * took, "join": 0.5 * took, "write": 0.15 * took, "commit": 0.05 * took}
            job.tick(clock.us, {}, seconds=took, parts=parts)
    return store


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    page_file = PICTURES / "page.html"
    ended = START_US / 1_000_000 + TICKS * TICK_S
    page_file.write_text(page_of(document_of(read(history()), "shop", now=ended)), encoding="utf-8")
    try:
        with browser() as chromium:
            for scheme in ("light", "dark"):
                context = chromium.new_context(viewport={"width": 1180, "height": 820}, color_scheme=scheme)
                page = context.new_page()
                page.goto(page_file.as_uri())
                page.wait_for_selector(".plot svg")
                if scheme == "light":
                    page.screenshot(path=PICTURES / "plan.png")
                    page.get_by_role("link", name="input delivered.d:").click()
                    page.wait_for_selector("details[open] .plot svg")
                    page.locator("section:has(#inputs)").screenshot(path=PICTURES / "input.png")
                else:
                    page.locator("section:has(#over-time)").scroll_into_view_if_needed()
                    page.evaluate("document.getElementById('over-time').scrollIntoView()")
                    page.wait_for_timeout(500)
                    page.screenshot(path=PICTURES / "time-lines.png")
                context.close()
            context = chromium.new_context(viewport={"width": 400, "height": 720})
            page = context.new_page()
            page.goto(page_file.as_uri())
            page.wait_for_selector("#account")
            page.evaluate("document.getElementById('account').scrollIntoView()")
            page.screenshot(path=PICTURES / "narrow.png")
            context.close()
    finally:
        page_file.unlink()
    for file in find_paths(PICTURES, "*.png"):  # 64 colours are enough, and take a third of the room
        Image.open(file).convert("RGB").quantize(64).save(file, optimize=True)


if __name__ == "__main__":
    main()
