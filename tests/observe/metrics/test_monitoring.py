"""The alert rules and the dashboard are expressions that Prometheus reads, over what the code shows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from watersmeet.observe.metrics.figures import FIGURES, HISTOGRAM, OUTCOMES, ROWS

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "monitoring"
RULES = [
    rule for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]
DASHBOARD = json.loads((FOLDER / "grafana-dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
LABELS = {
    name: {"job", *figure.labels, *more}
    for figure in FIGURES
    for name, more in (
        (
            (f"{figure.name}_bucket", ("le",)),
            (f"{figure.name}_sum", ()),
            (f"{figure.name}_count", ()),
        )
        if figure.kind == HISTOGRAM
        else ((figure.name, ()),)
    )
}


def whole(expression: str) -> str:
    """As Grafana asks it."""
    return re.sub(r"\$__(rate_interval|range)", "5m", expression)


EXPRESSIONS = [
    *(rule["expr"] for rule in RULES),
    *(whole(target["expr"]) for panel in PANELS for target in panel["targets"]),
]


def inner(expression: Any) -> Iterator[Any]:
    """An expression and all in it."""
    yield expression
    parts = [getattr(expression, name, None) for name in ("lhs", "rhs", "expr", "param", "vector_selector")]
    for part in (*parts, *(getattr(expression, "args", None) or ())):
        if part is not None and not isinstance(part, str | float):
            yield from inner(part)


def problems_of(text: str) -> list[str]:
    """Metrics and labels that are not there."""
    every = list(inner(promql_parser.parse(text)))
    selectors = [each for each in every if isinstance(each, promql_parser.VectorSelector)]
    problems = [f"no metric {each.name}" for each in selectors if each.name not in LABELS]
    there: set[str] = set().union(*(LABELS.get(each.name, set()) for each in selectors))
    for each in selectors:
        for matcher in each.matchers.matchers:
            if matcher.name not in LABELS.get(each.name, ()):
                problems.append(f"no label {matcher.name} of {each.name}")
            if each.name == ROWS.name and matcher.name == "outcome":
                problems += [f"no outcome {o}" for o in matcher.value.split("|") if o not in OUTCOMES]
    for each in every:
        modifier = getattr(each, "modifier", None)
        named = getattr(modifier, "labels", None) or getattr(
            getattr(modifier, "matching", None), "labels", None
        )
        problems += [f"no label {label}" for label in named or () if label not in there]
    return problems


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_names_what_is_there(text):
    assert problems_of(text) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("watersmeet_row_total", "no metric watersmeet_row_total"),
        ('watersmeet_rows_total{outcom="late"}', "no label outcom of watersmeet_rows_total"),
        ('watersmeet_rows_total{outcome=~"late|lost"}', "no outcome lost"),
        ("sum by (querry) (watersmeet_rows_total)", "no label querry"),
        ("watersmeet_up == on (jobs) watersmeet_failing", "no label jobs"),
    ],
)
def test_what_is_not_there_is_seen(text, problem):
    assert problem in problems_of(text)


def test_every_rule_says_whom_to_wake_and_what_it_is_about():
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names) > 10
    page = (ROOT / "docs" / "users" / "monitoring.md").read_text()
    for rule in RULES:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert {"summary", "description"} <= rule["annotations"].keys()
        assert f"`{rule['alert']}`" in page
        used = re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values()))
        selectors = [
            each
            for each in inner(promql_parser.parse(rule["expr"]))
            if isinstance(each, promql_parser.VectorSelector)
        ]
        assert set(used) <= set().union(*(LABELS[each.name] for each in selectors))


def test_panels_never_overlap_and_use_the_variables():
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + dx, at["y"] + dy) for dx in range(at["w"]) for dy in range(at["h"])}
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
    for panel in PANELS:
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            assert "$job" in target["expr"]
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= set().union(*LABELS.values())
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert set(variables) == {"datasource", "job", "query"}
    for name in ("job", "query"):
        metric, label = re.fullmatch(
            r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variables[name]["definition"]
        ).groups()
        assert label in LABELS[metric]


def test_the_page_tells_of_every_figure():
    page = (ROOT / "docs" / "users" / "reference" / "metrics.md").read_text()
    listed = re.findall(r"^\| `(watersmeet_\w+)` \| ([^|]*) \|", page, re.MULTILINE)
    assert sorted(name for name, _ in listed) == sorted(figure.name for figure in FIGURES)
    rows = dict(listed)
    for figure in FIGURES:
        assert re.findall(r"`(\w+)`", rows[figure.name]) == list(figure.labels)


def test_names_follow_the_conventions_of_prometheus():
    """Counters end in _total, no other does; times are in seconds, sizes in bytes; no label is in a name."""
    for figure in FIGURES:
        assert figure.name.endswith("_total") == (figure.kind == "counter"), figure.name
        assert not re.search(r"_(ms|millis|us|minutes|kb|mb|ratio_percent)(_|$)", figure.name), figure.name
        assert figure.kind != HISTOGRAM or figure.name.endswith("_seconds"), figure.name
        assert not [label for label in figure.labels if f"by_{label}" in figure.name], figure.name
