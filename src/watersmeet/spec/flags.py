"""What a row of an input is worth to its join, decided by conditions on the row alone (`names.FLAG`).

The planner writes an expression that gives one of these for every row; ingest tasks count by them.
"""

FLAG_CANDIDATE = 0
"""The row may match."""

FLAG_FILTERED = 1
"""The row fails a filter above its ordering, or a one-sided ON condition of a side that is not padded: judged
for lateness, moves the watermark, then dropped."""

FLAG_UNMATCHABLE = 2
"""The row can match nothing, ever (NULL key, one-sided ON condition not TRUE on a padded side, inverted
interval): judged, moves the watermark, then padded in its tick if its side is padded, else dropped."""

FLAG_BENEATH = 3
"""The row fails a filter beneath its ordering: not part of the stream."""
