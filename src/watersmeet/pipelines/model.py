"""What a pipeline says, as data: the same values whether they come from TOML or from Python.

Every part is frozen, takes no key that it does not know, and no value of another type. What parts have to do
with each other is not judged here (`pipelines.rules`), nor what streams and columns there are
(`pipelines.build`). Lengths of time: `pipelines.durations`.

What may be given is more than what is kept (one name for a list of them, a source for its name): type
checkers, which read the fields, are told by an ``__init__`` that is for them alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema

from watersmeet.errors import raise_all
from watersmeet.pipelines.connection_options import flat
from watersmeet.pipelines.durations import Length, SignedLength, with_new_names
from watersmeet.pipelines.problems import Key, errors_of, shape_problems
from watersmeet.spec.options.files import local_path

EVENT_TS = "_event_ts"
"""The time of the record, of a source whose rows have no such column."""

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def _tuple_of(*alone: type) -> BeforeValidator:
    """Return a validator that converts a list to a tuple.

    Args:
        alone: types of which a lone item is taken for a list of it.
    """

    def convert(given: Any) -> Any:
        if isinstance(given, list):
            return tuple(given)
        return (given,) if isinstance(given, alone) else given

    return BeforeValidator(convert)


def _name_of(given: Any) -> Any:
    """Return the name of a source; accept a name as well."""
    return given.name if isinstance(given, Source) else given


class _OneOrSeveral:
    """In the JSON schema, that a lone item needs no list."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        several = handler(core)
        return {"anyOf": [several["items"], several]}


Name = Annotated[str, Field(min_length=1)]
SourceName = Annotated[Name, Field(description="The name of one of the sources.")]
Names = Annotated[
    tuple[Name, ...],
    _tuple_of(str),
    WithJsonSchema(
        {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string", "minLength": 1}}]}
    ),
]
Options = Annotated[
    dict[str, Any],
    BeforeValidator(flat),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {"type": ["string", "integer", "number", "boolean", "object"]},
        }
    ),
]


def _frozen(value: Any) -> Any:
    """Convert a value to a hashable one; equal values give equal results."""
    if isinstance(value, Mapping):
        return frozenset((key, _frozen(inner)) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, value))
    return value


class Part(BaseModel):
    """A part of a pipeline."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=False)

    def __init__(self, **values: Any) -> None:
        """Check and set the values.

        Raises:
            SpecError: One value is wrong.
            SeveralErrors: Several values are wrong; it has all of them.
        """
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise_all(errors_of(shape_problems(error, type(self))))

    @model_validator(mode="before")
    @classmethod
    def _with_new_names(cls, given: Any) -> Any:
        return with_new_names(given, cls.model_fields)

    # Parts within parts are checked by pydantic as a whole, whose problems are told together.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy the part, and replace and validate the values in ``update``.

        Raises:
            SpecError: a value is wrong.
            SeveralErrors: several values are wrong.

        >>> clicks = Source(name="clicks", connection={"connector": "memory"})
        >>> clicks.model_copy(update={"lag": "5 seconds"}).lag
        datetime.timedelta(seconds=5)
        """
        copied = super().model_copy(deep=deep)
        if not update:
            return copied
        return type(self)(**{name: getattr(copied, name) for name in copied.model_fields_set} | dict(update))

    def __hash__(self) -> int:
        """Return a hash that is equal for equal parts, whatever the order of dictionaries."""
        return hash((type(self), _frozen(dict(self))))


class Source(Part):
    """A stream, or a table that rows look things up in.

    >>> Source(name="clicks", connection={"connector": "file", "path": "in", "format": "csv"}).lag
    0
    """

    name: Name = Field(description="By which transforms and the query mention it.")
    connection: Options = Field(
        description="Where its rows come from: the options of CREATE TABLE … WITH (…), 'connector' too."
        ' Secrets are ${NAME}, or { from_file = "…" }.'
    )
    columns: dict[str, str] = Field(
        default={}, description="Names and SQL types, in order; none: those of its files are inferred."
    )
    query: Name | None = Field(
        default=None,
        description="A SELECT from it, by its name: which rows and columns the pipeline sees. None: all.",
    )
    lag: Length = Field(
        default=0, description="How far its watermark stays behind the greatest event time: 10 seconds."
    )
    hot_key_rows_per_second: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="How many rows of its most frequent key come per second; for warnings alone.",
    )


