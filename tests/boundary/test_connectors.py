"""Who wants to know what a connector can do asks its table, not for its name."""

from __future__ import annotations

import re

import pytest

from tests.support.package_paths import PACKAGE, find_paths
from watersmeet.errors import SpecError
from watersmeet.spec.connectors import BY_NAME, CONNECTORS, connector_of

BY_ITS_NAME = {
    "spec/options/targets.py": "each names its targets by options of its own",
    "runtime/local/sources.py": "rows of tests, which no other connector holds",
}
"""Modules that go by names, and why."""


def test_nobody_compares_names_of_connectors():
    asked = re.compile(r"""connector\s*(==|!=|in\b|not in\b)\s*[("']""")
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in find_paths(PACKAGE, "**/*.py")
        if asked.search(path.read_text())
    }
    assert found == set(BY_ITS_NAME)


def test_connector_names_are_unique_and_lowercase():
    assert len(BY_NAME) == sum(1 + len(each.aliases) for each in CONNECTORS.values())
    assert all(name == name.lower() for name in BY_NAME)


def test_an_unknown_one_is_refused():
    with pytest.raises(SpecError, match="no connector"):
        connector_of("kafkaesque")
