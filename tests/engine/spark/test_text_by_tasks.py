"""Text files that tasks read by Arrow have the rows that Spark's readers give, or are Spark's to read."""

from __future__ import annotations

import random
import struct
import time
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.support.effort import at_effort
from watersmeet import parse_job, plan_job
from watersmeet.runtime.files import supported_types as of_text
from watersmeet.runtime.files import text_files, text_values
from watersmeet.runtime.files.file_split import FileSplit, UnsupportedFile
from watersmeet.runtime.files.text_files import CsvRows, JsonRows
from watersmeet.runtime.spark.job.session import hold_fixed
from watersmeet.runtime.spark.sources.columns import BROKEN
from watersmeet.runtime.spark.sources.frames import read_records
from watersmeet.runtime.spark.tick.reading import arrow_ingest
from watersmeet.types.parser import sql_type

pytestmark = pytest.mark.spark

NUMBERS = [
    *(
        "0",
        "-0",
        "7",
        "007",
        "-7",
        "+7",
        "--7",
        "7-",
        "-",
        "",
        " 7",
        "7 ",
        "7.0",
        "7.",
        ".7",
        "-.7",
        "1e3",
        "1E3",
    ),
    *("1e", "e1", ".", "0x1F", "1_000", "1,5", "127", "128", "-128", "-129", "32767", "32768", "-32769"),
    *("2147483647", "2147483648", "-2147483648", "9223372036854775807", "9223372036854775808", "1" * 40),
    *("0" * 40 + "5", "1.5", "1.25", "1.255", "1.245", "-1.255", "99999.99", "999999.99", "100000", "1e400"),
    *("1e-400", "4.9e-324", "2e-324", "1.7976931348623157e308", "1.7976931348623159e308", "0.1", "1e22"),
    *("1e23", "123456789012345678901234567890", "9007199254740993", "3.4028235e38", "3.4028236e38", "1e-46"),
    *("7e-46", "16777217", "0.30000001192092896", "NaN", "nan", "Inf", "-Inf", "Infinity", "1d", "1f", "1L"),
    *("\u0663", "\uff17", "1\u00a0", "true", "null", "NULL", "\\N", "1.0E+2", "1e+2", "1e-2", "5e0", "-5e-0"),
]
BOOLEANS = [
    "true",
    "True",
    "TRUE",
    "tRue",
    "false",
    "False",
    "FALSE",
    "t",
    "1",
    "0",
    "yes",
    "",
    " true",
    "true ",
]
DAYS = [
    *("2022-03-01", "2022-02-29", "2024-02-29", "1900-02-29", "0001-01-01", "0000-01-01", "0000-12-31"),
    *("9999-12-31", "10000-01-01", "1582-10-04", "1582-10-10", "1582-10-15", "-0001-01-01", "2022-3-1"),
    *("2022-03", "2022", "20220301", "2022/03/01", "01.03.2022", "2022-13-01", "2022-00-10", "2022-04-31"),
    *("2022-03-01 ", " 2022-03-01", "2022-03-01T", "2022-03-01T10", "", "+2022-03-01", "2022-03-0a"),
    *("1969-12-31", "1970-01-01", "2022-03-1\u0663", "now", "epoch", "today"),
]
CLOCKS = [
    *("", "T10:00:00", " 10:00:00", "  10:00:00", "t10:00:00", "T10:00", "T10", "T24:00:00", "T23:59:60"),
    *("T23:59:59", "T10:60:00", "T10:00:00.1", "T10:00:00.12", "T10:00:00.123", "T10:00:00.1234"),
    *("T10:00:00.12345", "T10:00:00.123456", "T10:00:00.1234567", "T10:00:00.123456789", "T10:00:00."),
    *("T10:00:00,5", "T1:00:00", "T10:0:00", "T02:30:00", "T01:30:00", "T02:00:00", "T03:00:00.000001"),
    *("T00:00:00", "T00:00:00.000000", "T-1:00:00", "T10-00-00", "T10:00:00 "),
]
ZONES = [
    *("", "Z", "z", "+00:00", "-00:00", "+02:00", "-05:30", "+17:59", "+18:00", "-18:00", "+18:01", "+19:00"),
    *(
        "+2:00",
        "+02",
        "+0200",
        "+02:0",
        "+02:60",
        "+99:99",
        " UTC",
        "UTC",
        " Europe/Berlin",
        "[UTC]",
        "+02:00:00",
    ),
    *("*02:00", "ZZ", "GMT+2"),
]
WALLS = ["2022-03-27", "2022-10-30", "2022-03-13", "2022-11-06", "1883-11-18", "1893-04-01", "0001-01-01"]
"""On which clocks of Berlin and of New York were changed."""
TIMES = [f"{day}{clock}{zone}" for day in DAYS[:8] for clock in CLOCKS[:9] for zone in ZONES[:6]]
TIMES += [f"2022-03-01{clock}{zone}" for clock in CLOCKS for zone in ZONES]
TIMES += [f"{day}{clock}" for day in WALLS for clock in CLOCKS]
TIMES += [*DAYS, "10:00:00", "1646128800", "1646128800.5", "T10:00:00"]
STRINGS = [
    *(
        "a",
        "",
        " ",
        "  a ",
        "a b",
        "\u00e4",
        "\U0001f600",
        "\ufeff",
        "a\tb",
        "\\",
        "a\\b",
        "\\n",
        "'",
        "it's",
        "#x",
    ),
    *("null", "NULL", "NaN", "\u2028", "\u0085", "a\x0bb", "\x01", "\x7f", "x" * 5000),
]
QUOTED = [
    *(
        '"',
        '""',
        '"a"',
        '"a,b"',
        '"a',
        'a"',
        'a"b',
        '"a"b',
        '"a""b"',
        '"a\\"b"',
        ' "a"',
        '"a" ',
        '" a "',
        '"a;b"',
    ),
    *(
        '"\\"',
        '"a\\',
        '"7"',
        '"2022-03-01T10:00:00Z"',
        '"true"',
        '"\u00e4"',
        "'a'",
        "'a,b'",
        '""a""',
        '"a","b"',
    ),
]
QUICK = ("BOOLEAN", "INT", "DOUBLE", "STRING", "DATE")
"""Types at quick effort; of JSON, and, with a DECIMAL, of CSV."""
COLUMNS = {
    **dict.fromkeys(["TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(7,2)"], NUMBERS),
    **dict.fromkeys(["DECIMAL(38,10)", "DECIMAL(18,0)"], NUMBERS),
    "BOOLEAN": BOOLEANS,
    "DATE": DAYS,
    "TIMESTAMP": TIMES,
    "TIMESTAMP_NTZ": TIMES,
    "STRING": STRINGS,
}
ELSEWHERE = [("TIMESTAMP", zone) for zone in ("America/New_York", "Europe/Berlin", "+05:30")]


