"""Values that options of Spark's readers, writers and parsers can have."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Callable, Mapping
from enum import Enum

from watersmeet.errors import SpecError, near_names
from watersmeet.spec.secrets import public_option
from watersmeet.spec.time_zones import pattern_problem, zone_named

# Options by their names in lower case: Spark does not tell letters' cases apart, so nothing here may.


def lower_names(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with their names in lower case.

    >>> lower_names({"multiLine": "True"})
    {'multiline': 'True'}
    """
    return {name.lower(): value for name, value in options.items()}


def is_true(options: Mapping[str, str], name: str) -> bool:
    """Return True if a switch is on.

    Args:
        options: Options with names in lower case.

    >>> is_true({"multiline": " True"}, "multiline")
    True
    """
    return options.get(name, "").strip().lower() == "true"


# Which values the options of Spark's readers, writers and parsers of files can have.
#
# Spark refuses most others when it first reads, some in each record, and a few it passes over in silence.
# What it refuses was found out by asking it; a test asks again.


class Use(Enum):
    """Use of an option: to read files, to write files, or to parse records of a log."""

    READ = "read"
    WRITE = "write"
    PARSE = "parse"


ENCODINGS = ("UTF-8", "US-ASCII", "ISO-8859-1", "UTF-16", "UTF-16BE", "UTF-16LE", "UTF-32")
WIDE = ("UTF-16", "UTF-16BE", "UTF-16LE", "UTF-32")
"""Of the encodings that there are, those in which a byte of ASCII may be a part of another character."""
SYNONYMS = (("sep", "delimiter"), ("encoding", "charset"), ("compression", "codec"))
"""Two names of one option each: of the first, if both are said."""

_SWITCHES = frozenset(
    {
        "latestfirst", "filenameonly", "recursivefilelookup", "ignorecorruptfiles", "ignoremissingfiles",
        "header", "multiline", "enforceschema", "mergeschema", "ignoreleadingwhitespace", "pretty",
        "ignoretrailingwhitespace", "ignorenullfields", "quoteall", "escapequotes", "primitivesasstring",
        "allowcomments", "allowunquotedfieldnames", "allowsinglequotes", "allownumericleadingzeros",
        "allowbackslashescapinganycharacter", "allowunquotedcontrolchars", "allownonnumericnumbers",
        "enabledatetimeparsingfallback", "writenonasciicharacterascodepoint",
    }
)  # fmt: skip
_QUOTE_HANDLING = (
    "STOP_AT_CLOSING_QUOTE", "BACK_TO_DELIMITER", "STOP_AT_DELIMITER", "SKIP_VALUE", "RAISE_ERROR",
)  # fmt: skip
_REBASE = ("CORRECTED", "LEGACY", "EXCEPTION")
_CODECS = {
    "parquet": ("none", "uncompressed", "snappy", "gzip", "lz4", "lz4_raw", "zstd", "brotli", "lzo"),
    "json": ("none", "uncompressed", "gzip", "bzip2", "deflate", "lz4", "snappy", "zstd"),
    "csv": ("none", "uncompressed", "gzip", "bzip2", "deflate", "lz4", "snappy", "zstd"),
}
_LARGEST = 2**31 - 1
_NUMBER = re.compile(r"[+-]?[0-9]+")
_RATIO = re.compile(r"\+?(?:[0-9]+\.?[0-9]*|\.[0-9]+)")
_SEPARATOR = re.compile(r"(?:[^\\]|\\[trbf\"'\\])+", re.DOTALL)
_ESCAPED = {"t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_SHORT_ZONES = frozenset(
    {
        "ACT", "AET", "AGT", "ART", "AST", "BET", "BST", "CAT", "CNT", "CST", "CTT", "EAT", "ECT", "EST",
        "HST", "IET", "IST", "JST", "MIT", "MST", "NET", "NST", "PLT", "PNT", "PRT", "PST", "SST", "UT",
        "VST",
    }
)  # fmt: skip
_OF_A_ZONE = frozenset("VvzO")
_DATE_LETTERS = frozenset("ahkKHmsSnNAVvzOXxZB")


