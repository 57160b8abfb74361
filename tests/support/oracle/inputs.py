"""The inputs of a case's query, read for the oracle: streams, tables, and derived tables with UNION ALL,
whose branches may join."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import exp

from tests.support.oracle.sql import Function, Scope, compile_expr
from tests.support.oracle.values import Refused, Unsupported, kind_of

Key = tuple[str, str]
"""A watermark key or a column: (alias, column)."""


@dataclass
class Branch:
    """One stream's way into an input: ``columns`` maps the input's column to an expression of the stream."""

    stream: str
    columns: dict[str, Function]
    where: list[Function]
    times: dict[str, str]
    """Column of the input -> event-time column of the stream."""


@dataclass
class StageBranch:
    """A branch that is a query of its own, for it joins: its rows are lists of its output values, over which
    ``columns`` and ``where`` are."""

    query: Any
    columns: dict[str, Function]
    where: list[Function]
    times: dict[str, Key]
    """Column of the input -> the key inside of the query that it is."""
    open_times: set[str]
    """Those of them that may be NULL: a join of the query pads them."""


@dataclass
class Source:
    """One input alias."""

    alias: str
    kinds: dict[str, str]
    branches: list[Branch | StageBranch]
    table: bool
    as_of: bool = False
    """A table that rows meet as it is in their tick."""

    @property
    def times(self) -> list[str]:
        """Event-time columns: those that every branch orders."""
        return [c for c in self.kinds if all(c in b.times for b in self.branches)]

    @property
    def stages(self) -> list[tuple[int, StageBranch]]:
        """The branches that join, with their numbers (from 0)."""
        return [(n, b) for n, b in enumerate(self.branches) if isinstance(b, StageBranch)]

    @property
    def open_times(self) -> set[str]:
        """Event times that may be NULL in a row that takes part."""
        return {c for _, b in self.stages for c in b.open_times if c in self.times}


ReadStage = Callable[[exp.Select], tuple[Any, list[Key | None], set[Key]]]
"""Reads a SELECT that joins: its query, per output the column that it is (if it is one), and those of the
query's columns that a join of it pads."""


def read_source(node: exp.Expression, case: dict[str, Any], read_stage: ReadStage) -> Source:
    """An item of FROM: a stream, a table, or a derived table of SELECTs and UNION ALLs."""
    if isinstance(node, exp.Table):
        columns = _find_declaration(node.name, case)["columns"]
        text = f"SELECT {', '.join(columns)} FROM {node.name}"
        selects: list[Any] = [sqlglot.parse_one(text, dialect="spark")]
    elif isinstance(node, exp.Subquery):
        selects = _branches(node.this)
    else:
        raise Unsupported(node.sql())
    kinds: dict[str, str] = {}
    branches: list[Branch | StageBranch] = []
    for select in selects:
        names, own, branches_read = _ways(select, case, read_stage)
        if not kinds:
            kinds = dict(zip(names, own, strict=True))
        branches += [_rename_columns(branch, list(kinds)) for branch in branches_read]
    tables = [
        b.stream in case.get("tables", {}) if isinstance(b, Branch) else all(s.table for s in b.query.inputs)
        for b in branches
    ]
    as_of = node.args.get("version") is not None
    if as_of and not (all(tables) and len(branches) == 1):
        raise Unsupported(f"FOR SYSTEM_TIME AS OF of what is no table: {node.sql()}")
    return Source(node.alias_or_name, kinds, branches, all(tables), as_of)


