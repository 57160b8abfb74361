"""The join that most tests of jobs in this process are about."""

from __future__ import annotations

from typing import Any

from watersmeet import local

TYPES = {"t": "BIGINT", "k": "STRING"}


def build_join_condition(within: int = 3) -> local.AllOf:
    """Equal keys, and the right time at most so much past the left one."""
    return local.AllOf(
        local.Equal(local.left("k"), local.right("k")),
        local.Between(local.right("t"), local.left("t"), local.left("t") + within),
    )


def left_join(**more: Any) -> local.JoinSpec:
    """A LEFT JOIN of two streams with a lag of 5; ``more``: what is otherwise."""
    given: dict[str, Any] = {
        "left": TYPES,
        "right": TYPES,
        "left_times": {"t": 5},
        "right_times": {"t": 5},
        "condition": build_join_condition(),
        "how": "left",
        "outputs": {"k": local.left("k"), "u": local.right("t")},
    }
    return local.JoinSpec(**given | more)
