# ruff: noqa: E501
"""ARRAYs, MAPs and STRUCTs: what tasks compute is what Spark computes."""

from __future__ import annotations

import random
from datetime import date, datetime

import pytest

from tests.expressions.checking import check, table_of

TYPES = {
    "i": "INT", "b": "BIGINT", "x": "DOUBLE", "s": "STRING", "d": "DATE",
    "li": "ARRAY<INT>", "lb": "ARRAY<BIGINT>", "lx": "ARRAY<DOUBLE>", "lf": "ARRAY<FLOAT>", "ls": "ARRAY<STRING>",
    "ld": "ARRAY<DATE>", "lt": "ARRAY<TIMESTAMP>", "lm": "ARRAY<DECIMAL(10,2)>", "lp": "ARRAY<BOOLEAN>",
    "ll": "ARRAY<ARRAY<INT>>", "lr": "ARRAY<STRUCT<a: INT, b: STRING>>", "r": "STRUCT<a: INT, b: STRING, c: ARRAY<INT>>",
    "v": "ARRAY<FLOAT>", "ms": "MAP<STRING, INT>", "mx": "MAP<DOUBLE, STRING>", "mi": "MAP<INT, DOUBLE>",
}  # fmt: skip
LISTS = [name for name, type_ in TYPES.items() if type_.startswith("ARRAY")]
MAPS = ("ms", "mx", "mi")

EXPRESSIONS = [
    *(f"{v}1 {op} {v}2" for v, ops in (("li", ("=", "<>", "<", ">=", "<=>")), ("lx", "=<"), ("ls", "=>"), ("ld", "<"), ("lm", "<"), ("lp", "<"), ("ll", "=<"),
      ("lr", "=<"), ("r", ("=", "<>", "<", "<=", "<=>"))) for op in ops),
    "li1 IN (li2, NULL)", "r1 IN (r2, NULL)", *(f"coalesce({v}1, {v}2)" for v in ("li", "lt", "lr", "r", *MAPS)),
    "greatest(li1, li2)", "greatest(lx1, lx2)", "greatest(r1, r2)", "least(lr1, lr2)", "nullif(li1, li2)",
    *(f"CASE WHEN i1 > 0 THEN {v}1 WHEN i1 < 0 THEN {v}2 END" for v in ("li", "lt", "ll", "lr", "r", "ms")),
    *(f"{v}1 IS NULL" for v in ("li", "r", "ms")), "li1 = lb2", "coalesce(li1, lb2)", "li1 < array(1, 2)", "lx1 = lf2",
    *(f"{f}({v}1)" for v in ("li", "lx", "ls", "lr") for f in ("array_compact", "array_distinct", "array_sort", "sort_array", "array_max", "array_min", "reverse")),
    *(f"{f}({v}1)" for v in ("lb", "lf", "lt", "lm", "lp", "ll") for f in ("array_distinct", "array_sort", "array_max")),
    *(f"sort_array({v}1, false)" for v in ("li", "lx", "ls", "ll", "lr")), "sort_array(li1, true)",
    "size(li1)", "cardinality(li1)", "array_size(li1)", "size(lr1)", "size(ms1)", "cardinality(mx1)", "size(ll1)",
    *(f"{f}({v}1, {v}2)" for v in ("li", "lx", "ls", "lr") for f in ("array_union", "array_intersect", "array_except", "arrays_overlap")),
    *(f"{f}({v}1, {v}2)" for v in ("lb", "lf", "lt", "lm", "lp", "ll") for f in ("array_intersect", "arrays_overlap", "concat")),
    "concat(li1, lb1, li2)", "array_union(li1, lb2)", "arrays_overlap(li1, lb2)", "concat(li1)",
    *(f"{f}({v}1, i1)" for v in ("li", "lt", "ll", "lr") for f in ("element_at", "try_element_at", "get")), "ls1[i1]", "lr1[i1]", "li1[0]", "ls1[b1]", "element_at(li1, -1)",
    *(f"{f}({v}1, {e})" for v, e in (("li", "i1"), ("lx", "x1"), ("ls", "s1"), ("ll", "li1"), ("lr", "named_struct('a', i1, 'b', s1)"))
      for f in ("array_contains", "array_position", "array_remove", "array_append", "array_prepend")),
    *(f"{f}({v}1, {e})" for v, e in (("lb", "i1"), ("ld", "d1"), ("li", "b1"), ("lx", "-0.0d"), ("lx", "i1")) for f in ("array_contains", "array_remove", "array_append")),
    *(f"array_insert(li1, {place}, i2)" for place in ("i1 % 9", "1", "-1", "-4", "7", "-7")), "array_insert(ls1, 2, s1)",
    *(f"slice({v}1, i1, i2)" for v in ("li", "lr")), "slice(li1, 2, 2)", "slice(li1, -2, 1)",
    "flatten(ll1)", "flatten(array(li1, li2))", "array_repeat(i1, 3)", "array_repeat(li1, i2 % 5)", "array_repeat(s1, 0)",
    "arrays_zip(li1, ls1)", "arrays_zip(li1)", "arrays_zip(li1, ls1, li2)", "arrays_zip(li1, ls1)[0].ls1",
    "array_join(ls1, s1)", "array_join(ls1, ',')", "array_join(ls1, ',', s1)", "array_join(ls1, '', '?')",
    "array(i1, b1)", "array(s1, s2, 'x')", "array(li1, li2)", "array(1, 2.5)", "array(r1)", "array(NULL, i1)",
    "size(array())", "coalesce(li1, array())", "li1 = array()", "concat(li1, array())",
    "r1.a", "get(r1.c, 0)", "r1['b']", "r1.B", "lr1.a", "lr1.b", "get(lr1, 0).b", "struct(i1, s1)", "struct(i1 AS p, li1 AS q)",
    "struct(i1, 5, r1.a)", "named_struct('a', i1, 'b', struct(s1)).b", "struct(i1, s1) = struct(i2, s2)", "struct(i1, x1) < struct(i2, x2)",
    "struct(i1, s1) IN (struct(i2, s2))", "named_struct('p', li1).p", "(i1, s1) = (i2, s2)", "(i1, s1) IN ((i2, s2), (1, 'a'))",
    "CAST(li1 AS ARRAY<BIGINT>)", "CAST(li1 AS ARRAY<STRING>)", "CAST(lb1 AS ARRAY<DOUBLE>)", "CAST(lt1 AS ARRAY<DATE>)",
    "sequence(0, i1 % 20)", "sequence(i1 % 9, i2 % 9)", "sequence(b1 % 9, i1 % 9)", "sequence(1, 10, 3)", "sequence(i1 % 9, i2 % 9, if(i1 % 9 <= i2 % 9, 2, -2))",
    "sequence(i1 % 3, i2 % 3, i1 % 2)", "sequence(DATE '2024-01-30', DATE '2024-03-01')", "sequence(b1, b1)",
    "split(s1, ',')", "split(s1, ',', 2)", "split(s1, ', ')", "split(s1, ',', -1)", "split(s1, ',', 0)", "split(s1, 'a', 1)", r"split(s1, '\\|')", "split(s1, '=')[0]",
    *(f"{f}({v}1)" for v in MAPS for f in ("map_keys", "map_values", "map_entries")), "ms1['a']", "ms1[s1]", "mx1[x1]", "mi1[i1]", "ms1.a",
    *(f"{f}({v}1, {k})" for v, k in (("ms", "s1"), ("mx", "x1")) for f in ("element_at", "try_element_at", "map_contains_key")),
    "CAST(ll1 AS ARRAY<ARRAY<STRING>>)",
]  # fmt: skip


