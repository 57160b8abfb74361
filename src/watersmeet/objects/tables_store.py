"""State in tables of PostgreSQL: one transaction per call, and of what is written together one for all.

A file is rows of 8 MB at most (`objects.tables_rows`), each with the size of the whole; they come by COPY,
and are there when its transaction is. `create` inserts on the condition that there is nothing yet. The answer
to a COMMIT may be lost: a repeated `create` compares what is there with what it was to put, as with objects,
and repeated writes take the place of what an earlier attempt may have left.

The tables are made when something is first written; before that nothing is there.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa

from watersmeet.errors import StateError
from watersmeet.objects.cache import Cache, may_be_kept
from watersmeet.objects.tables_place import TablesPlace
from watersmeet.objects.tables_rows import Reading, content_of, is_there, pieces_of, rows_from
from watersmeet.objects.tables_sql import (
    AS_MADE,
    FILES,
    MADE,
    OTHER_ISOLATION,
    SCHEMA,
    SESSION,
    TABLE,
    begin_writing,
)
from watersmeet.postgres_errors import MORE_ROOM, advice, has_no_room, is_away, words
from watersmeet.postgres_server import Cursor, Server, client, rows_of
from watersmeet.state.damage import damaged, missing
from watersmeet.state.sections import object_of, read_as, section_of
from watersmeet.state.traffic import Meter

Answer = TypeVar("Answer")

HELD_BYTES = 64 << 20
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
_ONE_AT_A_TIME = 0x77617466
"""The lock under which the tables are made."""

_GIVEN = "SELECT json_array_elements_text($2::json)"
"""Names, which are one parameter."""


class _Needed:
    """The tables are."""


_NEEDED = _Needed()


class TablesStore:
    """See the module. It may be pickled, its password with it, and holds no connection."""

    is_remote = True

    def __init__(self, place: TablesPlace, cache: Cache | None = None) -> None:
        self.place = place
        self.cache = cache
        self.traffic = Meter()
        self._held: dict[str, pa.Buffer] | None = None
        self._sections: dict[str, Sequence[str]] = {}
        self._held_bytes = 0

    def __getstate__(self) -> tuple[TablesPlace, Cache | None]:
        return self.place, self.cache

    def __setstate__(self, state: tuple[TablesPlace, Cache | None]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"TablesStore({self.place.url!r})"

    def write(
        self, name: str, data: pa.Buffer | bytes, *, lasting: bool = True, sections: Sequence[str] = ()
    ) -> None:
        content = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
        if sections:
            self._sections[name] = sections
        if self._held is None:
            self._put({name: content})
            return
        self._held[name] = content
        self._held_bytes += content.size
        if self._held_bytes >= HELD_BYTES:
            self._put_held()

    @contextmanager
    def together(self) -> Iterator[None]:
        if self._held is not None:  # within another such block, at whose end it is put
            yield
            return
        self._held, self._held_bytes = {}, 0
        try:
            yield
            self._put_held()
        finally:
            self._held = None

    def _put_held(self) -> None:
        held, self._held, self._held_bytes = self._held or {}, {}, 0
        self._put(held)

    def _put(self, files: Mapping[str, pa.Buffer]) -> None:
        if not files:
            return
        attempts = 0

        def put(cursor: Cursor) -> None:
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
        self._asked(f'take "{next(iter(files))}"', put, writes=True)
        if self.cache is not None:
            for name, content in files.items():
                for own, part in read_as(name, content, sections[name]):
                    self._remember(own, part)

    def _remember(self, name: str, content: pa.Buffer) -> None:
        if self.cache is not None and may_be_kept(name):
            self.cache.add(name, content)

    def create(self, name: str, data: bytes) -> bool:
        """As `Store.create`. Raises: StateError when nobody can say whether it was stored; then it may still
        appear."""
        self.traffic.add(written=len(data), requests=1)
        return self._asked(
            f'take "{name}"', lambda cursor: self.create_within(cursor, name, data), writes=True
        )

    def create_within(self, cursor: Cursor, name: str, data: bytes) -> bool:
        """The same in a transaction, with which it comes to be. The tables are there."""
        sql = f"""INSERT INTO {FILES} VALUES ($1, $2, $3::bigint, $4::bigint, $5)
            ON CONFLICT DO NOTHING RETURNING 1"""
        for part, piece in enumerate(pieces_of(data)):
            if not rows_of(cursor, sql, self.place.pipeline, name, part, len(data), piece):
                there = content_of(cursor, self.place, name)
                if there is None or part:  # removed before it was read, or half of another's
                    raise _InTheWay(name)
                return bytes(there) == data
        return True

    def read(self, name: str) -> pa.Buffer:
        return self.read_all([name])[0]

    def read_all(self, names: Sequence[str]) -> list[pa.Buffer]:
        """As `Store.read_all`: what has to be fetched comes by one statement, or as many as its bytes need,
        each in a transaction of its own."""
        there = {name: content for name in names if (content := self._at_hand(name)) is not None}
        lacking = [name for name in dict.fromkeys(names) if name not in there]
        reading, are_tables = Reading(self.place, lacking), True
        while are_tables and not reading.is_over:
            are_tables = self._asked(f'give "{lacking[0]}"', reading.go_on, empty=False)
        for number, name in enumerate(lacking):
            content = reading.content(number)
            if content is None:
                raise self._missing(name)
            self._remember(name, content)
            there[name] = content
        fetched = sum(there[name].size for name in lacking)
        self.traffic.add(fetched=fetched, requests=reading.statements)
        return [there[name] for name in names]

    def _at_hand(self, name: str) -> pa.Buffer | None:
        """What need not be fetched: it is held, or in the cache."""
        section = section_of(name)
        object_name = name if section is None else section.object
        if self._held and object_name in self._held:
            held = self._held[object_name]
            return held if section is None else section.of(held)
        if self.cache is None or not may_be_kept(name):
            return None
        kept = self.cache.read(name)
        if kept is not None:
            self.traffic.add(cached=kept.size)
        return kept

    def _missing(self, name: str) -> StateError:
        """Of what was not there: all of its object, or rows of a section."""
        whole = object_of(name)
        if whole != name and self.has(whole):
            return damaged(f'file "{whole}" in {self.place.url}', "rows of it are gone")
        return missing(name, f" in {self.place.url}")

    def has(self, name: str) -> bool:
        name = object_of(name)
        if self._held and name in self._held:
            return True
        what = f'say whether there is "{name}"'
        return self._asked(what, lambda cursor: is_there(cursor, self.place, name), empty=False)

    def names(self, folder: str) -> list[str]:
        sql = f"""SELECT name FROM {FILES}
            WHERE pipeline = $1 AND part = 0 AND name >= $2 AND name < $3 ORDER BY 1"""
        begin, end = f"{folder}/", f"{folder}0"  # "0" comes after "/"
        rows = self._rows_of(f'list "{folder}"', sql, self.place.pipeline, begin, end)
        return [name for (name,) in rows if "/" not in name[len(begin) :]]

    def _rows_of(self, what: str, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Of a query; none where there are no tables yet."""
        none = list[tuple[Any, ...]]()
        return self._asked(what, lambda cursor: rows_of(cursor, sql, *values), empty=none)

    def delete(self, name: str) -> None:
        self._asked(
            f'delete "{name}"',
            lambda cursor: self._remove(cursor, [name]),
            empty=None,
            wait_s=DELETES_S,
            writes=True,
        )

    def delete_all(self, names: Sequence[str]) -> int:
        """In one transaction: all go, or none."""
        if self.cache is not None:
            self.cache.drop_of_a_tick(names)
        try:
            self._asked(
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
        sql = f"DELETE FROM {FILES} WHERE pipeline = $1 AND name IN ({_GIVEN})"
        cursor.execute(sql, parameters=(self.place.pipeline, json.dumps(list(names))))

    def clear(self, folders: Collection[str], last: str) -> None:
        """Remove all that is in these folders, and ``last`` at last."""
        there = f"pipeline = $1 AND split_part(name, '/', 1) IN ({_GIVEN}) AND name <> $3"
        given = (self.place.pipeline, json.dumps(sorted(folders)), last)

        def removed(cursor: Cursor) -> None:
            cursor.execute(f"DELETE FROM {FILES} WHERE {there}", parameters=given)

        for _ in range(_CLEARS):
            self._asked("delete what it holds", removed, empty=None, writes=True)
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

    def sweep(self) -> None:
        return

    def check(self) -> None:
        """A probe is put, refused and taken away: the rights are there, and nothing drops rows in silence.
        And the table is as it was made: a crash leaves its rows, and one name is there once."""
        for wrong, mending in self._rows_of("say what its table is", AS_MADE):
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

    def _asked(
        self,
        what: str,
        work: Callable[[Cursor], Answer],
        *,
        empty: Answer | _Needed = _NEEDED,
        wait_s: float | None = None,
        writes: bool = False,
    ) -> Answer:
        """Do ``work`` in a transaction, tried again while what is wrong may pass.

        Args:
            what: it in words, for errors.
            empty: the answer where there are no tables yet; else they are made.
            wait_s: for how long it is tried, where that is less than the place's patience.
            writes: what is done is to last, and waits for whoever holds its rows.

        Raises:
            StateError: it was refused for good, or the server was away for too long.
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
                    return self._asked(what, work, empty=empty, wait_s=wait_s, writes=writes)
                if error.sqlstate not in _NO_TABLES:
                    raise
                if self.place.url in _seen:
                    raise _gone(self.place) from None
                if not isinstance(empty, _Needed):
                    return empty
                server.run(_make_tables)
                answer = server.run(asked, wait_s)
        except client().Error as error:
            raise told(self.place, what, error) from None
        finally:
            server.keep()
        _seen.add(self.place.url)
        return answer


class TablesWithin(TablesStore):
    """The same store in a transaction of somebody's, which decides whether it comes to be."""

    def __init__(self, store: TablesStore, cursor: Cursor) -> None:
        super().__init__(store.place)
        self._cursor = cursor

    def create(self, name: str, data: bytes) -> bool:
        try:
            return super().create(name, data)
        except _InTheWay:
            return False

    def _asked(
        self,
        what: str,
        work: Callable[[Cursor], Answer],
        *,
        empty: Answer | _Needed = _NEEDED,
        wait_s: float | None = None,
        writes: bool = False,
    ) -> Answer:
        """Raises: the client's errors, and `_InTheWay`."""
        return work(self._cursor)


class _InTheWay(Exception):
    """Something was there, and is gone again."""


class _StateServer(Server):
    """That of a state. ``what`` is asked of it, in words."""

    def __init__(self, place: TablesPlace, what: str) -> None:
        super().__init__(place.client_url, "", place.patience_s, _begin_session, pool="state")
        self._place, self._what = place, what
        self.answers_within_s = max(place.patience_s, ANSWER_S)

    def may_pass(self, error: BaseException) -> bool:
        state = getattr(error, "sqlstate", None)
        return is_away(error) or isinstance(error, _InTheWay) or state in _IN_THE_WAY

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


def told(place: TablesPlace, what: str, error: BaseException) -> StateError:
    """What the server refuses, as an error that says what to do."""
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


def _gone(place: TablesPlace) -> StateError:
    return StateError(
        f"{place.url}: the table {FILES} no longer exists: it was dropped, or the database was replaced",
        code="store-refused",
        hint="restore the database; or run again to start over",
    )


def _begin_session(cursor: Cursor) -> None:
    rows_of(cursor, SESSION)


_seen: set[str] = set()
"""Of this process: places with tables. COPY's errors do not say that there are none."""


def _see_tables(cursor: Cursor, place: TablesPlace) -> None:
    if place.url not in _seen:
        rows_of(cursor, f"SELECT FROM {FILES} LIMIT 0")
        _seen.add(place.url)


def _make_tables(cursor: Cursor) -> None:
    rows_of(cursor, "SELECT 1 FROM pg_advisory_xact_lock($1)", _ONE_AT_A_TIME)
    if not rows_of(cursor, "SELECT 1 FROM pg_namespace WHERE nspname = $1", SCHEMA):
        cursor.execute(f"CREATE SCHEMA {SCHEMA}")
    there = "SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = $2"
    if not rows_of(cursor, there, SCHEMA, TABLE):
        for sql in MADE:
            cursor.execute(sql)
