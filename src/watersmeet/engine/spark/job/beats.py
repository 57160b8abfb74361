"""Something that is done every so often, beside what this thread does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def beating(beat: Callable[[], None], pause_s: float, stop: threading.Event) -> Iterator[None]:
    """``beat`` is called in a thread of its own, which ends with the block, or by ``stop``."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(pause_s) and not stop.is_set():
            beat()

    thread = threading.Thread(target=run, name="idle-ticks", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
