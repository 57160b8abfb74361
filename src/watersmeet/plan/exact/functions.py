"""Rule: the functions on the list, of all families, by Spark's name. Operators are in `compiler`."""

from __future__ import annotations

from watersmeet.plan.exact import choices, numbers, texts, times
from watersmeet.plan.exact.rules import Rule

FUNCTIONS: dict[str, Rule] = {**choices.FUNCTIONS, **numbers.FUNCTIONS, **texts.FUNCTIONS, **times.FUNCTIONS}
