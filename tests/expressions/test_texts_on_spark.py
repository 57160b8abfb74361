# ruff: noqa: E501, RUF001
"""Functions of texts: what tasks compute is what Spark computes."""

from __future__ import annotations

import random
from datetime import date, datetime
from decimal import Decimal

import pytest

from tests.expressions.checking import check, table_of

TYPES = {
    "s": "STRING",
    "u": "STRING",
    "w": "STRING",
    "n": "INT",
    "b": "BIGINT",
    "p": "BOOLEAN",
    "y": "BINARY",
    "d": "DATE",
    "q": "STRING",
}

EXPRESSIONS = [
    *(f"{function}(s1)" for function in (
        "length", "len", "char_length", "character_length", "octet_length", "bit_length", "reverse", "upper", "ucase",
        "lower", "lcase", "initcap", "trim", "ltrim", "rtrim", "btrim", "ascii", "soundex", "luhn_check", "mask", "quote",
        "typeof", "collation", "string")),
    *(f"{function}(y1)" for function in ("length", "octet_length", "bit_length", "char_length", "reverse", "typeof")),
    "upper(concat(w1, s1, w2))", "lower(concat(w1, s1, w2))", "initcap(concat(w1, s1, w2))", "lower(u1)", "upper(u1)", "initcap(u1)",
    "upper(n1)", "length(b1)", "trim(concat(' ', s1, w1))", "ltrim(w1, s1)", "rtrim(w1, s1)", "trim(w1, s1)", "btrim(s1, w1)",
    "trim(BOTH w1 FROM s1)", "trim(LEADING 'a' FROM s1)", "trim(TRAILING w1 FROM s1)", "trim(BOTH FROM s1)", "btrim(s1, 'a b')",
    "lpad(s1, n1)", "rpad(s1, n1)", "lpad(s1, n1, w1)", "rpad(s1, n1, w1)", "lpad(s1, 5, 'é😀')", "lpad(n1, 12, '0')", "rpad(s1, 3)",
    "repeat(s1, n1)", "repeat(s1, 3)", "space(n1)", "replace(s1, w1)", "replace(s1, w1, w2)", "replace(s1, 'a', 'éé')",
    "replace(s1, '', 'x')", "replace(s1, 'ab')", "translate(s1, w1, w2)", "translate(s1, 'abé', 'x')", "translate(s1, 'aab', 'xyz')",
    "overlay(s1, w1, n1)", "overlay(s1, w1, n1, n2)", "overlay(s1 PLACING 'xy' FROM 2 FOR 1)", "overlay(s1 PLACING w1 FROM 3)", "overlay(y1, y2, n1, n2)",
    "left(s1, 2)", "left(s1, 0)", "left(s1, -1)", "left(s1, n1)", "left(y1, n1)", "right(s1, n1)", "right(s1, 2)",
    "substring(s1, 2, 3)", "substr(s1, 2)", "substring(s1, n1)", "substring(s1, n1, n2)", "substring(s1, -3)", "substring(s1, -3, 2)",
    "substring(s1, 0, 2)", "substring(y1, n1, n2)", "substring(s1 FROM 2 FOR 2)", "substr(b1, 2, 2)",
    "substring_index(s1, w1, n1)", "substring_index(s1, 'a', -1)", "substring_index(s1, '.', 2)", "split_part(s1, w1, n1)",
    "split_part(s1, 'a', 2)", "split_part(s1, '.', -1)", "instr(s1, w1)", "instr(s1, 'b')", "locate(w1, s1)", "locate(w1, s1, n1)",
    "position(w1, s1)", "position('b', s1, 2)", "position(w1 IN s1)", "find_in_set(w1, s1)", "find_in_set(s1, 'a,b,,ab')",
    *(f"{function}({one}, {two})" for function in ("contains", "startswith", "endswith") for one, two in (
        ("s1", "w1"), ("s1", "'a'"), ("s1", "''"), ("y1", "y2"), ("b1", "n1"))),
    "concat(s1, s2)", "concat(s1, n1, p1)", "concat(y1, y2)", "concat(s1)", "s1 || s2", "s1 || n1", "y1 || y2",
    "concat_ws(w1, s1, s2)", "concat_ws(',', s1, n1, NULL)", "concat_ws('-')", "concat_ws(s1, w1)",
    "elt(CASE WHEN n1 = 1 THEN 1 ELSE 2 END, s1, w1)", "elt(2, s1, n1)", "chr(n1)", "chr(b1)", "char(n1)",
    "levenshtein(s1, s2)", "levenshtein(s1, w1)", "levenshtein(s1, s2, 2)", "levenshtein(s1, s2, 0)", "luhn_check(b1)",
    "mask(s1, 'Q', 'q', 'd', 'o')", "mask(s1, NULL, NULL, '9')", "format_string('%s-%d%%%s', s1, n1, p1)", "printf('%d', b1)", "format_string('a%%b')",
    "typeof(b1)", "typeof(d1)", "typeof(p1)", "typeof(NULL)",
    *(f"y1 {op} y2" for op in ("=", "<>", "<", "<=", ">", ">=", "<=>")), "y1 IN (y2)", "greatest(y1, y2)", "coalesce(y1, y2)", "y1 IS NULL",
]  # fmt: skip

