"""Slipcover's probes, which leave code for good once it has run.

Slipcover puts a jump over each probe that was seen, in functions that modules and classes have: those that
properties and decorators hold keep their probes. And whenever a line was seen some times it looks for all
functions anew. Here functions are what the garbage collector knows, one whose lines and branches were all
seen gets the code that it had without probes, and a look comes when it costs little.

For Python 3.11; later versions have probes of another kind, and no need of it.
"""

from __future__ import annotations

import gc
import sys
import time
from collections import Counter
from collections.abc import Container, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from slipcover import Slipcover

SHARE = 20
"""A look for what may lose its probes comes no sooner than so many times of what the last one took."""


class FadingProbes(Slipcover):
    """As Slipcover, and faster."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._functions: list[FunctionType] = []
        self._known = 0
        self._due, self._next = False, 0.0
        self._new_codes: dict[int, CodeType] = {}
        self._old_codes: list[CodeType] = []
        self._without: dict[str, dict[tuple[str, int], CodeType]] = {}
        self._loaders: dict[str, tuple[Any, str]] = {}

    def register_module(self, module: ModuleType) -> None:
        super().register_module(module)
        spec = module.__spec__
        if spec is not None and spec.origin is not None:
            self._loaders[spec.origin] = (spec.loader.orig_loader, spec.name)

    def know_functions(self) -> None:
        """Find the functions of the modules that are there."""
        if sys.version_info >= (3, 12):
            return
        known = {id(function) for function in self._functions}
        found = [each for each in gc.get_objects() if type(each) is FunctionType and id(each) not in known]
        self._functions += [each for each in found if each.__code__.co_filename in self._loaders]
        self._known = len(self.modules)

    def deinstrument_seen(self) -> None:
        """What probes call that were seen a few times."""
        self._due = True
        self.fade()

    def fade(self) -> None:
        """Take out the probes that were seen, if it is time."""
        began = time.monotonic()
        if not self._due or began < self._next:
            return
        with self.lock:
            self._due = False
            self._take_out()
            took = time.monotonic() - began
            self._next = began + took + SHARE * took

    def _take_out(self) -> None:
        if self._known < len(self.modules):
            self.know_functions()
        news = self._get_newly_seen()
        for file, seen in news.items():
            for code in list(self.instrumented[file]):
                self.deinstrument(code, seen)
            self.all_seen[file].update(seen)
        for old, new in self.replace_map.items():
            self._old_codes.append(old)  # its id stays its own
            self._new_codes[id(old)] = new
        self.replace_map.clear()
        self._functions = [each for each in self._functions if not self._is_done(each, news)]

    def _is_done(self, function: FunctionType, news: Container[str]) -> bool:
        """Give a function the code that it has now. Whether that has no probes any more."""
        code = function.__code__
        if code.co_filename not in news:
            return False
        while (new := self._new_codes.get(id(code))) is not None:
            code = new
        without = self._code_without(code) if self._is_seen(code) else None
        if code is not function.__code__ or without is not None:
            function.__code__ = without or code
        return without is not None

    def _is_seen(self, code: CodeType) -> bool:
        seen = self.all_seen[code.co_filename]
        return all(place in seen for _, place in self.code2index.get(code, ())) and all(
            self._is_seen(inner) for inner in code.co_consts if isinstance(inner, CodeType)
        )

    def _code_without(self, code: CodeType) -> CodeType | None:
        """The code as it is compiled without probes. None: it cannot be told which it is."""
        file = code.co_filename
        if file not in self._without:
            loader, name = self._loaders[file]
            codes = list(_codes_in(loader.get_code(name)))
            times = Counter(_place(each) for each in codes)
            self._without[file] = {_place(each): each for each in codes if times[_place(each)] == 1}
        found = self._without[file].get(_place(code))
        return found if found is not None and found.co_freevars == code.co_freevars else None


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes_in(inner)


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno
