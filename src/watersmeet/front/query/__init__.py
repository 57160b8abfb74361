"""SELECT: names, items, joins, views, windows, aggregates."""