def wrong_value(what: str, name: str, value: str, hint: str) -> SpecError:
    """Return the error of a value that an option cannot have; of a secret value nothing is shown."""
    shown = public_option(name, value)
    return SpecError(f"{what}: option '{name}' is '{shown}'", code="wrong-option", hint=hint)


def separator_of(written: str) -> str:
    """Return the characters that an option ``sep`` denotes: ``\\t`` denotes a tab."""
    return re.sub(r"\\(.)", lambda match: _ESCAPED.get(match[1], match[1]), written, flags=re.DOTALL)


def get_written_separator(options: Mapping[str, str]) -> str:
    """Return the separator of CSV values as written.

    Args:
        options: Options with names in lower case.
    """
    return options.get("sep", options.get("delimiter", ","))


def separator_in(options: Mapping[str, str]) -> str:
    """Return the characters that `get_written_separator` denotes."""
    return separator_of(get_written_separator(options))


def value_problems(
    options: Mapping[str, str], wanted: str, use: Use, *, prefix: str = ""
) -> list[tuple[str, str]]:
    """Return the problems of option values: the option as written, and what to write instead.

    Args:
        options: Options of the format ``wanted``; names as written, after ``prefix``.
    """
    named = {name.lower().removeprefix(prefix): name for name in options}
    problems = []
    for name, written in named.items():
        hint = value_problem(name, options[written], wanted, use)
        if hint is not None:
            problems.append((written, hint))
    for one, other in SYNONYMS:
        if one in named and other in named:
            problems.append((named[other], f"remove it or '{prefix}{one}', which is the same option"))
    if wanted in ("json", "csv") and use is Use.READ and not problems:
        values = {name: options[written] for name, written in named.items()}
        problems += _find_undelimited_encodings(wanted, values, named)
    return problems


def value_problem(name: str, value: str, wanted: str, use: Use) -> str | None:
    """Return what to write instead of a value that the option cannot have; None: it is valid.

    Args:
        name: The option's name in lower case.

    >>> value_problem("quote", "ab", "csv", Use.READ)
    "use one character, or '' for none"
    >>> value_problem("sep", "||", "csv", Use.READ) is None
    True
    """
    rule = _RULES.get(name)
    return None if rule is None else rule(value, wanted, use)


Rule = Callable[[str, str, Use], str | None]


def _rule(fits: Callable[[str], object], hint: str) -> Rule:
    """Return the rule of values that are right or wrong whatever the format and the use."""
    return lambda value, wanted, use: None if fits(value) else hint


def _is_character(value: str) -> bool:
    return len(value.encode("utf-16-le", "surrogatepass")) <= 2


def _is_number(value: str, least: int, most: int = _LARGEST) -> bool:
    return _NUMBER.fullmatch(value) is not None and least <= int(value) <= most


def _separator(value: str, wanted: str, use: Use) -> str | None:
    if not value:
        return "use one or more characters, such as ',' or '\\t'"
    if _SEPARATOR.fullmatch(value):
        return None
    return "after a backslash write t, r, b, f, a quote or a backslash; write other characters without one"


def _line_separator(value: str, wanted: str, use: Use) -> str | None:
    if wanted == "csv" and use is Use.PARSE:
        return None
    if not value:
        return "use the text that ends a record, such as '\\n' (a line feed), or remove the option"
    if wanted == "csv" and len(value.encode("utf-16-le", "surrogatepass")) > 4:
        return "use one or two characters"
    return None


def _pattern(value: str, wanted: str, use: Use) -> str | None:
    why = pattern_problem(value, reading=use is not Use.WRITE)
    return None if why is None else f"{why}; use a pattern such as 'yyyy-MM-dd HH:mm:ss'"


def _of_letters(missing: frozenset[str], what: str) -> Rule:
    def rule(value: str, wanted: str, use: Use) -> str | None:
        why = _pattern(value, wanted, use)
        if why is not None or use is not Use.WRITE:
            return why
        plain = re.sub(r"'(?:[^']|'')*'|\[[^\]]*\]?", "", value)
        odd = next((letter for letter in plain if letter in missing), None)
        return None if odd is None else f"{odd} is for {what}; use a pattern such as 'yyyy-MM-dd'"

    return rule


def _is_time_zone(value: str) -> bool:
    if value in _SHORT_ZONES or value in zoneinfo.available_timezones():
        return True
    return zone_named(value) is not None and value == value.strip().upper()


