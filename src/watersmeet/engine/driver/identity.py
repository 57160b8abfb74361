"""What a tick's rows were made from: by this a tick is known again when it is repeated, and told from another
one that has its number.

The same for every attempt at a tick, on however many tasks. Names are for people: a refusal says which of
them differ.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from watersmeet.plan.model.job import JobPlan
from watersmeet.state.manifest import Manifest

Identity = dict[str, str]
"""Name -> digest."""


def identity_of(
    plan: JobPlan,
    before: Manifest | None,
    manifest: Manifest,
    rows_in: Mapping[str, int],
    told: Mapping[str, str],
) -> Identity:
    """Of the tick that ``manifest`` is about to be committed for.

    Args:
        before: the last committed one.
        rows_in: rows read, per source.
        told: what the engine knows besides (offsets, settings), as text.
    """
    return {
        "ticks before it": digest_of(before.identity if before is not None else {}),
        "clock": digest_of([manifest.clock_us, manifest.finished]),
        **{name: digest_of(text) for name, text in told.items()},
        "rows": digest_of([rows_in, _partitions(plan, manifest)]),
        "tables": digest_of(_tables(manifest)),
    }


def digest_of(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _partitions(plan: JobPlan, manifest: Manifest) -> list[Any]:
    """The greatest times of all source partitions, and which are idle. When one was last active is left out:
    it is told anew by the clock of the attempt."""
    return [
        [
            query.name,
            side.name,
            [
                [name, {c: str(t) for c, t in partition.greatest.items()}, partition.idle]
                for name, partition in sorted(
                    manifest.queries[query.name].inputs[side.name].branches[number].partitions.items()
                )
            ],
        ]
        for query in plan.queries
        for side in query.sides
        for number, _ in side.ingested
    ]


def _tables(manifest: Manifest) -> list[Any]:
    """The copies that rows met, by what is in them."""
    return [
        [name, number, node.table.version, [run.checksum for run in node.table.runs]]
        for name, query in manifest.queries.items()
        for number, node in enumerate(query.nodes)
        if node.table is not None
    ]
