"""Rules that make nodes: joins, ASOF joins, windows, stages, and what each keeps and hands on."""
