"""PySpark's functions, loaded when the first one is called: who only looks at sources needs no PySpark."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.functions import *  # noqa: F403
else:

    def __getattr__(name: str) -> object:
        from pyspark.sql import functions

        return getattr(functions, name)
