"""A relation that calls build: streams and tables, joined, filtered, projected, grouped, put together.

It holds a tree as the parser of SQL would make it, so that what it means is said in one place (`front`), and
what is wrong is found at the call that makes it so. No call changes a relation: each gives another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, TypeVar

from sqlglot import exp

from watersmeet.errors import WatersmeetError, flat_enough, near_names
from watersmeet.parser.catalog import Catalog
from watersmeet.parser.query.flow import Flow, JoinedView, flow_of
from watersmeet.parser.query.inline import join_conditions
from watersmeet.parser.query.ranking import is_ranked
from watersmeet.parser.query.select import build_query
from watersmeet.parser.query.views import is_summarized, select_flow
from watersmeet.parser.query.windows import OF_WINDOW
from watersmeet.parser.text.dialect import ImposeOrder, WindowTable
from watersmeet.parser.text.source_position import StatementRejected
from watersmeet.plan.explain import explain
from watersmeet.plan.explain.graph import mermaid
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.planner import plan_job
from watersmeet.relations.expressions import (
    Fragment,
    Fragments,
    Written,
    fragment_of,
    is_column,
    names_of,
    read_fragment,
    several,
    whole_error,
)
from watersmeet.relations.outputs import checked_name, output_mode, written_by_spark
from watersmeet.relations.source_frames import Given, by_spark, together
from watersmeet.relations.terms import Between, Length, Window, length_node
from watersmeet.spec.connectors import FOREACH_BATCH
from watersmeet.spec.model import WINDOW_END, WINDOW_START, Column, Insert, Job, OutputMode, Query, Sink
from watersmeet.spec.options.function import NAMED, OfBatches, call_problem
from watersmeet.spec.options.spark import FORMAT, TABLE

HOW: Mapping[str, Mapping[str, str]] = {
    "inner": {},
    "left": {"side": "LEFT"},
    "right": {"side": "RIGHT"},
    "full": {"side": "FULL"},
    "semi": {"side": "LEFT", "kind": "SEMI"},
    "anti": {"side": "LEFT", "kind": "ANTI"},
    "asof": {"method": "ASOF"},
    "left_asof": {"method": "ASOF", "side": "LEFT"},
}
"""`Relation.join`'s ``how`` -> the parts of a JOIN."""

_ALSO = {
    "left_outer": "left", "leftouter": "left", "right_outer": "right", "rightouter": "right",
    "outer": "full", "full_outer": "full", "fullouter": "full",
    "left_semi": "semi", "leftsemi": "semi", "left_anti": "anti", "leftanti": "anti",
}  # fmt: skip
"""Spark's other names of them."""

Condition = Written | Sequence[Written]
Built = TypeVar("Built")


