"""Work that is counted, not timed: the same on a busy machine as on a quiet one, whatever Python's build.

`Counts` holds what is done within it, of all that costs CPU in the engine:

    lines       lines of the engine's own Python that ran
    allocated   pieces of memory that NumPy and Arrow asked for: one or more per call of theirs
    bytes       of these together: what arrays are made, and about what is read to make them
    sorted      n log₂ n of every sort (also to find what is distinct)
    sought      n log₂ m of every binary search of n values in m
    queries     of DuckDB
    query rows  that these are given
    written     bytes of files of state

It does not see: loops of libraries that allocate nothing (sums, checksums), and how fast a library is.
"""

from __future__ import annotations

import ctypes
import math
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy._core import _multiarray_umath  # type: ignore[attr-defined]

import watersmeet
from watersmeet import MemoryStore
from watersmeet.kernel import duckdb as embedded

KINDS = (
    "lines",
    "allocated",
    "bytes",
    "sorted",
    "sought",
    "queries",
    "query rows",
    "written",
)
PACKAGE = watersmeet.__path__[0]
SORTS = ("argsort", "sort", "unique", "partition", "argpartition", "isin")
ARROW_SORTS = ("sort_indices", "rank", "unique", "dictionary_encode", "value_counts")
SET_HANDLER, GET_HANDLER = 304, 305
"""Of memory, in NumPy's table of C functions: part of its ABI since 1.22 (NEP 49)."""
HANDLER_NAME = ctypes.create_string_buffer(b"mem_handler")


class _Allocator(ctypes.Structure):
    _fields_ = (
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


class _Handler(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char * 127), ("version", ctypes.c_uint8), ("allocator", _Allocator))


_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_size_t
_MALLOC = ctypes.PYFUNCTYPE(_POINTER, _POINTER, _SIZE)
_CALLOC = ctypes.PYFUNCTYPE(_POINTER, _POINTER, _SIZE, _SIZE)
_REALLOC = ctypes.PYFUNCTYPE(_POINTER, _POINTER, _POINTER, _SIZE)


class _NumpyMemory:
    """NumPy's allocations, counted on their way to its own functions. Made once, and never let go: arrays
    remember what they were allocated by."""

    def __init__(self) -> None:
        self.pieces = self.bytes = 0
        pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
        pointer_of.restype, pointer_of.argtypes = _POINTER, [ctypes.py_object, _POINTER]
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype, capsule.argtypes = ctypes.py_object, [_POINTER, _POINTER, _POINTER]
        functions = ctypes.cast(
            pointer_of(_multiarray_umath._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p)
        )
        self.set = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(functions[SET_HANDLER])
        get = ctypes.PYFUNCTYPE(ctypes.py_object)(functions[GET_HANDLER])
        self.own = get()
        own = _Handler.from_address(pointer_of(self.own, HANDLER_NAME)).allocator
        malloc, calloc, realloc = _MALLOC(own.malloc), _CALLOC(own.calloc), _REALLOC(own.realloc)

        def counted(function: Callable[..., Any], size_of: Callable[..., int]) -> Callable[..., Any]:
            def call(*given: Any) -> Any:
                self.pieces += 1
                self.bytes += size_of(*given)
                return function(*given)

            return call

        self._functions = (
            _MALLOC(counted(malloc, lambda _, size: size)),
            _CALLOC(counted(calloc, lambda _, count, size: count * size)),
            _REALLOC(counted(realloc, lambda _, old, size: size)),
        )
        addresses = [ctypes.cast(function, _POINTER).value for function in self._functions]
        self._handler = _Handler(b"counted", 1, _Allocator(own.context, *addresses, own.free))
        self.counting = capsule(ctypes.addressof(self._handler), ctypes.addressof(HANDLER_NAME), None)


_memory: _NumpyMemory | None = None


def _numpy_memory() -> _NumpyMemory:
    global _memory
    if _memory is None:
        _memory = _NumpyMemory()
    return _memory