class Target(Part):
    """Destination of the rows.

    >>> Target(connection={"connector": "file", "path": "out/joined", "format": "parquet"}).name is None
    True
    """

    connection: Options = Field(
        description="The options of CREATE SINK … WITH (…), 'connector' among them. Secrets are ${NAME}, or"
        ' { from_file = "…" }.'
    )
    name: Name | None = Field(
        default=None,
        description="By which a job that goes on knows it; none: the last part of its path or table.",
    )
    primary_key: Names = Field(default=(), description="Columns by which a row takes the place of another.")

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            connection: Mapping[str, Any],
            name: str | None = None,
            primary_key: str | Sequence[str] = (),
        ) -> None: ...


class Join(Part):
    """A join of two streams, by keys and by how far their event times are apart.

    >>> Join(left_source="impressions", right_source="clicks", left_keys="ad", right_keys="ad",
    ...      time_window="5 minutes", event_time_column="at").how
    'inner'
    """

    kind: Literal["stream_stream_join"] = "stream_stream_join"
    left_source: Annotated[SourceName, BeforeValidator(_name_of)]
    right_source: Annotated[SourceName, BeforeValidator(_name_of)]
    left_keys: Names = Field(description="Columns that are to be equal, with those of right_keys, in order.")
    right_keys: Names
    time_window: SignedLength | None = Field(
        default=None,
        description="Right time less left time is from -time_window to time_window, ends included.",
    )
    min_delta: SignedLength | None = Field(
        default=None, description="Right time less left time is at least this; in place of time_window."
    )
    max_delta: SignedLength | None = Field(default=None, description="And at most this.")
    event_time_column: Name = Field(
        default=EVENT_TS,
        description="The event time of both sides; _event_ts: the record's time, if rows have none so named.",
    )
    left_event_time_column: Name | None = Field(
        default=None, description="That of the left side, if it differs."
    )
    right_event_time_column: Name | None = Field(default=None, description="That of the right side.")
    how: Literal["inner", "left", "right", "full"] = "inner"
    lateness: Literal["join"] | None = Field(
        default=None,
        description='Which rows are late: as in SQL, or by the join as a whole ("join").',
    )
    allowed_lateness: Length | None = Field(
        default=None, description='How much longer rows are retained, of lateness = "join".'
    )
    left_column_prefix: str = "left_"
    right_column_prefix: str = "right_"
    output_left_columns: Names | None = Field(default=None, description="None: all, keys and time included.")
    output_right_columns: Names | None = Field(default=None, description="None: all, keys and time included.")

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            kind: Literal["stream_stream_join"] = "stream_stream_join",
            left_source: str | Source,
            right_source: str | Source,
            left_keys: str | Sequence[str],
            right_keys: str | Sequence[str],
            time_window: str | int | timedelta | None = None,
            min_delta: str | int | timedelta | None = None,
            max_delta: str | int | timedelta | None = None,
            event_time_column: str = EVENT_TS,
            left_event_time_column: str | None = None,
            right_event_time_column: str | None = None,
            how: Literal["inner", "left", "right", "full"] = "inner",
            lateness: Literal["join"] | None = None,
            allowed_lateness: str | int | timedelta | None = None,
            left_column_prefix: str = "left_",
            right_column_prefix: str = "right_",
            output_left_columns: str | Sequence[str] | None = None,
            output_right_columns: str | Sequence[str] | None = None,
        ) -> None: ...

    @property
    def event_times(self) -> tuple[str, str]:
        """Event-time columns of both sides."""
        return (
            self.left_event_time_column or self.event_time_column,
            self.right_event_time_column or self.event_time_column,
        )

    @property
    def deltas(self) -> tuple[timedelta | int, timedelta | int]:
        """The least and the greatest right time less left time."""
        if self.time_window is not None:
            return -self.time_window, self.time_window
        return self.min_delta or 0, self.max_delta or 0  # both are given: `rules`


