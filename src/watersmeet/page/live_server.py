"""Serve the page of a job of another process, or of a run of this one, if the libraries are installed.

The libraries that serve it are an extra: they are loaded here, and nowhere before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from watersmeet.errors import EngineError
from watersmeet.history.reader import HistoryReader
from watersmeet.page.questions import JobReference, QuestionRunner
from watersmeet.spec.monitoring import AccessToken, Address
from watersmeet.state.store import Store

if TYPE_CHECKING:
    from watersmeet.page.server import ServedPage

LIVE_POLL_S = 1.0
"""Beside a run its history is looked at so often."""


def listening_at(
    address: Address,
    store: Store,
    job: str,
    *,
    token: AccessToken | None,
    look_s: float | None = None,
    asked: JobReference | None = None,
    is_held: Callable[[], bool | None] = lambda: None,
) -> ServedPage:
    """Listen for who wants to see the page of the job whose state is in a store.

    Args:
        token: what a browser must know; None: anybody may see the page.
        asked: the job that questions about rows are about; None: there are none.
        is_held: tells whether a process runs the job; None: nobody knows.

    Raises:
        EngineError: the libraries are not installed, or nobody can listen there.
    """
    try:
        from watersmeet.page.server import HISTORY_POLL_S, PageFeed, ServedPage
    except ModuleNotFoundError as error:
        raise EngineError(
            f"the page needs a library that is not installed: {error.name}",
            code="missing-library",
            hint="run `pip install 'watersmeet[ui]'`, or use `watersmeet report`, which does not need it",
        ) from None

    asker = None if asked is None else QuestionRunner(asked)
    feed = PageFeed(HistoryReader(store), job, HISTORY_POLL_S if look_s is None else look_s, asker, is_held)
    return ServedPage.of(feed, address, token)


@contextmanager
def serve_run_page(
    address: Address, store: Store, job: str, *, token: AccessToken | None, asked: JobReference | None = None
) -> Iterator[ServedPage]:
    """Serve the page of a run until the run ends.

    Browsers that show the page receive the run's outcome before the page closes.

    Args:
        token, asked: as in `listening_at`.

    Raises:
        EngineError: a library of the page is not installed, or the server cannot listen at the address.
    """
    over = threading.Event()
    serving = listening_at(
        address,
        store,
        job,
        token=token,
        look_s=LIVE_POLL_S,
        asked=asked,
        is_held=lambda: not over.is_set(),
    )
    with serving.serve_in_thread(linger_s=2 * LIVE_POLL_S):
        try:
            yield serving
        finally:
            over.set()
