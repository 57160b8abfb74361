"""Names that columns, subjects and figures had in histories of earlier versions, as those of now.

One quantity has one name, in the history as in ``--json`` and in metrics; it was not always so. Segments say
by `NAMES` in their schema's metadata which names they have; those that say nothing have the first ones.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_VERSION = b"watersmeet.names"
NAMES = {_VERSION: b"3"}

_COLUMNS = {"of": "subject", "least": "min", "most": "max"}

_FIRST = {
    ("source", "rows"): "rows_in",
    ("source", "unread"): "backlog",
    ("query", "rows_out"): "total_rows_out",
    ("query", "bytes"): "state_bytes",
    ("side", "rows"): "retained",
    ("side", "bytes"): "file_bytes",
    ("side", "key"): "heavy_keys",
}
_FIRST_WORDS = {
    ("input", "held"): "standstill",
    ("input", "hot"): "heavy_keys",
    ("input", "deleted"): "missing_deletes",
}
"""Of words alone: as a number ``deleted`` is another figure."""
_SECOND = {
    ("job", "seconds"): "duration_us",
    ("job", "elapsed"): "elapsed_us",
    ("job", "clock"): "clock_us",
    ("part", "seconds"): "duration_us",
    ("partition", "heard"): "last_row_us",
    ("side", "heavy_keys"): "hot_keys",
    ("source", "untold parts"): "partition count",
}
_SECOND_WORDS = {
    ("input", "heavy_keys"): "hot_keys",
    ("input", "missing_deletes"): "missing_delete_examples",
}
_SECOND_BEGINNINGS = {("source", "read "): "offset ", ("source", "began "): "start offset "}


def renamed(points: pa.Table) -> pa.Table:
    """Points of a segment by the names of now; the table's schema is that of `points`."""
    version = (points.schema.metadata or {}).get(_VERSION)
    if version == NAMES[_VERSION]:
        return points
    points = points.rename_columns([_COLUMNS.get(name, name) for name in points.column_names])
    if not points.num_rows:
        return points
    subjects, figures = (points.column(name).cast(pa.string()) for name in ("subject", "figure"))
    kinds = pc.list_element(pc.split_pattern(subjects, "/", max_splits=1), 0)
    words = pc.and_(pc.is_valid(points.column("text")), pc.is_null(points.column("last")))
    if version is None:
        figures = _figures(figures, kinds, words, _FIRST, _FIRST_WORDS)
    figures = _figures(figures, kinds, words, _SECOND, _SECOND_WORDS)
    for (kind, start), now in _SECOND_BEGINNINGS.items():
        meant = pc.and_(pc.equal(kinds, kind), pc.starts_with(figures, start))
        figures = pc.if_else(meant, pc.replace_substring_regex(figures, f"^{start}", now), figures)
    subjects = pc.if_else(
        pc.equal(kinds, "part"), pc.replace_substring_regex(subjects, "^part/", "phase/"), subjects
    )
    for name, column in (("subject", subjects), ("figure", figures)):
        place = points.schema.get_field_index(name)
        encoded = column.combine_chunks().dictionary_encode()
        points = points.set_column(place, points.schema.field(place), encoded)
    return points


def _figures(
    figures: pa.ChunkedArray,
    kinds: pa.ChunkedArray,
    words: pa.ChunkedArray,
    names: dict[tuple[str, str], str],
    of_words: dict[tuple[str, str], str],
) -> pa.ChunkedArray:
    """Return the figures with other names; ``of_words``: those of points that are words (``words``)."""
    today = figures
    for before, words_alone in ((names, False), (of_words, True)):
        for (kind, figure), now in before.items():
            meant = pc.and_(pc.equal(kinds, kind), pc.equal(figures, figure))
            today = pc.if_else(pc.and_(meant, words) if words_alone else meant, now, today)
    return today