def _one_of(names: tuple[str, ...]) -> Rule:
    return _rule(lambda value: value.upper() in names, f"it can be {_either(names)}")


def _rebase(value: str, wanted: str, use: Use) -> str | None:
    return None if use is Use.WRITE or value in _REBASE else f"it can be {_either(_REBASE)}"


def _codec(value: str, wanted: str, use: Use) -> str | None:
    if value.lower() in _CODECS[wanted] or (wanted != "parquet" and "." in value.strip(".")):  # a class
        return None
    return near_names(value, _CODECS[wanted])


def _is_glob(value: str) -> bool:
    plain = re.sub(r"\\.", "", value, flags=re.DOTALL)
    outside = re.sub(r"\[[^\]]+\]", "", plain)
    return not ("\\" in outside or "[" in outside or outside.count("{") > outside.count("}"))


def _either(names: tuple[str, ...]) -> str:
    return " or ".join((", ".join(f"'{name}'" for name in names[:-1]), f"'{names[-1]}'"))


_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(
        _SWITCHES, _rule(lambda v: v.lower() in ("true", "false"), "it can be 'true' or 'false'")
    ),
    **dict.fromkeys(
        ("maxfilespertrigger", "maxbytespertrigger", "maxrecordsperfile"),
        _rule(lambda v: _is_number(v, 1, 2**63 - 1), "a whole number above zero, such as '10'"),
    ),
    **dict.fromkeys(
        ("quote", "escape", "chartoescapequoteescaping", "comment"),
        _rule(_is_character, "use one character, or '' for none"),
    ),
    **dict.fromkeys(("encoding", "charset"), _one_of(ENCODINGS)),
    **dict.fromkeys(("sep", "delimiter"), _separator),
    **dict.fromkeys(("compression", "codec"), _codec),
    **dict.fromkeys(("datetimerebasemode", "int96rebasemode"), _rebase),
    "linesep": _line_separator,
    "dateformat": _of_letters(_DATE_LETTERS, "a time of day, which a DATE does not have"),
    "timestampformat": _pattern,
    "timestampntzformat": _of_letters(_OF_A_ZONE, "a time zone, which a TIMESTAMP_NTZ does not have"),
    "timezone": _rule(
        _is_time_zone, "use a region such as 'America/New_York', 'UTC', or an offset such as '+05:30'"
    ),
    "unescapedquotehandling": _one_of(_QUOTE_HANDLING),
    "maxcolumns": _rule(lambda v: _is_number(v, 1), "a whole number above zero, such as '20480'"),
    "maxcharspercolumn": _rule(
        lambda v: v == "-1" or _is_number(v, 1), "a whole number above zero, or '-1' for no limit"
    ),
    "maxcachedfiles": _rule(lambda v: _is_number(v, 0), "a whole number, such as '10000', or '0'"),
    "discardcachedinputratio": _rule(
        lambda v: _RATIO.fullmatch(v) and float(v) <= 1, "a number from 0 to 1, such as '0.2'"
    ),
    "cleansource": _one_of(("OFF", "ARCHIVE", "DELETE")),
    "pathglobfilter": _rule(
        _is_glob, "use a pattern of file names such as '*.csv', with a ] for every [ and a } for every {"
    ),
    "basepath": _rule(bool, "use the directory above the partition directories"),
}


def _find_undelimited_encodings(
    wanted: str, values: Mapping[str, str], named: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Return problems of encodings whose records need an explicit record separator.

    Spark splits records at the byte of a line feed, which in UTF-16 is half of a line feed or of
    another character. For JSON, Spark requires the separator with every encoding except UTF-8.
    """
    name = "encoding" if "encoding" in named else "charset"
    encoding = values.get(name, "UTF-8").upper()
    if encoding not in WIDE and (wanted == "csv" or encoding == "UTF-8"):
        return []
    if values.get("multiline", "false").lower() == "true":
        return []
    if encoding in ("UTF-16", "UTF-32"):
        return [(named[name], "set 'multiLine' = 'true', or use 'UTF-16LE' or 'UTF-16BE'")]
    return [] if "linesep" in named else [(named[name], "set the text that ends a record: 'lineSep' = '\\n'")]
