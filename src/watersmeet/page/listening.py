"""A page that listens: of a job of another process, or beside a run of this one.

The libraries that serve it are an extra: they are loaded here, and nowhere before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from watersmeet.errors import EngineError
from watersmeet.history.past import Reader
from watersmeet.page.asking import AskedJob, Asker
from watersmeet.spec.watched.access import AccessToken
from watersmeet.spec.watched.addresses import Address
from watersmeet.state.store import Store

if TYPE_CHECKING:
    from watersmeet.page.serving import Serving

BESIDE_LOOK_S = 1.0
"""Beside a run its history is looked at so often."""


def listening_at(
    address: Address,
    store: Store,
    job: str,
    *,
    token: AccessToken | None,
    look_s: float | None = None,
    asked: AskedJob | None = None,
    is_held: Callable[[], bool | None] = lambda: None,
) -> Serving:
    """Listen for who wants to see the page of the job whose state is in a store.

    Args:
        token: what a browser must know; None: anybody may see the page.
        asked: the job that questions about rows are about; None: there are none.
        is_held: tells whether a process runs the job; None: nobody knows.

    Raises:
        EngineError: the libraries are not installed, or nobody can listen there.
    """
    try:
        from watersmeet.page.served import LOOK_S, Feed
        from watersmeet.page.serving import Serving
    except ModuleNotFoundError as error:
        raise EngineError(
            f"the page needs a library that is not installed: {error.name}",
            code="missing-library",
            hint="run `pip install 'watersmeet[ui]'`, or use `watersmeet report`, which does not need it",
        ) from None

    asker = None if asked is None else Asker(asked)
    feed = Feed(Reader(store), job, LOOK_S if look_s is None else look_s, asker, is_held)
    return Serving.of(feed, address, token)


@contextmanager
def page_beside(
    address: Address, store: Store, job: str, *, token: AccessToken | None, asked: AskedJob | None = None
) -> Iterator[Serving]:
    """Serve the page of a run for as long as the run goes on. Whoever looks at it is told how the run has
    ended before it goes. ``token``, ``asked``: as `listening_at`.

    Raises: as `listening_at`.
    """
    over = threading.Event()
    serving = listening_at(
        address,
        store,
        job,
        token=token,
        look_s=BESIDE_LOOK_S,
        asked=asked,
        is_held=lambda: not over.is_set(),
    )
    with serving.beside(linger_s=2 * BESIDE_LOOK_S):
        try:
            yield serving
        finally:
            over.set()