UNEXPECTED = (
    "KeyError",
    "TypeError",
    "AttributeError",
    "IndexError",
    "AssertionError",
    "ValueError",
    "NameError",
)
"""Mistakes of a reader, which would go for refusals."""
USUAL = {
    "INT": ["0", "-7", "007", ""],
    "BIGINT": ["9223372036854775807", "-0"],
    "DOUBLE": ["7", "-7", "7.", ".7", "1e3", "1.25", "4.9e-324", "0.1"],
    "FLOAT": ["7", "1.25", "16777217"],
    "DECIMAL(7,2)": ["7", "1.25", "99999.99", "7.", ".7"],
    "BOOLEAN": ["true", "True", "FALSE", ""],
    "DATE": ["2022-03-01", "0001-01-01", "9999-12-31", "1582-10-10", ""],
    "TIMESTAMP": ["2022-03-01T10:00:00Z", "2022-03-01 10:00:00.1+02:00", "2022-03-27T02:30:00", ""],
    "TIMESTAMP_NTZ": ["2022-03-01T10:00:00.123456", "2022-03-27 02:00:00"],
    "STRING": ["a", "", "  a ", "a b", "\u00e4", "\\", "it's", "#x", '"a,b"', '" a "', "null"],
}
"""What has to be taken, or nothing would be gained."""


