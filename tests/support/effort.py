"""How many random cases a run of the tests plays: as many as a run of all tests has the time for, unless the
variable WATERSMEET_RANDOM_CASES says otherwise. Tests take a share of it, which goes by what a case costs.
"""

from __future__ import annotations

import os


def random_cases(otherwise: int) -> int:
    """What the variable says, or so many."""
    return int(os.environ.get("WATERSMEET_RANDOM_CASES", "0")) or otherwise


RANDOM_CASES = random_cases(920)
