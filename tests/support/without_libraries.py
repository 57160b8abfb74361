"""A process that has some of the installed libraries not: as where nobody has installed them."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

SPARK = ("pyspark", "py4j", "pandas")
"""What the extra `spark` brings along."""


def hide_libraries(names: Collection[str]) -> None:
    """Let this process find no module of these names; none of them is loaded so far."""
    assert not set(names) & set(sys.modules)

    class Others(PathFinder):
        @classmethod
        def find_spec(
            cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
        ) -> ModuleSpec | None:
            return None if fullname.split(".")[0] in names else PathFinder.find_spec(fullname, path, target)

    sys.meta_path[:] = [Others if finder is PathFinder else finder for finder in sys.meta_path]
