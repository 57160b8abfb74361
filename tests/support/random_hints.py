"""Random cases with BROADCAST hints: of any case, those inputs hinted that may be."""

from __future__ import annotations

import random

from watersmeet.errors import WatersmeetError
from watersmeet.parser.case_file import case_job
from watersmeet.plan.planner import plan_job
from watersmeet.testing.cases import Case

_WORDS = ("BROADCAST", "BROADCASTJOIN", "MAPJOIN", "broadcast")


def add_random_hint(case: Case, number: int) -> Case | None:
    """The case with a hint after its first SELECT; None if it cannot be run, or nothing in it be hinted."""
    rng = random.Random(f"hints {number}")
    head, select, rest = case["query"].partition("SELECT ")
    if head:
        return None
    try:
        plan = plan_job(case_job(case))
    except WatersmeetError:
        return None
    aliases = [side.name for side in plan.queries[0].sides if "." not in side.name]
    rng.shuffle(aliases)
    names: list[str] = []
    found = None
    for alias in aliases[: rng.choice([1, 1, 2, 3])]:
        asked = ", ".join([*names, alias])
        query = f"{select}/*+ {rng.choice(_WORDS)}({asked}) */ {rest}"
        try:
            plan_job(case_job({**case, "query": query}))
        except WatersmeetError:
            continue
        names.append(alias)
        found = {**case, "case": f"{case['case']}-hinted", "query": query}
    return found
