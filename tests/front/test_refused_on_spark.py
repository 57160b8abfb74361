# ruff: noqa: E501
"""What is refused before Spark starts, Spark refuses: asked about random expressions, texts and patterns."""

from __future__ import annotations

import random
from typing import Any

import pytest
import sqlglot
from sqlglot.errors import SqlglotError

from tests.support.effort import at_effort
from watersmeet.parser.query.expressions.calls import check_calls
from watersmeet.parser.text.dialect import Watersmeet
from watersmeet.parser.text.source_position import Text
from watersmeet.spec.functions import FORMS, OPERATORS, scalar_functions, signature_of
from watersmeet.spec.grammar import MisreadError
from watersmeet.spec.java_patterns import PatternError, groups_of
from watersmeet.spec.literals import typed_problem
from watersmeet.spec.time_zones import pattern_problem
from watersmeet.types.parser import sql_type

pytestmark = pytest.mark.spark

TYPES = [
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10,2)", "DECIMAL(3,0)",
    "STRING", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "ARRAY<INT>", "ARRAY<STRING>", "ARRAY<DATE>",
    "ARRAY<BIGINT>", "ARRAY<FLOAT>", "ARRAY<DECIMAL(10,2)>", "STRUCT<a: DECIMAL(5,0)>", "MAP<BIGINT, INT>",
    "ARRAY<ARRAY<INT>>", "ARRAY<STRUCT<a: STRING, b: INT>>", "MAP<STRING, INT>", "MAP<INT, DATE>",
    "STRUCT<a: INT>", "STRUCT<a: STRING, b: TIMESTAMP>",
]  # fmt: skip
COLUMNS = {f"c{number}": kind for number, kind in enumerate(TYPES)}
CONSTANTS = ["'x'", "'2024-01-01'", "1", "-2", "5000000000", "1.5", "2e0", "NULL", "TRUE", "array(1)", "DATE '2024-01-01'"]  # fmt: skip
FORMS_OF_MORE = [
    "CASE WHEN {} THEN {} ELSE {} END", "CASE {} WHEN {} THEN 1 WHEN {} THEN 2 END", "IF({}, {}, {})",
    "{} IN ({}, {})", "{} BETWEEN {} AND {}", "coalesce({}, {}, {})", "greatest({}, {})", "array({}, {})",
    "nvl2({}, {}, {})", "nullif({}, {})", "extract(YEAR FROM {})",
]  # fmt: skip
LAMBDAS = [
    "transform({}, e -> {body})", "filter({}, (e, f) -> {body})", "exists({}, e -> {body})", "forall({}, e -> {body})",
    "zip_with({}, {}, (e, f) -> {body})", "map_filter({}, (e, f) -> {body})", "transform_values({}, (f, e) -> {body})",
    "aggregate({}, {}, (f, e) -> {body})", "array_sort({}, (e, f) -> {body})", "transform({}, (e, f, g) -> {body})",
]  # fmt: skip
BODIES = [
    "e", "e + 1", "year(e)", "upper(e)", "e > 1", "size(e)", "e.a", "e = {}", "date_add(e, 1)", "e[0]", "e = f", "NOT e",
    "e AND TRUE", "transform(e, f -> f + 1)", "CAST(e AS DATE)", "array_contains({}, e)", "coalesce(e, {})",
]  # fmt: skip
LISTS = [name for name, kind in COLUMNS.items() if kind.startswith(("ARRAY", "MAP"))]
OF_LISTS = [
    *(f"array_{word}({{}}, {{}})" for word in ("union", "intersect", "except", "contains", "position", "remove", "append")),
    "arrays_overlap({}, {})", "element_at({}, {})", "{} = {}", "{} < {}", "{} IN ({})", "concat({}, {})",
]  # fmt: skip
OF_TIMES = [
    "date_add({}, {})", "date_sub({}, {})", "datediff({}, {})", "timestampadd(HOUR, 1, {})", "timestampdiff(DAY, {}, {})",
    "year({})", "hour({})", "last_day({})", "timestampadd(FOO, 1, {})", "round({}, {})", "from_json({}, {})",
]  # fmt: skip
ASKED = at_effort(quick=40, full=120)


def refusal(text: str) -> str | None:
    """What is said of an expression; None: it is taken."""
    (tree,) = sqlglot.parse_one(f"SELECT {text}", dialect=Watersmeet).expressions
    found = Text(text)
    check_calls(tree, lambda column: sql_type(COLUMNS.get(column.name, "UNKNOWN")), found)
    return found.problems[0].message if found.problems else None


def operand(rng: random.Random) -> str:
    return rng.choice(CONSTANTS) if rng.random() < 0.2 else rng.choice(list(COLUMNS))


def fill_template(rng: random.Random, form: str, lists: float) -> str:
    """``lists``: how often an operand is an ARRAY or a MAP."""
    given = (rng.choice(LISTS) if rng.random() < lists else operand(rng) for _ in range(form.count("{}")))
    return form.format(*given)


