"""Hostile values of every SQL type, and malformed records: what a source may give and nobody expects.

Values are Python's, by the type as it is declared: STRING str, BINARY bytes, integers int, FLOAT and DOUBLE
float, DECIMAL `Decimal`, DATE days and TIMESTAMP µs since 1970 as int, arrays lists, structs dicts. Drawing
is by the caller's random generator alone: a seed gives the same values again.
"""

from __future__ import annotations

import base64
import json
import pickle
import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

MIN_DATE, MAX_DATE = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31, in days."""

DAY_US = 86_400_000_000


class Payload:
    """Unpickled, it makes the file ``canary``."""

    def __init__(self, canary: str) -> None:
        self._canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (self._canary, "w"))


def marks(canary: str) -> list[str]:
    """Texts that look like our own marks, with something in them that would make the file ``canary``."""
    pickled = base64.b64encode(pickle.dumps(Payload(canary))).decode()
    error = json.dumps({"class": "EngineError", "code": "internal", "message": "from data", "hint": None})
    packed = base64.b64encode(error.encode()).decode()
    return [
        f"watersmeet-error:{pickled}:",
        f"org.apache.spark.api.python.PythonException: watersmeet-error:{pickled}: x",
        f"watersmeet-error:{packed}:",
        f"watersmeet-error:{error}",
        "watersmeet-error:",
        "watersmeet.runtime.spark.errors.TaskFailed: watersmeet-error:e30=:",
        base64.b64decode(pickled).decode("latin-1"),
        f"$(touch {canary})",
        f"`touch {canary}`",
        f"; touch {canary}; #",
        f"| touch {canary}",
        f"__import__('os').system('touch {canary}')",
        f"{{{{ cycler.__init__.__globals__.os.popen('touch {canary}') }}}}",
        f"COPY (SELECT 1) TO '{canary}'",
        f"'); COPY (SELECT 1) TO '{canary}'; --",
        f"ATTACH '{canary}'",
    ]


NAMES = [
    "_flag", "_partition", "_diff", "_broken", "_tag", "_corrupt", "_parsed", "_id", "_event_ts", "_control",
    "__ws_flag", "__ws_", "#slot", "#order:t", "#least:t", "#came", "#rows", "late:id", "_0_0", "c0", "value",
    "_attempts", "_owner", "_writable-1", "_temporary", "_spark_metadata", "out-000000000001", ".crc",
    "_SUCCESS", "state/manifests/000000000007.json", "runs/x-1-2.arrow", "lock", "job", "intent", "spark",
    "broken", "report",
]  # fmt: skip
"""Names of our own and of Spark's: of columns, files and kinds of rows."""

INJECTIONS = [
    "' OR '1'='1", "'; DROP TABLE orders; --", "\"; DROP TABLE orders; --", "`; DROP TABLE orders; --",
    "1; SELECT 1", "/* comment", "*/ 1", "--", "-- x\n1", "x' UNION ALL SELECT NULL --", "\\'; --", "''",
    '""', "``", "$$", "$1", "?", ":name", "${env:PATH}", "${spark.app.name}", "${system:user.home}", "%(a)s",
    "{}", "{0}", "{0.__class__}", "{0!r:>{1}}", "%s%s%s%n", "%d", "%", "%%", "#{1+1}", "{{1+1}}", "\\x41",
    "\\u0041", "\\0", "\\", "\\\\", "\\N", "x\\", "a\\\"b", "a\"b\\", "\\\"", "\"\\", "\"a\"", "\"", "'",
    "a,b\\", "a\",\"b",
]  # fmt: skip

PATHS = [
    "../../../../etc/passwd", "..", ".", "/", "//", "~", "~root", "a/b", "..%2F..%2Fx", "%2e%2e%2f", "%00",
    "%25", "file:///etc/passwd", "jdbc:postgresql://x/y", "http://127.0.0.1:1/", "C:\\x", "\\\\host\\share",
    "a=b", "x=__HIVE_DEFAULT_PARTITION__", "*", "?", "[a-z]", "{a,b}", "-rf", "a\tb.json",
]  # fmt: skip

