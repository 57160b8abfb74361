"""Options by their names in lower case: Spark does not tell letters' cases apart, so nothing here may."""

from __future__ import annotations

from collections.abc import Mapping


def lowered(options: Mapping[str, str]) -> dict[str, str]:
    """
    >>> lowered({"multiLine": "True"})
    {'multiline': 'True'}
    """
    return {name.lower(): value for name, value in options.items()}


def is_true(options: Mapping[str, str], name: str) -> bool:
    """Whether a switch is on. ``options``: with names in lower case.

    >>> is_true({"multiline": " True"}, "multiline")
    True
    """
    return options.get(name, "").strip().lower() == "true"
