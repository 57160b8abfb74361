"""Records whose values may not fit their declared types, and what they have to be read as.

Each value is drawn together with its reading, so that the oracle reads nothing: it shares no code with the
product. A reading is a value, by the types of `values`; `BROKEN`: the record has to be left out.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

BROKEN = "broken"
AHEAD = "ahead"
"""The outcomes of a record that is in no result."""

FLAT = {
    "id": "BIGINT", "at": "TIMESTAMP", "n8": "TINYINT", "n32": "INT", "p": "DECIMAL(6,2)", "s": "VARCHAR(4)",
    "wall": "TIMESTAMP_NTZ",
}  # fmt: skip
NESTED = {"st": "STRUCT<n: SMALLINT, m: TINYINT>", "l": "ARRAY<TINYINT>"}
BITS = {"n8": 8, "n32": 32, "n": 16, "m": 8, "l": 8}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOW = 1_772_368_215
"""2026-03-01 12:30:15 UTC, in seconds: no row is late, and none but those that are to be is ahead."""


@dataclass(frozen=True)
class Cell:
    """A value as it is written (None: not at all), and what it is read as."""

    written: Any
    read: Any


@dataclass(frozen=True)
class Record:
    """``outcome``: the row that it is, by the columns' names, or why it is none; ``read``: what it is where
    nobody compares the time with a clock; ``too_long``: it is broken for the length of a text alone."""

    written: Any
    outcome: Mapping[str, Any] | str
    read: Mapping[str, Any] | str
    too_long: bool


def iso(micros: int, digits: str = "", zone: str = "Z") -> str:
    time = (EPOCH + timedelta(microseconds=micros)).replace(tzinfo=None)
    return time.isoformat(sep="T", timespec="microseconds") + digits + zone


class CellDrawer:
    """Draws values of the columns, and their misfits, for a format.

    Args:
        form: ``json``, ``csv`` or ``parquet``.
        unit: of `timestamp.unit`; empty: nothing is said.
    """

    def __init__(self, rng: random.Random, form: str, unit: str = "") -> None:
        self.rng, self.form, self.unit = rng, form, unit
        self.columns = FLAT if form == "csv" else FLAT | NESTED
        self.file_unit = rng.choice(["ns", "ns", "us", "ms"])

    def record(self, number: int) -> Record:
        """Draw a record: half of them with a misfit, or with what looks like one."""
        odd = self.rng.choice([*self.columns][1:]) if self.rng.random() < 0.5 else None
        cells = {"id": Cell(str(number) if self.form != "parquet" else number, number)}
        for name in [*self.columns][1:]:
            cells[name] = self._drawer(name)(name, odd == name)
        row = {name: cell.read for name, cell in cells.items()}
        wrong = [name for name, cell in cells.items() if cell.read == BROKEN]
        written: Any = {name: cell.written for name, cell in cells.items()}
        if self.form == "json":
            written, is_clear = self._object(written)
            wrong += [] if is_clear else ["names"]
        elif self.form == "csv":
            written = ",".join(text or "" for text in written.values())
        read = BROKEN if wrong else row
        is_ahead = not wrong and cells["at"].read > (NOW + 400 * 86_400) * 10**6
        return Record(written, AHEAD if is_ahead else read, read, wrong == ["s"])

    def _drawer(self, name: str) -> Callable[[str, bool], Cell]:
        own = {"at": self._time, "wall": self._time, "p": self._decimal, "s": self._text}
        return own.get(name) or {"st": self._struct, "l": self._list}.get(name, self._integer)

    def _object(self, texts: Mapping[str, str | None], *, within: bool = False) -> tuple[str, bool]:
        """An object with names in any case; False: it can be read in two ways. ``within``: of another one."""
        parts, clear = [], True
        for name, text in texts.items():
            if text is None:
                continue
            case = self.rng.random()
            if case < 0.9:
                parts.append((name, text))
            elif case < 0.95:
                parts.append((name.upper(), text))
            elif case < 0.98 and not within:  # within others an exact name is none too many to be broken
                parts += [(name, text), (name.upper(), "7")]
            else:
                others = {name.upper(), name.title(), name.swapcase()} - {name}
                clear = clear and len(others) < 2
                parts += [(other, text) for other in others]
        self.rng.shuffle(parts)
        return "{" + ", ".join(f"{json.dumps(name)}: {text}" for name, text in parts) + "}", clear

    def _null(self) -> Cell:
        return Cell(None if self.form != "json" or self.rng.random() < 0.5 else "null", None)

    def _integer(self, name: str, odd: bool) -> Cell:
        top = 1 << (BITS[name] - 1)
        if not odd:
            value = self.rng.choice([-top, -1, 0, 1, top - 1])
            return self._null() if self.rng.random() < 0.1 else self._number(value, value)
        if self.form == "parquet":
            value = self.rng.choice([max(-top - 1, -(2**31)), min(2 * top, 2**31 - 1), -(2**31), 2**31 - 1])
            fits = -top <= value < top
            return self._number(value, value if fits else BROKEN)
        texts = [str(-top - 1), str(top), str(2 * top), "1.0", "1e2", "1" + "0" * 30, "x"]
        text = self.rng.choice(texts)
        return Cell(json.dumps(text) if text == "x" and self.form == "json" else text, BROKEN)

    def _number(self, value: int, read: Any) -> Cell:
        return Cell(value if self.form == "parquet" else str(value), read)

    def _decimal(self, name: str, odd: bool) -> Cell:
        rng = self.rng
        if not odd or self.form == "parquet":
            value = Decimal(rng.randrange(-999_999, 1_000_000)).scaleb(-2)
            return Cell(value if self.form == "parquet" else str(value), value)
        text = rng.choice([
            "1.005", "1.4949999999999999", "-0.005", "-0.0049999999999999999999", "9999.994", "9999.995",
            "10000", "-10000.00", "1.2300000", "1e3", "1e-3", "5e-3", "1E+4", "0.1", "123456789012345678901",
            f"{rng.randrange(10**4)}.{rng.randrange(10**9):09}",
        ])  # fmt: skip
        value = Decimal(text).quantize(Decimal("0.01"), ROUND_HALF_UP)
        written = json.dumps(text) if self.form == "json" and rng.random() < 0.3 else text
        return Cell(written, value if abs(value) < 10_000 else BROKEN)

    def _text(self, name: str, odd: bool) -> Cell:
        characters = self.rng.choices(
            "aäß\U0001d54f \u0301x", k=self.rng.choice([5, 6, 9] if odd else [1, 4])
        )
        text = "a" + "".join(characters[1:-1]) + "b" if len(characters) > 1 else "a"
        written = {"json": json.dumps(text), "csv": f'"{text}"', "parquet": text}[self.form]
        return Cell(written, BROKEN if odd else text)

    def _struct(self, name: str, odd: bool) -> Cell:
        which = self.rng.choice("nm") if odd else ""
        cells = {own: self._integer(own, own == which) for own in "nm"}
        read = {own: cell.read for own, cell in cells.items()}
        written: Any = {own: cell.written for own, cell in cells.items()}
        if self.form == "json":
            written, clear = self._object(written, within=True)
            read = read if clear else {"n": BROKEN}
        return Cell(written, BROKEN if BROKEN in read.values() else read)

    def _list(self, name: str, odd: bool) -> Cell:
        cells = [
            self._integer("l", odd and place == 1) for place in range(2 if odd else self.rng.randrange(3))
        ]
        read = [cell.read for cell in cells]
        written: Any = [cell.written for cell in cells]
        if self.form == "json":
            written = "[" + ", ".join(text or "null" for text in written) + "]"
        return Cell(written, BROKEN if BROKEN in read else read)

    def _time(self, name: str, odd: bool) -> Cell:
        rng = self.rng
        micros = NOW * 10**6 - rng.randrange(10**12)
        if name == "wall" and rng.random() < 0.2:
            micros = -micros
        if odd and rng.random() < 0.3:
            micros = rng.choice([4_102_444_800, 250_000_000_000]) * 10**6 + rng.randrange(10**6)
        if self.form == "parquet":
            if self.file_unit == "ns":
                micros = min(micros, 9_223_372_036_000_000)
                return Cell(micros * 1_000 + rng.randrange(1_000), micros)
            micros -= micros % 1_000 if self.file_unit == "ms" else 0
            return Cell(micros // 1_000 if self.file_unit == "ms" else micros, micros)
        quoted = json.dumps if self.form == "json" else str
        zone = "" if name == "wall" else "Z"
        if not odd:
            return Cell(quoted(iso(micros, rng.choice(["", "9", "123"]), zone)), micros)
        ms = micros // 1_000
        if not self.unit:
            if self.form == "csv" or name == "wall":
                return Cell(rng.choice([str(ms), str(ms // 1_000), quoted("x")]), BROKEN)
            if rng.random() < 0.5:
                return Cell(str(ms // 1_000), ms // 1_000 * 10**6)
            return Cell(str(NOW * 1_000), NOW * 10**9)  # milliseconds that are read as seconds
        forms = [(str(ms), ms * 1_000), (f"{abs(ms)}.25", abs(ms) * 1_000 + 250)]
        forms += [(f"{abs(ms)}.0009", abs(ms) * 1_000)]
        forms += [("99999999999999999999", BROKEN), ("x", BROKEN), (iso(micros, "", zone), micros)]
        text, read = rng.choice(forms)
        is_quoted = text == "x" or ":" in text or ".0" in text or rng.random() < 0.3
        return Cell(json.dumps(text) if is_quoted and self.form == "json" else text, read)

    def write(self, path: Path, records: Sequence[Record]) -> None:
        """Write a file of records."""
        if self.form != "parquet":
            head = [",".join(self.columns)] if self.form == "csv" else []
            path.write_text("\n".join([*head, *(each.written for each in records)]) + "\n", encoding="utf-8")
            return
        types = {
            "id": pa.int64(), "n8": pa.int32(), "n32": pa.int32(), "p": pa.decimal128(6, 2), "s": pa.string(),
            "at": pa.timestamp(self.file_unit, "UTC"), "wall": pa.timestamp(self.file_unit),
            "st": pa.struct([("n", pa.int32()), ("m", pa.int32())]), "l": pa.list_(pa.int32()),
        }  # fmt: skip
        arrays = []
        for name, type_ in types.items():
            stored = pa.int64() if pa.types.is_timestamp(type_) else type_
            arrays.append(pa.array([each.written[name] for each in records], stored).cast(type_))
        pq.write_table(pa.table(arrays, names=[*types]), path)
