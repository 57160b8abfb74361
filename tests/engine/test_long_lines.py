"""Lines that Java has no memory for: found by reading little, and refused with their place."""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support.columns import column
from tests.support.effort import at_effort
from watersmeet.errors import EngineError
from watersmeet.runtime.files.long_lines import check_lines, find_long_line
from watersmeet.spec.model import Source

CHUNK = 64 << 10


def source(wanted: str = "json", **options: str) -> Source:
    return Source("s", (column("k", "BIGINT"),), "file", {"path": "in", "format": wanted, **options})


def find_first_long_line(text: bytes, most: int, ends: list[bytes]) -> int | None:
    """The first line that is too long, by reading all of it."""
    start = 0
    for match in [*re.finditer(b"|".join(map(re.escape, ends)), text), None]:
        end = len(text) if match is None else match.start()
        if end - start > most:
            return start
        start = end if match is None else match.end()
    return None


def test_the_first_long_line_is_the_one_that_reading_all_finds(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(at_effort(quick=300, full=20_000)):
        ends = draw.choice([[b"\n", b"\r"], [b"<>"], [b"\n"]])
        most = draw.choice([20, 1_000, CHUNK, 3 * CHUNK])
        lengths = [
            draw.choice([0, 1, most // 2, most - 2, most + 2 + draw.randrange(most)]) for _ in range(6)
        ]
        text = b"".join(b"x" * length + draw.choice(ends) for length in lengths)
        text += b"x" * draw.choice([0, most // 2, most + 9])
        found = find_long_line(io.BytesIO(text), len(text), most, ends)
        assert found == find_first_long_line(text, most, ends), (seed, most, lengths, ends)


def test_of_short_lines_little_is_read() -> None:
    class Counting(io.BytesIO):
        count = 0

        def read(self, size: int | None = -1) -> bytes:
            part = super().read(size)
            self.count += len(part)
            return part

    text = b"x" * 99 + b"\n"
    file = Counting(text * 100_000)
    assert find_long_line(file, len(text) * 100_000, 1 << 20, [b"\n", b"\r"]) is None
    assert file.count < 30 * CHUNK


def test_a_long_line_of_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(("ab\n" + "é" * 999 + "\n").encode("UTF-16LE"))
    own = source("json", encoding="UTF-16LE", lineSep="\n")
    with pytest.raises(EngineError, match="at byte 6 has 2,000 bytes"):
        check_lines("s", own, str(path), path.stat().st_size, 1_000)


@pytest.mark.parametrize("wanted", ["json", "csv", "debezium-json"])
def test_a_long_line_is_refused_with_its_place(tmp_path: Path, wanted: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"{}\n" + b"y" * 5_000_000 + b"\n{}\n")
    with pytest.raises(EngineError, match="at byte 3 has 5,000,001 bytes") as refused:
        check_lines('file source "s"', source(wanted), str(path), path.stat().st_size, 4_000_000)
    assert refused.value.code == "line-too-long"
    assert "spark.driver.memory=1g" in str(refused.value.hint)
    check_lines('file source "s"', source(wanted), str(path), path.stat().st_size, 5_000_001)


@pytest.mark.parametrize(
    ("own", "name", "text"),
    [
        (lambda: source("parquet"), "a.parquet", b"y" * 999),
        (lambda: source("csv", multiLine="TRUE"), "a.csv", b"y" * 999),
        (lambda: source("json"), "a.json.gz", b"y" * 999),
        (lambda: source("json", lineSep="|"), "a.json", b"y|" * 999),
        (
            lambda: source("json", encoding="UTF-16LE", lineSep="\n"),
            "a.json",
            "ab\n".encode("UTF-16LE") * 999,
        ),
        (lambda: source("json", encoding="nope", lineSep="|"), "a.json", b"y" * 999),
        (lambda: source("json", encoding="ascii", lineSep="é"), "a.json", b"y" * 999),
        *(
            (partial(source, "csv", encoding=name, lineSep="\n"), "a.csv", ("ab\n" * 999).encode(name))
            for name in ("UTF-16", "UTF-32", "utf-8-sig")
        ),
    ],
)
def test_what_has_no_such_lines_is_read(
    tmp_path: Path, own: Callable[[], Source], name: str, text: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(text)
    check_lines("s", own(), str(path), len(text), 100)