def _ways(
    select: exp.Select, case: dict[str, Any], read_stage: ReadStage
) -> tuple[list[str], list[str], list[Branch | StageBranch]]:
    """Names and kinds of a SELECT's columns, and the branches that it has, with columns by number."""
    inner = select.args["from_"].this
    if select.args.get("joins"):
        query, keys, padded = read_stage(select)
        outputs = query.outputs
        times = {str(n): key for n, key in enumerate(keys) if key is not None and _is_time(key, query)}
        open_times = {n for n, key in times.items() if key in padded or _is_open(key, query)}
        columns = {str(n): _nth(n) for n in range(len(outputs))}
        stage = StageBranch(query, columns, [], times, open_times)
        return [name for name, _, _ in outputs], [kind for _, kind, _ in outputs], [stage]
    branches: list[Branch | StageBranch]
    if isinstance(inner, exp.Subquery):
        nested = read_source(inner, case, read_stage)
        kinds, branches = nested.kinds, nested.branches
    else:
        declared = _find_declaration(inner.name, case)
        kinds = {c: kind_of(t) for c, t in declared["columns"].items()}
        plain: dict[str, Function] = {c: _build_column_getter(c) for c in kinds}
        branches = [Branch(inner.name, plain, [], {c: c for c in declared.get("time", {})})]
    scope = Scope({inner.alias_or_name: kinds})
    items = []
    for item in select.expressions:
        items += [exp.column(c) for c in kinds] if isinstance(item, exp.Star) else [item]
    typed = [compile_expr(item, scope) for item in items]
    where = select.args.get("where")
    condition = [compile_expr(where.this, scope)[1]] if where else []
    columns_of = {str(n): i.this if isinstance(i, exp.Alias) else i for n, i in enumerate(items)}
    passed = {n: scope.find(e)[1] for n, e in columns_of.items() if isinstance(e, exp.Column)}
    ways = [
        _through(branch, {str(n): f for n, (_, f) in enumerate(typed)}, condition, passed)
        for branch in branches
    ]
    return [i.alias_or_name for i in items], [kind for kind, _ in typed], ways


def _through(
    branch: Branch | StageBranch, columns: dict[str, Function], where: list[Function], passed: dict[str, str]
) -> Branch | StageBranch:
    """A branch seen through a SELECT over its columns; ``passed``: those of the SELECT that are plain
    ones.
    """
    seen = dict(branch.columns)

    def after(f: Function) -> Function:
        return lambda rows: f(({c: g(rows) for c, g in seen.items()},))

    own = {n: after(f) for n, f in columns.items()}
    conditions = branch.where + [after(f) for f in where]
    if isinstance(branch, Branch):
        times = {n: branch.times[c] for n, c in passed.items() if c in branch.times}
        return Branch(branch.stream, own, conditions, times)
    keys = {n: branch.times[c] for n, c in passed.items() if c in branch.times}
    open_times = {n for n, c in passed.items() if c in branch.open_times}
    return StageBranch(branch.query, own, conditions, keys, open_times)


def _rename_columns(branch: Branch | StageBranch, names: list[str]) -> Branch | StageBranch:
    """Columns by the names of the input instead of by number."""
    columns = {names[int(n)]: f for n, f in branch.columns.items()}
    if isinstance(branch, Branch):
        return Branch(
            branch.stream, columns, branch.where, {names[int(n)]: c for n, c in branch.times.items()}
        )
    return StageBranch(
        branch.query,
        columns,
        branch.where,
        {names[int(n)]: key for n, key in branch.times.items()},
        {names[int(n)] for n in branch.open_times},
    )


def _nth(n: int) -> Function:
    return lambda rows: rows[0][n]  # type: ignore[index]


def _build_column_getter(column: str) -> Function:
    return lambda rows: rows[0][column]


def _is_time(key: Key, query: Any) -> bool:
    return any(source.alias == key[0] and key[1] in source.times for source in query.inputs)


def _is_open(key: Key, query: Any) -> bool:
    return any(source.alias == key[0] and key[1] in source.open_times for source in query.inputs)


def _branches(node: exp.Expression) -> list[exp.Select]:
    if isinstance(node, exp.Subquery | exp.Paren):
        return _branches(node.this)
    if isinstance(node, exp.Union):
        if node.args.get("distinct"):
            raise Unsupported("UNION DISTINCT")
        return _branches(node.this) + _branches(node.expression)
    if isinstance(node, exp.Select):
        return [node]
    raise Unsupported(node.sql())


def _find_declaration(name: str, case: dict[str, Any]) -> dict[str, Any]:
    for group in ("streams", "tables"):
        for stream, declared in case.get(group, {}).items():
            if stream.lower() == name.lower():
                typed: dict[str, Any] = declared
                return typed
    raise Refused(f'unknown stream "{name}"')


__all__ = ["Branch", "Key", "ReadStage", "Source", "StageBranch", "read_source"]
