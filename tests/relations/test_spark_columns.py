"""Columns of Spark's as texts. Here without Spark: nodes that answer as its do."""

from __future__ import annotations

import sys
from decimal import Decimal
from types import ModuleType
from typing import Any

import pytest
from sqlglot import exp

import watersmeet as ws
from watersmeet.relations.expressions import NoText, is_column, read_fragment, text_of


class Answers:
    """An object of Java's: fields are asked by calls."""

    def __init__(self, kind: str, **fields: Any) -> None:
        self._kind, self._fields = kind, fields

    def __getattr__(self, name: str) -> Any:
        if name == "getClass":
            return lambda: Answers("Class", getSimpleName=self._kind, getName=self._kind)
        try:
            return lambda: self.__dict__["_fields"][name]
        except KeyError:  # pragma: no cover
            raise AttributeError(name) from None


class Several:
    def __init__(self, *values: Any) -> None:
        self._values = values

    def size(self) -> int:
        return len(self._values)

    def apply(self, number: int) -> Any:
        return self._values[number]


NONE = Answers("None$", isDefined=False)


def some(value: Any) -> Answers:
    return Answers("Some", isDefined=True, get=value)


def name(*parts: str, plan: Any = NONE, meta: bool = False) -> Answers:
    return Answers("UnresolvedAttribute", nameParts=Several(*parts), planId=plan, isMetadataColumn=meta)


def value(of: Any, shown: str, kind: Any = NONE) -> Answers:
    return Answers("Literal", value=of, sql=shown, dataType=kind)


def call(function: str, *arguments: Answers, distinct: bool = False, internal: bool = False) -> Answers:
    flags = {"isDistinct": distinct, "isInternal": internal}
    return Answers("UnresolvedFunction", functionName=function, arguments=Several(*arguments), **flags)


def expr(text: str) -> Answers:
    return Answers("SqlExpression", expression=text)


def column(node: Any) -> Any:
    java = {"_jc": Answers("Column", node=node)}
    return type("Column", (), {"__module__": "pyspark.sql.classic.column", "__iter__": None, **java})()


A, B = name("o", "a"), name("d", "odd `name")
ONE, TEXT = value(1, "1"), value("it's \\ 'x'\n", "no SQL")
BIGINT = Answers("LongType$", sql="BIGINT")

TEXTS: dict[str, Answers] = {
    "`o`.`a` = `d`.`odd ``name`": call("=", A, B),
    "(`o`.`a` = 1) AND (`o`.`a` <=> 1)": call("and", call("=", A, ONE), call("<=>", A, ONE)),
    "NOT (`o`.`a` IN (1, 2L))": call("!", call("in", A, ONE, value(2, "2L"))),
    "(`o`.`a` + 1) * (-1)": call("*", call("+", A, ONE), value(-1, "-1")),
    "`o`.`a` - (`o`.`a` - 1)": call("-", A, call("-", A, ONE)),
    "`o`.`a` >= 3.5D": call(">=", A, value(3.5, "3.5")),
    "-(-1)": call("negative", value(-1, "-1")),
    "(`o`.`a` LIKE 'x%') IS NOT NULL": call("isNotNull", call("like", A, value("x%", "x%"))),
    "abs(`o`.`a`) IS NULL": call("isNull", call("abs", A)),
    "CAST(`o`.`a` AS BIGINT) % 2": call(
        "%", Answers("Cast", child=A, dataType=BIGINT, evalMode=NONE), value(2, "2")
    ),
    "TRY_CAST(`o`.`a` AS BIGINT)": Answers(
        "Cast", child=A, dataType=BIGINT, evalMode=some(Answers("Try$", sql="TRY_"))
    ),
    "CASE WHEN `o`.`a` > 1 THEN TRUE ELSE NULL END": Answers(
        "CaseWhenOtherwise",
        branches=Several(Answers("Tuple2", _1=call(">", A, ONE), _2=value(True, "true"))),
        otherwise=some(value(None, "NULL")),
    ),
    "`o`.`a` + INTERVAL 1 HOUR": call("+", A, expr("INTERVAL 1 HOUR")),
    "`o`.`a` * (1 + 2)": call("*", A, expr("1 + 2")),
    "CAST(1 AS BIGINT)": value(1, "1", some(BIGINT)),
    "1.50": value(Decimal("1.50"), "1.50"),
    "DATE '2024-01-01'": value(Answers("java.sql.Date", toString="2024-01-01"), "?"),
    "TIMESTAMP '2024-01-01T00:00:00Z'": value(
        Answers("java.sql.Timestamp", toInstant=Answers("Instant", toString="2024-01-01T00:00:00Z")), "?"
    ),
}


@pytest.mark.parametrize("wanted", TEXTS)
def test_a_column_is_one_text_that_reads_as_what_it_is(wanted):
    written = column(TEXTS[wanted])
    assert is_column(written)
    assert text_of(written) == wanted
    tree, _ = read_fragment(written, "on")
    assert tree == read_fragment(wanted, "on")[0]


def test_a_text_of_any_characters_stays_itself():
    tree, _ = read_fragment(column(TEXT), "where")
    assert isinstance(tree, exp.Literal)
    assert tree.this == "it's \\ 'x'\n"


REFUSED = {
    "df['x']": Answers("ExpressionColumnNode"),
    "a column of a DataFrame": name("a", plan=some(3)),
    "no SQL text (Window)": call("=", A, Answers("Window")),
    "calls count": call("count", A, distinct=True),
    "calls days": call("days", A, internal=True),
    "value of [I": value(Answers("[I"), "?"),
    "value of float": value(float("nan"), "NaN"),
    "contains a cast": Answers("Cast", child=A, dataType=BIGINT, evalMode=some(Answers("Legacy$", sql=""))),
    "calls a b": call("a b", A),
}


@pytest.mark.parametrize("says", REFUSED)
def test_what_has_no_text_asks_for_one(says):
    with pytest.raises(NoText) as refused:
        text_of(column(REFUSED[says]))
    assert says in str(refused.value)
    assert refused.value.hint


def test_calls_take_columns_where_they_take_texts():
    o = ws.stream({"a": "BIGINT", "t": "TIMESTAMP"}, time="t", name="o").alias("o")
    d = ws.stream({"a": "BIGINT", "t": "TIMESTAMP"}, time="t", name="d").alias("d")
    within = ws.between("d.t", "o.t", "0s", "1h")
    same = column(call("=", A, name("d", "a")))
    large = column(call(">", A, ONE))
    named = column(Answers("Alias", child=call("+", A, ONE), name=Several("more"), metadata=NONE))
    joined = o.join(d, on=same, within=within).where(large).select(named, "d.a")
    texts = o.join(d, on="o.a = d.a", within=within).where("o.a > 1").select("o.a + 1 AS more", "d.a")
    assert ws.job(joined.to_sink(ws.memory("m"))).plan.queries[0].fingerprint == (
        ws.job(texts.to_sink(ws.memory("m"))).plan.queries[0].fingerprint
    )
    assert repr(o.join(d, on=[same, large], within=within)).count(" AND ") >= 2
    with pytest.raises(ws.SqlError, match="where contains a column of a DataFrame") as refused:
        o.where(column(Answers("ExpressionColumnNode")))
    assert "col('o.order_id')" in str(refused.value.hint)


def test_a_column_of_spark_connect_is_refused(monkeypatch):
    module = ModuleType("pyspark.sql.connect.column")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    kind = type("Column", (), {"__module__": module.__name__})
    with pytest.raises(NoText, match="Spark Connect"):
        text_of(kind())
