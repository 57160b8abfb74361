"""Rules between the parts of a pipeline, and its limits."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from watersmeet.errors import format_count, near_names
from watersmeet.names import is_ours
from watersmeet.parser.ddl.options import is_same_option
from watersmeet.parser.ddl.settings import is_same_setting, setting_name
from watersmeet.pipelines.connection_options import option_problems, secret_in_url
from watersmeet.pipelines.durations import is_less, written
from watersmeet.pipelines.model import (
    Description,
    Join,
    Lookup,
    Source,
    StateStore,
    Target,
    Transform,
    Window,
    directory_of,
)
from watersmeet.pipelines.problems import Key, Problem, as_written
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.order.forecast import SideForecast, side_forecasts

# Whether limits of a pipeline will hold, where the plan itself does not say it: of integer event times,
# whose unit only a pipeline knows, and of keys that are declared to be hot.

_US, _MS = 1_000_000, 1_000
"""In a second."""


def warnings_of(description: Description, plan: JobPlan) -> list[str]:
    """Return warnings to show before the run."""
    warnings: list[str] = []
    for query in plan.queries:
        warnings += query.warnings
        warnings += _hot_keys(description, query)
        warnings += _of_integer_times(query)
    return warnings


def _hot_keys(description: Description, query: QueryPlan) -> Iterator[str]:
    most = query.options.max_rows_per_key
    rates = {
        source.name: source.hot_key_rows_per_second
        for source in description.sources
        if source.hot_key_rows_per_second is not None
    }
    for _, sides in side_forecasts(query):
        for side in sides:
            hot = [
                rates[branch.source.name] for _, branch in side.side.sources if branch.source.name in rates
            ]
            kept = _rows(side, sum(rate for rate in hot if rate is not None))
            if hot and kept is not None and most is not None and kept > most:
                yield (
                    f"max_rows_per_key = {most:,}: forecast by the declared hot key of {side.side.name}"
                    f" {format_count(round(kept), 'row')}"
                )


def _of_integer_times(query: QueryPlan) -> Iterator[str]:
    most = query.options.max_rows
    for _, sides in side_forecasts(query):
        if most is None or any(side.in_time for side in sides):
            continue  # the plan's own warnings have those
        rows = [None if side.rate is None else _rows(side, side.rate) for side in sides]
        counts = [count for count in rows if count is not None]
        if sum(counts) > most:
            yield (
                f"max_rows = {most:,}: forecast by declared rates {format_count(round(sum(counts)), 'row')},"
                " if integer times are milliseconds"
            )


def _rows(side: SideForecast, rate: float) -> float | None:
    """Return the maximum number of retained rows at a rate in rows per second; None: unbounded."""
    return None if side.kept is None else rate * side.kept / (_US if side.in_time else _MS)


# What the parts of a pipeline have to do with each other: each rule a function that yields what is wrong.
#
# Rules take parts that may be missing, because what they say is not of the right shape: they pass these
# over, so that one mistake is told once, and all others beside it.

ELSEWHERE = {
    "lateness": "transform.join has lateness and allowed_lateness",
    "allowed_lateness": "transform.join, or transform.window, has allowed_lateness",
    "checkpoint": "checkpoint is a key of the pipeline itself",
    "state_store": "[state_store] says it",
    "state_cache": "[state_store] has cache",
    "state_store_endpoint": "[state_store] has endpoint",
    "state_store_region": "[state_store] has region",
    "state_store_allow_http": "[state_store] has allow_http",
}
"""Settings that a pipeline says by other keys."""

_SCHEMES = {"postgres": ("postgresql://", "postgres://"), "object": ("s3://", "gs://", "az://")}


@dataclass(frozen=True)
class Parts:
    """Parts of a pipeline; None: a part is missing or has the wrong shape."""

    sources: Sequence[Source | None]
    transform: Sequence[Transform | None]
    target: Target | None
    state_store: StateStore | None
    checkpoint: str | None
    settings: dict[str, object]

    @staticmethod
    def of(whole: Description) -> Parts:
        return Parts(
            whole.sources, whole.transform, whole.target, whole.state_store, whole.checkpoint, whole.settings
        )


def problems(parts: Parts) -> list[Problem]:
    """Return all problems of the parts."""
    wrong = [*_sources(parts), *_transforms(parts), *_target(parts), *_store(parts), *_settings(parts)]
    return as_written(wrong, len(parts.transform))


def _sources(parts: Parts) -> Iterator[Problem]:
    if not parts.sources:
        yield Problem(
            ("sources",), "is empty", "missing-key", "a pipeline reads one source at least: [[sources]]"
        )
    seen: set[str] = set()
    used = {name.lower() for name in _list_used_sources(parts)}
    timed = {name.lower() for name in _list_event_time_sources(parts)}
    for number, source in enumerate(parts.sources):
        if source is None:
            continue
        key: Key = ("sources", number)
        yield from _name((*key, "name"), source.name)
        if source.name.lower() in seen:
            yield Problem(
                (*key, "name"),
                f'two sources are named "{source.name}"',
                "duplicate-name",
                "rename one of them",
            )
        elif used and source.name.lower() not in used and None not in parts.transform:
            yield Problem(
                (*key, "name"),
                f'no transform reads "{source.name}"',
                "unused-source",
                "leave the source out; a join reads left_source and right_source, a lookup its source",
            )
        elif source.lag and source.name.lower() not in timed and None not in parts.transform:
            yield Problem(
                (*key, "lag"),
                "has no effect: no transform asks for its event time",
                "no-effect",
                "leave it out; a join reads the times of its sources, a window that of the first one",
            )
        seen.add(source.name.lower())
        yield from _connection((*key, "connection"), source.connection)
        names: set[str] = set()
        for column in source.columns:
            if not column.strip() or is_ours(column):
                yield Problem(
                    (*key, "columns", column),
                    "is not a name that a column can have",
                    "bad-value",
                    "use another name",
                )
            if column.lower() in names:
                yield Problem(
                    (*key, "columns", column),
                    "is there twice: names are the same in any case",
                    "duplicate-column",
                    "rename one of them",
                )
            names.add(column.lower())


def _list_used_sources(parts: Parts) -> Iterator[str]:
    yield from _streams(parts)
    for step in parts.transform:
        for lookup in {} if step is None else step.lookups.values():
            yield lookup.source


def _streams(parts: Parts) -> Iterator[str]:
    """Yield the sources whose rows are joined; without a join, the first source."""
    joins = [step.join for step in parts.transform if step is not None and step.join is not None]
    for join in joins:
        yield from (join.left_source, join.right_source)
    if not joins:
        yield from (source.name for source in parts.sources[:1] if source is not None)


def _list_event_time_sources(parts: Parts) -> Iterator[str]:
    """Yield the sources whose event times are used."""
    steps = [step for step in parts.transform if step is not None]
    for join in (step.join for step in steps if step.join is not None):
        yield from (join.left_source, join.right_source)
    if any(step.window is not None for step in steps):
        yield from (source.name for source in parts.sources[:1] if source is not None)


def _name(key: Key, name: str) -> Iterator[Problem]:
    if set(name) & set("./`") or not name.strip() or is_ours(name):
        yield Problem(key, f'is "{name}"', "bad-value", "letters, digits and _")


def _connection(key: Key, options: dict[str, object]) -> Iterator[Problem]:
    if not any(name.lower() == "connector" for name in options):
        yield Problem(key, 'has no "connector"', "missing-key", 'connector = "kafka", or "file"')
    yield from option_problems(key, options, is_same_option)


def _transforms(parts: Parts) -> Iterator[Problem]:
    if not parts.transform:
        yield Problem(("transform",), "is empty", "missing-key", "[transform.join] or [transform.window]")
    joined = windowed = False
    streams = {name.lower() for name in _streams(parts)}
    for number, step in enumerate(parts.transform):
        if step is None:
            continue
        key: Key = ("transform", number)
        if step.join is None and step.window is None and not step.lookups:
            yield Problem(key, "is empty", "missing-key", "[transform.join], [transform.window] or lookups")
        if step.join is not None and step.window is not None:
            yield Problem(
                (*key, "window"),
                "cannot be in one transform with a join, because their order is unknown",
                "window-and-join",
                "a second transform aggregates the join: [[transform]] with [transform.join], then"
                " [[transform]] with [transform.window]",
            )
        if windowed:
            yield Problem(key, "follows a window", "bad-order", "the window is the last transform")
        if step.join is not None:
            if joined:
                hint = "one join per pipeline; others in a pipeline that reads what this one writes"
                yield Problem((*key, "join"), "is a second join", "second-join", hint)
            elif number:
                hint = "the join is the first transform; a source's query filters before it"
                yield Problem((*key, "join"), "follows another transform", "bad-order", hint)
            joined = True
            yield from _join((*key, "join"), step.join, parts)
        if step.window is not None:
            windowed = True
            yield from _window((*key, "window"), step.window, joined)
        for name, lookup in step.lookups.items():
            yield from _lookup((*key, "lookups", name), name, lookup, parts, streams)


def _join(key: Key, join: Join, parts: Parts) -> Iterator[Problem]:
    for side, name in (("left_source", join.left_source), ("right_source", join.right_source)):
        yield from _exists((*key, side), name, parts)
    if join.left_source.lower() == join.right_source.lower():
        yield Problem(
            (*key, "right_source"),
            f'is "{join.right_source}", as left_source is: a join has two sources',
            "same-source",
            "declare a second source with the same connection to join a stream with itself",
        )
    for side, keys in (("left_keys", join.left_keys), ("right_keys", join.right_keys)):
        if not keys:
            yield Problem(
                (*key, side), "is empty", "no-keys", "the columns that are to be equal: one at least"
            )
    if join.left_keys and join.right_keys and len(join.left_keys) != len(join.right_keys):
        yield Problem(
            (*key, "right_keys"),
            f"has {len(join.right_keys)} columns, and left_keys {len(join.left_keys)}",
            "key-count",
            "they are compared in order, each with one",
        )
    yield from _deltas(key, join)
    if join.left_column_prefix == join.right_column_prefix:
        yield Problem(
            (*key, "right_column_prefix"),
            f'is "{join.right_column_prefix}", as left_column_prefix is',
            "same-prefix",
            'columns of both sides would have the same names: "left_" and "right_"',
        )
    for side, columns in (
        ("output_left_columns", join.output_left_columns),
        ("output_right_columns", join.output_right_columns),
    ):
        yield from _twice((*key, side), columns or ())
    if join.output_left_columns == () and join.output_right_columns == ():
        yield Problem((*key, "output_left_columns"), "is empty, as output_right_columns is", "no-columns")
    yield from _collisions(key, join)
    if join.allowed_lateness and join.lateness is None:
        yield Problem(
            (*key, "allowed_lateness"),
            "has no effect without lateness",
            "no-effect",
            'lateness = "join", or leave it out',
        )


def _deltas(key: Key, join: Join) -> Iterator[Problem]:
    bounds = {"min_delta": join.min_delta, "max_delta": join.max_delta}
    said = [name for name, value in bounds.items() if value is not None]
    if join.time_window is not None and said:
        yield Problem(
            (*key, "time_window"),
            f"is given together with {' and '.join(said)}",
            "two-windows",
            "one or the other: time_window is -time_window to time_window",
        )
    elif join.time_window is not None:
        if not is_less(0, join.time_window):
            yield Problem(
                (*key, "time_window"), f"is {written(join.time_window)}", "bad-window", "above zero"
            )
    elif not said:
        yield Problem(
            key,
            "does not say how far the times of a pair may be apart",
            "no-window",
            'time_window = "5 minutes", or min_delta and max_delta',
        )
    elif len(said) == 1:
        other = next(name for name in bounds if name not in said)
        yield Problem((*key, other), f"is missing beside {said[0]}", "missing-key", "both ends are needed")
    elif is_less(join.deltas[1], join.deltas[0]):
        low, high = map(written, join.deltas)
        yield Problem(
            (*key, "min_delta"),
            f"is {low}, above max_delta, {high}: no pair fits",
            "bad-window",
            "delta is right time less left time; min_delta is the lesser",
        )


def _collisions(key: Key, join: Join) -> Iterator[Problem]:
    """Yield collisions among named columns.

    Those of `*` are known only with the sources (`pipelines.build`).
    """
    left = {f"{join.left_column_prefix}{name}".lower() for name in join.output_left_columns or ()}
    for name in join.output_right_columns or ():
        whole = f"{join.right_column_prefix}{name}"
        if whole.lower() in left:
            yield collision((*key, "output_right_columns"), whole)


def collision(key: Key, name: str) -> Problem:
    return Problem(
        key,
        f'two columns of the result would be named "{name}"',
        "duplicate-column",
        "choose other prefixes, or list the columns that go out",
    )


def _twice(key: Key, names: Sequence[str]) -> Iterator[Problem]:
    lowered = [name.lower() for name in names]
    for name in dict.fromkeys(name for name in names if lowered.count(name.lower()) > 1):
        yield Problem(key, f'has "{name}" twice', "duplicate-column", "leave one out")


def _exists(key: Key, name: str, parts: Parts) -> Iterator[Problem]:
    names = [source.name for source in parts.sources if source is not None]
    if None not in parts.sources and name.lower() not in {other.lower() for other in names}:
        yield Problem(key, f'there is no source "{name}"', "unknown-source", near_names(name, names))


def _window(key: Key, window: Window, joined: bool) -> Iterator[Problem]:
    needed = {"tumble": ("size",), "hop": ("size", "slide"), "session": ("gap",)}[window.kind]
    for name in ("size", "slide", "gap"):
        value = getattr(window, name)
        if name in needed and not value:
            problem = "is missing" if value is None else "is 0"
            yield Problem(
                (*key, name), f"{problem}: kind is {window.kind}", "bad-window", "a length above zero"
            )
        elif name not in needed and value is not None:
            yield Problem(
                (*key, name), f"has no meaning: kind is {window.kind}", "no-effect", f"{' and '.join(needed)}"
            )
    if not window.aggregates:
        yield Problem((*key, "aggregates"), "is empty", "no-columns", 'aggregates = { n = "count(*)" }')
    yield from _twice((*key, "group_by"), window.group_by)
    if joined and window.allowed_lateness:
        yield Problem(
            (*key, "allowed_lateness"),
            "has no effect behind a join",
            "no-effect",
            'the join has it: lateness = "join" and allowed_lateness',
        )


def _lookup(key: Key, name: str, lookup: Lookup, parts: Parts, streams: Collection[str]) -> Iterator[Problem]:
    yield from _name(key, name)
    yield from _exists((*key, "source"), lookup.source, parts)
    if not lookup.keys:
        hint = 'by the rows\' columns those of the table: keys = { item = "id" }'
        yield Problem((*key, "keys"), "is empty", "no-keys", hint)
    if lookup.source.lower() in streams:
        yield Problem(
            (*key, "source"),
            f'is "{lookup.source}", the stream itself',
            "same-source",
            "declare the table as a source of its own",
        )


def _target(parts: Parts) -> Iterator[Problem]:
    if parts.target is None:
        return
    yield from _connection(("target", "connection"), parts.target.connection)
    yield from _twice(("target", "primary_key"), parts.target.primary_key)


def _store(parts: Parts) -> Iterator[Problem]:
    store = parts.state_store
    if store is None:
        return
    key: Key = ("state_store",)
    if secret_in_url(store.url):
        hint = "postgresql://user:${PASSWORD}@host/…, or PGPASSWORD in the environment of each process"
        yield Problem((*key, "url"), "has a password written in it", "open-secret", hint)
    if not store.url.startswith("${"):  # `around` looks at what that is
        yield from url_problems((*key, "url"), store.kind, store.url)
    if store.kind == "files" and parts.checkpoint is not None:
        yield Problem(
            ("checkpoint",),
            'is given together with a state_store of kind "files", which is the same',
            "duplicate-option",
            "leave one of them out",
        )
    if store.kind == "files" and store.cache is not None:
        yield Problem(
            (*key, "cache"), "has no effect: the state is in files here", "no-effect", "leave it out"
        )
    if store.kind != "object":
        for name in ("endpoint", "region", "allow_http"):
            if getattr(store, name):
                yield Problem((*key, name), "is said of object stores alone", "no-effect", "leave it out")


def url_problems(key: Key, kind: str, url: str) -> Iterator[Problem]:
    """Yield problems if a store of the kind cannot be at the URL."""
    schemes = _SCHEMES.get(kind)
    if schemes is not None and not url.startswith(schemes):
        yield Problem(key, f"is none of a {kind} store", "bad-store", f"{' or '.join(schemes)}…")
    if schemes is None and "://" in directory_of(url):
        yield Problem(key, "is not a directory", "bad-store", 'kind = "postgres" or "object"')


def _settings(parts: Parts) -> Iterator[Problem]:
    yield from option_problems(("settings",), parts.settings, is_same_setting)
    for name in parts.settings:
        hint = ELSEWHERE.get(setting_name(name))
        if hint is not None:
            yield Problem(("settings", name), "is not a setting of a pipeline", "unknown-setting", hint)
