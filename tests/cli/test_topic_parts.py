"""Which tick read which record of a topic, and whether some have gone since: random topics, and jobs that
read them, against what each record itself knows of who read it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest

from tests.support.partly_known import with_gaps
from watersmeet.cli.why.topics import Others, PartRead, find_missing
from watersmeet.history.points import COUNT, Figures, Points, concat_points, roll_up, subject_of
from watersmeet.history.reader import JobHistory
from watersmeet.why.ticks import TickHistory, tick_history

CASES = 150
SOURCE = "s"
OF = subject_of("source", SOURCE)


@dataclass
class Partition:
    """``free``: the share of offsets that transactions take; ``there``: per offset the tick that read its
    record, None where none has; ``gone``: likewise, of those that are there no more; ``read``: how far it
    was."""

    there: dict[int, int | None] = field(default_factory=dict)
    gone: list[tuple[int, int | None]] = field(default_factory=list)
    end: int = 0
    first: int = 0
    free: float = 0.15
    read: int | None = None
    began: int | None = None

    def grow(self, rng: random.Random) -> None:
        for _ in range(rng.randint(0, 5)):
            self.end += rng.random() < self.free  # an offset that a transaction takes
            self.there[self.end] = None
            self.end += 1

    def drop(self, offsets: list[int]) -> None:
        self.gone += [(offset, self.there.pop(offset)) for offset in offsets]

    def loses(self, rng: random.Random) -> int:
        """Rows are gone before they were read; from where the job goes on."""
        assert self.read is not None
        how = rng.choice(["expired", "lost", "made again"])
        if how == "expired":
            self.end += 3
            self.first = self.end - 1
            self.drop([offset for offset in self.there if offset < self.first])
        elif how == "lost":
            self.end = max(self.first, self.read - rng.randint(1, 4))
            self.drop([offset for offset in self.there if offset >= self.end])
        else:
            self.drop(list(self.there))
            self.end = self.first = 0
        self.read = self.first if how != "lost" else self.end
        return self.read


def simulate_topic_history(
    rng: random.Random, losses: bool, free: float = 0.15, crowded: tuple[int, int] = (0, 0)
) -> tuple[list[Partition], JobHistory, int]:
    """Partitions, and what was written down of a job that read them. ``crowded``: from which tick to before
    which other one there were too many for that."""
    points = Points()
    parts = [Partition(free=free) for _ in range(rng.randint(1, 3))]
    told: dict[str, int] = {}
    for part in parts:
        part.grow(rng)
    begins = rng.random() < 0.5
    ticks = rng.randint(3, 14)
    for tick in range(1, ticks + 1):
        if tick > 2 and rng.random() < 0.1:
            parts.append(Partition(free=free))  # a new one is read from its beginning
        levels: dict[tuple[str, str], int | None] = {}
        rows = 0
        went_on = losses and tick > 1 and rng.random() < 0.2
        lost = rng.randrange(len(parts)) if went_on else None
        for number, part in enumerate(parts):
            name = f"t/{number}"
            if part.read is None:
                part.read = part.first
                if tick == 1:
                    part.read = rng.randint(0, part.end) if begins else 0
                    levels[OF, f"start offset {name}"] = part.began = part.read
            elif lost is not None:
                levels[OF, f"start offset {name}"] = part.loses(rng) if number == lost else part.read
            end = rng.randint(part.read, part.end)
            for offset in [own for own in part.there if part.read <= own < end]:
                assert part.there[offset] is None
                part.there[offset] = tick
                rows += 1
            part.read = end
            if crowded[0] <= tick < crowded[1]:
                levels[OF, COUNT] = 1_001
                told.clear()
            elif told.get(name) != end or rng.random() < 0.1:
                levels[OF, f"offset {name}"] = told[name] = end
        points.add(tick, tick, Figures({("job", "duration_us"): 1, (OF, "rows_in"): rows}, levels))
        for part in parts:
            part.grow(rng)
    return parts, JobHistory(points.table()), ticks


def known_in_part(past: JobHistory, rng: random.Random) -> JobHistory:
    """Without some ticks, or with the oldest rolled up."""
    if rng.random() < 0.5:
        kept = with_gaps(past, rng)
        names = pa.compute.cast(past.points.column("figure"), pa.string())
        went_on = past.points.filter(pa.compute.starts_with(names, "start offset")).column("first_tick")
        later = pa.compute.greater(past.points.column("first_tick"), 1)  # where it began may be lost
        is_needed = pa.compute.and_(later, pa.compute.is_in(past.points.column("first_tick"), went_on))
        ticks = pa.chunked_array(
            [
                *kept.points.column("first_tick").chunks,
                *past.points.filter(is_needed).column("first_tick").chunks,
            ]
        )
        return JobHistory(past.points.filter(pa.compute.is_in(past.points.column("first_tick"), ticks)))
    last = max(past.points.column("first_tick").to_pylist())
    until = rng.randint(1, last)
    old = pa.compute.less_equal(past.points.column("first_tick"), until)
    new = pa.compute.invert(old)
    return JobHistory(
        concat_points([roll_up(past.points.filter(old), rng.choice([2, 4, 8])), past.points.filter(new)])
    )


def check_slots(history: TickHistory, parts: list[Partition], seen: Counter[str]) -> None:
    for number, part in enumerate(parts):
        name = f"t/{number}"
        began = history.began_at(SOURCE, name)
        for offset, tick in part.there.items():
            if began is not None and offset < began:
                assert tick is None
                continue
            slot = history.slot_of(SOURCE, name, offset)
            if slot and tick and history.is_after_slot_before(SOURCE, name, offset, slot[0]):
                assert tick > history.ticks[slot[0] - 1]
                seen["after the one before"] += not slot[1]
            if slot is None:
                is_beyond = history.is_beyond(SOURCE, name, offset)
                assert tick is None or not is_beyond or tick > history.ticks[-1]
                seen["unread"] += tick is None
            elif tick is None:  # then it must not be taken for certain
                assert not slot[1]
            elif slot[1]:
                assert history.ticks[slot[0]] == tick, (name, offset, tick, slot)
                seen["exact"] += 1
            else:
                assert history.ticks[slot[0]] >= tick, (name, offset, tick, slot)
                seen["by"] += 1


@pytest.mark.parametrize("all_known", [True, False])
def test_each_record_was_read_by_its_tick(all_known: bool, seed: int) -> None:
    seen: Counter[str] = Counter()
    for case in range(CASES):
        rng = random.Random(f"{seed} {case}")
        parts, past, _ = simulate_topic_history(rng, losses=True)
        history = tick_history(past if all_known else known_in_part(past, rng))
        if not len(history) or not history.tells_reading:
            continue
        check_slots(history, parts, seen)
        if all_known:
            for number, part in enumerate(parts):
                for offset, tick in part.there.items():
                    if part.began is None or tick is not None:
                        slot = history.slot_of(SOURCE, f"t/{number}", offset)
                        assert (slot is None) == (tick is None)
                        assert slot is None or slot[1]
    assert seen["exact"] > 500
    assert all_known or min(seen["by"], seen["after the one before"]) > 100, seen


def test_of_ticks_in_which_there_were_too_many_partitions_nothing_is_guessed(seed: int) -> None:
    seen: Counter[str] = Counter()
    for case in range(CASES):
        rng = random.Random(f"{seed} {case}")
        first = rng.randint(1, 8)
        parts, past, _ = simulate_topic_history(
            rng, losses=True, crowded=(first, first + rng.choice([2, 4, 99]))
        )
        history = tick_history(past if rng.random() < 0.5 else known_in_part(past, rng))
        if len(history) and history.tells_reading:
            check_slots(history, parts, seen)
    assert min(seen["exact"], seen["by"]) > 100, seen
    assert seen["after the one before"] > 20, seen


def test_missing_offsets_map_to_the_tick_that_read_them(seed: int) -> None:
    seen: Counter[str] = Counter()
    for case in range(4 * CASES):
        rng = random.Random(f"{seed} {case}")
        parts, past, _ = simulate_topic_history(rng, losses=False, free=rng.choice([0, 0.15]))
        all_known = rng.random() < 0.5
        history = tick_history(past if all_known else known_in_part(past, rng))
        if not len(history) or not history.tells_reading:
            continue
        reads = []
        share = rng.choice([0, 0.2])
        one = rng.randrange(len(parts)) if rng.random() < 0.5 else None
        for number, part in enumerate(parts):
            first = max(part.began or 0, 0)
            there = [offset for offset in part.there if offset >= first]
            if one is None:
                part.drop([offset for offset in there if rng.random() < share])
            elif one == number and there:
                part.drop([rng.choice(there)])
            offsets = np.array(sorted(o for o in part.there if o >= first), dtype=np.int64)
            reads.append(PartRead(f"t/{number}", first, part.read or 0, offsets))
        missing = find_missing(history, SOURCE, reads)
        slots = [history.slot_of(SOURCE, own.part, own.position or 0) for own in missing]
        named = [None if slot is None or not slot[1] else history.ticks[slot[0]] for slot in slots]
        for part in parts:
            for _, tick in part.gone:
                assert tick is None or any(at is None or at <= tick for at in named), (case, tick, missing)
        if all_known:  # and nothing else, whatever offsets are free
            lost = {tick for part in parts for _, tick in part.gone if tick is not None}
            assert set(named) == lost
            seen["lost"] += bool(lost)
            seen["whole"] += not lost
    assert seen["lost"] > 20
    assert seen["whole"] > 20


def test_more_records_than_a_tick_read_are_others() -> None:
    points = Points()
    levels = {(OF, "start offset t/0"): 0, (OF, "offset t/0"): 5}
    points.add(1, 1, Figures({("job", "duration_us"): 1, (OF, "rows_in"): 3}, levels))
    history = tick_history(JobHistory(points.table()))
    with pytest.raises(Others, match="where tick 1 read 3 records, there are 5 now: they are others"):
        find_missing(history, SOURCE, [PartRead("t/0", 0, 5, np.arange(5))])


def test_reread_offsets_in_rolled_up_ticks_map_to_the_later_tick() -> None:
    points = Points()
    for tick, began, end in ((3, 0, 10), (4, 9, 12), (5, 12, 16)):
        levels = {(OF, "start offset t/0"): began, (OF, "offset t/0"): end}
        points.add(tick, tick, Figures({("job", "duration_us"): 1}, levels))
    history = tick_history(JobHistory(roll_up(points.table(), 4)))
    assert history.ticks == (3, 5)
    slots = [history.slot_of(SOURCE, "t/0", offset) for offset in (8, 9, 12)]
    assert [slot and slot[0] for slot in slots] == [0, 1, 1]


def test_a_partition_may_have_begun_in_any_of_the_rolled_up_ticks_that_do_not_tell_of_all() -> None:
    points = Points()
    for tick, parts in ((1, {"t/0": 0}), (2, {}), (3, {"t/0": 0, "t/1": 4}), (4, {})):
        levels: dict[tuple[str, str], int | None] = {
            (OF, f"start offset {part}"): at for part, at in parts.items()
        }
        levels[OF, COUNT] = 1_001  # tick 2 read four of t/1, which is new, and could not say so
        points.add(tick, tick, Figures({("job", "duration_us"): 1}, levels))
    assert tick_history(JobHistory(points.table())).began_at(SOURCE, "t/1") == 0
    assert tick_history(JobHistory(roll_up(points.table(), 4))).began_at(SOURCE, "t/1") == 0
