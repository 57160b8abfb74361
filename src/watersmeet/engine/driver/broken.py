"""Records that do not parse: a tick with too many of them is refused before it is committed.

When a column is declared as another type, or in another format, than the records have, each of them is
broken. The job would go on, put out nothing, and its watermark would never move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from watersmeet.engine.driver.counts import Broken, RowsRead, added, branches_of, ingest_counts
from watersmeet.engine.messages.reports import IngestReport
from watersmeet.errors import EngineError, counted, raise_all
from watersmeet.plan.model.job import JobPlan
from watersmeet.spec.job_options import shown_share
from watersmeet.spec.model import OnBroken
from watersmeet.state.manifest import Manifest

LEAST = 100
"""Of fewer records nothing is concluded while others may come."""


def check_broken(
    plan: JobPlan,
    before: Manifest | None,
    read: RowsRead,
    reports: Sequence[IngestReport],
    ends: Callable[[str], bool] | None,
) -> None:
    """Refuse a tick if none of a source's records parses, or more of an input are broken than ``max_broken``.

    None parses: of the first tick that reads it, if these are `LEAST` records; of a bounded run also if there
    are no others.

    Args:
        before: the state that the tick goes on from.
        read: in the tick; ``reports``: of its ingest tasks.
        ends: of a bounded run, whether it has read all of a source.

    Raises:
        EngineError: ``all-records-broken``, ``max-broken``, with the text of one record; nothing of the tick
            goes out.
    """
    if read.broken:
        raise_all([*_all_broken(plan, before, read, ends), *_too_many(plan, before, read, reports)])


def broken_files_text(broken: Broken) -> str:
    """Name the files of which no record that is to be a row parsed; empty: there are none."""
    if not broken.files:
        return ""
    first, *others = broken.files
    named = f"{first.name} ({counted(first.rows, 'record')})"
    if others or broken.is_cut:
        named = f"{len(broken.files):,}{' or more' * broken.is_cut} files, first {named},"
    return f"no row of {named} parses{f', such as {first.text}' if first.text else ''}"


def _all_broken(
    plan: JobPlan, before: Manifest | None, read: RowsRead, ends: Callable[[str], bool] | None
) -> Iterator[EngineError]:
    stops = {source.name for source in plan.sources if source.on_broken is OnBroken.STOP}
    places = branches_of(plan)
    for name, own in read.broken.items():
        if name not in stops or not own.is_all:
            continue
        account = _account(before, *places[name][0].rsplit("/", 1))
        records = account.get("broken", 0) + own.rows
        no_rows = account.get("broken", 0) + account.get("skipped", 0)
        is_first, none_parsed = not account.get("in"), account.get("in", 0) == no_rows
        if (is_first and own.rows >= LEAST) or (none_parsed and ends is not None and ends(name)):
            yield EngineError(
                f'source "{name}": none of the first {counted(records, "record")} parses into the'
                f" declared columns, for example {own.text}. Nothing was committed",
                code="all-records-broken",
                hint="declare the columns that `watersmeet infer` shows; or set 'on_broken' = 'count'"
                " for the source, which counts such records and drops them",
            )


def _too_many(
    plan: JobPlan, before: Manifest | None, read: RowsRead, reports: Sequence[IngestReport]
) -> Iterator[EngineError]:
    for query in plan.queries:
        limit = query.options.max_broken
        if limit is None:
            continue
        come = ingest_counts(query, reports)
        for side in query.sides:
            sources = [branch.source.name for _, branch in side.ingested if branch.source.name in read.broken]
            if not sources or not come[side.name].get("broken"):
                continue
            rows = added({side.name: _account(before, query.name, side.name)}, come)[side.name]
            is_share, records = isinstance(limit, Fraction), counted(rows["in"], "record")
            if rows["broken"] > (limit * rows["in"] if is_share else limit) and (
                not is_share or rows["in"] >= LEAST
            ):
                broken = read.broken[sources[0]]
                files = f"; {text}" if (text := broken_files_text(broken)) else ""
                yield EngineError(
                    f'"{query.name}", input {side.name}: {rows["broken"]:,} of {records} do not parse,'
                    f" more than max_broken = {shown_share(limit)}. For example: {broken.text}{files}",
                    code="max-broken",
                    hint="correct the records or the declared columns, or raise max_broken",
                )


def _account(before: Manifest | None, query: str, alias: str) -> dict[str, int]:
    """Return what became of the rows of an input until now."""
    state = None if before is None else before.queries.get(query)
    return {} if state is None else dict(state.account.get(alias, {}))
