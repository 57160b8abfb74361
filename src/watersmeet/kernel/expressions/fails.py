"""What a function of `kernel.expressions.functions` raises where Spark raises."""

from __future__ import annotations


class Fails(Exception):
    """A function raises for a row. ``row``: its place; ``condition``: as Spark names it."""

    def __init__(self, row: int, condition: str, what: str) -> None:
        super().__init__(row, condition, what)
        self.row, self.condition, self.what = row, condition, what