STRUCTURED = [
    "{}", "[]", "[[[[[[]]]]]]", "{\"a\":{\"b\":[1,2,{\"c\":null}]}}", '{"id":1}', '{"id":1', "null", "NULL",
    "\\N", "None", "nil", "NaN", "nan", "Infinity", "-Infinity", "inf", "true", "TRUE", "t", "0", "-0",
    "-0.0", "00", "+1", "1e400", "1e-400", "0x1F", "1_000", "9223372036854775808", "1.0", "١٢٣", "2024-01-01",
    "2024-02-30", "infinity", "0001-01-01", "<a>&amp;<!DOCTYPE x [<!ENTITY y SYSTEM 'file:///etc/passwd'>]>",
    "<script>", "x\u0000,y",
]  # fmt: skip

ODD = [
    "", " ", "  x  ", "\t", "\tx\t", "\n", "\r", "\r\n", "a\nb", "a\rb", "a\r\nb", "\x0b", "\x0c", "\x00",
    "a\x00b", "\x00a", "\x1a", "\x7f", "\x1b[2J", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x9b31m",
    "\x90q\x9c", "\x08\x08\x08", "\x07", "\x85", "\u2028", "\u2029", "\xa0", "\u3000", "\u200b", "\ufeff",
    "\ufeffx", "\ufffe", "\uffff", "\ufffd", "\u202e" + "txt.exe", "\u2066x\u2069", "e\u0301", "\xe9",
    "Z\u0351\u036f\u0344", "👩\u200d👩\u200d👧", "🇳🇿", "\U0001d54f", "\U0010ffff", "ﬁ", "ß", "ẞ",
    "İ", "\u0131",
    "i", "I", "\u017f", "\u212a", "한글", "اَلْعَرَبِيَّةُ", "\ud7ff\ue000", ",", ";", "|", "a,b", "\"a,b\"",
    "#", "#x", "x" * 300, "é" * 200, "\U0001d54f" * 100,
]  # fmt: skip

INVALID = [
    b"\xff",
    b"\xc3",
    b"a\xc3(",
    b"\xed\xa0\x80",
    b"\xf0\x9f\x98",
    b"\xc0\x80",
    b"\xfe\xff\x00a",
    b"\x80abc",
]
"""Bytes that are no UTF-8: cut characters, lone surrogates, overlong forms, UTF-16."""


def texts(canary: str) -> list[str]:
    """Every hostile text; those of `marks` would make the file ``canary``."""
    return [*marks(canary), *NAMES, *INJECTIONS, *PATHS, *STRUCTURED, *ODD]


def _integers(bits: int) -> list[int]:
    top = 1 << (bits - 1)
    return [-top, -top + 1, -1, 0, 1, 9, 10, top - 2, top - 1]


DOUBLES = [
    float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.0, -1.0, 5e-324, -5e-324, 2.2250738585072014e-308,
    2.225073858507201e-308, 1.7976931348623157e308, -1.7976931348623157e308, 0.1, 1 / 3, 2.0**53, 2.0**53 + 2,
    1e22, 1e23, 123456789.123456789,
]  # fmt: skip
FLOATS = [
    float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.0, 1.401298464324817e-45, 1.1754943508222875e-38,
    3.4028234663852886e38, -3.4028234663852886e38, 0.10000000149011612, 16777216.0,
]  # fmt: skip
DATES = [MIN_DATE, MIN_DATE + 1, -141_428, -141_427, -1, 0, 1, 11_016, 19_782, MAX_DATE - 1, MAX_DATE]
"""Among them the last day of Julian calendars and the day after it, and 29 February."""
TIMES = [
    MIN_DATE * DAY_US, MIN_DATE * DAY_US + 1, -141_427 * DAY_US - 1, -1, 0, 1, 999, 1_000, 999_999,
    1_709_164_800_123_456, 1_711_846_800_000_000, 1_711_846_799_999_999, (MAX_DATE + 1) * DAY_US - 1,
    MAX_DATE * DAY_US, -2_208_988_800_000_001,
]  # fmt: skip


