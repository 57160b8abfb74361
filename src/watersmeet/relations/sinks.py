"""What calls say of where a relation's rows go: a sink, a table of Spark's, or a function of this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from watersmeet.errors import near_names
from watersmeet.front.query.emit import MODES
from watersmeet.relations.fragments import names_of, whole_error
from watersmeet.relations.outputs import checked_name, written_by_spark
from watersmeet.spec.connectors import FOREACH_BATCH
from watersmeet.spec.model import OutputMode, Sink
from watersmeet.spec.options.function import NAMED, OfBatches, call_problem
from watersmeet.spec.options.spark import FORMAT, TABLE

if TYPE_CHECKING:
    from watersmeet.relations.relation import Relation


@dataclass(frozen=True)
class Output:
    """The rows of a relation, into a sink: what INSERT is in SQL. Made by `Relation.to_sink` and
    the like. ``function``: the sink is one of this process.

    >>> from watersmeet import files, stream
    >>> clicks = stream({"id": "BIGINT", "at": "TIMESTAMP"}, time="at", name="clicks")
    >>> clicks.to_sink(files("out/clicks")).sink.options["path"]
    'out/clicks'
    """

    relation: Relation
    sink: Sink
    mode: OutputMode | None = None
    function: OfBatches | None = None


class WithSinks:
    """The calls of a `Relation` that make an `Output` of it."""

    def to_sink(
        self,
        target: Sink | None = None,
        *,
        format: str | None = None,
        options: Mapping[str, Any] | None = None,
        name: str | None = None,
        emit: str | None = None,
    ) -> Output:
        """Its rows into a sink (`files`, `kafka`, …): what a `job` is made of.

        Args:
            format: in place of a sink, one of Spark's data sources that writes them: at least once.
            options: of that data source.
            name: of the sink that it is; None: the last part of its path or table, or the format.
            emit: ``changes``: rows come, and go again; ``final``: rows that stay; None: what the job says.
        """
        if format is not None:
            if target is not None:
                raise whole_error("to_sink", "cannot have both a sink and a format", "leave out one of them")
            target = written_by_spark(FORMAT, format, options, name)
        elif options is not None or name is not None:
            raise whole_error(
                "to_sink", "has options without a format", "pass options to the sink itself, such as files(…)"
            )
        if not isinstance(target, Sink):
            raise whole_error(
                "to_sink", f"needs a sink, not {target!r}", "for example to_sink(files('out/delivered'))"
            )
        return Output(self._rows, target, _mode(emit))

    def to_table(self, table: str, *, name: str | None = None, emit: str | None = None) -> Output:
        """Its rows into a table of one of Spark's catalogs, which is there, by the names of its columns: at
        least once.

        Args:
            table: ``catalog.db.t``.
            name, emit: as in `to_sink`.
        """
        return Output(self._rows, written_by_spark(TABLE, table, None, name), _mode(emit))

    def foreach_batch(
        self,
        function: OfBatches,
        *,
        name: str | None = None,
        primary_key: str | Sequence[str] = (),
        emit: str | None = None,
    ) -> Output:
        """Its rows into a function of this process, that is called with a DataFrame of the rows of a tick and
        the tick's number; and, if it has parameters of these names, with ``job``, a text that identifies the
        job's state (with a new checkpoint ticks begin at 1 anew), and ``insert``, the name of the INSERT. A
        tick that is repeated gives the same rows by the same of all these, so that a function that does
        nothing by what it has had puts rows out exactly once.

        Args:
            name: of the sink that it is, by which a job that goes on knows it; None: the function's.
            primary_key: columns; then there is one row per key and tick, with ``_deleted`` behind the
                columns.
            emit: as in `to_sink`.
        """
        problem = call_problem(function, "rows and the tick", NAMED)
        if problem is not None:
            raise whole_error("foreach_batch", f"is given {function!r}: {problem}", "def put(rows, tick): …")
        own = checked_name(name) or str(getattr(function, "__name__", ""))
        if name is None and not own.isidentifier():  # a lambda, a partial, an object that can be called
            given = "a lambda" if own == "<lambda>" else f"{type(function).__name__}"
            raise whole_error(
                "foreach_batch",
                f"needs name=: {given} has no name of its own for the sink",
                "foreach_batch(lambda rows, tick: …, name='put')",
            )
        keys = names_of(primary_key, "primary_key") if primary_key else ()
        return Output(self._rows, Sink(own, FOREACH_BATCH, {}, None, keys), _mode(emit), function)

    @property
    def _rows(self) -> Relation:
        return cast("Relation", self)


def _mode(emit: str | None) -> OutputMode | None:
    if emit is not None and (not isinstance(emit, str) or emit.upper() not in MODES):
        raise whole_error("emit", f"is {emit!r}", near_names(str(emit), [mode.lower() for mode in MODES]))
    return None if emit is None else MODES[emit.upper()]
