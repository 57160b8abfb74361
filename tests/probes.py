"""Slipcover's probes, which leave code for good once it has run.

Slipcover puts a jump over each probe that was seen, in functions that modules and classes have: those that
properties and decorators hold keep their probes. And whenever a line was seen some times it looks for all
functions anew. Here functions are what the garbage collector knows, one whose lines and branches were all
seen gets the code that it had without probes, and a look comes when it costs little.

For Python 3.11; later versions have probes of another kind, and no need of it.

Each process that measures imports the whole package, and of that time more than half goes into marking its
branches. So code with the marks is kept in ``.cache/probes``; ``python -m tests.probes`` makes all of it.
"""

from __future__ import annotations

import ast
import gc
import marshal
import os
import sys
import time
from collections import Counter
from collections.abc import Container, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from hashlib import blake2b
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from slipcover import FileMatcher, Slipcover, __version__
from slipcover.branch import preinstrument
from slipcover.importer import SlipcoverLoader, SlipcoverMetaPathFinder

from tests.support.package_paths import PACKAGE, REPOSITORY, find_paths

KEPT = REPOSITORY / ".cache" / "probes"
_DIGEST = 32
_VERSIONS = f"{sys.version} {__version__}"
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
            loader = spec.loader.orig_loader
            self._loaders[spec.origin] = (getattr(loader, "plain", loader), spec.name)

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


class KeptLoader:
    """A module's code with its branches marked, from what is kept where that is of the same source.

    Args:
        plain: loads the code without marks.
    """

    def __init__(self, plain: SourceFileLoader) -> None:
        self.plain = plain

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)

    def get_code(self, name: str) -> CodeType:
        path = Path(self.plain.path)
        source = path.read_bytes()
        digest = blake2b(f"{_VERSIONS} {path}\0".encode() + source, digest_size=_DIGEST).digest()
        kept = KEPT / blake2b(str(path).encode(), digest_size=16).hexdigest()
        with suppress(OSError, EOFError, ValueError, TypeError):  # not there, or damaged
            raw = kept.read_bytes()
            if raw[:_DIGEST] == digest:
                code: CodeType = marshal.loads(raw[_DIGEST:])
                return code
        code = compile(preinstrument(ast.parse(source)), str(path), "exec")
        own = kept.with_suffix(f".{os.getpid()}")
        own.write_bytes(digest + marshal.dumps(code))
        own.replace(kept)
        return code


class KeptFinder(SlipcoverMetaPathFinder):
    """Finds modules of the package, to be loaded with probes by `KeptLoader`."""

    def __init__(self, probes: Slipcover) -> None:
        super().__init__(probes, FileMatcher(sources=[str(PACKAGE)]))
        KEPT.mkdir(parents=True, exist_ok=True)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        spec = super().find_spec(fullname, path, target)
        loader = None if spec is None else spec.loader
        if isinstance(loader, SlipcoverLoader) and isinstance(loader.orig_loader, SourceFileLoader):
            loader.orig_loader = KeptLoader(loader.orig_loader)
        return spec


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes_in(inner)


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _keep(file: Path) -> None:
    KeptLoader(SourceFileLoader(file.stem, str(file))).get_code(file.stem)


if __name__ == "__main__":
    KEPT.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor() as processes:
        list(processes.map(_keep, find_paths(PACKAGE, "**/*.py"), chunksize=20))
