"""What SQL says can be said by calls, and means the same: every query of the golden files and of the
conformance cases, written both ways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import sqlglot
from sqlglot import exp

from tests.support.as_calls import NoCall, relation_of
from tests.support.case_files import OWN_CASE_FILES, file_id
from tests.support.package_paths import find_paths
from watersmeet.errors import WatersmeetError
from watersmeet.parser import statements as front
from watersmeet.parser.case_file import case_job
from watersmeet.parser.query import select
from watersmeet.parser.query.flow import Flow, JoinedView, flow_of
from watersmeet.relations import inputs
from watersmeet.relations.relation import Relation as Called
from watersmeet.runtime.spark.sql_text import to_spark_sql
from watersmeet.spec.model import Expr, Join, Query, Relation, StageBranch, inputs_of, with_inputs
from watersmeet.testing.cases import load_cases

GOLDEN = Path(__file__).parents[1] / "golden"


class Both:
    """Reads a text by `front`, and each of its queries by calls as well."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: ModuleType = front) -> None:
        self.pairs: list[tuple[Query, Query]] = []
        self.left_out: list[str] = []
        self.views: dict[int, tuple[Any, Any]] = {}
        build, flow = module.build_query, module.select_flow

        def building(tree, catalog, text, sql):
            query = build(tree.copy(), catalog, text, sql)
            try:
                self.pairs.append((query, self.relation(tree, catalog, text).query()))
            except NoCall as no:
                self.left_out.append(str(no))
            return query

        def flowing(tree, catalog, text, **more):
            made = flow(tree.copy(), catalog, text, **more)
            self.views[id(made)] = (made, (tree, catalog.inner()))
            return made

        monkeypatch.setattr(module, "build_query", building)
        monkeypatch.setattr(module, "select_flow", flowing)

    def relation(self, tree, catalog, text) -> Called:
        def resolve_relation(name: str) -> Called:
            spelled, flow = catalog.flow(name, tree, text)
            return self.of_flow(flow, spelled, text)

        return relation_of(tree, resolve_relation)

    def of_flow(self, flow: Flow | JoinedView, name: str, text) -> Called:
        if id(flow) in self.views:
            tree, catalog = self.views[id(flow)][1]
            return self.relation(tree, catalog, text)
        (way,) = flow.ways
        assert flow == flow_of(way.origin)
        return inputs.relation_of(way.origin)


def plain(query: Query) -> Query:
    """Without the text, which is for people."""

    def of_input(i):
        branches = tuple(
            replace(branch, stage=plain(branch.stage)) if isinstance(branch, StageBranch) else branch
            for branch in i.branches
        )
        return replace(i, branches=branches)

    outputs = tuple(replace(output, origin="") for output in query.outputs)
    grouped = query.aggregation
    if grouped is not None:
        grouped = replace(
            grouped,
            keys=tuple(replace(key, origin="") for key in grouped.keys),
            aggregates=tuple(replace(one, origin="") for one in grouped.aggregates),
        )
    relation = with_inputs(query.relation, of_input)
    assert len(list(inputs_of(relation)))
    return replace(query, relation=relation, outputs=outputs, sql="", aggregation=grouped)


def conditions(query: Query) -> Iterator[Expr]:
    """Of joins, inputs and the whole."""
    yield from (part for part in (query.where,) if part is not None)
    for i in query.inputs:
        for branch in i.branches:
            yield from (part for part in (branch.above, getattr(branch, "beneath", None)) if part is not None)
    relations: list[Relation] = [query.relation]
    while relations:
        relation = relations.pop()
        if isinstance(relation, Join):
            relations += [relation.left, relation.right]
            yield from (part for part in (relation.on, relation.where) if part is not None)


def ands(condition: Expr) -> int:
    """How many conditions stand beside each other at the top."""
    return len(list(condition.flatten())) if isinstance(condition, exp.And) else 1


def check(both: Both) -> None:
    for by_sql, by_calls in both.pairs:
        assert plain(by_calls) == plain(by_sql)
        for condition in conditions(by_calls):
            again = sqlglot.parse_one(to_spark_sql(condition), dialect="spark")
            assert ands(again) == ands(condition), "the text that Spark gets says the same"


@pytest.mark.parametrize("path", find_paths(GOLDEN, "*.sql"), ids=lambda path: path.stem)
def test_golden_queries_are_the_same_by_calls(path, monkeypatch):
    both = Both(monkeypatch)
    try:
        front.parse_job(path.read_text())
    except WatersmeetError:
        assert "refused" in path.stem
        return
    check(both)
    assert both.pairs or both.left_out == ["EXISTS"], "by calls it is a semi or anti join"


@pytest.mark.parametrize("path", OWN_CASE_FILES, ids=file_id)
def test_queries_of_cases_are_the_same_by_calls(path, monkeypatch):
    """All but those with clauses that calls have no words for, which are few."""
    both = Both(monkeypatch, select)
    for case in load_cases(path):
        try:
            case_job(case)
        except WatersmeetError:
            assert "error" in case["expect"], case["case"]
    check(both)
    print(len(both.pairs), Counter(both.left_out))
    assert len(both.pairs) > 9 * len(both.left_out)
