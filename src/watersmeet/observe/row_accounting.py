"""The account: every row that came in is in exactly one place, counted since the job's first tick.

    in = matched + padded + unknown + released unmatched + released + grouped + passed + unmatchable
       + filtered + late + NULL time + ahead + broken + skipped + retained + shed + deleted
       + deletes of absent rows + stale

``matched``, ``padded`` and ``released unmatched`` count rows that have left the state of a join, ``grouped``
those of which all windows have closed, ``released`` those that left a delta join, which does not count who
had a partner; ``unknown`` those that left without a match, and were neither padded nor put out by ANTI, for
the query was another one when partners of theirs may have come; ``retained`` the rows still in it, matched or
not; ``passed`` those that no join takes: they go out as they come; ``shed`` those that left at a limit.
``deleted`` counts rows that were deleted, and the deletes that did it; a change that stands for several rows
counts as that many. A row that can match nothing counts as padded if its side is padded, else as unmatchable.
``skipped`` counts records that say nothing of rows: Debezium's heartbeats, messages and markers.
What comes to an input from a join or from windows beneath counts like the rows of its sources. Rows that a
filter beneath the ordering took away are not part of the stream and not of the account.

>>> row = InputAccount.of("o", {"in": 5, "matched": 2, "late": 1, "padded": 1}, retained=1)
>>> row.adds_up(), row.difference
(True, 0)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from rich.table import Table
from rich.text import Text

from watersmeet.plan.explain.wording import rounded_up


@dataclass(frozen=True)
class LatenessCounts:
    """Lateness of rows, by buckets.

    Attributes:
        counts: the number of rows per bucket, in order.
        max: the lateness of the latest row, in µs, or a plain number if ``integer``.
    """

    counts: Mapping[str, int]
    max: int
    integer: bool = False

    def words(self) -> str:
        shown = ", ".join(f"{name} {rows:,}" for name, rows in self.counts.items())
        return f"({shown}), at most {self.max if self.integer else rounded_up(self.max)}"


@dataclass(frozen=True)
class InputAccount:
    """Row accounting of one input of one insert.

    Every field except ``input``, ``rows_in`` and ``late_by`` is an outcome of rows.

    Attributes:
        late_by: the lateness of the late rows, per event-time column.
        released: rows released by their time from joins that do not record which rows had a match.
        deleted: deleted rows and the deletes that removed them, for changes.
        missing_deletes: deletes of rows that did not exist.
        stale: changes that are older, by their sequence, than the last change of their primary key.
    """

    input: str
    rows_in: int
    matched: int = 0
    padded: int = 0
    unknown: int = 0
    released_unmatched: int = 0
    released: int = 0
    grouped: int = 0
    passed: int = 0
    unmatchable: int = 0
    filtered: int = 0
    late: int = 0
    null_time: int = 0
    ahead: int = 0
    broken: int = 0
    skipped: int = 0
    retained: int = 0
    shed: int = 0
    deleted: int = 0
    missing_deletes: int = 0
    stale: int = 0
    late_by: Mapping[str, LatenessCounts] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        name: str,
        counts: Mapping[str, int],
        retained: int,
        late_by: Mapping[str, LatenessCounts] | None = None,
    ) -> InputAccount:
        """Build the account of an input from an engine's counters, which are named like the fields.

        The counter ``in`` is ``rows_in`` and includes broken records.
        """
        counted = {place: counts.get(place, 0) for place in PLACES if place != "retained"}
        return cls(name, counts.get("in", 0), retained=retained, late_by=late_by or {}, **counted)

    @property
    def difference(self) -> int:
        """Rows in that are nowhere; negative: rows that are in several places."""
        placed: int = sum(getattr(self, place) for place in PLACES)
        return self.rows_in - placed

    def adds_up(self) -> bool:
        return self.difference == 0

    def late_line(self) -> str | None:
        """Describe how late the late rows were; return None if there are no late rows.

        >>> late = {"t": LatenessCounts({"<1s": 3, "<1m": 2}, 41_900_000)}
        >>> InputAccount("o", 9, late=5, late_by=late).late_line()
        'o: 5 late (<1s 3, <1m 2), at most 41 s 900 ms'
        """
        if not self.late_by:
            return None
        parts = [
            (f"{column} " if len(self.late_by) > 1 else "") + lateness.words()
            for column, lateness in self.late_by.items()
        ]
        return f"{self.input}: {self.late:,} late {'; '.join(parts)}"


_NO_PLACES = ("input", "rows_in", "late_by")
PLACES: tuple[str, ...] = tuple(f.name for f in fields(InputAccount) if f.name not in _NO_PLACES)

_BORDERS = 3
"""Of a table's column: a line, and a space at either side."""

