"""What to write in the place of clauses and connectors that other engines have in CREATE TABLE."""

from __future__ import annotations

from watersmeet.errors import SqlError
from watersmeet.front.text.tokens import Cursor
from watersmeet.spec.options.changes import DEBEZIUM
from watersmeet.spec.options.files import FORMATS
from watersmeet.spec.options.kafka import METADATA


def format_hint(named: str) -> str | None:
    """Return what to write where a format, or a connector of Flink's, is named as the connector."""
    plain = named.lower()
    if plain in (*FORMATS, DEBEZIUM):
        topics = "" if plain == "parquet" else "; for topics 'connector' = 'kafka'"
        return f"{plain} is a format: write 'connector' = 'file', 'format' = '{plain}'{topics}"
    if plain == "upsert-kafka":
        return "write 'connector' = 'kafka', 'format' = 'upsert-json', and a PRIMARY KEY (…) NOT ENFORCED"
    return None


def metadata_clause(cursor: Cursor, column: str, start: int) -> SqlError:
    """Return the refusal of METADATA FROM, as Flink has it."""
    cursor.accept("METADATA")
    key = cursor.string("the name of the metadata") if cursor.accept("FROM") else column
    hint = f"write it as an option: WITH (…, 'metadata.{column}' = '{key}')"
    if key.lower() not in METADATA:
        hint = f"'metadata.{column}' in WITH fills a column of a Kafka source from {', '.join(METADATA)}"
    return cursor.text.not_supported(f'METADATA after column "{column}" is', start, hint)
