"""What a store is that any machine reaches: state that is in no directory."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from watersmeet.state.store import Store


class RemotePlace(Protocol):
    """``url``: which one it is, the same on every machine, and without passwords."""

    @property
    def url(self) -> str: ...


class RemoteStore(Store, Protocol):
    """A store with a URL; ``is_remote`` is true of it."""

    @property
    def place(self) -> RemotePlace: ...

    def clear(self, folders: Collection[str], last: str) -> None:
        """Remove all that is in these folders, the manifests first and ``last`` at last."""
