"""What a job has read of its sources, by its state: files, offsets of topics; or files that were named."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from watersmeet.cli.diff.file_order import Orders, orders_of
from watersmeet.cli.why.reading import FILES
from watersmeet.engine.spark.checkpoint.host import NOTHING_READ, ends_in
from watersmeet.engine.spark.sources.files.there import local_of, reader_path
from watersmeet.errors import SpecError, StateError, counted, near_names
from watersmeet.history.past import read as past_of
from watersmeet.plan.evaluated import needed_of
from watersmeet.plan.model.job import JobPlan
from watersmeet.regular_files import named_files
from watersmeet.spec.model import Source
from watersmeet.state import file_lists
from watersmeet.state.manifest import Manifest
from watersmeet.state.store import Store
from watersmeet.why.ticks import TickHistory, tick_history


@dataclass(frozen=True)
class Read:
    """Of one source. ``files``: in the order in which they were read, as Spark's readers take them, ``urls``:
    as they call them; ``ends``: per
    topic and partition, the offset behind the last record that was read. ``named``: they were named for the
    comparison, and nobody knows which of them were read. ``changed``: of the files, those that were changed
    since, ``gone``: that are not there any more, and so not among ``files``. ``batches``: that in which
    each of ``files`` was read; those of a batch were in one tick. ``orders``: of a table with a primary key,
    in which orders they may have counted (`orders_of`). ``asked``: the columns that the job looks at: a text
    in one that is longer than its VARCHAR(n) breaks its record."""

    source: Source
    files: Sequence[str] = ()
    urls: Sequence[str] = ()
    ends: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    named: bool = False
    changed: Sequence[str] = ()
    gone: Sequence[str] = ()
    batches: Sequence[int] = ()
    orders: Sequence[Sequence[int]] = ()
    asked: frozenset[str] = frozenset()

    @property
    def local_files(self) -> list[str] | None:
        """As the operating system has them; None: they are not all its own."""
        files = [local_of(file) for file in self.files]
        return None if None in files else [file for file in files if file is not None]

    def notes(self) -> list[str]:
        """What a person should know of it."""
        notes = []
        for one, several, files in (
            ("was changed since it was", "were changed since they were", self.changed),
            ("is gone since it was", "are gone since they were", self.gone),
        ):
            if files:
                notes.append(
                    f"{self.source.name}: {counted(len(files), 'file')} {several if files[1:] else one} read:"
                    f" {', '.join(files[:3])}{', …' if files[3:] else ''}"
                )
        return notes


def read_of(
    plan: JobPlan,
    manifest: Manifest | None,
    store: Store,
    named: Mapping[str, str],
    history: Callable[[], TickHistory],
    *,
    keeps_late: bool = False,
) -> dict[str, Read]:
    """Per source that is read as a stream.

    Args:
        named: per source the files that were named: a file, a directory, or a pattern.
        history: asked for where it makes a difference.
        keeps_late: the job keeps rows that are late, with all of their columns.

    Raises:
        SpecError: a name is none of a source's, there is no such file; or nothing says what was read.
        StateError: the state was made with other sources.
    """
    sources = {source.name: source for source in plan.sources}
    for name in named:
        if name not in sources:
            raise SpecError(
                f'--input {name}: the job has no stream "{name}"',
                code="wrong-option",
                hint=near_names(name, sources),
            )
    if manifest is not None and manifest.sources != [source.name for source in plan.sources]:
        raise StateError(
            "the state belongs to other sources, or to the same ones in another order",
            code="sources-changed",
            hint="pass the job's text with which the state was made",
        )
    by_number: dict[int, list[file_lists.FileRead]] = {}
    if manifest is not None:
        for file in file_lists.read(store, file_lists.lists_of(manifest.host)):
            if file.batch >= 0:  # others were found changed or gone: they are told of once more
                by_number.setdefault(file.source, []).append(file)
    read = {
        source.name: _named(source, named[source.name])
        if source.name in named
        else _by_state(source, number, manifest, by_number.get(number, []), history)
        for number, source in enumerate(plan.sources)
    }
    return {name: replace(of, asked=_asked(plan, of.source, keeps_late)) for name, of in read.items()}


def _asked(plan: JobPlan, source: Source, keeps_late: bool) -> frozenset[str]:
    if keeps_late:
        return frozenset(column.name for column in source.columns)
    sides = [side for query in plan.queries for side in query.sides]
    branches = [branch for side in sides for _, branch in side.sources if branch.source.name == source.name]
    return needed_of(source, branches)


def _named(source: Source, path: str) -> Read:
    files = [os.path.abspath(file) for file in named_files(path)]
    if not files:
        raise SpecError(
            f"--input {source.name}: no file exists at {path}",
            code="path-missing",
            hint="name a file, a directory of files, or a pattern such as 'orders/*.parquet'",
        )
    return Read(
        source, [f"file:{file}" for file in files], [Path(file).as_uri() for file in files], named=True
    )


def _by_state(
    source: Source,
    number: int,
    manifest: Manifest | None,
    files: Sequence[file_lists.FileRead],
    history: Callable[[], TickHistory],
) -> Read:
    if manifest is None:
        raise SpecError(
            f'the job has read no rows of "{source.name}" yet: no tick is committed',
            code="no-state",
            hint="run the job first, or name its checkpoint directory (--checkpoint DIR), or the rows:"
            f" --input {source.name}=FILES",
        )
    if source.traits.files:
        there: list[tuple[str, file_lists.FileRead]] = []
        changed, gone = [], []
        for file in files:
            local = local_of(file.path)
            if local is not None and file.size >= 0:
                try:
                    now = os.stat(local)
                except OSError:
                    gone.append(local)
                    continue
                if (now.st_size, now.st_mtime_ns) != (file.size, file.changed_ns):
                    changed.append(local)
            path = reader_path(file)
            if path is None:
                gone.append(file.path)
            else:
                there.append((path, file))
        paths, read = [path for path, _ in there], [file for _, file in there]
        orders: Orders = []
        if source.primary_key is not None:
            orders = orders_of(read, source.name, FILES, history)
        return Read(
            source,
            paths,
            [file.path for file in read],
            changed=changed,
            gone=gone,
            batches=[file.batch for file in read],
            orders=orders,
        )
    if source.traits.log:
        texts = ends_in(manifest.host)
        text = NOTHING_READ if texts is None else texts[number]
        ends = {} if text == NOTHING_READ else json.loads(text)
        return Read(source, ends=ends if isinstance(ends, dict) else {})
    raise SpecError(
        f'"{source.name}" cannot be read again, because it is {source.traits.called}',
        code="not-compared",
        hint=f"pass the rows that it gave with --input {source.name}=FILES",
    )


def history_of(store: Store, tick: int) -> TickHistory:
    """What is known of ticks up to that of the state."""
    return tick_history(past_of(store), tick)