HASHED = {
    "k": "TINYINT",
    "l": "SMALLINT",
    "f": "FLOAT",
    "x": "DOUBLE",
    "m": "DECIMAL(18,3)",
    "ts": "TIMESTAMP",
    "e": "STRING",
}
TYPES |= HASHED
EXPRESSIONS += [
    *(f"{function}({column})" for function in ("md5", "sha", "sha1", "crc32", "base64", "hex", "is_valid_utf8", "make_valid_utf8") for column in ("y1", "s1", "e1")),
    *(f"sha2(s1, {bits})" for bits in ("256", "n1", "0", "224", "384", "512", "1")), "hex(b1)", "hex(n1)", "unhex(e1)", "unhex(s1)", "unhex(hex(y1))",
    *(f"encode(s1, '{charset}')" for charset in ("UTF-8", "US-ASCII", "ISO-8859-1", "utf-16", "UTF-16BE", "UTF-16LE", "UTF-32")),
    *(f"decode(y1, '{charset}')" for charset in ("UTF-8", "US-ASCII", "ISO-8859-1", "UTF-16BE", "UTF-16LE")), "decode(encode(s1, 'UTF-8'), 'UTF-8')",
    "to_binary(s1, 'utf-8')", "to_binary(e1)", "try_to_binary(e1, 'hex')", "validate_utf8(y1)", "try_validate_utf8(y1)", "validate_utf8(s1)", "url_encode(s1)", "url_decode(e1)",
    "try_url_decode(e1)", "url_decode(url_encode(s1))", "binary(s1)", "CAST(s1 AS BINARY)",
]  # fmt: skip
PATTERNS = (
    "a", "^a", "b$", "^$", ".", "a.b", "[a-cé]+", "[^a-z]", r"\\d+", r"\\w+", r"\\s", r"\\W", "(a)(b)?", "(?:ab|b)+?", "a{2,3}", "(?i)AB", r"(\\w)[.,](\\w)",
    "😀", "x|$", "[-.]", r"[\\d.]+", r"\\.", "a*", "(a|b)*", r"^\\s*(.*?)\\s*$", "[Σσ]", "\\n$", "$",
    r"\\r$", r"\\r?\\n?$", "[^b]*?$", "[^b]+$", "(?:a|b$)", "(?i)[h-k]", "(?i)s", r"[^\\s]", r"[\\t-.]", r"[\\w.]{2,3}?", "(a+)+$", r"(?i)[^\\wk]", "(?:(?:a|b)?[.,])+",
)  # fmt: skip
COUNTED = (
    "^a",
    "b$",
    "[ab]$",
    r"\\s$",
    r"\\s+$",
    r"\\s+?$",
    "^a|b",
    "^[^b]|b$",
    r"\\r|[^a]$",
    "[^a]",
    "(?i)K",
    "aa?",
    "(?:a|b$)",
    r"[\\r\\n]{2}$",
)
EXPRESSIONS += [
    *(f"s1 {op} '{pattern}'" for op in ("RLIKE",) for pattern in PATTERNS[::5]), "regexp(s1, 'a')", "rlike(s1, 'b.')", "regexp_like(s1, '^.b')",
    *(f"regexp_instr(s1, '{pattern}')" for pattern in PATTERNS), *(f"regexp_substr(s1, '{pattern}')" for pattern in PATTERNS[:4]),
    *(f"regexp_count(s1, '{pattern}')" for pattern in PATTERNS[4:12]), *(f"regexp_extract(s1, '{pattern}', 0)" for pattern in PATTERNS[9:]),
    *(f"regexp_count(s1, '{pattern}')" for pattern in COUNTED), *(f"regexp_replace(s1, '{pattern}', '<$0>')" for pattern in COUNTED), r"regexp_extract(s1, '(.*?)([ab]?)$', 2)",
    "regexp_extract(s1, '(a)(b)?', 2)", "regexp_extract(s1, '(a)(b)?')", r"regexp_extract(s1, '([^.]*)[.](.*)', 2)", "regexp_replace(s1, '[ab]', '')", "regexp_replace(s1, '(a)(b)?', '<$2$1$0>')",
    r"regexp_replace(s1, '[^a-z]+', '\\$-')", "regexp_replace(s1, '.', 'é')", "regexp_replace(s1, 'b$', '😀')", "regexp_extract(b1, '1(.)', 1)",
    "s1 LIKE 'a%'", "s1 LIKE '_b%'", "s1 LIKE '%é'", "s1 NOT LIKE 'a%'", r"s1 LIKE '%\\\\%'", r"s1 LIKE '\\_%'", "s1 LIKE '%..%' ESCAPE '.'", "s1 LIKE '!_%' ESCAPE '!'",
    "s1 ILIKE 'A%'", "s1 ILIKE '%σ'", "s1 NOT ILIKE '%İ%'", "ilike(s1, w1)", "like(s1, w1)", "s1 LIKE w1", "like(s1, 'a!%', '!')", "s1 ILIKE 'i%'", "s1 LIKE ANY ('a%', '%b')", "s1 LIKE ALL ('a%', '%b')",
    "s1 NOT LIKE ANY ('a%', '%b')", "s1 NOT LIKE ALL ('a%', '%b')", "s1 LIKE q1", "s1 ILIKE q1", "b1 LIKE '2%'",
]  # fmt: skip