def source_of(path, wanted, columns, more=""):
    declared = ", ".join(f"`{name}` {text}" for name, text in columns.items())
    job = parse_job(
        f"CREATE TABLE s ({declared})"
        f" WITH ('connector' = 'file', 'path' = '{path}', 'format' = '{wanted}'{more});"
        "CREATE TABLE o WITH ('connector' = 'console');"
        "INSERT INTO o SELECT n FROM s;"
    )
    return plan_job(job).sources[0]


def by_spark(spark, path, wanted, columns, more=""):
    """The declared columns, and `BROKEN`."""
    return read_records(spark.read, source_of(path, wanted, columns, more), wanted, str(path)).toArrow()


def bits(column):
    """Floats and times by their bits."""
    whole = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz and "UTC")).view(pa.int64())
    if pa.types.is_date(column.type):
        column = column.view(pa.int32())
    return column.view(whole[column.type]) if column.type in whole else column


def rows_in(table, names):
    return list(zip(*(bits(table.column(name).combine_chunks()).to_pylist() for name in names), strict=True))


def read_rows_or_reason(reader, path, columns):
    """The rows as tasks read them; why they are not, else."""
    kinds = {name: sql_type(text) for name, text in columns.items()}
    refused = None
    try:
        batches = list(reader.rows_of(FileSplit(str(path)), kinds))
    except UnsupportedFile as why:
        refused = str(why)
    if refused is not None:
        assert not any(name in refused for name in UNEXPECTED), refused
        return refused
    rows = [row for batch in batches for row in rows_in(pa.Table.from_batches([batch]), columns)]
    for batch in batches:
        batch.validate(full=True)
    return rows


def csv_reader(columns, zone="UTC", separator=",", header=True):
    return CsvRows(tuple((n, sql_type(t)) for n, t in columns.items()), separator, header, zone)


def json_reader(columns, zone="UTC"):
    return JsonRows(tuple((n, sql_type(t)) for n, t in columns.items()), zone)


def compare_records_with_spark(spark, tmp_path, wanted, columns, records, reader, head=""):
    """Each record by Spark, all in one file; each by itself by tasks. How many these take; those that they do
    not and Spark does."""
    (tmp_path / "all").write_text(
        head + "".join(f"{record}\n" for record in records), encoding="utf-8", newline=""
    )
    theirs = by_spark(spark, tmp_path / "all", wanted, columns)
    names = [*columns]
    broken = theirs.column(BROKEN).to_pylist()
    rows = rows_in(theirs, names)
    by_number = {row[0]: (row, text) for row, text in zip(rows, broken, strict=True) if row[0] is not None}
    took, left = 0, []
    for number, record in enumerate(records):
        (tmp_path / "one").write_text(f"{head}{record}\n", encoding="utf-8", newline="")
        mine = read_rows_or_reason(reader, tmp_path / "one", columns)
        row, text = by_number.get(number, (None, record))
        if isinstance(mine, str):
            left += [record] if text is None else []
            continue
        took += 1
        is_same = (mine, text) == ([row], None)
        assert is_same, f"{record[:200]!r} is {mine} here; to Spark {row}"
    return took, left


