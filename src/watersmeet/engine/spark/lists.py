"""An accumulator of lists: how what tasks say beside their rows comes to the driver."""

from __future__ import annotations

from typing import Any

from pyspark import AccumulatorParam


class Lists(AccumulatorParam[list[Any]]):
    """Lists, put together."""

    def zero(self, value: list[Any]) -> list[Any]:
        return []

    def addInPlace(self, value1: list[Any], value2: list[Any]) -> list[Any]:
        value1.extend(value2)
        return value1
