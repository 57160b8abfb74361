"""Tables of SQLite as sinks, a source that counts, and two functions: what a package declares."""

from watersmeet.extensions import Connector, Function

SQLITE = Connector(
    "sqlite",
    sinks=True,
    unique_names=True,
    sink="watersmeet_sqlite.sink:SqliteSink",
    sink_options="watersmeet_sqlite.options:SqliteOptions",
    read_hint="watersmeet_sqlite.options:read_hint",
)
RAMP = Connector(
    "ramp",
    one_partition=True,
    kept_by_spark=True,
    reader="watersmeet_sqlite.source:read_ramp",
    source_options="watersmeet_sqlite.options:RampOptions",
)
SLUG = Function(
    "slug",
    arguments=("STRING",),
    result="STRING",
    arrow="watersmeet_sqlite.functions:slug",
    spark_sql="regexp_replace(lower({0}), '[^a-z0-9]+', '-')",
)
INITIALS = Function(
    "initials", arguments=("STRING", "BIGINT"), result="STRING", arrow="watersmeet_sqlite.functions:initials"
)
"""Without a form in Spark SQL: Spark calls the Arrow function."""