@pytest.mark.parametrize(
    ("kind", "zone"),
    [
        *((kind, "UTC") for kind in (*QUICK, "DECIMAL(7,2)")),
        ELSEWHERE[0],
        *(
            pytest.param(kind, "UTC", marks=pytest.mark.full)
            for kind in COLUMNS
            if kind not in (*QUICK, "DECIMAL(7,2)")
        ),
        *(pytest.param(*each, marks=pytest.mark.full) for each in ELSEWHERE[1:]),
    ],
)
def test_values_of_csv_are_those_that_spark_reads(spark, tmp_path, kind, zone):
    hold_fixed(spark, zone)
    columns = {"n": "INT", "c": kind, "s": "STRING"}
    records = [f"{number},{text},x" for number, text in enumerate(COLUMNS[kind])]
    records += [f"{number},{text},x" for number, text in enumerate(QUOTED, len(records))]
    took, left = compare_records_with_spark(
        spark, tmp_path, "csv", columns, records, csv_reader(columns, zone), "n,c,s\n"
    )
    print(kind, zone, "taken", took, "of", len(records), "left", left[:40])
    assert not {record.partition(",")[2].removesuffix(",x") for record in left} & set(USUAL.get(kind, ()))
    assert took >= len(USUAL.get(kind, ()))


VALUES = [
    *("null", "true", "false", "0", "-0", "7", "-7", "007", "+7", "7.0", "7.", ".7", "1e2", "1E2", "1e400"),
    *("127", "128", "-129", "32768", "2147483648", "9223372036854775807", "9223372036854775808", "1" * 40),
    *("1.5", "1.25", "1.255", "99999.99", "999999.99", "1e-400", "4.9e-324", "0.1", "9007199254740993"),
    *(
        "123456789012345678901234567890",
        "3.4028236e38",
        "16777217",
        "NaN",
        "Infinity",
        "-Infinity",
        "Inf",
        "-Inf",
    ),
    *(
        "INF",
        "-INF",
        "+INF",
        "nan",
        "True",
        "nul",
        "undefined",
        "",
        "{}",
        "[]",
        '{"a": 1}',
        "[1, 2]",
        "[[1], {}]",
    ),
    *(
        '""',
        '"a"',
        '"7"',
        '"1.5"',
        '"true"',
        '"null"',
        '"NaN"',
        '" 7"',
        '"\\u0041"',
        '"\\n"',
        '"\\/"',
        '"\\\\"',
        '"\\""',
    ),
    *(
        '"\\ud83d\\ude00"',
        '"\\ud83d"',
        '"\\ude00"',
        '"\\ud83dx"',
        '"\\u0000"',
        '"\\x"',
        '"\\\'"',
        '"\\u12"',
        '"\t"',
        '"\x01"',
    ),
    *(
        '"\x7f"',
        '"\u00e4"',
        '"\U0001f600"',
        '"\u2028"',
        '"\ufeff"',
        "'a'",
        "a",
        '"a" "b"',
        '"a',
        'a"',
        "1 2",
        "/* */ 1",
    ),
    *(
        "1 // x",
        "0x1F",
        "1_0",
        "1L",
        "-",
        "--1",
        "01.5",
        "\u0663",
        "1" * 1001,
        "1." + "0" * 1001,
        "[" * 999 + "]" * 999,
    ),
    *(
        "[" * 1001 + "]" * 1001,
        '{"a":' * 1001 + "1" + "}" * 1001,
        '"' + "x" * 5000 + '"',
        "1e" + "9" * 20,
        "-1e400",
    ),
    *(
        '"2022-03-01"',
        '"2022-03-01T10:00:00Z"',
        '"2022-03-01 10:00:00"',
        "1646128800",
        '"2022-03-01T10:00:00.123+02:00"',
    ),
]
USUAL_JSON = {
    **{name: ["0", "7", "-7"] for name in ("TINYINT", "SMALLINT", "INT", "BIGINT")},
    "DOUBLE": ["7", "-7", "1.5", "1e2", "0.1"],
    "BOOLEAN": ["true", "false"],
    "DATE": ['"2022-03-01"'],
    "TIMESTAMP": ['"2022-03-01T10:00:00Z"', '"2022-03-01T10:00:00.123+02:00"'],
    "TIMESTAMP_NTZ": ['"2022-03-01 10:00:00"'],
    "STRING": ['""', '"a"', '"\\u0041"', '"\\n"', '"\\\\"', '"\\""', '"\\ud83d\\ude00"', '"\u00e4"'],
}
SHAPES = [
    *(
        '{{"n":{n},"c":{v},"s":"x"}}',
        ' {{ "n" : {n} , "c" : {v} , "s" : "x" }} ',
        '\t{{"n":{n},"s":"x","c":{v}}}',
    ),
    *(
        '{{"n":{n},"s":"x","u":{v}}}',
        '{{"n":{n},"u":{v},"c":null,"s":"x"}}',
        '{{"n":{n},"u":{{"c":{v}}},"s":"x"}}',
    ),
]
ODD = [
    *(
        '{{"n":{n},"c":1,"c":2}}',
        '{{"n":{n},"c":null,"c":2}}',
        '{{"n":{n},"c":2,"c":null}}',
        '{{"n":{n},"u":1,"u":2}}',
    ),
    *(
        '{{"n":{n},"c":1}} {{"n":{n}}}',
        '{{"n":{n},"c":1}}{{}}',
        '{{"n":{n},"c":1}} x',
        '{{"n":{n},"c":1}},',
    ),
    *(
        '[{{"n":{n},"c":1}}]',
        '{{"n":{n},"c":1',
        '"n":{n}}}',
        '{{n:{n},"c":1}}',
        "{{'n':{n},'c':1}}",
        '{{"n":{n},}}',
        '{{"n":{n} "c":1}}',
    ),
    *(
        '{{"n":{n},"c":1}}//',
        '/**/{{"n":{n},"c":1}}',
        '{{"n":{n},"c":1}}\x0b',
        '\x0b{{"n":{n},"c":1}}',
        '{{"n":{n},"":1}}',
    ),
    *(
        '{{"n":{n},"\\u0063":1}}',
        '{{"n":{n},"c":1}}\u00a0',
        '\ufeff{{"n":{n},"c":1}}',
        '{{"n":{n},"c\\u0000":1}}',
        '{{"n":{n}}}}}',
    ),
    *(
        '{{"n":{n},"u":[1,{{"c":5}}],"c":7}}',
        '{{"n":{n},"u":"}}{{","c":7}}',
        '{{"n":{n},"u":{{}},"c":7}}',
        '{{"n":{n},"' + "k" * 60_000 + '":7}}',
    ),
]