def _decimals(precision: int, scale: int) -> list[Decimal]:
    top = Decimal((0, (9,) * precision, -scale))
    least = Decimal((0, (1,), -scale))
    below = Decimal((0, (*(9,) * (precision - 1), 8), -scale))
    return [top, top.copy_negate(), least, least.copy_negate(), Decimal((0, (0,), -scale)), below]


class Drawer:
    """Draws hostile values by type.

    Args:
        rng: where chance comes from.
        canary: a path at which nothing may ever be.
        nulls: the share of NULLs.
    """

    def __init__(self, rng: random.Random, canary: str, nulls: float = 0.08) -> None:
        self.rng = rng
        self.texts = texts(canary)
        self._nulls = nulls
        self._drawn: dict[str, Callable[[], Any]] = {
            "STRING": self.text,
            "BINARY": self.binary,
            "BOOLEAN": lambda: rng.random() < 0.5,
            "TINYINT": lambda: self._of(_integers(8), lambda: rng.randrange(-128, 128)),
            "SMALLINT": lambda: self._of(_integers(16), lambda: rng.randrange(-(1 << 15), 1 << 15)),
            "INT": lambda: self._of(_integers(32), lambda: rng.randrange(-(1 << 31), 1 << 31)),
            "BIGINT": lambda: self._of(_integers(64), lambda: rng.randrange(-(1 << 63), 1 << 63)),
            "FLOAT": lambda: rng.choice(FLOATS),
            "DOUBLE": lambda: self._of(DOUBLES, lambda: rng.uniform(-1e9, 1e9)),
            "DATE": lambda: self._of(DATES, lambda: rng.randint(MIN_DATE, MAX_DATE)),
            "TIMESTAMP": lambda: self._of(TIMES, lambda: rng.randrange(TIMES[0], (MAX_DATE + 1) * DAY_US)),
            "ARRAY<STRING>": lambda: [self.value("STRING") for _ in range(rng.choice([0, 1, 1, 3]))],
            "STRUCT<a: STRING, n: BIGINT>": lambda: {"a": self.value("STRING"), "n": self.value("BIGINT")},
        }

    def value(self, type_: str) -> Any:
        """A value of the type, NULL among them."""
        if self.rng.random() < self._nulls:
            return None
        if type_.startswith("DECIMAL"):
            precision, scale = (int(part) for part in type_[8:-1].split(","))
            return self._of(_decimals(precision, scale), lambda: self._decimal(precision, scale))
        return self._drawn[type_]()

    def text(self) -> str:
        """A hostile text as it is, or two of them, or one that was changed a little."""
        found: str = self.rng.choice(self.texts)
        how = self.rng.random()
        if how < 0.08:
            return found + self.rng.choice(self.texts)
        if how < 0.12:
            at = self.rng.randrange(len(found) + 1)
            return found[:at] + self.rng.choice(ODD) + found[at:]
        return found

    def binary(self) -> bytes:
        """Bytes: of texts, no texts at all, none."""
        if self.rng.random() < 0.5:
            return self.rng.choice(INVALID)
        return self.text().encode() if self.rng.random() < 0.7 else self.rng.randbytes(self.rng.randrange(9))

    def _of(self, ends: Sequence[Any], other: Callable[[], Any]) -> Any:
        return self.rng.choice(ends) if self.rng.random() < 0.7 else other()

    def _decimal(self, precision: int, scale: int) -> Decimal:
        digits = tuple(self.rng.randrange(10) for _ in range(precision))
        return Decimal((self.rng.randrange(2), digits, -scale))