LABELS = {
    "released_unmatched": "released unmatched",
    "null_time": "NULL time",
    "missing_deletes": "deletes of absent rows",
}


@dataclass(frozen=True)
class Account:
    """Row accounting of all inputs of a job.

    Attributes:
        changed_files: per source, the number of files whose current content is not in the result, and the
            first of their names. The number of their rows is unknown.
        shed_joined: the number of shed rows that joins produced for other nodes, by the joined inputs. The
            rows from which a join produced them have their own outcomes.
    """

    inputs: tuple[InputAccount, ...]
    changed_files: Mapping[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    shed_joined: Mapping[str, int] = field(default_factory=dict)

    def adds_up(self) -> bool:
        return all(row.adds_up() for row in self.inputs)

    def as_dict(self) -> dict[str, Any]:
        """Return the account as a dictionary for JSON."""
        changed = {
            name: {"files": files, "names": list(names)}
            for name, (files, names) in self.changed_files.items()
        }
        return {
            "adds_up": self.adds_up(),
            "inputs": [asdict(row) for row in self.inputs],
            "changed_files": changed,
            "shed_joined": dict(self.shed_joined),
        }

    def late_lines(self) -> list[str]:
        """Return lines on late rows, missing deletes, stale changes and load shedding.

        There is one line for each input with late rows (how late they were), with deletes of absent rows,
        or with stale changes, and one for each join whose rows were shed.
        """
        late = [line for line in (row.late_line() for row in self.inputs) if line is not None]
        told = (
            ("missing_deletes", "deletes of absent rows: not applied"),
            ("stale", "changes older than the last one of their primary key: dropped"),
        )
        return (
            late
            + [
                f"{row.input}: {getattr(row, place):,} {words}"
                for place, words in told
                for row in self.inputs
                if getattr(row, place)
            ]
            + [
                f"{name}: {rows:,} joined rows shed: they match no more rows and are not padded"
                for name, rows in self.shed_joined.items()
            ]
        )

    def tables(self, width: int) -> list[Table]:
        """Build tables with one column per input and one line per place where rows ended.

        Empty lines are left out. Each table has as many inputs as fit into `width` characters; the next
        table has the others.
        """
        lines = self._lines()
        first = max(len(line[0]) for line in lines) + _BORDERS
        groups: list[list[int]] = []
        left = 0
        for n, row in enumerate(self.inputs):
            needed = max(len(row.input), *(len(line[n + 1]) for line in lines)) + _BORDERS
            if not groups or needed > left:
                groups.append([])
                left = width - first - 1
            groups[-1].append(n)
            left -= needed
        return [self._table(lines, group, title=group is groups[0]) for group in groups]

    def _lines(self) -> list[list[str]]:
        """Return the label of each line with its text for each input."""
        lines = [["in", *(f"{row.rows_in:,}" for row in self.inputs)]]
        for place in PLACES:
            values = [getattr(row, place) for row in self.inputs]
            if any(values) or place in ("matched", "late", "retained"):
                lines.append(["  " + LABELS.get(place, place), *(f"{value:,}" for value in values)])
        verdicts = (
            "yes" if row.adds_up() else f"NO: {row.difference:+,} rows unaccounted" for row in self.inputs
        )
        return [*lines, ["adds up", *verdicts]]

    def _table(self, lines: Sequence[Sequence[str]], group: Sequence[int], *, title: bool) -> Table:
        name = "Row accounting" if title else None
        table = Table(title=name, title_justify="left", header_style="bold")
        table.add_column("", no_wrap=True)
        for n in group:
            table.add_column(Text(self.inputs[n].input), justify="right")
        for line in lines:
            if line is lines[-1]:
                table.add_section()
                style = None if all(self.inputs[n].adds_up() for n in group) else "bold red"
            else:
                style = "bold" if line is lines[0] else None
            table.add_row(line[0], *(line[n + 1] for n in group), style=style)
        return table