def pools(rng: random.Random) -> dict[str, list]:
    nan, inf = float("nan"), float("inf")
    plain: dict[str, list] = {
        "i": [0, 1, 2, 3, -1, -2, -3, 7, 5, 2**31 - 1, 1 - 2**31, None],  # the least INT as a place ends Spark's JVM
        "b": [0, 1, -1, 2, 3, 7, 2**63 - 1, -(2**63), 2**31, None],
        "x": [0.0, -0.0, 1.0, -1.5, nan, inf, -inf, 5e-324, 1e300, None],
        "f": [0.0, -0.0, 1.0, -1.5, nan, inf, 0.5, None],
        "s": ["", "a", "b", "A", "é", "😀", "\uffff", "a,b", "a, b,", ",", "a:1,b:2", "a=1,b=2,a=3", "a:1,a:2", "a|b", "a,b,,", "\t", "x:y:z", None],
        "d": [date(1, 1, 1), date(9999, 12, 31), date(1970, 1, 1), date(2024, 2, 29), None],
        "t": [datetime(1, 1, 1, 5), datetime(2024, 3, 10, 7), datetime(9999, 12, 31), None],
        "m": [0, 1, -1, None],
        "p": [True, False, None],
    }  # fmt: skip

    def lists(pool: list, count: int = 60, longest: int = 5) -> list:
        found = [[rng.choice(pool) for _ in range(rng.randrange(longest))] for _ in range(count)]
        return [*found, [], [None], [pool[0]], [pool[0], pool[1]], [pool[1], pool[0], None], None]

    def maps(keys: list, items: list) -> list:
        keys = [key for key in keys if key is not None]
        found = []
        for _ in range(60):
            own = rng.sample(keys, rng.randrange(4))
            found.append(
                [(key, rng.choice(items)) for n, key in enumerate(own) if key != 0.0 or key not in own[:n]]
            )
        return [*found, [], None]

    structs = [{"a": rng.choice(plain["i"]), "b": rng.choice(plain["s"])} for _ in range(20)]
    few = [{"a": a, "b": b} for a in (0, 1, None) for b in ("", "a", None)]
    return {
        **{name: plain[name] for name in ("i", "b", "x", "s", "d")},
        **{f"l{name}": lists(plain[name]) for name in "ibxfsdtmp"},
        "v": [*([rng.gauss(0, size) for _ in range(length)] for length in (0, 1, 11, 19, 8) for size in (1, 1e-12, 1e20)
              for _ in range(4)), [0.0], [-0.0], [nan], [inf], [None], [None, 1.0], None],
        "ll": lists(lists(plain["i"][:4], 12, 3)),
        "lr": lists([*structs, *few, *few, None]),
        "r": [*({**each, "c": rng.choice(lists(plain["i"][:3], 5, 3))} for each in (*structs, *few, *few)), None],
        "ms": maps(plain["s"][:5], plain["i"]),
        "mx": maps(plain["x"], plain["s"]),
        "mi": maps(plain["i"][:5], plain["x"]),
    }  # fmt: skip


@pytest.mark.spark
def test_tasks_compute_what_spark_computes(spark, request, monkeypatch):
    seed = request.config.watersmeet_seed
    rows = table_of(TYPES, pools(random.Random(seed)), seed, 600)
    check(spark, EXPRESSIONS, rows, TYPES, "UTC", monkeypatch)