@dataclass(frozen=True, repr=False, eq=False)
class Relation:
    """Streams, and what is made of them. Made by `stream`, and by its own methods.

    Names in texts are those of SQL: ``o.order_id`` of what has the alias ``o``, or ``order_id`` where only
    one input has it. A mistake is raised by the call that makes it, as `SqlError`.

    >>> from watersmeet import between, stream
    >>> orders = stream({"id": "BIGINT", "at": "TIMESTAMP"}, time="at", lag="10 seconds", name="orders")
    >>> sent = stream({"id": "BIGINT", "at": "TIMESTAMP"}, time="at", lag="1 minute", name="sent")
    >>> joined = orders.alias("o").join(
    ...     sent.alias("s"), on="s.id = o.id", within=between("s.at", "o.at", "0s", "1h"), how="left")
    >>> [(column.name, str(column.type)) for column in joined.select("o.id", "s.at AS sent").columns]
    [('id', 'BIGINT'), ('sent', 'TIMESTAMP')]
    """

    _tree: exp.Expression
    _given: Mapping[str, Given]
    _fragments: tuple[Fragment, ...] = ()
    _grows: bool = False
    """The tree is a SELECT of all columns, to which joins and filters can be added."""

    def alias(self, name: str) -> Relation:
        """Rename the relation; the texts of a join use this name."""
        if not isinstance(name, str) or not name.strip():
            raise whole_error("alias", f"is {name!r}", "pass a name: orders.alias('o')")
        return replace(self, _tree=_set_alias(self._item("alias"), name), _grows=False)

    def join(
        self,
        other: Relation,
        on: Condition | None = None,
        *,
        within: Between | Sequence[Between] | None = None,
        how: str = "inner",
        using: Sequence[str] | None = None,
        match: str | None = None,
    ) -> Relation:
        """Join rows of this relation with rows of ``other`` that satisfy the condition.

        Args:
            on: SQL over both, as a text or a Spark Column; or several, all of which must hold.
            within: bounds of the time between them (`between`), which must hold as well.
            how: inner, left, right, full, semi, anti, asof or left_asof.
            using: columns of the same name that must be equal and appear once in the output, instead of
                ``on``.
            match: for an ASOF join, the condition that determines the nearest row: ``q.t <= r.t``.
        """
        if not isinstance(other, Relation):
            raise whole_error("join", f"needs a relation, not {type(other).__name__}", "stream(df, …)")
        wanted = _ALSO.get(how, how) if isinstance(how, str) else None
        if wanted not in HOW:
            near = near_names(str(how), [*_ALSO, *HOW])
            raise whole_error(
                "how",
                f"is {how!r}, not a kind of join",
                f"{near} The kinds are {', '.join(HOW)} (left is the left outer join)",
            )
        columns = None if using is None else names_of(using, "using")
        conditions, fragments = self._conditions(on, within)
        if columns is not None and conditions:
            raise whole_error("using", "cannot be combined with on or within", "leave out one of them")
        select = self._growing("join")
        node = exp.Join(this=other._item("join"), **HOW[wanted])
        if columns is not None:
            node.set("using", [exp.to_identifier(name, quoted=True) for name in columns])
        elif conditions:
            node.set("on", reduce(join_conditions, conditions))
        if match is not None:
            tree, fragment = read_fragment(match, "match")
            node.set("match_condition", tree)
            fragments.append(fragment)
        select.append("joins", node)
        return self._build_relation(
            select, together(self._given, other._given), [*other._fragments, *fragments], True
        )

    def where(self, *conditions: Written) -> Relation:
        """Filter the rows by conditions that must all be true."""
        if not conditions:
            raise whole_error("where", "needs at least one condition")
        read = [read_fragment(condition, "where") for condition in conditions]
        select = self._growing("where")
        before = select.args.get("where")
        trees = [] if before is None else [before.this]
        select.set("where", exp.Where(this=reduce(join_conditions, [*trees, *(tree for tree, _ in read)])))
        return self._build_relation(select, self._given, [fragment for _, fragment in read], True)

    filter = where

    def select(self, *columns: Written) -> Relation:
        """Select columns: ``o.order_id``, ``o.price * 2 AS twice``, ``d.*``."""
        if not columns:
            raise whole_error("select", "needs at least one column")
        read = _items(columns, "select")
        select = self._growing("select")
        select.set("expressions", [tree for tree, _ in read])
        return self._build_relation(select, self._given, [fragment for _, fragment in read], False)

    def distinct(self) -> Relation:
        """Deduplicate the rows by grouping by all columns; groups change as rows change."""
        chosen = isinstance(self._tree, exp.Select) and not is_summarized(self._tree)
        select = self._tree.copy() if chosen else self._growing("distinct")
        select.set("distinct", exp.Distinct())
        return self._build_relation(select, self._given, [], False)

    def hint(self, *hints: str) -> Relation:
        """Set how the joins so far run: ``BROADCAST(d)``, ``PLAN(delta)``."""
        if not self._grows or not self._tree.args.get("joins"):
            raise whole_error(
                "hint", "needs a relation that joins", "write a.join(b, …).hint('BROADCAST(b)')"
            )
        if not hints or any(not isinstance(hint, str) or "*/" in hint for hint in hints):
            raise whole_error("hint", f"is {hints!r}", "pass texts such as 'BROADCAST(d)'")
        fragment = fragment_of(f"/*+ {', '.join(hints)} */", "hint")
        select = self._growing("hint")
        before = select.args.get("hint")
        if before is not None:
            raise whole_error("hint", "can be used once", "pass all: .hint('BROADCAST(a)', 'PLAN(delta)')")
        node = exp.Hint(expressions=[exp.Var(this=fragment.text[3:-2].strip())])
        node.meta["start"] = fragment.first
        select.set("hint", node)
        return self._build_relation(select, self._given, [fragment], True)

    def union_all(self, *others: Relation) -> Relation:
        """Concatenate the rows of all relations by position, each with its own late threshold."""
        tree, given, fragments = self._whole(), dict(self._given), list[Fragment]()
        for other in others:
            if not isinstance(other, Relation):
                raise whole_error("union_all", f"needs a relation, not {type(other).__name__}")
            tree = exp.Union(this=tree, expression=other._whole(), distinct=False)
            given = together(given, other._given)
            fragments += other._fragments
        return self._build_relation(tree, given, fragments, False)

    def impose_order(self, column: Written, lag: Length) -> Relation:
        """Declare ``column`` an event time whose watermark lags the greatest time by ``lag``.

        The rows stay the same.
        """
        item = self._item("impose_order")
        alias = item.alias_or_name
        name = _column_name(column, alias, "impose_order")
        order = ImposeOrder(this=_bare(item), column=name, lag=length_node(lag, "lag"))
        tree = exp.Table(this=order)
        return self._build_relation(_set_alias(tree, alias) if alias else tree, self._given, [], False)

    def group_by(self, *keys: Written | Window) -> Grouped:
        """Group rows by a window (`tumble`, `hop`, `session`) and columns, or by columns alone.

        `Grouped.agg` then defines the row of each group.
        """
        windows = [key for key in keys if isinstance(key, Window)]
        if len(windows) > 1:
            raise whole_error("group_by", "accepts only one window", "remove one of them")
        read = [
            read_fragment(key, f"group_by, item {number}", named=True)
            for number, key in enumerate(keys, 1)
            if not isinstance(key, Window)
        ]
        return Grouped(self, windows[0] if windows else None, tuple(read))

    def as_of(self) -> Relation:
        """Return the table as each row that is joined with it finds it in its tick: a join's right side.

        Tables are declared in SQL: `declared`.
        """
        item = self._item("as_of")
        if not isinstance(item, exp.Table):
            raise whole_error(
                "as_of", "needs a table, not a stream", "write declared('CREATE TABLE …')['name'].as_of()"
            )
        item.set("version", exp.Version(this="TIMESTAMP", kind="AS OF", expression=exp.CurrentTimestamp()))
        return replace(self, _tree=item, _grows=False)

    def to_sink(
        self,
        target: Sink | None = None,
        *,
        format: str | None = None,
        options: Mapping[str, Any] | None = None,
        name: str | None = None,
        emit: str | None = None,
    ) -> Output:
        """Create an output that writes the rows to a sink (`files`, `kafka`, …), for `job`.

        Args:
            format: instead of a sink, a Spark data source that writes the rows at least once.
            options: options of that data source.
            name: name of that sink; None: the last part of its path or table, or the format.
            emit: ``changes``: emit insertions and retractions; ``final``: emit only rows that never change;
                None: as the job's setting says.
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
        return Output(self, target, output_mode(emit))

    def to_table(self, table: str, *, name: str | None = None, emit: str | None = None) -> Output:
        """Create an output that writes the rows to an existing table of a Spark catalog.

        Spark matches columns by name and writes rows at least once.

        Args:
            table: ``catalog.db.t``.
            name, emit: as in `to_sink`.
        """
        return Output(self, written_by_spark(TABLE, table, None, name), output_mode(emit))

    def foreach_batch(
        self,
        function: OfBatches,
        *,
        name: str | None = None,
        primary_key: str | Sequence[str] = (),
        emit: str | None = None,
    ) -> Output:
        """Create an output that passes the rows of each tick to a function of this process.

        The function receives a DataFrame of the tick's rows and the tick's number. If it has parameters of
        these names, it also receives ``job``, a text that identifies the job's state (a new checkpoint
        restarts ticks at 1), and ``insert``, the name of the INSERT. A repeated tick passes equal rows with
        equal values of all these, so output is exactly once if the function ignores calls it has already
        processed.

        Args:
            name: name by which a job that resumes identifies the sink; None: the function's.
            primary_key: columns; then there is one row per key and tick, with ``_deleted`` after the
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
        return Output(self, Sink(own, FOREACH_BATCH, {}, None, keys), output_mode(emit), function)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Names and types, in order; UNKNOWN is the type of a function that is not Spark's own."""
        return self.flow().columns

    def flow(self) -> Flow | JoinedView:
        """Build the view of this relation.

        Raises:
            SqlError, SeveralErrors: the relation is wrong.
        """
        tree, text = self._whole(), self._text()
        return self._build_or_raise_problems(text, lambda: select_flow(tree, self._catalog(), text))

    def query(self) -> Query:
        """Build the query as a description of `spec`.

        Raises:
            SqlError, SeveralErrors: the relation is wrong.
        """
        tree, text = self._whole(), self._text()
        return self._build_or_raise_problems(
            text, lambda: build_query(tree, self._catalog(), text, render_sql(self._tree))
        )

    @property
    def plan(self) -> JobPlan:
        """Plan of the relation, run alone with output to the console.

        Raises:
            WatersmeetError: it cannot be planned; the error lists all problems.
        """
        return plan_job(Job((Insert("console", Sink("console", "console"), self.query()),)))

    def explain(self) -> str:
        """Explain how the relation would run, alone with output to the console."""
        return explain(self.plan)

    def mermaid(self) -> str:
        """Render the plan as the text of a Mermaid flowchart."""
        return mermaid(self.plan)

    def _repr_html_(self) -> str:
        from watersmeet.observe.notebook import plan_page, refusal_page  # loads rich

        try:
            return plan_page(self.plan)
        except WatersmeetError as error:  # what is not whole yet is shown, too
            return refusal_page(repr(self), error)

    def __repr__(self) -> str:
        return f"Relation({render_sql(self._whole())})"

    @staticmethod
    def _conditions(
        on: Condition | None, within: Between | Sequence[Between] | None
    ) -> tuple[list[exp.Expression], list[Fragment]]:
        trees: list[exp.Expression] = []
        fragments: list[Fragment] = []
        lone = on is None or isinstance(on, str | exp.Expression) or is_column(on)
        texts: Sequence[Any] = several(on, "on") if not lone else [] if on is None else [on]
        for text in texts:
            tree, fragment = read_fragment(text, "on")
            trees.append(tree)
            fragments.append(fragment)
        hint = "between('d.t', 'o.t', '0s', '1h')"
        one = [] if within is None else [within] if isinstance(within, Between) else None
        for bounds in several(within, "within", hint) if one is None else one:
            if not isinstance(bounds, Between):
                raise whole_error("within", f"is {bounds!r}", hint)
            tree, read = bounds.tree()
            trees.append(tree)
            fragments += read
        return trees, fragments

    def _item(self, call: str) -> exp.Expression:
        """Build the relation's tree for use in FROM."""
        if isinstance(self._tree, exp.Table | exp.Subquery):
            return self._tree.copy()
        name = _own_name(self._tree)
        tree = exp.Subquery(this=self._tree.copy())
        if name is not None:
            return _set_alias(tree, name)
        plain = not self._tree.args.get("where") and not self._tree.args.get("hint")
        if call == "join" and self._grows and plain:  # (a JOIN b ON …)
            first = tree.this.args["from_"].this
            first.set("joins", tree.this.args["joins"])
            return exp.Subquery(this=first)
        if call in ("alias", "group_by"):
            return tree
        raise whole_error(
            call, "needs the name of the relation, but this relation has no name", "add a name: .alias('x')"
        )

    def _windowed_rows(self) -> tuple[exp.Expression, exp.Expression | None]:
        """Return the rows over which windows are built, and the filter of these rows."""
        if self._grows and isinstance(self._tree, exp.Select) and not self._tree.args.get("joins"):
            tree = self._tree.copy()
            return tree.args["from_"].this, tree.args.get("where")
        return self._item("group_by"), None

    def _whole(self) -> exp.Expression:
        """Return the relation's tree as a query."""
        if isinstance(self._tree, exp.Select | exp.SetOperation):
            return self._tree.copy()
        return _all_of(self._tree.copy())

    def _growing(self, call: str) -> exp.Select:
        """Return a SELECT of all columns to which clauses can be added."""
        if self._grows:
            select = self._tree.copy()
            assert isinstance(select, exp.Select)
            if call != "join" or select.args.get("where") is None:
                return select
            if not select.args.get("joins"):
                return _all_of(self._item(call))
            raise whole_error(
                "join",
                "cannot follow a filter of a join: the names of the joined inputs would be lost",
                "filter an input before the join or after all joins, or use .select(…).alias('x') first",
            )
        if isinstance(self._tree, exp.Table | exp.Subquery):
            return _all_of(self._tree.copy())
        name = _own_name(self._tree)
        item = exp.Subquery(this=self._tree.copy())
        if is_ranked(self._tree):
            return _all_of(item)
        return _all_of(_set_alias(item, name or "joined"))

    def checked(self, tree: exp.Expression, fragment: Fragment) -> Relation:
        """Return the relation of a whole query.

        Raises:
            SqlError, SeveralErrors: the query is wrong.
        """
        return self._build_relation(tree, self._given, [fragment], False)

    def _build_relation(
        self, tree: exp.Expression, given: Mapping[str, Given], more: Iterable[Fragment], grows: bool
    ) -> Relation:
        """Return the relation of ``tree``.

        Raises:
            SqlError, SeveralErrors: the tree is wrong.
        """
        made = Relation(tree, given, (*self._fragments, *more), grows)
        made.query()
        return made

    def _text(self) -> Fragments:
        return Fragments.of(self._fragments, own_functions=by_spark(self._given))

    def _catalog(self) -> Catalog:
        catalog = Catalog()
        for one in self._given.values():
            catalog.add(one.source.name, flow_of(one.source))
        return catalog

    @staticmethod
    def _build_or_raise_problems(text: Fragments, build: Callable[[], Built]) -> Built:
        try:
            with flat_enough():
                return build()
        except StatementRejected:
            pass
        except WatersmeetError as error:
            text.problems.append(error)
        raise text.all_problems()