def test_texts_in_the_first_column_are_those_that_spark_reads(spark, tmp_path, monkeypatch, seed):
    """What a reader leaves out where it begins, or takes for a comment."""
    hold_fixed(spark, "UTC")
    columns = {"s": "STRING", "n": "INT"}
    texts = ["\ufeff", "\ufeff\ufeffa", "\ufeffa", "#", "'", "\x01", " a", "\u2028", "\\", "//"]
    headers = ("s,n\n", "", "\ufeffs,n\n", "\ufeff", "\n\ns,n\n", " s,n\n")
    files = [
        (header, rows)
        for text in texts
        for header in headers
        for rows in (f"{text},1\nb,2\n", f"b,1\n{text},2\n", f"b,1\n{text},2\n{text},3")
    ]
    drawn = random.Random(seed).sample(files, at_effort(quick=30, full=len(files)))
    for number, (header, rows) in enumerate(drawn):
        path = tmp_path / f"{number}.csv"
        path.write_text(header + rows, encoding="utf-8", newline="")
        has_names, theirs = "s,n" in header, None
        for size in (4 << 20, 8):
            monkeypatch.setattr(text_files, "BLOCK", size)
            mine = read_rows_or_reason(csv_reader(columns, header=has_names), path, columns)
            if not isinstance(mine, str):
                more = f", 'header' = '{str(has_names).lower()}', 'enforceSchema' = 'false'"
                theirs = theirs or by_spark(spark, path, "csv", columns, more)
                assert mine == rows_in(theirs, columns), (header, rows, size)
                assert theirs.column(BROKEN).null_count == theirs.num_rows


