"""Regular expressions and LIKE over texts that Java's and Python's engines search for ages."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from watersmeet.expressions import patterns
from watersmeet.expressions.patterns import MAX_SIZE, java_pattern
from watersmeet.expressions.typed_tree import UnsupportedExpression

LETTERS = 28
"""Python tries 2^28 ways through so many: half a minute."""


@pytest.mark.parametrize("pattern", ["(a+)+$", "^(?:a|aa)+$", "([a-z]+)*b$", "(?i)(A|a)+$"])
def test_a_pattern_with_many_ways_takes_no_time(pattern):
    began = time.monotonic()
    text = pa.array(["a" * LETTERS + "!", "a" * 100_000 + "!\r\n", "aab"])
    regex = java_pattern(pattern).text
    found = pattern == "([a-z]+)*b$"
    assert patterns.is_match(text, regex).to_pylist() == [False, False, found]
    assert patterns.place_of_match(text, regex).to_pylist() == [0, 0, int(found)]
    assert patterns.first_match(text, regex).to_pylist() == [None, None, "aab" if found else None]
    assert patterns.count_matches(text, regex).to_pylist() == [0, 0, int(found)]
    assert patterns.replace_matches(text, regex, "").to_pylist()[0] == "a" * LETTERS + "!"
    assert time.monotonic() - began < 10


def test_a_like_with_many_wildcards_takes_no_time():
    began = time.monotonic()
    text, pattern = pa.array(["a" * 2_000]), "%a" * 8 + "%b"
    assert patterns.is_like_escaped(text, pattern, "!", False).to_pylist() == [False]
    assert patterns.is_like_escaped(text, pattern.upper(), "!", True).to_pylist() == [False]
    assert patterns.is_like_each(text, pa.array([pattern]), "\\", False).to_pylist() == [False]
    assert time.monotonic() - began < 10


def test_what_re2_does_not_repeat_is_left_to_spark():
    text = pa.array(["a" * MAX_SIZE])
    assert patterns.is_match(text, java_pattern(f"^a{{{MAX_SIZE}}}$").text).to_pylist() == [True]
    assert patterns.is_match(text, java_pattern("^(?:a{10}){100}$").text).to_pylist() == [True]
    for pattern in (f"a{{{MAX_SIZE + 1}}}", "(?:a{100}){11}", "(?:ab){501}", "(?:a{500}|b{501}){1,2}"):
        with pytest.raises(UnsupportedExpression):
            java_pattern(pattern)


@pytest.mark.parametrize("pattern", ["a$b", "(a$)b", "(?:a|$)*", "(a$)?", "$$", "$^"])
def test_an_end_before_something_else_is_left_to_spark(pattern):
    """RE2 matches the end of a last line, and cannot look at it alone."""
    with pytest.raises(UnsupportedExpression):
        java_pattern(pattern)