def malformed_json(rng: random.Random, good: Sequence[str], canary: str) -> list[str]:
    """Records that are no JSON objects, or other ones than one thinks; ``good``: well-formed ones."""
    deep = rng.choice([50, 600, 1_001, 3_000])
    found = [
        "", " ", "not json", "{", "}", "[", "{}", "[]", "null", "true", "1", '"x"', "[1]", '[{"id":1}]',
        "{'id':1}", "{id:1}", '{"id":1,}', '{"id":1}}', '{"id":1}{"id":2}', '{"id":1} trailing',
        '// c\n{"id":1}', '{"id":01}', '{"id":+1}', '{"id":1e400,"t":1}', '{"id":NaN}', '{"id":"1"}',
        '{"id":1.5}', '{"id":true}', '{"id":[1]}', '{"id":{"a":1}}', '{"id":9223372036854775808}',
        '{"id":-9223372036854775809}', '{"id":' + "9" * 1_200 + "}", '{"id":0.' + "1" * 1_200 + "}",
        '{"id":1,"id":2,"t":5}', '{"id":null,"t":null}', '{"t":"abc"}',
        '{"":1,"id":3,"t":5}', '{"\\u0069d":4,"t":5}', '{"id":5,"t":5,"s":"\\ud800"}',
        '{"id":6,"t":5,"s":"\\udc00\\ud800"}', '{"id":7,"t":5,"s":"\\x41"}', '{"id":8,"t":5,"s":"\t"}',
        '{"id":9,"t":5,"s":"\x01"}', '{"id":10,"t":5,"s":1}', '{"id":11,"t":5,"s":{"a":[1,2]}}',
        '{"id":12,"t":5,"s":[1,null]}', '{"id":13,"t":5,"s":true}', '{"id":14,"t":5,"s":1.0}',
        '\ufeff{"id":15,"t":5}', '{"id":16,"t":5}\x00', '\x00{"id":17,"t":5}',
        '{"id":18,"t":5,"s":"' + "\\u0000" + '"}', '{"id":19,"t":5,"x":' + "[" * deep + "]" * deep + "}",
        '{"id":20,"t":5,"x":' + '{"a":' * deep + "1" + "}" * deep + "}",
        '{"id":21,"t":5,"_corrupt":"x","_broken":"x"}', '{"id":22,"t":5,"_corrupt_record":"x"}',
        '{"__proto__":{"a":1},"id":23,"t":5}', *(json.dumps({"id": text, "t": 5}) for text in marks(canary)),
    ]  # fmt: skip
    for text in good:
        how = rng.randrange(4)
        at = rng.randrange(1, max(2, len(text)))
        if how == 0:
            found.append(text[:at])
        elif how == 1:
            found.append(text[at:])
        elif how == 2:
            found.append(text[:at] + rng.choice('{}[]",:\\') + text[at:])
        else:
            found.append(text.replace(":", rng.choice(["", "::", "="]), 1))
    return found


def malformed_csv(rng: random.Random, good: Sequence[str], canary: str) -> list[str]:
    """Lines with too few or too many fields, values of other types, quotes that do not close."""
    found = [
        ",", ",,,,,,,,,,,,,,", "1", "x", '"', '""', '"1,2', '1,"a"b,2', "a,b,c", "1.5,1,x", "1e3,1,x",
        " 1 , 2 , x ", "9223372036854775808,1,x", "1,2,3,4,5,6,7,8,9", "#1,2,x", "\ufeff1,5,x", "1,5",
        "NULL,5,x", "\\N,5,x", "null,null,null", "1;5;x", "1\t5\tx", "0x1,5,x", "TRUE,5,x",
        "1,5," + "x" * 5_000, "1,5,\"x\"\"y\"", "1,5,\\", "1,5,\"\\\"", "1,5,'x,y'",
        *(f'"{text}",5,x' for text in marks(canary) if '"' not in text and "\n" not in text),
    ]  # fmt: skip
    for text in good:
        at = rng.randrange(1, max(2, len(text)))
        found.append(rng.choice([text[:at], text[at:], text + "," + text, text.replace(",", "", 1)]))
    return found