@pytest.mark.parametrize(
    ("kind", "zone"),
    [
        pytest.param(kind, "UTC", marks=[] if kind in QUICK else [pytest.mark.full])
        for kind in COLUMNS
        if of_text.is_json_type(sql_type(kind))
    ]
    + [ELSEWHERE[0]],
)
def test_values_of_json_are_those_that_spark_reads(spark, tmp_path, kind, zone, seed):
    hold_fixed(spark, zone)
    rng = random.Random(seed)
    columns = {"n": "INT", "c": kind, "s": "STRING"}
    texts = [f'"{text}"' for text in COLUMNS[kind] if not set(text) & set('"\\\t\x0b\x01')]
    shaped = [(SHAPES[0], value) for value in (*VALUES, *texts)]
    shaped += [(rng.choice(SHAPES[1:]), value) for value in VALUES]
    shaped += [(shape, "") for shape in ODD]
    records = [shape.format(n=number, v=value) for number, (shape, value) in enumerate(shaped)]
    took, left = compare_records_with_spark(
        spark, tmp_path, "json", columns, records, json_reader(columns, zone)
    )
    print(kind, "taken", took, "of", len(records), "left", [text[:60] for text in left])
    usual = [
        '{{"n":{n},"c":null,"s":"x"}}',
        *(f'{{{{"n":{{n}},"c":{text},"s":"x"}}}}' for text in USUAL_JSON[kind]),
    ]
    assert not set(left) & {text.format(n=number) for text in usual for number in range(len(records))}
    assert took >= 20


def a_file_of_csv(rng):
    separator = rng.choice([",", ",", ";", "|", "\t"])
    end = rng.choice(["\n", "\n", "\r\n"])
    names = [*"nts", *(["u"] if rng.random() < 0.3 else [])]
    rng.shuffle(names)
    values = {
        "n": lambda: rng.choice(
            ["", str(rng.randrange(100)), str(rng.randrange(100)), "7 ", "x"][: rng.choice([3, 3, 5])]
        ),
        "t": lambda: f"2022-03-01T10:00:{rng.randrange(60):02}" + rng.choice(["", ".5", ".25"]),
        "s": lambda: rng.choice(
            ["", "a", "\u00e4", '"a b"', f'"a{separator}b"', "it's", 'a"b'][: rng.choice([6, 6, 7])]
        ),
        "u": lambda: rng.choice(["", "u", "7"]),
    }
    records = [separator.join(values[name]() for name in names) for _ in range(rng.choice([0, 1, 5, 300]))]
    if rng.random() < 0.3:
        records.insert(
            rng.randint(0, len(records)),
            rng.choice(["", " ", separator, "\t", separator * 3, "a", "\x0b", "\r"]),
        )
    header = separator.join(rng.choice([name, name, name.upper()]) for name in names)
    text = (
        rng.choice(["", "", "\ufeff", end])
        + header
        + end
        + end.join(records)
        + rng.choice(["", end, end + end])
    )
    return names, separator, text


def test_random_files_of_csv_are_read_as_spark_reads_them(spark, tmp_path, monkeypatch, seed):
    hold_fixed(spark, "UTC")
    rng = random.Random(seed)
    print(f"seed {seed}")
    kinds, took = {"n": "INT", "t": "TIMESTAMP", "s": "STRING"}, 0
    count = at_effort(quick=12, full=40)
    for number in range(count):
        monkeypatch.setattr(text_files, "BLOCK", rng.choice([64, 500, 4 << 20]))
        names, separator, text = a_file_of_csv(rng)
        path = tmp_path / f"{number}.csv"
        path.write_text(text, encoding="utf-8", newline="")
        types = tuple((name, sql_type(kinds[name]) if name in kinds else None) for name in names)
        reader = CsvRows(types, separator, True, "UTC")
        mine = read_rows_or_reason(reader, path, kinds)
        if isinstance(mine, str):
            continue
        took += 1
        said = {"\t": "\\t"}.get(separator, separator)
        theirs = by_spark(spark, path, "csv", kinds, f", 'sep' = '{said}'")
        assert theirs.column(BROKEN).null_count == theirs.num_rows, text
        assert mine == rows_in(theirs, kinds), (seed, number, text)
        parts = sorted(rng.randint(40, max(40, len(text.encode()))) for _ in range(3))  # behind the header
        ends = [*parts, None]
        cut = [
            read_split_rows(reader, FileSplit(str(path), a, b), kinds)
            for a, b in zip([0, *parts], ends, strict=True)
        ]
        assert [row for rows in cut for row in rows] == mine
    assert count / 4 < took < count


