"""SQL of state in PostgreSQL: the table, what is wrong with one, what sessions and transactions are told."""

from __future__ import annotations

SCHEMA, TABLE = "watersmeet_state", "files"
FILES = f"{SCHEMA}.{TABLE}"

SESSION = """SELECT set_config(name, wanted, false) FROM pg_settings JOIN (VALUES
    ('tcp_keepalives_idle', '30'), ('tcp_keepalives_interval', '10'), ('tcp_keepalives_count', '3'),
    ('tcp_user_timeout', '60000')) AS ours (name, wanted) USING (name)"""
"""A machine that is gone holds nothing for long."""

ISOLATION = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
WRITING = """SELECT set_config('lock_timeout', '20s', true),
    set_config('idle_in_transaction_session_timeout', '0', true),
    set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
      ELSE current_setting('synchronous_commit') END, true)"""
"""Of a transaction, for a pooler may give each another session: what was confirmed is on the disk."""

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
