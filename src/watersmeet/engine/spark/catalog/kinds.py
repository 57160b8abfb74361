"""Of what kind Spark's functions are, found out by asking it: scalar, aggregate, window, generator, table.

And whether they give the same for the same rows again.

Spark is asked by the classes of the expressions behind the names, by the group that its documentation puts
them in, and by what the analyser makes of a call: an aggregation, or a projection that is not deterministic.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from pyspark.sql import SparkSession

_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
_CLASSES = {
    "window": ("WindowFunction",),
    "aggregate": ("aggregate.AggregateFunction", "RuntimeReplaceableAggregate"),
    "generator": ("Generator",),
}
_GROUPS = {"agg_funcs": "aggregate", "window_funcs": "window", "generator_funcs": "generator"}
_MOST_TRIED = 3
_REFLECTED = "'java.util.UUID', 'fromString', 'a5cb6c42-0c85-418f-af6c-3e4e5b1328f2'"
"""Arguments of the functions that call any method of Java's."""


def kinds(spark: SparkSession, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Per function: ``kind``; and ``deterministic``, where it is not."""
    asked = _Asked(spark)
    return {name: asked.of(name) for name in names}


class _Asked:
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._jvm = cast(Any, spark._jvm)
        catalyst = self._jvm.org.apache.spark.sql.catalyst
        self._known = catalyst.analysis.FunctionRegistry.expressions()
        self._tables = catalyst.analysis.TableFunctionRegistry.logicalPlans()
        self._loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        self._classes = {
            kind: [self._class(_EXPRESSIONS + name) for name in names] for kind, names in _CLASSES.items()
        }
        self._nondeterministic = self._class(_EXPRESSIONS + "Nondeterministic")

    def of(self, name: str) -> dict[str, Any]:
        entry = self._known.get(name)
        if entry.isEmpty():
            return {"kind": "table" if self._tables.contains(name) else "scalar"}
        info = entry.get()._1()
        own = self._class(info.getClassName())
        plan = self._analysed(name)
        kind = next(
            (
                kind
                for kind, classes in self._classes.items()
                if any(c.isAssignableFrom(own) for c in classes)
            ),
            _GROUPS.get(info.getGroup(), "scalar"),
        )
        if kind == "scalar" and plan is not None and plan.nodeName() == "Aggregate":
            kind = "aggregate"
        described: dict[str, Any] = {"kind": kind}
        if self._nondeterministic.isAssignableFrom(own) or (plan is not None and not plan.deterministic()):
            described["deterministic"] = False
        return described

    def _analysed(self, name: str) -> Any:
        """The plan of a call of it, with the first arguments that it takes; None: it takes none of them."""
        for arguments in (*(", ".join(["NULL"] * count) for count in range(_MOST_TRIED + 1)), _REFLECTED):
            try:
                frame: Any = self._spark.sql(f"SELECT `{name}`({arguments})")
                return frame._jdf.queryExecution().analyzed()
            except Exception:  # not with these
                continue
        return None

    def _class(self, name: str) -> Any:
        return self._jvm.java.lang.Class.forName(name, False, self._loader)
