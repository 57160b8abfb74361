"""Who watches a run by its settings: ``metrics``, ``log_format``, and what is there to take spans."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from watersmeet.observe import spans
from watersmeet.observe.listeners import Listener, WatchedRun
from watersmeet.observe.log import LogToStream, LogWatcher
from watersmeet.spec.monitoring import TOKEN_FILE, Address, address_in, load_token

if TYPE_CHECKING:
    from watersmeet.observe.metrics.endpoint import Endpoint


@contextmanager
def open_listeners(
    settings: Mapping[str, str], run: WatchedRun, say: Callable[[str], None]
) -> Iterator[list[Listener]]:
    """Yield the listeners that the settings request, and close them when the run ends.

    Args:
        settings: settings of the run.
        say: receives lines for people about where metrics are shown.

    Raises:
        WatersmeetError: metrics cannot be shown at the requested address.
    """
    with ExitStack() as stack:
        form = settings.get("log_format")
        if form is not None and sys.stderr is not None:
            stack.enter_context(LogToStream(form, sys.stderr))
        log = LogWatcher(run)
        watchers: list[Listener] = [log]
        if spans.is_installed():
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
    """Return the process's endpoint at `address`; load the metrics library only on this call."""
    from watersmeet.observe.metrics.endpoint import endpoint_at

    return endpoint_at(address)
