"""Random cases with windows: over streams, joins and windows; joins of windows, and windows over those."""

from __future__ import annotations

import random
from typing import Any

_KEYS = ("a", "b", None)
_AGGREGATES = (
    "count(*)",
    "sum({v})",
    "min({v})",
    "max({v})",
    "avg({v})",
    "count({v})",
    "count(DISTINCT {v})",
    "max_by({v}, {t})",
    "min_by({v}, {t})",
    "count({v}) FILTER (WHERE {v} > 1)",
    "sum({v} + 1)",
    "avg({v}) FILTER (WHERE {v} < 3)",
    "max_by({v}, {t}) FILTER (WHERE {v} <> 2)",
    "count_if({v} > 1)",
)
_BITS = ("bit_and({v})", "bit_or({v})", "bit_xor({v})")
"""Of whole numbers."""
_TRUTHS = ("bool_and({v} > 0)", "bool_or({v} > 2)")
"""None of these is a number."""
_JOINS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")


def random_window_case(number: int) -> dict[str, Any]:
    """The case of that number: the same in every run."""
    rng = random.Random(f"windows-{number}")
    draft = _Draft(rng)
    query = rng.choice(
        (
            draft.plain,
            draft.plain,
            draft.over_join,
            draft.over_join,
            draft.joined,
            draft.over_joined,
            draft.twice,
        )
    )()
    options: dict[str, Any] = {}
    if rng.random() < 0.3:
        options["allowed_lateness"] = rng.randint(1, 4)
    if rng.random() < 0.3 and draft.by_limits:
        options["watermark_rule"] = "limit"
    return {
        "case": f"windows-{number}",
        "streams": draft.streams,
        "query": query,
        "options": options,
        "steps": draft.steps(),
    }


