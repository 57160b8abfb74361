"""Compare docs/users/reference/errors.md with the code: each code of an error, no other, and its messages."""

from __future__ import annotations

import re

from tests.support.error_codes import (
    COMPOSED,
    NO_CODES,
    all_codes,
    is_known_message,
    kebab_texts,
    list_code_templates,
)
from tests.support.package_paths import REPOSITORY

PAGE = REPOSITORY / "docs" / "users" / "reference" / "errors.md"
ROWS = re.findall(r"^\| `([a-z0-9-]+)` \| `(.+?)` \| (.*) \|$", PAGE.read_text(), re.MULTILINE)


def test_every_code_has_its_row_and_no_other():
    listed = [code for code, _, _ in ROWS]
    assert listed == list(dict.fromkeys(listed))
    assert set(listed) - all_codes() == set(), "no error has these codes"
    assert all_codes() - set(listed) == set(), "without a row (or no codes: tests/support/error_codes.py)"


def test_composed_error_codes_are_listed():
    """Those that the source does not spell out are listed by hand."""
    assert list_code_templates() == set(COMPOSED)


def test_texts_that_are_no_codes_are_texts_of_the_source():
    assert NO_CODES - kebab_texts() == set(), "the source has no such texts: correct NO_CODES"


def test_messages_are_such_as_the_code_says():
    unsaid = [(code, text) for code, text, _ in ROWS if not is_known_message(code, text)]
    assert unsaid == []


def test_each_row_says_what_to_do():
    assert [code for code, _, rest in ROWS if not rest.strip(" |")] == []
