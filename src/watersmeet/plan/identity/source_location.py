"""Where a source's rows come from: offsets of one path or topic mean nothing for another one."""

from __future__ import annotations

from watersmeet.plan.identity.origins import digest_of
from watersmeet.spec.model import Source
from watersmeet.spec.secrets import public_option


def place_of(source: Source) -> str:
    """Return a digest of the location that the rows of a source come from.

    Offsets of one path or topic have no meaning for another.
    """
    return digest_of([source.connector, *source_location(source)])


def source_location(source: Source) -> list[str]:
    """Return the options that say where a source's rows come from, as written."""
    named = {key.lower(): value for key, value in source.options.items()}
    return [f"{key}={named[key]}" for key in ("path", "topic", "topics", "subscribepattern") if key in named]


def readable_place(source: Source) -> dict[str, str]:
    """Return where a source's rows come from, for messages: its connector, and its path or topic."""
    options = dict(option.split("=", 1) for option in source_location(source))
    return {"connector": source.connector} | {key: public_option(key, own) for key, own in options.items()}
