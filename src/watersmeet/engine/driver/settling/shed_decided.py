"""What was decided in a tick by the bytes of files, for attempts that repeat it.

How many bytes files have depends on how many tasks have written them; which rows are shed must not, for those
of an earlier attempt may be in the side output by now. So the first attempt writes down what it has decided,
before anything of the tick goes out, and all others go by that. That nothing is shed is written down as well:
of two runs that are at the tick at once one would shed else, and put these rows out, and the other one commit
without.
"""

from __future__ import annotations

from collections.abc import Callable

from watersmeet.engine.driver.settling.shed_cuts import Cut
from watersmeet.state.manifest import PARTS
from watersmeet.state.record import Record
from watersmeet.state.sealed import sealed, unsealed
from watersmeet.state.store import Store


class _Decided(Record):
    """``basis``: of which rows, and by which setting; ``cut``: None: nothing is shed."""

    basis: str
    cut: Cut | None


def decided_name(tick: int, query: int, node: int) -> str:
    """The file of a node. ``query``: its number in the job."""
    return f"{PARTS}/shed-{tick}-{query}-{node}.json"


def decided_of_job(tick: int, source: int | None) -> str:
    """The file of all queries together. ``source``: the number in the job of the one of which the limit is;
    None: it is that of the job."""
    return f"{PARTS}/shed-{tick}-{'job' if source is None else f'source-{source}'}.json"


def decided(store: Store, name: str, basis: str, decide: Callable[[], Cut | None]) -> Cut | None:
    """What the first attempt at the tick decided.

    Args:
        name: of its file.
        basis: of what is decided, the same in all attempts at the tick. A file that is of something else was
            left by an attempt of which nothing went out.

    Raises:
        StateError: the file is damaged.
    """
    now = _Decided(basis=basis, cut=decide())
    content = sealed(name, now.model_dump_json())
    while not store.create(name, content):
        before = _Decided.model_validate_json(unsealed(name, bytes(store.read(name))))
        if before.basis == basis:
            return before.cut
        store.delete(name)
    return now.cut
