"""SQL in, the job as text out: `golden/<name>.sql` and `golden/<name>.txt` side by side.

The text is written by hand-readable rules below; a missing .txt fails, and is written for review.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.package_paths import find_paths
from watersmeet.parser.statements import parse_job
from watersmeet.spec.model import Expr, Job, Join, Query, Relation, StageBranch

GOLDEN = Path(__file__).parent / "golden"


def _sql(expr: Expr | None) -> str:
    return "-" if expr is None else expr.sql("spark")


def _relation(relation: Relation, indent: str) -> list[str]:
    if isinstance(relation, Join):
        head = f"{indent}{relation.kind.value} on {_sql(relation.on)}"
        head += "" if relation.match is None else f" match {_sql(relation.match)}"
        head += "" if relation.where is None else f" where {_sql(relation.where)}"
        return [head, *_relation(relation.left, indent + "  "), *_relation(relation.right, indent + "  ")]
    columns = ", ".join(f"{column.name} {column.type}" for column in relation.columns)
    lines = [f"{indent}{relation.alias} ({columns}) times {list(relation.event_times)}"]
    for branch in relation.branches:
        if isinstance(branch, StageBranch):
            lines.append(f"{indent}  stage: {', '.join(_sql(each) for each in branch.columns)}")
            lines.append(f"{indent}    above {_sql(branch.above)}")
            lines += _query(branch.stage, indent + "    ")
            continue
        lines.append(f"{indent}  {branch.source.name}: {', '.join(_sql(each) for each in branch.columns)}")
        lines.append(f"{indent}    lags {list(branch.lags)}")
        lines.append(f"{indent}    beneath {_sql(branch.beneath)}, above {_sql(branch.above)}")
    return lines


def _query(query: Query, indent: str = "") -> list[str]:
    outputs = [
        f"{indent}    {output.name} = {_sql(output.expr)} [{output.origin}]" for output in query.outputs
    ]
    return [*_relation(query.relation, indent + "  "), f"{indent}  where {_sql(query.where)}", *outputs]


def _job(job: Job) -> str:
    lines: list[str] = []
    for insert in job.inserts:
        lines += [f"{insert.name} -> {insert.sink.name} ({insert.sink.connector})", *_query(insert.query)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", find_paths(GOLDEN, "*.sql"), ids=lambda path: path.stem)
def test_job_of_the_text(path: Path) -> None:
    found = _job(parse_job(path.read_text()))
    expected = path.with_suffix(".txt")
    if not expected.exists():
        expected.write_text(found)
        pytest.fail(f"{expected.name} was missing: look at what has been written, and keep it if it is right")
    assert found == expected.read_text()
