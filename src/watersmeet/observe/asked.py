"""Who watches a run by its settings: ``metrics``, ``log_format``, and what is there to take spans."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from watersmeet.observe import spans
from watersmeet.observe.log import LoggedTo, LogWatcher
from watersmeet.observe.watching import Watched, Watcher
from watersmeet.spec.watched.access import TOKEN_FILE, load_token
from watersmeet.spec.watched.addresses import Address, address_in

if TYPE_CHECKING:
    from watersmeet.observe.metrics.endpoint import Endpoint


@contextmanager
def asked_watchers(
    settings: Mapping[str, str], run: Watched, say: Callable[[str], None]
) -> Iterator[list[Watcher]]:
    """Those that are asked for, while the run goes on.

    Args:
        settings: of the run.
        say: is told, in lines for people, where metrics are shown.

    Raises:
        WatersmeetError: metrics cannot be shown where they are to be.
    """
    with ExitStack() as stack:
        form = settings.get("log_format")
        if form is not None and sys.stderr is not None:
            stack.enter_context(LoggedTo(form, sys.stderr))
        log = LogWatcher(run)
        watchers: list[Watcher] = [log]
        if spans.is_there():
            watchers.append(spans.SpanWatcher(run))
        address = address_in(settings.get("metrics", ""))
        if address is not None:
            endpoint = _endpoint_at(address)
            watchers.append(endpoint.watch(run, load_token(settings.get(TOKEN_FILE))))
            shown = f"metrics are shown at {endpoint.url} ({endpoint.access})"
            log.note(shown)
            say(shown)
        yield watchers


def _endpoint_at(address: Address) -> Endpoint:
    """The library is loaded by who asks for it."""
    from watersmeet.observe.metrics.endpoint import endpoint_at

    return endpoint_at(address)
