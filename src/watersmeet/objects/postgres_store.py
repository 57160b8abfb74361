"""State in tables of PostgreSQL."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa

from watersmeet.errors import StateError
from watersmeet.objects.cache import Cache, CachedStore
from watersmeet.objects.postgres_location import TablesPlace
from watersmeet.postgres_server import (
    MORE_ROOM,
    Cursor,
    Server,
    advice,
    client,
    has_no_room,
    is_away,
    rows_of,
    words,
)
from watersmeet.state.store import object_of, section_of, split_sections
from watersmeet.state.stored_record import damage_error, missing_error

# SQL of state in PostgreSQL: the table, what is wrong with one, what sessions and transactions are told.

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
    """Begin a transaction that writes at a place.

    Raises:
        Error: the client's error with the state `OTHER_ISOLATION`, once per place; the caller begins the
            transaction again.
    """
    if url in _isolated:
        cursor.execute(ISOLATION)
    try:
        cursor.execute(WRITING)
    except client().Error as error:
        if error.sqlstate == OTHER_ISOLATION:
            _isolated.add(url)
        raise


CREATE_TABLES = (
    f'CREATE TABLE {FILES} (pipeline text COLLATE "C", name text COLLATE "C", part integer,'
    " size bigint NOT NULL, content bytea NOT NULL, PRIMARY KEY (pipeline, name, part))",
    f"ALTER TABLE {FILES} ALTER COLUMN content SET STORAGE EXTERNAL",  # runs hold little that compresses
)
CHECK_TABLES = f"""SELECT wrong, mending FROM pg_class AS c, LATERAL (VALUES
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


# Files as rows of a table: cut into parts of `PART_BYTES`, each with the size of the whole, and put
# together again, of several at once all or sections of them.

PART_BYTES = 8 << 20
"""Of a file that are in one row."""

_BATCH_ROWS = 10_000
"""Rows that are sent together, of files that are small."""

FETCH_BYTES = 32 << 20
"""Maximum bytes that one statement reads, unless a single row has more."""

_ROWS = pa.schema(
    [
        ("pipeline", pa.string()),
        ("name", pa.string()),
        ("part", pa.int32()),
        ("size", pa.int64()),
        ("content", pa.binary()),
    ]
)


def pieces_of(data: bytes) -> list[bytes]:
    """Split a file's content into the pieces that its rows store."""
    return [data[first : first + PART_BYTES] for first in range(0, max(len(data), 1), PART_BYTES)]


def rows_from(pipeline: str, files: Mapping[str, pa.Buffer]) -> pa.RecordBatchReader:
    """Return a reader of the rows that store these files; it builds rows on demand."""

    def batches() -> Iterator[pa.RecordBatch]:
        held: list[tuple[str, str, int, int, bytes]] = []
        size = 0
        for name, content in files.items():
            for part, first in enumerate(range(0, max(content.size, 1), PART_BYTES)):
                piece = content.slice(first, min(PART_BYTES, content.size - first))
                held.append((pipeline, name, part, content.size, piece.to_pybytes()))
                size += piece.size
                if size >= PART_BYTES or len(held) >= _BATCH_ROWS:
                    yield _batch(held)
                    held, size = [], 0
        if held:
            yield _batch(held)

    return pa.RecordBatchReader.from_batches(_ROWS, batches())


def _batch(rows: Sequence[tuple[str, str, int, int, bytes]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, _ROWS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ROWS)


class BulkRead:
    """Read several names, objects and sections, together.

    One statement reads them, or as many statements as their bytes need.

    Args:
        names: Names to read, without duplicates.
    """

    def __init__(self, place: TablesPlace, names: Sequence[str]) -> None:
        self._place, self._names = place, names
        self._sections = [section_of(name) for name in names]
        self._given: list[_PartialRead | None] = [None] * len(names)
        self._number = self._part = 0
        self.statements = 0

    @property
    def is_over(self) -> bool:
        return self._number == len(self._names)

    def go_on(self, cursor: Cursor) -> bool:
        """Read more by one statement; return True.

        It may be called again after the end.

        Raises:
            StateError: the rows are not those that were written.
        """
        asked = [
            self._rows_of(number, self._part if number == self._number else 0)
            for number in range(self._number, len(self._names))
        ]
        if not asked:
            return True
        cursor.execute(_CONTENTS, parameters=(self._place.pipeline, json.dumps(asked), FETCH_BYTES))
        rows = cursor.fetch_arrow_table()
        self.statements += 1
        numbers, sizes = rows.column("number").to_pylist(), rows.column("size").to_pylist()
        for number, size, value in zip(numbers, sizes, rows.column("content"), strict=True):
            filled = self._given[number]
            if filled is None:
                section = self._sections[number]
                filled = _PartialRead(size if section is None else section.length)
                self._given[number] = filled
            if not filled.add(value.as_buffer()):
                raise damage_error(self._what(number), "it has more parts than one")
        if rows.num_rows and rows.column("more")[-1].as_py():
            self._number, self._part = numbers[-1], rows.column("part")[-1].as_py() + 1
        else:
            self._number, self._part = len(self._names), 0
        return True

    def _rows_of(self, number: int, first_part: int) -> dict[str, Any]:
        """Build the request for a name: which rows, and which bytes of them."""
        section = self._sections[number]
        if section is None:
            return {"number": number, "name": self._names[number], "low": first_part}
        low, high = section.offset // PART_BYTES, -(-section.end // PART_BYTES)
        return {
            "number": number,
            "name": section.object,
            "low": max(low, first_part),
            "high": max(high, low + 1),  # of no bytes, too, it is seen whether they are there
            "first": section.offset,
            "behind": section.end,
            "part_bytes": PART_BYTES,
        }

    def content(self, number: int) -> pa.Buffer | None:
        """Return the content stored under the name at a position.

        None: there is nothing; for a section, its object may still exist.

        Raises:
            StateError: a part of the content is missing.
        """
        filled = self._given[number]
        if filled is None:
            return None
        if not filled.is_full:
            raise damage_error(self._what(number), "rows of it are gone")
        return filled.content

    def _what(self, number: int) -> str:
        section = self._sections[number]
        return f'file "{self._names[number] if section is None else section.object}" in {self._place.url}'


class _PartialRead:
    """The content of a name that is read piece by piece."""

    def __init__(self, size: int) -> None:
        self.content = pa.allocate_buffer(size)
        self._filled = 0

    @property
    def is_full(self) -> bool:
        return bool(self._filled == self.content.size)

    def add(self, piece: pa.Buffer) -> bool:
        """Append a piece; return True if it fits."""
        end = self._filled + piece.size
        if end > self.content.size:
            return False
        memoryview(self.content)[self._filled : end] = memoryview(piece)
        self._filled = end
        return True


_CONTENTS = f"""
WITH asked AS (
  SELECT * FROM json_to_recordset($2::json) AS asked (
    number integer, name text, low integer, high integer, first bigint, behind bigint, part_bytes bigint)
), pieces AS (
  SELECT number, part, size, content,
    CASE WHEN behind IS NOT NULL THEN greatest(first - part * part_bytes, 0) END AS first,
    CASE WHEN behind IS NOT NULL THEN least(behind - part * part_bytes, part_bytes) END AS behind
  FROM asked JOIN {FILES} USING (name)
  WHERE pipeline = $1 AND part >= low AND (high IS NULL OR part < high)
), told AS (
  SELECT *, sum(coalesce(behind - first, octet_length(content))) OVER (ORDER BY number, part) AS upto,
    row_number() OVER (ORDER BY number, part) AS row, count(*) OVER () AS rows
  FROM pieces
)
SELECT number, part, size, row < rows AS more,
  CASE WHEN behind IS NULL THEN content
    ELSE substring(content FROM first::integer + 1 FOR (behind - first)::integer) END AS content
FROM told WHERE row = 1 OR upto <= $3::bigint ORDER BY number, part
"""
"""Rows of names in order, as many as have so many bytes together, and one at least. Of a section each row
gives what it has of it; the others stay where they are: `octet_length` does not look at what is stored beside
the table."""


def content_of(cursor: Cursor, place: TablesPlace, name: str) -> pa.Buffer | None:
    """Return the stored content, or None if there is none.

    Raises:
        StateError: a part of the content is missing.
    """
    reading = BulkRead(place, [name])
    while not reading.is_over:
        reading.go_on(cursor)
    return reading.content(0)


def is_there(cursor: Cursor, place: TablesPlace, name: str) -> bool:
    sql = f"SELECT 1 FROM {FILES} WHERE pipeline = $1 AND name = $2 LIMIT 1"
    return bool(rows_of(cursor, sql, place.pipeline, name))


# State in tables of PostgreSQL: one transaction per call, and of what is written together one for all.
#
# A file is rows of 8 MB at most (`objects.postgres_store`), each with the size of the whole; they come by
# COPY, and are there when its transaction is. `create` inserts on the condition that there is nothing
# yet. The answer to a COMMIT may be lost: a repeated `create` compares what is there with what it was to
# put, as with objects, and repeated writes take the place of what an earlier attempt may have left.
#
# The tables are made when something is first written; before that nothing is there.

Answer = TypeVar("Answer")

MAX_PENDING_BYTES = 64 << 20
"""Of what is written together: so much is held before it goes on its way."""

ANSWER_S = 60.0
"""What is asked is given up after so long without an answer, or after the patience, which may be longer."""

DELETES_S = 5.0
"""So long a delete is tried: what is left is garbage, for which nobody waits."""

_CLEARS = 5
"""How often it is looked whether all is gone."""

_IN_THE_WAY = ("23505", "55P03")
"""An earlier attempt, which nobody had an answer of, was there before; or it still holds a row."""
_NO_TABLES = ("42P01", "3F000")
_DENIED = (
    "authentication failed",
    "no password",
    "pg_hba.conf",
    "not permitted to log in",
    "permission denied",
)
_CREATION_LOCK = 0x77617466
"""The lock under which the tables are made."""

_NAMES_PARAMETER = "SELECT json_array_elements_text($2::json)"
"""Names, which are one parameter."""


class _Needed:
    """The tables are."""


_NEEDED = _Needed()


class TablesStore(CachedStore[TablesPlace]):
    """See the module. It may be pickled, its password with it."""

    def __init__(self, place: TablesPlace, cache: Cache | None = None) -> None:
        super().__init__(place, cache)
        self._held: dict[str, pa.Buffer] | None = None
        self._sections: dict[str, Sequence[str]] = {}
        self._held_bytes = 0

    def write(
        self, name: str, data: pa.Buffer | bytes, *, lasting: bool = True, sections: Sequence[str] = ()
    ) -> None:
        content = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
        if sections:
            self._sections[name] = sections
        if self._held is None:
            self._insert_files({name: content})
            return
        self._held[name] = content
        self._held_bytes += content.size
        if self._held_bytes >= MAX_PENDING_BYTES:
            self._flush_pending()

    @contextmanager
    def together(self) -> Iterator[None]:
        if self._held is not None:  # within another such block, at whose end it is put
            yield
            return
        self._held, self._held_bytes = {}, 0
        try:
            yield
            self._flush_pending()
        finally:
            self._held = None

    def _flush_pending(self) -> None:
        held, self._held, self._held_bytes = self._held or {}, {}, 0
        self._insert_files(held)

    def _insert_files(self, files: Mapping[str, pa.Buffer]) -> None:
        if not files:
            return
        attempts = 0

        def insert_rows(cursor: Cursor) -> None:
            nonlocal attempts
            attempts += 1
            _see_tables(cursor, self.place)
            if attempts > 1:
                self._remove(cursor, list(files))
            cursor.adbc_ingest(
                TABLE, rows_from(self.place.pipeline, files), mode="append", db_schema_name=SCHEMA
            )

        self.traffic.add(written=sum(content.size for content in files.values()), requests=1)
        sections = {name: self._sections.pop(name, ()) for name in files}
        self._run_in_transaction(f'take "{next(iter(files))}"', insert_rows, writes=True)
        if self.cache is not None:
            for name, content in files.items():
                for own, part in split_sections(name, content, sections[name]):
                    self._remember(own, part)

    def create(self, name: str, data: bytes) -> bool:
        """Store ``data`` unless ``name`` exists; return True if the file contains ``data``.

        Raises:
            StateError: it is unknown whether the data was stored; it may still appear later.
        """
        self.traffic.add(written=len(data), requests=1)
        return self._run_in_transaction(
            f'take "{name}"', lambda cursor: self.create_in_transaction(cursor, name, data), writes=True
        )

    def create_in_transaction(self, cursor: Cursor, name: str, data: bytes) -> bool:
        """Store ``data`` unless ``name`` exists; return True if the file contains ``data``.

        The insert is part of the caller's transaction. The tables must exist.
        """
        sql = f"""INSERT INTO {FILES} VALUES ($1, $2, $3::bigint, $4::bigint, $5)
            ON CONFLICT DO NOTHING RETURNING 1"""
        for part, piece in enumerate(pieces_of(data)):
            if not rows_of(cursor, sql, self.place.pipeline, name, part, len(data), piece):
                there = content_of(cursor, self.place, name)
                if there is None or part:  # removed before it was read, or half of another's
                    raise _ConcurrentWrite(name)
                return bytes(there) == data
        return True

    def read_all(self, names: Sequence[str]) -> list[pa.Buffer]:
        """Read several names, in order.

        The store fetches missing content by one statement, or by as many as its bytes need, each in its own
        transaction.

        Raises:
            StateError: one of the names does not exist.
        """
        there = {name: content for name in names if (content := self._at_hand(name)) is not None}
        lacking = [name for name in dict.fromkeys(names) if name not in there]
        reading, are_tables = BulkRead(self.place, lacking), True
        while are_tables and not reading.is_over:
            are_tables = self._run_in_transaction(f'give "{lacking[0]}"', reading.go_on, empty=False)
        for number, name in enumerate(lacking):
            content = reading.content(number)
            if content is None:
                raise self._missing(name)
            self._remember(name, content)
            there[name] = content
        fetched = sum(there[name].size for name in lacking)
        self.traffic.add(fetched=fetched, requests=reading.statements)
        return [there[name] for name in names]

    def _unwritten(self, name: str) -> pa.Buffer | None:
        return (self._held or {}).get(name)

    def _missing(self, name: str) -> StateError:
        """Build the error for missing content: the whole object, or rows of a section."""
        whole = object_of(name)
        if whole != name and self.has(whole):
            return damage_error(f'file "{whole}" in {self.place.url}', "rows of it are gone")
        return missing_error(name, f" in {self.place.url}")

    def has(self, name: str) -> bool:
        name = object_of(name)
        if self._held and name in self._held:
            return True
        what = f'say whether there is "{name}"'
        return self._run_in_transaction(what, lambda cursor: is_there(cursor, self.place, name), empty=False)

    def names(self, folder: str) -> list[str]:
        sql = f"""SELECT name FROM {FILES}
            WHERE pipeline = $1 AND part = 0 AND name >= $2 AND name < $3 ORDER BY 1"""
        begin, end = f"{folder}/", f"{folder}0"  # "0" comes after "/"
        rows = self._rows_of(f'list "{folder}"', sql, self.place.pipeline, begin, end)
        return [name for (name,) in rows if "/" not in name[len(begin) :]]

    def _rows_of(self, what: str, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a query and return its rows; none if the tables do not exist yet."""
        none = list[tuple[Any, ...]]()
        return self._run_in_transaction(what, lambda cursor: rows_of(cursor, sql, *values), empty=none)

    def delete(self, name: str) -> None:
        self._run_in_transaction(
            f'delete "{name}"',
            lambda cursor: self._remove(cursor, [name]),
            empty=None,
            wait_s=DELETES_S,
            writes=True,
        )

    def delete_all(self, names: Sequence[str]) -> int:
        """Delete files in one transaction: all or none.

        Returns:
            the number of files that were not deleted.
        """
        if self.cache is not None:
            self.cache.drop_tick_files(names)
        try:
            self._run_in_transaction(
                "delete files",
                lambda cursor: self._remove(cursor, names),
                empty=None,
                wait_s=DELETES_S,
                writes=True,
            )
        except StateError:
            return len(names)
        return 0

    def _remove(self, cursor: Cursor, names: Sequence[str]) -> None:
        sql = f"DELETE FROM {FILES} WHERE pipeline = $1 AND name IN ({_NAMES_PARAMETER})"
        cursor.execute(sql, parameters=(self.place.pipeline, json.dumps(list(names))))

    def clear(self, folders: Collection[str], last: str) -> None:
        """Remove all that is in these folders, and ``last`` at last."""
        there = f"pipeline = $1 AND split_part(name, '/', 1) IN ({_NAMES_PARAMETER}) AND name <> $3"
        given = (self.place.pipeline, json.dumps(sorted(folders)), last)

        def delete_rows(cursor: Cursor) -> None:
            cursor.execute(f"DELETE FROM {FILES} WHERE {there}", parameters=given)

        for _ in range(_CLEARS):
            self._run_in_transaction("delete what it holds", delete_rows, empty=None, writes=True)
            left = f"SELECT name FROM {FILES} WHERE {there} LIMIT 1"
            names = self._rows_of("list what it holds", left, *given)
            if not names:
                return self.delete(last)
        raise StateError(
            f"{self.place.url} cannot be emptied: another process keeps writing files to it, for example"
            f" {names[0][0]}",
            code="state-moves-on",
            hint="stop the run of the job, perhaps on another machine, then run the command again",
        )

    def check(self) -> None:
        """Check that the store can insert, reject and delete a probe, and that the table is sound.

        The check fails if rights are missing or if rules or triggers drop rows silently. The table must
        have the properties it was created with: its rows survive a crash, and each name is unique.

        Raises:
            StateError: the check fails.
        """
        for wrong, mending in self._rows_of("say what its table is", CHECK_TABLES):
            raise StateError(f"{self.place.url}: {FILES} {wrong}", code="store-refused", hint=mending)
        name = f".probe-{uuid.uuid4().hex}"
        put, refused = self.create(name, b"1"), not self.create(name, b"2")
        content = bytes(self.read(name))
        self.delete(name)
        if not put or not refused or content != b"1" or self.has(name):
            raise StateError(
                f"{self.place.url} changes rows that are written to {FILES}",
                code="store-refused",
                hint="remove all rules and triggers of that table",
            )

    def _run_in_transaction(
        self,
        what: str,
        work: Callable[[Cursor], Answer],
        *,
        empty: Answer | _Needed = _NEEDED,
        wait_s: float | None = None,
        writes: bool = False,
    ) -> Answer:
        """Do ``work`` in a transaction; retry it while the error is transient.

        Args:
            what: a text for errors.
            empty: the answer if the tables do not exist yet. Without it, the store creates them.
            wait_s: how long to retry, if shorter than the location's patience.
            writes: the work must be durable, and it waits for transactions that lock its rows.

        Raises:
            StateError: the work was rejected permanently, or the server was unavailable for too long.
        """
        server = _StateServer(self.place, what)

        def write(cursor: Cursor) -> Answer:
            begin_writing(cursor, self.place.url)
            return work(cursor)

        asked = write if writes else work
        try:
            try:
                answer = server.run(asked, wait_s)
            except client().Error as error:
                if error.sqlstate == OTHER_ISOLATION:
                    return self._run_in_transaction(what, work, empty=empty, wait_s=wait_s, writes=writes)
                if error.sqlstate not in _NO_TABLES:
                    raise
                if self.place.url in _known_places:
                    raise _dropped_table_error(self.place) from None
                if not isinstance(empty, _Needed):
                    return empty
                server.run(_make_tables)
                answer = server.run(asked, wait_s)
        except client().Error as error:
            raise postgres_store_error(self.place, what, error) from None
        finally:
            server.keep()
        _known_places.add(self.place.url)
        return answer


class TransactionStore(TablesStore):
    """A view of the store inside a caller's transaction, which decides whether writes persist."""

    def __init__(self, store: TablesStore, cursor: Cursor) -> None:
        super().__init__(store.place)
        self._cursor = cursor

    def create(self, name: str, data: bytes) -> bool:
        try:
            return super().create(name, data)
        except _ConcurrentWrite:
            return False

    def _run_in_transaction(
        self,
        what: str,
        work: Callable[[Cursor], Answer],
        *,
        empty: Answer | _Needed = _NEEDED,
        wait_s: float | None = None,
        writes: bool = False,
    ) -> Answer:
        """Run ``work`` with a cursor and return its answer.

        Raises:
            Error: the database client's errors.
            _ConcurrentWrite: something that existed was removed in the meantime.
        """
        return work(self._cursor)


class _ConcurrentWrite(Exception):
    """Error for something that existed and was removed in the meantime."""


class _StateServer(Server):
    """The server that stores a state; ``what`` is the current request, in plain text."""

    def __init__(self, place: TablesPlace, what: str) -> None:
        super().__init__(place.client_url, "", place.patience_s, _begin_session, pool="state")
        self._place, self._what = place, what
        self.answers_within_s = max(place.patience_s, ANSWER_S)

    def may_pass(self, error: BaseException) -> bool:
        state = getattr(error, "sqlstate", None)
        return is_away(error) or isinstance(error, _ConcurrentWrite) or state in _IN_THE_WAY

    def whose(self) -> str:
        return self._place.url

    def away(self, seconds: float, said: str) -> Exception:
        if "lock timeout" in said:
            return StateError(
                f"{self._place.url} did not {self._what} for {seconds:.0f} s: another run has an open"
                f" transaction ({said})",
                code="store-away",
                hint="check in pg_stat_activity what that transaction waits for (for example"
                " synchronous_standby_names), stop the other run, and run again",
            )
        return StateError(
            f"{self._place.url} did not {self._what} for {seconds:.0f} s: {said}",
            code="store-away",
            hint=MORE_ROOM
            if has_no_room(said)
            else "check the URL, and run again when the server answers: the job resumes after its last"
            " complete tick",
        )


def postgres_store_error(place: TablesPlace, what: str, error: BaseException) -> StateError:
    """Convert a server's error to an error with a hint for the user."""
    said = f"{place.url} did not {what}: {words(error, place.client_url)}"
    state = getattr(error, "sqlstate", None) or ""
    if state == "42501":
        hint = (
            f"the job's user needs the right to make the schema {SCHEMA} (GRANT CREATE ON DATABASE), or to "
            f"SELECT, INSERT and DELETE in {FILES}"
        )
        return StateError(said, code="store-denied", hint=hint)
    hint = advice(error) or "put right what the server says, and run again"
    if state == "3D000" or ("does not exist" in said and "database" in said):
        return StateError(said, code="no-database", hint=hint)
    is_denied = state[:2] == "28" or any(denied in said for denied in _DENIED)
    return StateError(said, code="store-denied" if is_denied else "store-refused", hint=hint)


def _dropped_table_error(place: TablesPlace) -> StateError:
    return StateError(
        f"{place.url}: the table {FILES} no longer exists: it was dropped, or the database was replaced",
        code="store-refused",
        hint="restore the database; or run again to start over",
    )


def _begin_session(cursor: Cursor) -> None:
    rows_of(cursor, SESSION)


_known_places: set[str] = set()
"""Of this process: places with tables. COPY's errors do not say that there are none."""


def _see_tables(cursor: Cursor, place: TablesPlace) -> None:
    if place.url not in _known_places:
        rows_of(cursor, f"SELECT FROM {FILES} LIMIT 0")
        _known_places.add(place.url)


def _make_tables(cursor: Cursor) -> None:
    rows_of(cursor, "SELECT 1 FROM pg_advisory_xact_lock($1)", _CREATION_LOCK)
    if not rows_of(cursor, "SELECT 1 FROM pg_namespace WHERE nspname = $1", SCHEMA):
        cursor.execute(f"CREATE SCHEMA {SCHEMA}")
    there = "SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = $2"
    if not rows_of(cursor, there, SCHEMA, TABLE):
        for sql in CREATE_TABLES:
            cursor.execute(sql)
