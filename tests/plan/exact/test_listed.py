"""The list itself: every function on it is tried against Spark."""

from __future__ import annotations

import re

from tests.plan.exact import test_operators_on_spark
from watersmeet.plan.exact import FUNCTIONS

TRIED = [test_operators_on_spark.EXPRESSIONS]


def test_every_function_on_the_list_is_tried():
    tried = {
        name.lower() for texts in TRIED for text in texts for name in re.findall(r"\b([a-z_0-9]+)\(", text)
    }
    assert set(FUNCTIONS) - tried == set()
