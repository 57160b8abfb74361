"""Values of options are refused where Spark refuses them, and taken where it takes them."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.support.columns import column
from tests.support.effort import at_effort
from watersmeet.spec.model import Sink, Source
from watersmeet.spec.options.changes import DEBEZIUM
from watersmeet.spec.options.files import READERS, WRITERS, sink_problems, source_problems
from watersmeet.spec.options.values import Use, value_problem

PATTERNS = (
    "yyyy-MM-dd", "YYYY-MM-dd", "", "yyyyyyyyyyy", "u", "yyyy.SSSSSSSSSS", "#", "EEEEE", "MMMMM", "aa",
    "DDDD", "zzzzz", "W", "yyyy]", "[yyyy", "y", "L", "yyyy-MM-dd'T'HH:mm:ss[.SSS][XXX]", "hh:mm", "O", "VV",
)  # fmt: skip
BAD_WRITTEN = ("bad{", "'", "e", "c", "AAA", "XXXXXX", "n", "foo", "qq")
CHARACTERS = ("", "'", "ab", "\0", "é", "💩", '""', "\\", "\\t", "\\u0000", "\n", " ")
SEPARATORS = (
    "", ",", "ab", "||", "\\t", "\\", "\\\\", "\\x", "\\u0001", "\\n", "\\ta", "\\'", '\\"', "\\b", "é", "💩",
    "\0", " ", "a\\",
)  # fmt: skip
ENCODINGS = ("utf-8", "UTF8", "latin1", "ISO-8859-1", "utf-16", "UTF-32", "", "cp1252", " utf-8", "us-ascii")
ZONES = (
    "UTC", "Mars/Phobos", "", "+01:00", "EST", "GMT+5", "America/New_York", "+25:00", "utc", "+5", "Z", "PST",
    "UT", "Japan", "UTC+01:30", " UTC", "america/new_york", "CST",
)  # fmt: skip
NUMBERS = ("x", "", "1e3", "2147483648", " 9 ", "9", "-2", "0")
GLOBS = ("*", "[", "{a", "", "a]", "\\", "[ab]*", "{a,b}*", "\\[", "a}", "[a", "*.{csv,json")
SWITCHES = ("true", "x", "", " TRUE", "1")
CODECS = ("none", "GZIP", "x", "", "snappy", "bzip2", "lz4_raw", " gzip")
VALUES = {
    "dateFormat": PATTERNS, "timestampFormat": PATTERNS, "quote": CHARACTERS, "escape": CHARACTERS,
    "charToEscapeQuoteEscaping": CHARACTERS, "comment": CHARACTERS, "sep": SEPARATORS, "timeZone": ZONES,
    "encoding": ENCODINGS, "maxColumns": NUMBERS, "pathGlobFilter": GLOBS, "lineSep": ("", "\n"),
    "unescapedQuoteHandling": ("SKIP_VALUE", "stop_at_delimiter", "x", " skip_value"),
    "datetimeRebaseMode": ("CORRECTED", "EXCEPTION", "legacy", "x", ""), "compression": CODECS,
    "maxCharsPerColumn": ("-1", "-2", "0", "x", "99"), "header": SWITCHES, "multiLine": SWITCHES,
    "primitivesAsString": SWITCHES, "allowComments": SWITCHES, "mergeSchema": SWITCHES, "pretty": SWITCHES,
    "enableDateTimeParsingFallback": SWITCHES, "quoteAll": SWITCHES, "ignoreLeadingWhiteSpace": SWITCHES,
    "maxRecordsPerFile": ("x", "7"), "locale": ("de-DE", "x"), "nullValue": ("", "x"),
}  # fmt: skip

COLUMNS = (column("s", "STRING"), column("t", "TIMESTAMP"), column("d", "DATE"), column("k", "BIGINT"))


def problems(use, wanted, options):
    if use is Use.READ:
        return source_problems(Source("a", COLUMNS, "file", {"path": "x", "format": wanted, **options}))
    return sink_problems(Sink("a", "file", {"path": "x", "format": wanted, **options}))


def iterate_option_values():
    """All options with all values, of what may say them. Debezium's events are JSON to Spark."""
    for use, names in ((Use.READ, READERS), (Use.WRITE, WRITERS)):
        for wanted, known in names.items():
            if wanted == DEBEZIUM:
                continue
            for name in sorted(VALUES.keys() & set(known)):
                if name != "header" or use is Use.WRITE:  # which of the files here have none
                    yield from ((use, wanted, name, value) for value in VALUES[name])


SAMPLED = at_effort(quick=20, full=40)
"""Of some 600, by the seed: one takes a tenth of a second and more."""