ODD = [
    "", " ", "\t", "\u00a0", "\u3000", "\0", " a ", "\ta\n", "a", "b", "ab", "Ab", "aab", "a.b.c", "a,b,,ab", ",", "ß", "ŉ", "İ", "ı", "ﬁ", "Σ", "ΑΣ", "ΑΣ Σ",
    "Σ\u0301", "ა", "Ა", "Ꭰ", "ꭰ", "ǆ", "ǅ", "e\u0301", "é", "😀", "a😀b", "\U00010d50", "ΑΣ\u0897", "K", "ſ",
    "Ashcraft", "wHwbfhPvcgs", "bhwb", "b-hb",
    "Robert", "Rupert", "Tymczak", "Pfister", "Honeyman", "ROBERT", "8112189876", "79927398713", "٣٤", "1 2", "it's", "a\\b", "AbC-123 é",
    "\n", "ab\n", "ab\r\n", "b\u2028", "b\u0085", "b\n\n", "xb\ny", "\r", "a\r", "\r\n", "b\n\r", "b\r\nb", "b\r\r\n", "ab \n", "ab \r\n", " \n\n", "k1", "K2", "a%b", "a_b", "_b", "x" * 50, "kitten", "sitting",
]  # fmt: skip


def pools(rng: random.Random) -> dict[str, list]:
    letters = "aAbBΣσςİı é😀.,\u0301ß'\\1\0\t"
    drawn = ["".join(rng.choices(letters, k=rng.randrange(8))) for _ in range(150)]
    drawn += ["".join(rng.choices("bfhwcgHW lmnae", k=9)) for _ in range(30)]
    anywhere = [chr(n) for _ in range(500) if not 0xD800 <= (n := rng.randrange(0x30000)) <= 0xDFFF]
    return {
        "s": [*ODD, *drawn, None], "u": [*anywhere, "ʕΣ", "\u1c89Σ", "\ua7cb", None], "w": ["", " ", "a", "b", "ab", "Σ", "é", "a😀", ".", ",", "ba", "\0", *drawn[:20], None],
        "n": [0, 1, -1, 2, -2, 3, -3, 5, 65, 10, None], "b": [0, 1, -1, 255, 256, 300, 2**63 - 1, -(2**63), 18, 4242, None],
        "p": [True, False, None], "d": [None, date(2024, 2, 29), date(1, 1, 1)], "k": [0, 1, -1, 127, -128, None], "l": [0, 1, -1, 32767, -32768, None],
        "f": [0.0, -0.0, 1.5, float("nan"), float("-inf"), 1e-45, None], "x": [0.0, -0.0, 1.5, float("nan"), float("inf"), 5e-324, -1e300, None],
        "m": [Decimal("0.000"), Decimal("-0.001"), Decimal("999999999999999.999"), Decimal("-999999999999999.999"), None],
        "ts": [datetime(1, 1, 1), datetime(2024, 3, 10, 7, 0, 0, 1), datetime(9999, 12, 31), None],
        "e": ["%41%zz", "%e9", "a+b%20c", "%", "%4", "%+1%１１", "%-1", "%C3%A9", "%F0%9F%98%80x", "%ff%C3", "%E0%80%41", "0aFF", "abc", "zz", "", "%Ａa", "%\U0001d7d8",
              *("".join(rng.choices("%%%CE0A98f+4", k=rng.randrange(9))) for _ in range(150)), *("y" * n for n in range(30, 70)), "é" * 100, None], "q": ["%", "a%", "_", "__", "%b%", "\\%%", "%\\\\%", "Σ%", "", "A_", "%.%", None],
        "y": [b"", b"a", b"\0", b"\xff\xfe", b"ab", "é".encode(), b"abc\x80", *(rng.randbytes(rng.randrange(6)) for _ in range(20)), None],
    }  # fmt: skip


@pytest.mark.spark
def test_tasks_compute_of_texts_what_spark_computes(spark, request, monkeypatch):
    seed = request.config.watersmeet_seed
    rows = table_of(TYPES, pools(random.Random(seed)), seed, rows=1500)
    check(spark, EXPRESSIONS, rows, TYPES, "UTC", monkeypatch)
