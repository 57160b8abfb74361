"""The forms in which a run is logged."""

from __future__ import annotations

from enum import Enum


class LogFormat(Enum):
    """Lines for people, or an object of JSON each."""

    TEXT = "text"
    JSON = "json"
