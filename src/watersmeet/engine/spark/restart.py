"""What must fit before a job goes on: Spark's checkpoint against our manifest. Reads only.

Spark may repeat the last batch (killed between our commit and Spark's); nothing else. A repeated batch is
skipped only if everything recorded about it is equal; whatever does not fit stops the job with what to do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from watersmeet.engine.spark.checkpoint import Checkpoint, Offsets
from watersmeet.errors import StateError
from watersmeet.plan.model import JobPlan
from watersmeet.plan.settings import differences, digest_of
from watersmeet.state.manifest import Manifest

QUERY_ID, BATCH, OFFSETS, SOURCES = "query_id", "batch", "offsets", "sources"

_ANEW = "restore the checkpoint directory from a copy, or start anew with an empty one (and an empty sink)"


def host_of(query_id: str, offsets: Offsets, plan: JobPlan) -> dict[str, Any]:
    """What a manifest remembers of a batch."""
    return {QUERY_ID: query_id, BATCH: offsets.batch, OFFSETS: offsets.text, SOURCES: sources_of(plan)}


def sources_of(plan: JobPlan) -> list[str]:
    """The sources in the union's order."""
    return [f"{source.connector} {source.name}" for source in plan.sources]


def told_of(host: Mapping[str, Any], settings: str) -> dict[str, str]:
    """By what a tick is known besides its rows; see `engine.step.identity`. ``settings``: their digest."""
    batch = json.dumps([host.get(name) for name in (QUERY_ID, BATCH, OFFSETS, SOURCES)])
    return {"offsets": batch, "settings": settings}


def check_settings(
    checkpoint: Checkpoint, settings: Mapping[str, str], begun: str | None, may_be_out: Sequence[str]
) -> bool:
    """Whether a tick that an earlier run began was begun with these settings. If it was not, and rows of it
    may be out, it is not repeated: some rows would be made in one way, and some in another.

    Args:
        settings: those of this run.
        begun: the digest of those that the next tick was begun with; None: it was not begun, so that nothing
            of it is out.
        may_be_out: sinks, in words, that have rows of it, or of which that cannot be told.

    Raises:
        StateError: the settings are others, and rows may be out.
    """
    digest, kept = digest_of(settings), checkpoint.settings()
    as_begun = begun in (None, digest)
    if not as_begun and may_be_out:
        before = kept[1] if kept is not None and kept[0] == begun else None
        raise StateError(
            "the last run ended in the middle of a tick, of which rows may be out "
            f"({', '.join(may_be_out)}). It has to be repeated as it was, but the job is set in another way "
            f"now. {_what_differs(before, settings)}",
            code="interrupted-tick",
            hint="run the job once as it was, with --until-caught-up: that repeats the tick. Then change it",
        )
    if kept is None or kept[0] != digest:
        checkpoint.keep_settings(digest, settings)
    return as_begun


def _what_differs(before: Mapping[str, str] | None, now: Mapping[str, str]) -> str:
    if before is None:
        return "How it was set then is not known any more"
    return "; ".join(differences(before, now))


def check_checkpoint(checkpoint: Checkpoint, manifest: Manifest | None, plan: JobPlan) -> None:
    """Before the query starts.

    Raises:
        StateError: one of the two is lost, belongs to another job, or is behind the other.
    """
    query_id, planned = checkpoint.query_id(), checkpoint.last_planned()
    committed = checkpoint.last_committed()
    if manifest is None:
        if committed is not None:
            raise StateError(
                f"the state is gone: {checkpoint.state} holds no manifest, but Spark has committed "
                f"batch {committed}",
                code="state-lost",
                hint=f"joining from nothing would lose matches: {_ANEW}",
            )
        return
    host = manifest.host
    if not host:
        return
    if query_id is None or planned is None:
        raise StateError(
            f"Spark's checkpoint is gone from {checkpoint.spark}; the state is that of tick {manifest.tick}",
            code="spark-checkpoint-lost",
            hint=f"reading from the start would join rows twice: {_ANEW}",
        )
    if host[SOURCES] != sources_of(plan):
        raise StateError(
            f"the sources are {_listed(sources_of(plan))}; the state was made with {_listed(host[SOURCES])}, "
            "in this order",
            code="sources-changed",
            hint="name the same sources in the same order, or start anew with an empty checkpoint directory",
        )
    if host[QUERY_ID] != query_id:
        raise StateError(
            f"Spark's checkpoint in {checkpoint.spark} is not the one that the state was made with",
            code="spark-checkpoint-changed",
            hint=_ANEW,
        )
    if planned < host[BATCH] or (committed is not None and committed > host[BATCH]):
        raise StateError(
            f"Spark's checkpoint is at batch {planned if committed is None else committed}, "
            f"the state at batch {host[BATCH]}: one of them is of another time",
            code="checkpoint-gap",
            hint=_ANEW,
        )


def is_committed(manifest: Manifest | None, query_id: str, offsets: Offsets, plan: JobPlan) -> bool:
    """Whether the batch that Spark gives is the one committed last.

    Raises:
        StateError: it is neither that nor the next one.
    """
    host = manifest.host if manifest is not None else {}
    last = int(host.get(BATCH, -1))
    if offsets.batch == last + 1:
        return False
    if host and host_of(query_id, offsets, plan) == host:
        return True
    raise StateError(
        f"Spark gives batch {offsets.batch}, the state is at batch {last}"
        + (", with other offsets" if offsets.batch == last else ""),
        code="checkpoint-gap",
        hint=_ANEW,
    )


def _listed(sources: list[str]) -> str:
    return ", ".join(f'"{each}"' for each in sources)
