"""Queries of the first rows of partitions, for the oracle: ROW_NUMBER in a sub-query, and a filter of it.

What the sub-query numbers is run for itself; of its rows there is a bag, and after every step all of it is
sorted and numbered anew. What goes out is the difference to what there was before.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cmp_to_key
from typing import Any

import sqlglot
from sqlglot import exp

from tests.support.oracle.case import Oracle
from tests.support.oracle.sql import Rows, Scope, compile_expr
from tests.support.oracle.values import Refused, Unsupported, bag_key, from_json, less, to_json
from tests.support.oracle.windowed import DECLARED

_Row = dict[str, Any]


def has_ranking(case: dict[str, Any]) -> bool:
    """Whether this oracle is the one for the case."""
    return re.search(r"\bROW_NUMBER\s*\(", case["query"], re.IGNORECASE) is not None


def run_ranked_case(case: dict[str, Any]) -> list[dict[str, Any]]:
    """The output lines of a case, as `oracle.case.run_case` gives them."""
    try:
        ranked = _Ranked(case)
    except Refused as refusal:
        return [{"case": case["case"], "error": str(refusal)}]
    return [
        {"case": case["case"], "step": index, "rows": ranked.step(step), "watermarks": {}, "late": []}
        for index, step in enumerate(case["steps"])
    ]


class _Ranked:
    def __init__(self, case: dict[str, Any]) -> None:
        self.declared = case["tables"]
        outer = sqlglot.parse_one(case["query"], dialect="spark")
        inner: Any = outer.args["from_"].this
        if outer.args.get("joins") or not isinstance(inner, exp.Subquery):
            raise Unsupported("only a SELECT over the sub-query that numbers")
        alias, inner = inner.alias or "ranked", inner.this
        (item,) = [e for e in inner.expressions if isinstance(e.unalias(), exp.Window)]
        self.number, window = item.alias_or_name, item.unalias()
        beneath = inner.copy()
        others = [e for e in beneath.expressions if not isinstance(e.unalias(), exp.Window)]
        sorts = window.args["order"].expressions
        partitions = window.args.get("partition_by") or []
        hidden = [(f"p{n}", e) for n, e in enumerate(partitions)]
        hidden += [(f"s{n}", s.this) for n, s in enumerate(sorts)]
        beneath.set("expressions", [*others, *(exp.alias_(e.copy(), name) for name, e in hidden)])
        self.oracle = Oracle({**case, "query": beneath.sql(dialect="spark")})
        self.kinds = {name: kind for name, kind, _ in self.oracle.query.outputs}
        self.partitions = [name for name, _ in hidden[: len(partitions)]]
        told = [name for name in self.kinds if name not in dict(hidden)]
        self.order = [
            (name, bool(s.args.get("desc")), bool(s.args.get("nulls_first")))
            for (name, _), s in zip(hidden[len(partitions) :], sorts, strict=True)
        ]
        self.order += [(name, False, True) for name in told]
        scope = Scope({alias: {**{name: self.kinds[name] for name in told}, self.number: "int"}})
        where = outer.args.get("where")
        if where is None:
            raise Refused("ROW_NUMBER() numbers all rows")
        self.where = compile_expr(where.this, scope)[1]
        listed: list[tuple[str, exp.Expression]] = []
        for e in outer.expressions:
            if isinstance(e, exp.Star):
                listed += [(name, exp.column(name)) for name in scope.inputs[alias]]
            else:
                listed.append((e.alias_or_name, e))
        self.outputs = [(name, *compile_expr(e, scope)) for name, e in listed]
        self.there: Counter[tuple[str, tuple[Any, ...]]] = Counter()
        self.rows: dict[tuple[Any, ...], tuple[_Row, int]] = {}
        self.before: dict[tuple[Any, ...], tuple[_Row, int]] = {}

    def step(self, step: dict[str, Any]) -> list[_Row]:
        for row in self.oracle.step({**step, "rows": self._of_rows_that_are_there(step)})["rows"]:
            values = {name: from_json(row[name], DECLARED[kind]) for name, kind in self.kinds.items()}
            key = bag_key(values)
            self.rows[key] = (values, self.rows.get(key, (values, 0))[1] + row["_diff"])
        now = self._result()
        changes = []
        for key in {**self.before, **now}:
            row, was = self.before.get(key, ({}, 0))
            row, count = now.get(key, (row, 0))
            if count != was:
                changes.append({**row, "_diff": count - was})
        self.before = now
        return changes

    def _of_rows_that_are_there(self, step: dict[str, Any]) -> list[list[Any]]:
        """The step's changes, each row once; of a delete what there is to delete."""
        sums: dict[Any, list[Any]] = {}
        for table, row, *diff in step.get("rows", []):
            columns = self.declared[table]["columns"]
            key = (table, bag_key({c: from_json(row.get(c), t) for c, t in columns.items()}))
            sums.setdefault(key, [table, row, 0])[2] += diff[0] if diff else 1
        for key, change in sums.items():
            change[2] = max(change[2], -self.there[key])
            self.there[key] += change[2]
        return [change for change in sums.values() if change[2]]

    def _result(self) -> dict[tuple[Any, ...], tuple[_Row, int]]:
        partitions: dict[Any, list[_Row]] = {}
        for values, count in self.rows.values():
            key = bag_key({name: values[name] for name in self.partitions})
            partitions.setdefault(key, []).extend([values] * count)
        result: dict[tuple[Any, ...], tuple[_Row, int]] = {}
        for rows in partitions.values():
            for number, values in enumerate(sorted(rows, key=cmp_to_key(self._compare)), 1):
                row: Rows = ({**values, self.number: number},)
                if self.where(row) is True:
                    made = {name: to_json(f(row), kind) for name, kind, f in self.outputs}
                    key = bag_key(made)
                    result[key] = (made, result.get(key, (made, 0))[1] + 1)
        return result

    def _compare(self, one: _Row, other: _Row) -> int:
        for name, descending, nulls_first in self.order:
            a, b = one[name], other[name]
            if a is None or b is None:
                if a is not b:
                    return -1 if (a is None) is nulls_first else 1
            elif less(a, b) or less(b, a):
                return -1 if bool(less(a, b)) is not descending else 1
        return 0


__all__ = ["has_ranking", "run_ranked_case"]
