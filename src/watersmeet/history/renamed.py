"""Names that figures had in histories of earlier versions, as those of now.

One quantity has one name, in the history as in ``--json`` and in metrics; it was not always so. Segments say
by `NAMES` in their schema's metadata which names they have; those that say nothing have the older ones.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

NAMES = {b"watersmeet.names": b"2"}

_ANEW = {
    ("source", "rows"): "rows_in",
    ("source", "unread"): "backlog",
    ("query", "rows_out"): "total_rows_out",
    ("query", "bytes"): "state_bytes",
    ("side", "rows"): "retained",
    ("side", "bytes"): "file_bytes",
    ("side", "key"): "heavy_keys",
}
_TOLD_ANEW = {
    ("input", "held"): "standstill",
    ("input", "hot"): "heavy_keys",
    ("input", "deleted"): "missing_deletes",
}
"""Of words alone: as a number ``deleted`` is another figure."""


def renamed(points: pa.Table) -> pa.Table:
    """Points of a segment, their figures by the names of now; the table's schema is that of `points`."""
    if not points.num_rows or (points.schema.metadata or {}).items() >= NAMES.items():
        return points
    of, figures = (points.column(name).cast(pa.string()) for name in ("of", "figure"))
    kinds = pc.list_element(pc.split_pattern(of, "/", max_splits=1), 0)
    told = pc.and_(pc.is_valid(points.column("text")), pc.is_null(points.column("last")))
    names = figures
    for before, words_alone in ((_ANEW, False), (_TOLD_ANEW, True)):
        for (kind, figure), name in before.items():
            meant = pc.and_(pc.equal(kinds, kind), pc.equal(figures, figure))
            names = pc.if_else(pc.and_(meant, told) if words_alone else meant, name, names)
    place = points.schema.get_field_index("figure")
    return points.set_column(place, points.schema.field(place), names.combine_chunks().dictionary_encode())