class Window(Part):
    """Groups of rows by windows of an event time.

    >>> Window(event_time_column="at", size="1 minute", group_by=["ad"], aggregates={"n": "count(*)"}).kind
    'tumble'
    """

    kind: Literal["tumble", "hop", "session"] = "tumble"
    event_time_column: Name = EVENT_TS
    size: Length | None = Field(default=None, description="Of tumble and hop.")
    slide: Length | None = Field(default=None, description="A window begins every so often; of hop.")
    gap: Length | None = Field(default=None, description="A session ends so long after its last row.")
    group_by: Names = ()
    aggregates: dict[str, Name] = Field(description='By name what is made of a group: { n = "count(*)" }.')
    allowed_lateness: Length = Field(
        default=0, description="How late rows may be; behind a join that says it itself."
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            kind: Literal["tumble", "hop", "session"] = "tumble",
            event_time_column: str = EVENT_TS,
            size: str | int | timedelta | None = None,
            slide: str | int | timedelta | None = None,
            gap: str | int | timedelta | None = None,
            group_by: str | Sequence[str] = (),
            aggregates: Mapping[str, str],
            allowed_lateness: str | int | timedelta = 0,
        ) -> None: ...


class Lookup(Part):
    """Rows meet a table as it is in their tick.

    >>> Lookup(source="items", keys={"item": "id"}, columns=["name"]).how
    'left'
    """

    source: Annotated[SourceName, BeforeValidator(_name_of)]
    keys: dict[Name, Name] = Field(
        description="By the rows' columns those of the table that are to be equal."
    )
    columns: Names | None = Field(default=None, description="Of the table, that are added; none: all.")
    column_prefix: str = ""
    how: Literal["inner", "left"] = "left"

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            source: str | Source,
            keys: Mapping[str, str],
            columns: str | Sequence[str] | None = None,
            column_prefix: str = "",
            how: Literal["inner", "left"] = "left",
        ) -> None: ...


class Transform(Part):
    """A step: one join, or one window; and look-ups.

    >>> Transform(window=Window(size="1 second", aggregates={"n": "count(*)"})).join is None
    True
    """

    join: Join | None = None
    window: Window | None = None
    lookups: dict[str, Lookup] = {}


class StateStore(Part):
    """Location of the state.

    >>> StateStore(kind="object", url="s3://bucket/states").kind
    'object'
    """

    kind: Literal["files", "postgres", "object"]
    url: Name = Field(
        description="files: a directory; postgres: postgresql://user@host/database; object: s3://…, gs://…, az://…"
    )
    cache: Name | None = Field(default=None, description="How much is cached on this machine's disk: 1 GB.")
    endpoint: Name | None = Field(
        default=None, description="Of an object store that is none of a cloud's own."
    )
    region: Name | None = None
    allow_http: bool = Field(default=False, description="An object store is reached without TLS.")


class Description(Part):
    """All that a pipeline says. `pipelines.Pipeline` is one that can be run."""

    name: Annotated[str, Field(min_length=1, pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}$")]
    description: str | None = None
    sources: Annotated[tuple[Source, ...], _tuple_of()]
    transform: Annotated[
        tuple[Transform, ...],
        _tuple_of(Mapping, Transform),
        _OneOrSeveral(),
    ] = Field(description="One step, or several, each of the rows of the one before.")
    target: Target
    state_store: StateStore | None = None
    checkpoint: Name | None = Field(
        default=None, description="The directory of the checkpoint; none: .watersmeet/<name>."
    )
    settings: Options = Field(default={}, description="As SET in SQL: max_rows, partitions, trigger, spark.…")

    def step(self, number: int) -> Key:
        """Return the key of a transform; a single transform has no number."""
        return ("transform", number) if len(self.transform) > 1 else ("transform",)

    @property
    def join(self) -> Join | None:
        """The one join, if there is one."""
        return next((step.join for step in self.transform if step.join is not None), None)


def directory_of(url: str) -> str:
    """Return the directory of the URL of a ``files`` store; leave other file systems unchanged."""
    return local_path(url) or url


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a pipeline's TOML, for editors.

    >>> sorted(json_schema()["properties"])[:3]
    ['checkpoint', 'description', 'name']
    """
    return {
        "$schema": DRAFT,
        **Description.model_json_schema(),
        "title": "A pipeline of watersmeet",
    }