@dataclass(frozen=True)
class Output:
    """A relation whose rows are written to a sink, like INSERT in SQL.

    `Relation.to_sink` and similar methods create it.

    >>> from watersmeet import files, stream
    >>> clicks = stream({"id": "BIGINT", "at": "TIMESTAMP"}, time="at", name="clicks")
    >>> clicks.to_sink(files("out/clicks")).sink.options["path"]
    'out/clicks'

    Attributes:
        function: The function of this process that is the sink, if it is one.
    """

    relation: Relation
    sink: Sink
    mode: OutputMode | None = None
    function: OfBatches | None = None


@dataclass(frozen=True)
class Grouped:
    """Groups of rows, of which `agg` makes one row each. Made by `Relation.group_by`.

    >>> from watersmeet import stream, tumble
    >>> clicks = stream({"id": "BIGINT", "at": "TIMESTAMP"}, time="at", name="clicks")
    >>> counted = clicks.group_by(tumble("at", "10 minutes"), "id").agg("count(*) AS n")
    >>> [column.name for column in counted.columns]
    ['window_start', 'window_end', 'id', 'n']
    """

    _rows: Relation
    _window: Window | None
    _keys: tuple[tuple[exp.Expression, Fragment], ...]

    def agg(self, *aggregates: Written, having: Written | None = None) -> Relation:
        """Aggregate each group to one row.

        The row has the window's start and end, the keys, and these aggregates (``count(*) AS n``).

        Args:
            having: condition on aggregates and keys; only groups that satisfy it are emitted.
        """
        return self._build_grouped_relation(
            [*self._edges(), *(tree.copy() for tree, _ in self._keys)], aggregates, "agg", having
        )

    def select(self, *columns: Written, having: Written | None = None) -> Relation:
        """Select columns of one row per group, from the window's start and end, keys and aggregates."""
        return self._build_grouped_relation([], columns, "select", having)

    def _edges(self) -> list[exp.Expression]:
        names = () if self._window is None else (WINDOW_START, WINDOW_END)
        edges: list[exp.Expression] = [exp.column(name) for name in names]
        for edge in edges:
            edge.meta[OF_WINDOW] = True
        return edges

    def _build_grouped_relation(
        self, first: list[exp.Expression], texts: Sequence[Written], call: str, having: Written | None
    ) -> Relation:
        read = _items(texts, call)
        fragments = [fragment for _, fragment in (*self._keys, *read)]
        select = (
            self._rows._growing("group_by")
            if self._window is None
            else self._build_window_select(self._window)
        )
        select.set("expressions", [*first, *(tree for tree, _ in read)])
        keys = [*self._edges(), *(tree for tree, _ in self._keys)]
        if keys:
            grouped = [key.this.copy() if isinstance(key, exp.Alias) else key.copy() for key in keys]
            select.set("group", exp.Group(expressions=grouped))
        if having is not None:
            tree, fragment = read_fragment(having, "having")
            select.set("having", exp.Having(this=tree))
            fragments.append(fragment)
        if not is_summarized(select):
            raise whole_error(call, "has no aggregate and no column", "add count(*) AS n, or use select")
        return self._rows._build_relation(select, self._rows._given, fragments, False)

    def _build_window_select(self, window: Window) -> exp.Select:
        item, where = self._rows._windowed_rows()
        name = item.alias_or_name
        table = WindowTable(
            this=_bare(item),
            column=_column_name(window.time, name, window.kind.value.lower()),
            function=window.kind.value,
            sizes=window.size_nodes(),
            partition=[],
        )
        select = _all_of(_set_alias(exp.Table(this=table), name) if name else exp.Table(this=table))
        select.set("where", where)
        return select