@pytest.mark.spark
def test_values_are_refused_where_spark_refuses_them(spark, tmp_path, seed):
    from watersmeet.runtime.spark.sources.frames import read_records

    lines = {
        "csv": "a,2024-01-01 00:00:00,2024-01-01,1\n",
        "json": '{"s": "a", "t": "2024-01-01 00:00:00", "d": "2024-01-01", "k": 1}\n',
    }
    for wanted, text in lines.items():
        (tmp_path / wanted).mkdir()
        (tmp_path / wanted / f"1.{wanted}").write_text(text)
    (tmp_path / "parquet").mkdir()
    parquet.write_table(pa.table({"s": ["a"], "k": [1]}), tmp_path / "parquet" / "1.parquet")
    row = spark.sql(
        "SELECT 'a' s, TIMESTAMP '2024-01-01 00:00:00' t, DATE '2024-01-01' d, 1L k, "
        "TIMESTAMP_NTZ '2024-01-01 00:00:00' n"
    )

    def is_accepted_by_spark(use, wanted, options):
        try:
            if use is Use.WRITE:
                to = str(tmp_path / "out")
                row.write.format(wanted).options(**options).mode("overwrite").save(to)
                return True
            columns = COLUMNS[::3] if wanted == "parquet" else COLUMNS
            source = Source("a", columns, "file", {"format": wanted, **options})
            read_records(spark.read, source, wanted, str(tmp_path / wanted)).collect()
        except Exception:
            return False
        return True

    wrong = []
    for use, wanted, name, value in random.Random(seed).sample(list(iterate_option_values()), SAMPLED):
        options = {name: value}
        if use is Use.READ and wanted == "csv":
            options["header"] = "false"  # which columns a file has is another question
        if use is Use.READ and name == "encoding":
            options["multiLine"] = "true"
        taken = is_accepted_by_spark(use, wanted, options)
        if bool(problems(use, wanted, options)) == taken:
            wrong.append((use.value, wanted, name, value, "taken" if taken else "refused"))
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("value", BAD_WRITTEN)
def test_patterns_by_which_nothing_is_read_are_refused(value):
    """Spark takes them, and then reads no record."""
    assert value_problem("timestampformat", value, "csv", Use.READ) is not None


REFUSED = [
    ("csv", {"sep": ""}, "option 'sep' is ''", "','"),
    ("csv", {"Encoding": "latin1"}, "option 'Encoding' is 'latin1'", "'ISO-8859-1'"),
    ("csv", {"escape": "ab"}, "option 'escape' is 'ab'", "one character"),
    ("csv", {"dateFormat": "YYYY"}, "option 'dateFormat' is 'YYYY'", "yyyy is"),
    (
        "csv",
        {"sep": ";", "delimiter": "|"},
        "option 'delimiter' is '|'",
        "'sep', which is the same option",
    ),
    (
        "json",
        {"encoding": "UTF-16"},
        "option 'encoding' is 'UTF-16'",
        "'multiLine' = 'true'",
    ),
    ("json", {"charset": "UTF-16LE"}, "option 'charset' is 'UTF-16LE'", "'lineSep'"),
    (
        "parquet",
        {"maxCachedFiles": "-1"},
        "option 'maxCachedFiles' is '-1'",
        "a whole number",
    ),
    (
        "parquet",
        {"discardCachedInputRatio": "2"},
        "option 'discardCachedInputRatio' is '2'",
        "from 0 to 1",
    ),
    ("parquet", {"cleanSource": "x"}, "option 'cleanSource' is 'x'", "'ARCHIVE'"),
]


@pytest.mark.parametrize(("wanted", "options", "said", "hint"), REFUSED)
def test_invalid_option_value_error_hints_at_the_fix(wanted, options, said, hint):
    (refused,) = problems(Use.READ, wanted, options)
    assert refused.code == "wrong-option"
    assert f'file source "a": {said}' in refused.message
    assert hint in refused.hint


def test_json_in_another_encoding_whose_records_are_delimited():
    assert problems(Use.READ, "json", {"encoding": "UTF-16LE", "lineSep": "\n"}) == []
    assert problems(Use.READ, "json", {"encoding": "UTF-16", "multiLine": "true"}) == []
    assert problems(Use.WRITE, "json", {"encoding": "UTF-16"}) == []


def test_what_ends_a_record_is_shown_as_it_is_written():
    (problem,) = source_problems(
        Source("a", COLUMNS, "file", {"path": "x", "format": "json", "encoding": "UTF-16LE"})
    )
    assert problem.hint == r"set the text that ends a record: 'lineSep' = '\n'"
