"""SQL of state in PostgreSQL: the table, what is wrong with one, what sessions and transactions are told."""

from __future__ import annotations

from watersmeet.postgres_server import Cursor, client

SCHEMA, TABLE = "watersmeet_state", "files"
FILES = f"{SCHEMA}.{TABLE}"

SESSION = """SELECT set_config(name, wanted, false) FROM pg_settings JOIN (VALUES
    ('tcp_keepalives_idle', '30'), ('tcp_keepalives_interval', '10'), ('tcp_keepalives_count', '3'),
    ('tcp_user_timeout', '60000')) AS ours (name, wanted) USING (name)"""
"""A machine that is gone holds nothing for long."""

ISOLATION = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
OTHER_ISOLATION = "WS001"
WRITING = f"""DO $$ BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
      RAISE EXCEPTION 'another isolation' USING ERRCODE = '{OTHER_ISOLATION}';
    END IF;
    SET LOCAL lock_timeout = '20s';
    SET LOCAL idle_in_transaction_session_timeout = 0;
    IF current_setting('synchronous_commit') = 'off' THEN SET LOCAL synchronous_commit = on; END IF;
END $$"""
"""Of a transaction, for a pooler may give each another session: what was confirmed is on the disk. Where it
ends with `OTHER_ISOLATION`, `ISOLATION` has to be said before: not always, for each statement costs messages
to the server and back."""

_isolated: set[str] = set()
"""Of this process: places where `ISOLATION` has to be said."""


def begin_writing(cursor: Cursor, url: str) -> None:
    """Begin a transaction that writes at a place. Raises: the client's Error with `OTHER_ISOLATION`, once for
    a place: it is begun again."""
    if url in _isolated:
        cursor.execute(ISOLATION)
    try:
        cursor.execute(WRITING)
    except client().Error as error:
        if error.sqlstate == OTHER_ISOLATION:
            _isolated.add(url)
        raise


MADE = (
    f'CREATE TABLE {FILES} (pipeline text COLLATE "C", name text COLLATE "C", part integer,'
    " size bigint NOT NULL, content bytea NOT NULL, PRIMARY KEY (pipeline, name, part))",
    f"ALTER TABLE {FILES} ALTER COLUMN content SET STORAGE EXTERNAL",  # runs hold little that compresses
)
AS_MADE = f"""SELECT wrong, mending FROM pg_class AS c, LATERAL (VALUES
    (c.relpersistence <> 'p', 'is UNLOGGED: a crash of the server empties it',
      'ALTER TABLE {FILES} SET LOGGED'),
    (NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid
        AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indnkeyatts = 3
        AND (SELECT array_agg(a.attname::text ORDER BY a.attname) FROM pg_attribute AS a
          WHERE a.attrelid = c.oid AND a.attnum = ANY (i.indkey::int2[]))
          = ARRAY['name', 'part', 'pipeline']),
      'has no PRIMARY KEY (pipeline, name, part): of two runs each could commit the same tick',
      'ALTER TABLE {FILES} ADD PRIMARY KEY (pipeline, name, part)')) AS seen (is_so, wrong, mending)
    WHERE c.oid = '{FILES}'::regclass AND is_so"""
"""What is wrong with the table that is there, and what mends it."""