def read_split_rows(reader, part, columns):
    kinds = {name: sql_type(text) for name, text in columns.items()}
    return [
        row
        for batch in reader.rows_of(part, kinds)
        for row in rows_in(pa.Table.from_batches([batch]), columns)
    ]


def test_headerless_csv_columns_are_matched_by_position(spark, tmp_path):
    hold_fixed(spark, "UTC")
    columns = {"n": "INT", "s": "STRING"}
    (tmp_path / "a.csv").write_text("n,s\n")
    assert "n" in read_rows_or_reason(csv_reader(columns, header=False), tmp_path / "a.csv", columns)
    (tmp_path / "a.csv").write_text("1,s\n2,\n")
    mine = read_rows_or_reason(csv_reader(columns, header=False), tmp_path / "a.csv", columns)
    assert mine == rows_in(
        by_spark(spark, tmp_path / "a.csv", "csv", columns, ", 'header' = 'false'"), columns
    )


def a_number(rng):
    """Of which it is not plain to which float it is to be rounded."""
    digits = "".join(rng.choice("0123456789") for _ in range(rng.choice([3, 9, 17, 18, 25, 60])))
    near = struct.unpack("<f", struct.pack("<I", rng.randrange(2, 0x7F000000)))[0]
    after = struct.unpack("<f", struct.pack("<I", struct.unpack("<I", struct.pack("<f", near))[0] + 1))[0]
    half = str((Decimal(near) + Decimal(after)) / 2)
    number = rng.choice(
        [
            *(
                f"{digits[:2]}.{digits[2:]}",
                f"0.{digits}e{rng.randint(-320, 300)}",
                repr(rng.uniform(-1e9, 1e9)),
            ),
            *(half, half[:12], f"{near!r}", f"1{digits}", f"{int(digits[:15])}.5"),
        ]
    )
    return number.replace("E+", "e").replace("e+", "e")


@pytest.mark.parametrize(
    "kind",
    [
        "DECIMAL(38,10)",
        *(pytest.param(f"DECIMAL({each})", marks=pytest.mark.full) for each in ("38,0", "38,38", "20,3")),
    ],
)
def test_random_decimals_have_the_digits_that_spark_gives_them(spark, tmp_path, kind, seed):
    """Of too many digits Arrow makes another number, and does not say so."""
    hold_fixed(spark, "UTC")
    rng = random.Random(seed)
    print(f"seed {seed}")
    columns, records = {"n": "INT", "c": kind, "s": "STRING"}, []
    for number in range(at_effort(quick=150, full=400)):
        digits = "".join(rng.choice("0123456789") for _ in range(rng.randint(1, 48)))
        point = rng.randint(0, len(digits))
        text = rng.choice(["", "-"]) + rng.choice([digits, f"{digits[:point]}.{digits[point:]}"])
        records.append(f"{number},{text}{rng.choice(['', '', '0' * 40])},x")
    took, _ = compare_records_with_spark(
        spark, tmp_path, "csv", columns, records, csv_reader(columns), "n,c,s\n"
    )
    assert took > (0 if kind == "DECIMAL(38,38)" else at_effort(quick=7, full=20))


def in_json(number):
    """JSON has no digits behind a 0, and one in front of a point."""
    whole, point, rest = number.removeprefix("-").partition(".")
    return "-" * number.startswith("-") + (whole.lstrip("0") or "0") + point + rest


