"""What a tick has decided to shed, in a store with a cache: a job that goes back to an earlier tick decides
anew, and attempts at the new tick go by that."""

from __future__ import annotations

from watersmeet.objects.cache import Cache
from watersmeet.objects.object_store import ObjectStore
from watersmeet.runtime.coordinator.load_shedding import ShedRange, decide_once, node_decision_name
from watersmeet.state.garbage_collection import tick_of
from watersmeet.state.store import MemoryStore

BASIS = "shed_oldest 100: [3, 4]"


def test_cache_ignores_a_deleted_shedding_decision(endpoint, bucket, store, tmp_path):
    name = node_decision_name(7, 0, 0)
    first, other = (
        ObjectStore(store.place, Cache("here", root=str(tmp_path / folder))) for folder in ("one", "two")
    )

    def attempt(at: ObjectStore, last: int, basis: str = BASIS) -> ShedRange | None:
        return decide_once(at, name, basis, lambda: ShedRange(last=last))

    assert [attempt(first, 1), attempt(first, 2), attempt(other, 3)] == [ShedRange(last=1)] * 3
    store.delete_all([name])  # the state is restored, and the tick comes again, of other rows
    assert [attempt(other, 4), attempt(first, 5), attempt(other, 6)] == [ShedRange(last=4)] * 3
    assert attempt(first, 7, "of others") == ShedRange(last=7)  # of the attempt before nothing went out
    assert attempt(other, 8, "of others") == ShedRange(last=7)
    assert tick_of(name) == 7, "it goes with other garbage of the tick"


class Once(MemoryStore):
    """Each name is used once, as stores ask for it: tables of PostgreSQL refuse a second row."""

    def write(self, name, data, **how):
        assert not self.has(name), f"{name} is overwritten"
        super().write(name, data, **how)


def test_a_decision_that_is_of_something_else_goes_before_another_one_comes():
    store, name = Once(), node_decision_name(7, 0, 0)
    made = [
        decide_once(store, name, basis, lambda last=last: ShedRange(last=last))
        for last, basis in enumerate("aab")
    ]
    assert made == [ShedRange(last=0), ShedRange(last=0), ShedRange(last=2)]
