"""Frames of the live view: as they were looked at, of any size, and what is left out where there is no room.

``python -m tests.observe.live.test_frame`` writes the frames of `shots.FRAMES` anew, to be looked at.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.observe.live.shots import BOUNDED, FRAMES, MANY, NOON_US, ONE, STRANGE, look, now
from tests.support.effort import at_effort
from watersmeet.observe.live.formatting import text_of
from watersmeet.observe.live.frame import frame, width_of
from watersmeet.observe.progress import Backlog

GOLDEN = Path(__file__).parent / "frames"


def drawn(name: str) -> str:
    return "".join(f"{text_of(line)}\n" for line in frame(*FRAMES[name]))


@pytest.mark.parametrize("name", FRAMES)
def test_frames_are_as_they_were_looked_at(name):
    assert drawn(name) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("shot", [ONE, MANY, STRANGE, BOUNDED], ids=["one", "many", "strange", "bounded"])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_no_frame_is_larger_than_the_terminal(shot, encoding):
    for cells in (*range(2, 60, at_effort(quick=3, full=1)), 79, 80, 120, 300):
        for lines in (2, 3, 4, 5, 7, 10, 15, 24, 50):
            of = now(bounded=shot is BOUNDED, page="http://127.0.0.1:8765/?token=" + "x" * 32)
            made = frame(shot, of, look(cells, lines, encoding))
            assert 1 <= len(made) <= lines - 1, (cells, lines)
            for line in made:
                text = "".join(told for told, _ in line)
                assert width_of(line) <= cells - 1, (cells, lines, text)
                assert text.isprintable()
                text.encode(encoding)


def test_what_is_worst_is_shown_where_there_is_no_room_for_all():
    """The watermark that is held, the input that keeps most of its forecast."""
    text = "\n".join(map(text_of, frame(ONE, now(), look(80, 10))))
    assert "watermark 1/2" in text
    assert "d.delivery_time" in text
    assert "o.order_time" not in text
    assert "\no  " in text
    assert "\nd  " not in text


def test_watermark_lag_is_measured_from_the_current_time():
    later = now(clock_us=NOON_US + 60_000_000)
    assert [row.delay_us(later.clock_us) for row in ONE.marks] == [72_300_000, 3_840_000_000]
    assert "1 min 13 s" in "\n".join(map(text_of, frame(ONE, later, look(80, 24))))


def test_what_is_above_its_forecast_stands_out():
    styles = {style for line in frame(MANY, now(), look(120, 60)) for text, style in line if text == "120 %"}
    assert styles == {"yellow"}
    behind = replace(MANY, report=replace(MANY.report, backlog={"o": Backlog(12_000, "rows")}))
    lines = frame(behind, now(), look(120, 60))
    styles = {style for line in lines for text, style in line if text in ("120 %", "  backlog 12,000 rows")}
    assert styles == {""}, "a backlog is no alarm"


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for each in FRAMES:
        (GOLDEN / f"{each}.txt").write_text(drawn(each), encoding="utf-8")