class _Draft:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.streams: dict[str, Any] = {}
        self.by_limits = True
        """All watermarks that windows need have a bound by which they go on by the rule ``limit``."""

    def stream(self) -> str:
        """A new stream's name."""
        name = "srq"[len(self.streams)]
        declared: dict[str, Any] = {
            "columns": {"t": "BIGINT", "k": "STRING", "v": "BIGINT"},
            "time": {"t": {"lag": self.rng.choice((0, 0, 1, 3, None))}},
        }
        if self.rng.random() < 0.2:
            declared["partitions"] = ["p0", "p1"]
            if self.rng.random() < 0.5:
                declared["idle_timeout"] = 5
        self.streams[name] = declared
        return name

    def window(self, table: str, time: str = "t") -> str:
        size = self.rng.randint(1, 9)
        kind = self.rng.choice(("TUMBLE", "TUMBLE", "HOP", "SESSION"))
        if kind == "HOP":
            sizes = [size, self.rng.randint(1, size)]
            self.rng.shuffle(sizes)
            return f"TABLE(HOP({table}, DESCRIPTOR({time}), {sizes[0]}, {sizes[1]}))"
        return f"TABLE({kind}({table}, DESCRIPTOR({time}), {size}))"

    def aggregates(self, value: str, time: str, most: int = 3) -> list[str]:
        """Expressions, of which the first is a number."""
        pool = _AGGREGATES if value in "nm" else (*_AGGREGATES, *_BITS)
        chosen = self.rng.sample(pool, self.rng.randint(1, most))
        if self.rng.random() < 0.2:
            chosen.append(self.rng.choice(_TRUTHS))
        return [each.format(v=value, t=time) for each in chosen]

    def grouped(self, table: str, time: str, value: str, keys: list[str], names: list[str]) -> str:
        """A SELECT over windows; ``names``: of its keys and of its first aggregate."""
        items = ["window_start", "window_end"]
        items += [f"{key} AS {name}" for key, name in zip(keys, names, strict=False)]
        found = self.aggregates(value, time)
        items += [f"{each} AS {'n' if not n else f'n{n}'}" for n, each in enumerate(found)]
        by = ["window_start", "window_end"][: self.rng.choice((1, 2, 2))] + keys
        where = f" WHERE {value} > 0" if self.rng.random() < 0.2 else ""
        having = " HAVING count(*) > 1" if self.rng.random() < 0.2 else ""
        text = f"SELECT {', '.join(items)} FROM {self.window(table, time)}{where} GROUP BY {', '.join(by)}"
        return text + having

    def plain(self) -> str:
        keys = self.rng.choice(([], ["k"], ["k"], ["k", "v"]))
        return self.grouped(f"TABLE {self.stream()}", "t", "v", keys, ["k", "x"])

    def join(self, outer: bool = True) -> str:
        """A join of streams as a sub-query, with columns st, rt, k, v, w."""
        s, r = self.stream(), self.stream()
        low, high = sorted((self.rng.randint(-4, 4), self.rng.randint(-4, 4)))
        kind = self.rng.choice(_JOINS if outer else _JOINS[:1])
        key = f" AND {s}.k = {r}.k" if self.rng.random() < 0.7 else ""
        return (
            f"(SELECT {s}.t AS st, {r}.t AS rt, {s}.k AS k, {s}.v AS v, {r}.v AS w FROM {s} {kind} {r}"
            f" ON {r}.t BETWEEN {s}.t + {low} AND {s}.t + {high}{key})"
        )

    def over_join(self) -> str:
        time = self.rng.choice(("st", "rt"))
        keys = self.rng.choice(([], ["k"], ["w"], ["rt" if time == "st" else "st"]))
        return self.grouped(self.join(), time, self.rng.choice("vw"), keys, ["g"])

    def joined(self) -> str:
        """A join of two windowed aggregates, or of one and a stream."""
        left = self.grouped(f"TABLE {self.stream()}", "t", "v", ["k"], ["k"])
        low, high = sorted((self.rng.randint(-6, 6), self.rng.randint(-6, 6)))
        kind = self.rng.choice(_JOINS)
        key = " AND a.k = b.k" if self.rng.random() < 0.7 else ""
        if self.rng.random() < 0.3:
            right, time = self.stream(), "t"
            item = f"{right} b"
        else:
            time = self.rng.choice(("window_end", "window_end", "window_start"))
            item = f"({self.grouped(f'TABLE {self.stream()}', 't', 'v', ['k'], ['k'])}) b"
        value = "b.v" if item.endswith(" b") and not item.startswith("(") else "b.n"
        return (
            f"SELECT a.window_end AS we, a.window_start AS ws, a.k AS k, a.n AS n, {value} AS m"
            f" FROM ({left}) a {kind} {item}"
            f" ON b.{time} BETWEEN a.window_end + {low} AND a.window_end + {high}{key}"
        )

    def over_joined(self) -> str:
        time = self.rng.choice(("we", "we", "ws"))
        self.by_limits = time == "we"
        return self.grouped(f"({self.joined()})", time, "m", self.rng.choice(([], ["k"])), ["g"])

    def twice(self) -> str:
        inner = self.grouped(f"TABLE {self.stream()}", "t", "v", ["k"], ["k"])
        # names of the windows beneath are hidden by those above: give them others
        inner = inner.replace(
            "SELECT window_start, window_end,", "SELECT window_start AS ws, window_end AS we,"
        )
        time = self.rng.choice(("we", "ws"))
        return self.grouped(f"({inner})", time, "n", self.rng.choice(([], ["k"])), ["g"])

    def steps(self) -> list[dict[str, Any]]:
        rng, now = self.rng, rng_start(self.rng)
        found: list[dict[str, Any]] = []
        promised: dict[str, int] = {}  # advances never go back
        for _ in range(rng.randint(2, 9)):
            now += rng.choice((0, 1, 2, 5, 12))
            step: dict[str, Any] = {}
            rows = []
            for _ in range(rng.choice((0, 1, 2, 4, 8))):
                name = rng.choice(list(self.streams))
                row: dict[str, Any] = {
                    "t": None if rng.random() < 0.04 else now + rng.randint(-6, 3),
                    "k": rng.choice(_KEYS),
                    "v": rng.choice((None, 0, 1, 2, 3)),
                }
                if "partitions" in self.streams[name]:
                    row["_partition"] = rng.choice(self.streams[name]["partitions"])
                rows.append([name, row])
            if rows:
                step["rows"] = rows
            if rng.random() < 0.3:
                step["clock"] = rng.randint(1, 8)
            for name, declared in self.streams.items():
                if declared["time"]["t"]["lag"] is None and rng.random() < 0.6:
                    promised[name] = max(now - rng.randint(0, 4), promised.get(name, now - 4))
                    step.setdefault("advance", {})[f"{name}.t"] = promised[name]
                if rng.random() < 0.05:
                    step.setdefault("idle", []).append(name)
            found.append(step)
            if rng.random() < 0.2:
                found.append(rng.choice(({"restart": True}, {"rescale": rng.randint(1, 4)})))
        if rng.random() < 0.5:
            found.append({"end": True})
        return found


def rng_start(rng: random.Random) -> int:
    """Where times begin: about zero, below it, or near the ends of int64."""
    return rng.choice((0, 0, 0, -20, 1000))
