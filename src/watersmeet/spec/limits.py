"""The numbers within which settings of a job may be chosen, and what they are if nobody does."""

from __future__ import annotations

TASK_MEMORY = 1 << 30
"""Bytes that one task may hold at once, unless the job says otherwise."""
LEAST_TASK_MEMORY = 16 << 20

LEAST_KEPT_TICKS, MOST_KEPT_TICKS = 2, 10_000
"""Ticks whose state is kept, the newest among them: the one before it is kept in any case."""