class CountedStore(MemoryStore):
    """A store in memory that counts what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def write(self, name: str, data: Any, **given: Any) -> None:
        if not callable(data):  # else a text that is made when somebody reads it
            self.bytes += data.size if isinstance(data, pa.Buffer) else len(data)
        super().write(name, data, **given)


class _Cursor:
    """Of DuckDB, counting."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, counts: Counts) -> None:
        self._cursor, self._counts = cursor, counts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def cursor(self) -> _Cursor:
        return _Cursor(self._cursor.cursor(), self._counts)

    def register(self, name: str, rows: Any) -> Any:
        self._counts.found["query rows"] += rows.num_rows
        return self._cursor.register(name, rows)

    def sql(self, *given: Any) -> Any:
        self._counts.found["queries"] += 1
        return self._cursor.sql(*given)


class Counts:
    """What is done within, also by threads that start within. ``found``: by `KINDS`, rising with each use."""

    def __init__(self, store: CountedStore) -> None:
        self.found: dict[str, float] = dict.fromkeys(KINDS, 0)
        self._store = store
        self._restore: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> Counts:
        self._memory = _numpy_memory()
        self._before = self._levels()
        for module, names in ((np, SORTS), (pc, ARROW_SORTS)):
            for name in names:
                self._replace(module, name, self._sorting(getattr(module, name)))
        self._replace(np, "lexsort", self._lexsort(np.lexsort))
        self._replace(np, "searchsorted", self._seeking(np.searchsorted))
        self._replace(embedded, "_connection", _Cursor(embedded.connection(), self))
        self._memory.set(self._memory.counting)
        self._tracers = sys.gettrace(), sys.getprofile()
        threading.settrace(self._call_type)
        threading.setprofile(self._profiled)
        sys.setprofile(self._profiled)
        sys.settrace(self._call_type)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        trace, profile = self._tracers
        sys.settrace(trace)
        sys.setprofile(profile)
        threading.settrace(None)
        threading.setprofile(None)
        self._memory.set(self._memory.own)
        for module, name, function in reversed(self._restore):
            setattr(module, name, function)
        self._restore.clear()
        for name, value in self._levels().items():
            self.found[name] += value - self._before[name]

    def _levels(self) -> dict[str, int]:
        pool, memory = pa.default_memory_pool(), self._memory
        return {
            "allocated": memory.pieces + pool.num_allocations(),
            "bytes": memory.bytes + pool.total_bytes_allocated(),
            "written": self._store.bytes,
        }

    def _replace(self, module: Any, name: str, function: Any) -> None:
        self._restore.append((module, name, getattr(module, name)))
        setattr(module, name, function)

    def _call_type(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._ran if frame.f_code.co_filename.startswith(PACKAGE) else None

    def _ran(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.found["lines"] += 1
        return self._ran

    def _profiled(self, frame: FrameType, event: str, argument: Any) -> None:
        """Sorts by methods of arrays, that the engine calls itself."""
        if event == "c_call" and argument.__name__ in ("sort", "argsort"):
            of = getattr(argument, "__self__", None)
            if isinstance(of, np.ndarray) and frame.f_code.co_filename.startswith(PACKAGE):
                self._sort(of.size)

    def _sort(self, count: int) -> None:
        self.found["sorted"] += count * math.log2(count + 2)

    def _sorting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def sort(values: Any, *given: Any, **named: Any) -> Any:
            self._sort(_size(values))
            return function(values, *given, **named)

        return sort

    def _lexsort(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def lexsort(keys: Any, *given: Any, **named: Any) -> Any:
            for key in keys:
                self._sort(_size(key))
            return function(keys, *given, **named)

        return lexsort

    def _seeking(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def searchsorted(values: Any, sought: Any, *given: Any, **named: Any) -> Any:
            self.found["sought"] += _size(sought) * math.log2(_size(values) + 2)
            return function(values, sought, *given, **named)

        return searchsorted


def _size(values: Any) -> int:
    return len(values) if hasattr(values, "__len__") else 1
