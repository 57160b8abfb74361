"""Options of file sources: those of Spark's readers that mean something here; others are refused by name."""

from __future__ import annotations

from collections.abc import Iterable

from watersmeet.errors import SpecError, near_names
from watersmeet.spec.model import Source

OURS = ("path", "format")

_OF_STREAMS = (
    "maxFilesPerTrigger", "maxBytesPerTrigger", "latestFirst", "maxFileAge", "fileNameOnly", "maxCachedFiles",
    "discardCachedInputRatio", "cleanSource", "sourceArchiveDir",
)  # fmt: skip
_ANY = (
    *_OF_STREAMS, "pathGlobFilter", "recursiveFileLookup", "ignoreCorruptFiles", "ignoreMissingFiles",
    "basePath",
)  # fmt: skip
_TEXT = (
    "encoding", "charset", "lineSep", "locale", "timeZone", "dateFormat", "timestampFormat",
    "timestampNTZFormat", "enableDateTimeParsingFallback", "multiLine",
)  # fmt: skip
KNOWN = {
    "parquet": (*_ANY, "mergeSchema", "datetimeRebaseMode", "int96RebaseMode"),
    "json": (
        *_ANY, *_TEXT, "primitivesAsString", "allowComments", "allowUnquotedFieldNames", "allowSingleQuotes",
        "allowNumericLeadingZeros", "allowBackslashEscapingAnyCharacter", "allowUnquotedControlChars",
        "allowNonNumericNumbers",
    ),
    "csv": (
        *_ANY, *_TEXT, "header", "sep", "delimiter", "quote", "escape", "charToEscapeQuoteEscaping",
        "comment", "enforceSchema", "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", "nullValue",
        "emptyValue", "nanValue", "positiveInf", "negativeInf", "maxColumns", "maxCharsPerColumn",
        "unescapedQuoteHandling",
    ),
}  # fmt: skip
"""Per format."""

_POINTLESS = {
    "mode": "records that do not parse are counted, and kept by SET broken_output",
    "columnnameofcorruptrecord": "records that do not parse are kept by SET broken_output",
    "badrecordspath": "records that do not parse are kept by SET broken_output",
    "inferschema": "the columns are those that are declared",
    "samplingratio": "the columns are those that are declared",
}
"""Options that Spark has, and that would do nothing here."""


def check_file_options(source: Source, wanted: str, names: Iterable[str], *, table: bool = False) -> None:
    """Refuse what no reader of the format ``wanted`` takes, whatever its letters' cases.

    Args:
        table: it is read as a whole, again and again.

    Raises:
        SpecError: ``unknown-option``, with the names that are near.
    """
    known = [*OURS, *(name for name in KNOWN[wanted] if not (table and name in _OF_STREAMS))]
    lowered = {name.lower() for name in known}
    of_streams = {name.lower() for name in _OF_STREAMS} - lowered
    for name in names:
        if name.lower() in lowered:
            continue
        raise SpecError(
            f'file source "{source.name}" has no option "{name}"'
            + (f" for the format {wanted}" if _is_known(name) else ""),
            code="unknown-option",
            hint=_POINTLESS.get(name.lower())
            or ("it is for streams: a table is read as a whole" if name.lower() in of_streams else None)
            or near_names(name, known),
        )


def _is_known(name: str) -> bool:
    return any(name.lower() == each.lower() for names in KNOWN.values() for each in names)
