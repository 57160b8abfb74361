"""Which rows are shed: those up to a time, or those of some keys, so many that others are within a limit.

Which they are follows from the rows and from what each counts: 1, or its share of its file's bytes. Of one
time all go together, and all rows of a key whose place in the hash space is named: so it does not depend on
who has written which row into which file.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from watersmeet.engine.driver.settling.shed_parts import Part
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.slots import Slots
from watersmeet.state.record import FrozenRecord


class Cut(FrozenRecord):
    """Rows that are not later than ``last``, or (None) those whose hashes have one of these upper halves."""

    last: int | None = None
    buckets: tuple[int, ...] = ()

    def apply(self, parts: Sequence[Part]) -> None:
        """They are to be shed. Cost: the rows of the cut."""
        buckets = np.array(self.buckets, dtype=np.int64)
        for part in parts:
            if self.last is not None:
                part.add(part.up_to(self.last))
            elif len(buckets):
                part.add(part.of_buckets(buckets))


def oldest(parts: Sequence[Part], excess: int, weights: Sequence[int]) -> Cut:
    """The oldest rows that count at least ``excess`` together. Cost: as many of each part as would do alone.

    Args:
        weights: what a row of each part counts, 1 at least.
    """
    times = [part.oldest(-(-excess // weight)) for part, weight in zip(parts, weights, strict=True)]
    counting = np.repeat(np.array(weights, dtype=np.int64), [len(of_part) for of_part in times])
    together = np.concatenate(times)
    order = np.argsort(together, kind="stable")
    place = int(np.searchsorted(np.cumsum(counting[order]), excess))
    return Cut(last=int(together[order[min(place, len(order) - 1)]]))


def heaviest(parts: Sequence[Part], excess: int, weights: Sequence[int]) -> Cut:
    """The keys whose rows count most, as many as it takes; of equal ones those with the lesser hash. Cost:
    all rows of the parts."""
    rows = [part.buckets(part.every()) for part in parts]
    counting = np.repeat(np.array(weights, dtype=np.int64), [len(of_part) for of_part in rows])
    heavy, of = np.unique(np.concatenate(rows), return_inverse=True)
    counts = np.zeros(len(heavy), dtype=np.int64)
    np.add.at(counts, of, counting)
    order = np.argsort(-counts, kind="stable")
    keys = int(np.searchsorted(np.cumsum(counts[order]), excess)) + 1
    return Cut(buckets=tuple(np.sort(heavy[order[:keys]]).tolist()))


def crowding(parts: Sequence[Part], buckets: Slots, most: int, *, by_age: bool) -> list[Rows]:
    """Of each part of one side the rows by which keys have more than ``most``: the oldest of such a key, all
    of one time together, or (not ``by_age``) all of it. Cost: the rows with these hashes.

    Args:
        buckets: the upper halves of hashes under which there may be such keys, each once. Keys are told apart
            by whole ones.
    """
    rows = [part.of_buckets(buckets) for part in parts]
    hashes = np.concatenate([part.hashes(own) for part, own in zip(parts, rows, strict=True)])
    ages = np.zeros(len(hashes), dtype=np.int64)
    if by_age:
        ages = np.concatenate([part.times(own) for part, own in zip(parts, rows, strict=True)])
    order = np.lexsort((ages, hashes))
    _, first, of, counts = np.unique(
        hashes[order], return_index=True, return_inverse=True, return_counts=True
    )
    last = ages[order][np.where(counts > most, first + counts - most - 1, first)]
    gone = np.zeros(len(hashes), dtype=np.bool_)
    gone[order] = (counts > most)[of] & (ages[order] <= last[of])
    ends = np.cumsum([len(own) for own in rows])[:-1]
    return [own[chosen] for own, chosen in zip(rows, np.split(gone, ends), strict=True)]
