"""A pipeline as TOML, from which tests take others."""

from __future__ import annotations

CLICKED = """\
name = "clicked"

[[sources]]
name = "impressions"
lag = "10 seconds"

[sources.connection]
connector = "memory"

[sources.columns]
ad = "BIGINT"
user = "STRING"
at = "TIMESTAMP"

[[sources]]
name = "clicks"
query = "SELECT ad, user, at, price * 2 AS twice FROM clicks WHERE price > 0"

[sources.connection]
connector = "memory"

[sources.columns]
ad = "BIGINT"
user = "STRING"
at = "TIMESTAMP"
price = "BIGINT"

[transform.join]
kind = "stream_stream_join"
left_source = "impressions"
right_source = "clicks"
left_keys = ["ad", "user"]
right_keys = ["ad", "user"]
min_delta = "0 seconds"
max_delta = "5 minutes"
event_time_column = "at"
how = "left"
lateness = "join"
allowed_lateness = "1 minute"
output_left_columns = ["ad", "user", "at"]
output_right_columns = ["at", "twice"]

[target]
name = "out"

[target.connection]
connector = "memory"

[state_store]
kind = "object"
url = "s3://bucket/clicked"

[settings]
max_rows = 1_000_000
"""


def edit_pipeline_text(*edits: tuple[str, str]) -> str:
    """The text with parts replaced, each of which is there."""
    text = CLICKED
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text