def test_random_numbers_are_rounded_as_spark_rounds_them(spark, tmp_path, seed):
    hold_fixed(spark, "UTC")
    rng = random.Random(seed)
    print(f"seed {seed}")
    numbers = [a_number(rng) for _ in range(at_effort(quick=1_500, full=6_000))]
    of_float = [text if abs(float(text)) < 3e38 else "1.5" for text in numbers]
    kinds = {"n": "INT", "d": "DOUBLE", "f": "FLOAT"}
    records = [f"{n},{d},{f}" for n, (d, f) in enumerate(zip(numbers, of_float, strict=True))]
    (tmp_path / "a.csv").write_text("n,d,f\n" + "\n".join(records))
    mine = read_rows_or_reason(csv_reader(kinds), tmp_path / "a.csv", kinds)
    assert mine == rows_in(by_spark(spark, tmp_path / "a.csv", "csv", kinds), kinds), seed
    kinds = {"n": "INT", "d": "DOUBLE"}
    records = [f'{{"n": {n}, "d": {in_json(d)}}}' for n, d in enumerate(numbers)]
    (tmp_path / "a.json").write_text("\n".join(records))
    mine = read_rows_or_reason(json_reader(kinds), tmp_path / "a.json", kinds)
    assert mine == rows_in(by_spark(spark, tmp_path / "a.json", "json", kinds), kinds), seed


def test_supported_types_and_options_agree_across_modules():
    for name in (*COLUMNS, "BINARY", "ARRAY<INT>"):
        type_ = sql_type(name)
        is_read = type_.is_integer or type_.is_decimal or type_ in text_values._READERS
        assert of_text.is_text_type(type_) is is_read
    assert set(of_text._SUPPORTED_OPTIONS) == set(of_text._TYPE_CHECKS) == set(arrow_ingest.FILE_MEASURES)


def test_of_json_what_is_long_is_looked_at_in_no_time_or_left_to_spark(tmp_path):
    """Whatever is in it."""
    columns = {"n": "INT", "s": "STRING"}
    whole = ("x", '\\"', "\\\\", "1" * 899 + "x", '\\":', "[" * 800 + "{" * 90 + "}" * 900)
    for text in whole:
        for length, is_taken in ((49_900, True), (50_100, False), (8 << 20, False)):
            inner = (text * (length // len(text)))[:length] if text[0] != "[" else text
            inner += "x" * (length - len(inner)) if not inner.endswith("\\") or len(inner) % 2 == 0 else "\\"
            rows = 100 if length < 50_000 else 1
            (tmp_path / "a.json").write_text("\n".join([f'{{"n": 1, "s": "{inner}"}}'] * rows))
            began = time.monotonic()
            mine = read_rows_or_reason(json_reader(columns), tmp_path / "a.json", columns)
            assert time.monotonic() - began < 20
            assert len(mine) == rows if is_taken else "more than" in mine, (text[:9], length, mine[:200])


def test_a_clock_is_read_in_the_years_in_which_its_rules_were_compared(tmp_path):
    """Java and Python may have other ones of before 1970: who reads a tick would decide what is read."""
    columns = {"n": "INT", "t": "TIMESTAMP"}
    for text, of_place in (
        *(("1969-12-31T18:59:59", False), ("1969-12-31T19:00:00", True)),
        *(("2099-12-31T18:59:59", True), ("2099-12-31T19:00:00", False)),
        *(("1883-11-18T12:00:00", False), ("1883-11-18T12:00:00Z", True), ("", True)),
    ):
        (tmp_path / "a.csv").write_text(f"n,t\n1,{text}\n")
        mine = read_rows_or_reason(csv_reader(columns, "America/New_York"), tmp_path / "a.csv", columns)
        assert isinstance(mine, list) is of_place, (text, mine)
        assert isinstance(
            read_rows_or_reason(csv_reader(columns, "-05:00"), tmp_path / "a.csv", columns), list
        )
