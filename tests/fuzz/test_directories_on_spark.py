"""Directories in which one file is not like the others: its columns, its bytes, its name, or that it is
no file. A job reads the rows that were drawn, and counts what does not parse; or it is refused."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.engine.spark.running import until_caught_up
from tests.fuzz.values import PATHS, STRUCTURED
from tests.support.effort import at_effort
from watersmeet.errors import WatersmeetError
from watersmeet.observe.row_accounting import InputAccount
from watersmeet.sinks.memory import MemorySink

pytestmark = pytest.mark.spark

JOBS = at_effort(quick=3, full=150)
COLUMNS = ("id", "k", "n")
BUGS = frozenset({"internal", "spark-failed", "spark-gone"})
"""Codes of errors that say nothing to users."""

INT = pa.int32()

Row = dict[str, Any]


@dataclass
class Drawn:
    """A directory, and what has to be read of it.

    Attributes:
        rows: those that are to be read, if it is not refused.
        readable: those that may be.
        broken: the number of records that do not parse; None: one at least.
        refused: it has to be.
    """

    rng: random.Random
    folder: Path
    form: str
    options: dict[str, str] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    readable: list[Row] = field(default_factory=list)
    broken: int | None = 0
    refused: bool = False
    files: int = 0

    def content(self, rows: Sequence[Row], names: Sequence[str], ends: str = "\n", n: Any = INT) -> bytes:
        """A file of rows, as people write it. ``n``: the type of that column."""
        if self.form == "parquet":
            out = pa.BufferOutputStream()
            types = {"id": pa.int64(), "k": pa.string(), "k2": pa.string(), "n": n}
            arrays = {name: pa.array([row.get(name) for row in rows], types.get(name)) for name in names}
            pq.write_table(pa.table(arrays), out)
            return out.getvalue().to_pybytes()
        lines = [] if self.form == "json" else [",".join(names)]
        for row in rows:
            if self.form == "json":
                lines.append(json.dumps({name: row.get(name) for name in names}, ensure_ascii=False))
            else:
                texts = ("" if row.get(name) is None else str(row[name]) for name in names)
                lines.append(",".join(f'"{text}"' if "\n" in text else text for text in texts))
        return (ends.join(lines) + ends).encode()

    def draw_rows(self) -> list[Row]:
        first = 1_000 * self.files
        texts = ["a", "ä", "\U0001d54f", "x y", None]
        return [
            {"id": first + n, "k": self.rng.choice(texts), "n": self.rng.choice([0, -1, 2**31 - 1, None])}
            for n in range(self.rng.randrange(1, 6))
        ]

    def put(self, content: bytes, name: str = "") -> None:
        file = self.folder / (name or f"{self.files}.{self.form}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        os.utime(file, (1_700_000_000 + self.files,) * 2)
        self.files += 1

    def write_good_file(self) -> None:
        rows = self.draw_rows()
        self.rows += rows
        self.put(self.content(rows, COLUMNS))


def lacking(drawn: Drawn) -> None:
    """A column is missing, or has another name: NULL, or refused."""
    name = drawn.rng.choice(["k", "n"])
    rows = drawn.draw_rows()
    names = [drawn.rng.choice([f"{own}2", ""]) if own == name else own for own in COLUMNS]
    drawn.put(drawn.content([row | {f"{name}2": "5"} for row in rows], [own for own in names if own]))
    drawn.rows += [row | {name: None} for row in rows]


def write_reordered_columns(drawn: Drawn) -> None:
    rows, names = drawn.draw_rows(), [*COLUMNS]
    drawn.rng.shuffle(names)
    other = {name: drawn.rng.choice([name, name.upper()]) for name in names}
    renamed = [{other[name]: value for name, value in row.items()} for row in rows]
    if drawn.form == "parquet":
        other = {name: name for name in names}
        renamed = rows
    drawn.put(drawn.content(renamed, [*other.values()]))
    drawn.rows += rows


def of_another_type(drawn: Drawn) -> None:
    values = drawn.rng.choice([["x", "1"], [1.5, 2.0], [2**31, 2**40], [True, False]])
    rows = [row | {"n": drawn.rng.choice(values)} for row in drawn.draw_rows()]
    drawn.put(drawn.content(rows, COLUMNS, n=None))
    drawn.refused = drawn.form == "parquet"
    fit = [row | {"n": 1} for row in rows if row["n"] == "1" and drawn.form == "csv"]
    drawn.rows += fit
    drawn.broken = len(rows) - len(fit)


def within_quotes(drawn: Drawn) -> None:
    rows = drawn.draw_rows()
    for row in rows:
        row["k"] = drawn.rng.choice(["a\nb", "\n", "1,\n2"])
    drawn.put(drawn.content(rows, COLUMNS))
    if drawn.rng.random() < 0.5 or drawn.form != "csv":
        drawn.options |= {"multiLine": "true"} if drawn.form == "csv" else {}
        drawn.rows += rows
    else:
        drawn.refused = True


def in_another_encoding(drawn: Drawn) -> None:
    rows = [row | {"k": "müller"} for row in drawn.draw_rows()]
    text = drawn.content(rows, COLUMNS).decode() if drawn.form != "parquet" else ""
    drawn.put(text.encode(drawn.rng.choice(["utf-16", "utf-16-le", "utf-32", "latin-1"])))
    if text:
        drawn.broken, drawn.refused = None, drawn.form != "json"
        drawn.readable = rows[:1]  # up to the first end of a line Spark's parser finds out


def no_file(drawn: Drawn) -> None:
    path = drawn.folder / f"special.{drawn.form}"
    if drawn.rng.random() < 0.5:
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")


def write_partitioned_files(drawn: Drawn) -> None:
    """Directories have names that are encoded, by Spark or by others."""
    texts = [*PATHS, *STRUCTURED, "ä", "a=b", "100%", "\U0001d54f", "a b"]
    for _ in range(3):
        value = drawn.rng.choice([text for text in texts if text.isprintable() and len(text) < 60])
        rows = [{"id": row["id"], "n": row["n"]} for row in drawn.draw_rows()]
        content = drawn.content(rows, ("id", "n"))
        drawn.put(content, f"k={quote(value, safe='')}/{drawn.files}.{drawn.form}")
        drawn.rows += [row | {"k": value} for row in rows]


def broken(drawn: Drawn) -> None:
    bad = drawn.rng.randrange(1, 4)
    line = {"json": '{"id": "x"}', "csv": "x,a,1", "parquet": ""}[drawn.form]
    head = ["id,k,n"] if drawn.form == "csv" else []
    drawn.put("\n".join([*head, *[line] * bad, ""]).encode())
    drawn.broken, drawn.refused = bad, drawn.form == "parquet"


def cut(drawn: Drawn) -> None:
    rows = drawn.draw_rows()
    content = drawn.content(rows, COLUMNS)
    zipped = drawn.form != "parquet"
    content = gzip.compress(content) if zipped else content
    content = content[: drawn.rng.randrange(1, len(content))]
    drawn.put(content, f"{drawn.files}.{drawn.form}{'.gz' if zipped else ''}")
    drawn.refused = True


def written_otherwise(drawn: Drawn) -> None:
    """By other programs: ends of lines, a mark at the start, compression; nothing at all."""
    rows = drawn.draw_rows()
    if drawn.form == "parquet":
        drawn.put(drawn.content([], COLUMNS))
        return
    content = drawn.content(rows, COLUMNS, drawn.rng.choice(["\n", "\r\n"]))
    mark = drawn.rng.choice([b"", b"\xef\xbb\xbf"])
    if drawn.rng.random() < 0.3:
        drawn.put(b"")
    elif drawn.rng.random() < 0.5:
        drawn.put(gzip.compress(mark + content), f"{drawn.files}.{drawn.form}.gz")
        drawn.rows += rows
    else:
        drawn.put(mark + content)
        drawn.rows += rows


TROUBLES: Mapping[str, Callable[[Drawn], None]] = {
    "lacking": lacking, "reordered": write_reordered_columns, "of another type": of_another_type,
    "within quotes": within_quotes, "in another encoding": in_another_encoding, "no file": no_file,
    "partitioned": write_partitioned_files, "broken": broken, "cut": cut,
    "written otherwise": written_otherwise,
}  # fmt: skip


def job(drawn: Drawn, ids: Path, *, is_table: bool) -> str:
    options = {"connector": "file", "path": str(drawn.folder), "format": drawn.form, **drawn.options}
    given = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    text = f"CREATE TABLE s (id BIGINT, k STRING, n INT) WITH ({given});\n"
    text += "CREATE TABLE o WITH ('connector' = 'memory');\n"
    if not is_table:
        return text + "INSERT INTO o SELECT id, k, n FROM s;"
    return f"""{text}
        CREATE TABLE l (id BIGINT) WITH ('connector' = 'file', 'path' = '{ids}', 'format' = 'json');
        INSERT INTO o SELECT l.id, s.k, s.n FROM l
            JOIN s FOR SYSTEM_TIME AS OF PROCTIME() AS s ON l.id = s.id;"""


def bag_of(rows: Sequence[Mapping[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row[name] for name in COLUMNS) for row in rows)


@pytest.mark.parametrize("number", range(JOBS))
def test_a_file_that_differs_is_read_right_or_counted_or_refused(spark, seed, tmp_path, number):
    rng = random.Random(f"{seed} {number}")
    drawn = Drawn(rng, tmp_path / "in", rng.choice(["json", "csv", "parquet"]))
    drawn.folder.mkdir()
    trouble, is_table = rng.choice([*TROUBLES]), rng.random() < 0.3
    before = rng.randrange(2) if trouble != "partitioned" else 0
    for _ in range(before):
        drawn.write_good_file()
    TROUBLES[trouble](drawn)
    if trouble != "partitioned" and rng.random() < 0.7:
        drawn.write_good_file()
    if drawn.broken != 0 and (is_table or not drawn.rows + drawn.readable):
        drawn.refused = True  # tables have to be whole, and of a source something has to parse
    if not is_table and rng.random() < 0.5:
        drawn.options["maxFilesPerTrigger"] = "1"
    ids = tmp_path / "ids"
    ids.mkdir()
    (ids / "1").write_text("".join(json.dumps({"id": n}) + "\n" for n in range(6_000)))
    MemorySink.clear()
    what = (trouble, drawn.form, is_table, drawn.options, sorted(os.listdir(drawn.folder)))
    error = None
    try:
        run = until_caught_up(spark, job(drawn, ids, is_table=is_table), tmp_path / "state")
    except WatersmeetError as caught:
        error = caught
    want, readable, found = map(bag_of, (drawn.rows, drawn.readable, MemorySink.rows("o")))
    assert found <= want + readable, (what, found - want, error)
    if error is not None:
        assert error.code not in BUGS, (what, error)
        assert error.hint, (what, error)
        return
    assert not drawn.refused, what
    assert not want - found, (what, want - found)
    if not is_table:
        counts = run.ticks[-1].queries["o"].account["s"]
        account = InputAccount.of("s", counts, counts["retained"])
        assert account.adds_up()
        assert account.broken == drawn.broken if drawn.broken is not None else account.broken, what