def expression(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.1:
        return fill_template(rng, rng.choice(LAMBDAS).replace("{body}", rng.choice(BODIES)), 0.7)
    if kind < 0.2:
        return fill_template(rng, *rng.choice([(rng.choice(OF_LISTS), 0.7), (rng.choice(OF_TIMES), 0.0)]))
    if kind < 0.3:
        form = rng.choice(list(OPERATORS.values()))
        return form.format(operand(rng), operand(rng), type=rng.choice(TYPES))
    if kind < 0.35:
        return rng.choice(list(FORMS.values())).format(operand(rng))
    if kind < 0.5:
        form = rng.choice(FORMS_OF_MORE)
        return form.format(*(operand(rng) for _ in range(form.count("{}"))))
    name, count = "", 0
    while not count:
        name = rng.choice(scalar_functions())
        signature = signature_of(name)
        assert signature is not None
        counts = [each for each in signature.counts if 0 < each < 8]
        count = max(rng.choices(counts, k=2)) if counts else 0  # more of those of many
    return f"{name}({', '.join(operand(rng) for _ in range(count))})"


def is_accepted_by_spark(spark: Any, text: str) -> bool:
    try:
        spark.sql(f"SELECT {text} AS x FROM watersmeet_types")
    except Exception:
        return False
    return True


def test_types_that_are_refused_spark_refuses(spark, seed):
    columns = [f"CAST(NULL AS {kind}) AS {name}" for name, kind in COLUMNS.items()]
    spark.range(1).selectExpr(*columns).createOrReplaceTempView("watersmeet_types")
    rng = random.Random(seed)
    theirs = found = 0
    wrong, asked = [], 0
    for number in range(4 * ASKED):
        text = expression(rng)
        try:
            said = refusal(text)
        except (SqlglotError, MisreadError):
            continue
        if number >= ASKED and said is None:
            continue
        taken = is_accepted_by_spark(spark, text)
        asked += 1
        if number < ASKED:
            theirs, found = theirs + (not taken), found + (not taken and said is not None)
        if taken and said is not None:
            wrong.append((text, said))
    print(f"{asked} asked; of {theirs} that Spark refuses {found} are found: {found / theirs:.0%}")
    assert not wrong, "\n".join(map(str, wrong))
    assert found > 0.6 * theirs


def test_texts_of_times(spark, seed):
    """Spark's parser judges."""
    parser = spark._jsparkSession.sessionState().sqlParser()
    rng = random.Random(seed)
    parts = ["2024", "-", "-02", "-30", "-1", "T", " ", ":", "10:00", "10:00:00", ".5", "Z", "+01:00", "UTC", "Europe/Berlin",
             "x", "9", "0", "epoch", "+", "GMT+3", "24:00", "99999"]  # fmt: skip
    counted = {"taken": 0, "refused": 0}
    for number in range(at_effort(quick=120, full=240)):
        text = "".join(rng.choice(parts) for _ in range(rng.randrange(1, 5)))
        text = f"2024-01-31{text}" if number % 2 else text
        for kind in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"):
            try:
                parser.parseExpression(f"{kind} '{text}'")
                taken = True
            except Exception:
                taken = False
            said = typed_problem(kind, text)
            if said is not None and "on the day of the run" in said[0]:
                continue  # Spark takes it, and would not repeat itself
            words = text.lstrip().startswith("epoch")  # left to Spark
            assert taken == (said is None) or (words and said is None), (kind, text, said)
            counted["taken" if taken else "refused"] += 1
    print(counted)
    assert min(counted.values()) > 20


def test_patterns_of_times(spark, seed):
    formatters = getattr(spark._jvm.org.apache.spark.sql.catalyst.util, "TimestampFormatter$")
    formatters = getattr(formatters, "MODULE$")
    utc = spark._jvm.java.time.ZoneId.of("UTC")
    rng = random.Random(seed)
    parts = [*"yMdHhmsSaEDGXxzZVO'[]{}#-/: .qQFkKLlcYuewWABnNpPTvgé", "yyyy", "MM", "dd", "''", "'T'", "HH:mm", "SSS", "VV"]  # fmt: skip
    counted = {"taken": 0, "refused": 0}
    asked = [(each * n, rng.random() < 0.5) for each in "yMdHhmsSEaDGXxzZVOQqkKLvF" for n in range(2, 8)]
    for _ in range(60):
        pattern = "".join(rng.choice(parts) for _ in range(rng.randrange(1, 5)))
        asked += [(pattern, True), (pattern, False)]
    for pattern, reading in asked:
        try:
            formatters.apply(pattern, utc, reading).validatePatternString(False)
            taken = True
        except Exception:
            taken = False
        said = pattern_problem(pattern, reading=reading)
        if not (reading and "S" in pattern and "'" in pattern):  # left to Spark
            assert taken == (said is None), (pattern, reading, said)
        assert not (taken and said), (pattern, reading, said)
        counted["taken" if taken else "refused"] += 1
    print(counted)
    assert min(counted.values()) > 20


def test_regular_expressions(spark, seed):
    """Java judges: what is refused here it refuses, and there are so many groups."""
    java = spark._jvm.java.util.regex.Pattern
    rng = random.Random(seed)
    parts = [*"()[]{}*+?|\\^$.,-&:<=!>PQab12xdnN", "(?", "(?:", "(?<", "(?<=", "(?<n>", "(?i)", "(?i:", "{2}", "{2,1}",
             "{1,}", "\\d", "\\p", "\\p{L}", "\\x", "[a-z]", "[^", "\\\\", "a", "b", "(a)", "\\(", "\\c", "&&", "]",
             "\\k<n>", "(?<n>a)", "\\p{Lu}", "\\p{Foo}", "\\p{IsGreek}", "\\pL", "\\pQ", "\\u0041", "\\u12", "\\x41", "[z-a]", "[\\d-z]", "[\\t-a]", "a-z"]  # fmt: skip
    counted = {"taken": 0, "refused": 0, "found": 0}
    for _ in range(600):
        pattern = "".join(rng.choice(parts) for _ in range(rng.randrange(1, 8)))
        try:
            groups = java.compile(pattern).matcher("").groupCount()
        except Exception:
            groups = None
        try:
            found: int | str | None = groups_of(pattern)
        except PatternError as error:
            found = str(error)
        counted["refused" if groups is None else "taken"] += 1
        counted["found"] += groups is None and isinstance(found, str)
        assert groups is None or found in (groups, None), (pattern, found, groups)
    print(counted)
    assert counted["found"] > 0.8 * counted["refused"] > 60
