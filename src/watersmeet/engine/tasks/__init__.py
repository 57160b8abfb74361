"""A tick as a task sees it: rows are judged, written, matched, released, merged. No clock, no plan."""