def render_sql(tree: exp.Expression) -> str:
    """Render the tree as SQL, for people."""
    return tree.sql("spark")


def _items(texts: Sequence[Written], call: str) -> list[tuple[exp.Expression, Fragment]]:
    """Parse a list of columns, each of which may have a name."""
    return [read_fragment(text, f"{call}, item {number}", named=True) for number, text in enumerate(texts, 1)]


def _all_of(item: exp.Expression) -> exp.Select:
    return exp.Select(expressions=[exp.Star()], from_=exp.From(this=item))


def _set_alias(item: exp.Expression, name: str) -> exp.Expression:
    item.set("alias", exp.TableAlias(this=exp.to_identifier(name, quoted=True)))
    return item


def _bare(item: exp.Expression) -> exp.Expression:
    """Remove the item's own name, where only the rows matter."""
    if isinstance(item, exp.Table) and isinstance(item.this, exp.Identifier):
        item.set("alias", None)
    elif isinstance(item, exp.Subquery):
        inner: exp.Expression = item.this
        return inner
    return item


def _own_name(tree: exp.Expression) -> str | None:
    """Return the name of the only input of a SELECT, by which its rows remain known."""
    if not isinstance(tree, exp.Select) or tree.args.get("joins"):
        return None
    origin = tree.args["from_"].this
    return origin.alias_or_name.rsplit(".", 1)[-1] or None


def _column_name(written: Written, alias: str, call: str) -> exp.Identifier:
    plain = read_fragment(written, call)[0].unnest()
    if not isinstance(plain, exp.Column) or plain.table.lower() not in ("", alias.lower()):
        raise whole_error(call, f"uses {written!r}, which is not a column of the relation")
    return exp.to_identifier(plain.name, quoted=True)
