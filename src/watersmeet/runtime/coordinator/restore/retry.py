"""A state that moves on while it is opened: another run commits, and removes what its newest tick needs no
more. Nothing is missing then; it is opened again, as it is by then.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from watersmeet.errors import StateError
from watersmeet.state.manifest import manifest_names
from watersmeet.state.store import Store

_TIMES = 5
"""More ticks in a row are not committed while one is opened."""

_Plan = TypeVar("_Plan")
_Schemas = TypeVar("_Schemas")
_More = ParamSpec("_More")
_Opened = TypeVar("_Opened")


def again_if_moved_on(
    opened: Callable[Concatenate[_Plan, _Schemas, Store, _More], _Opened],
) -> Callable[Concatenate[_Plan, _Schemas, Store, _More], _Opened]:
    """``opened`` again where something is missing of a state of which there is a newer one by then."""

    @wraps(opened)
    def once_more(
        plan: _Plan, schemas: _Schemas, store: Store, /, *args: _More.args, **named: _More.kwargs
    ) -> _Opened:
        for _ in range(_TIMES):
            newest = manifest_names(store)[-1:]
            try:
                return opened(plan, schemas, store, *args, **named)
            except StateError as error:
                if error.code != "state-missing" or manifest_names(store)[-1:] == newest:
                    raise
        return opened(plan, schemas, store, *args, **named)

    return once_more
