"""Flowcharts: labels that mean nothing to Mermaid, edges between nodes that there are."""

from __future__ import annotations

import re

from watersmeet.parser.statements import parse_job
from watersmeet.plan.explain.graph import mermaid
from watersmeet.plan.planner import plan_job

DECLARED = """
CREATE TABLE a (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE b (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE SINK out_a WITH ('connector' = 'memory');
"""
NODE = re.compile(
    r'(\w+)(?:\[\("([^"]*)"\)\]|\["([^"]*)"\]|\{\{"([^"]*)"\}\}|\[/"([^"]*)"/\]|\(\["([^"]*)"\]\))'
)


def chart(sql: str) -> str:
    return mermaid(plan_job(parse_job(DECLARED + sql)))


def test_every_line_is_a_node_an_edge_or_a_frame():
    text = chart(
        "INSERT INTO out_a SELECT x.t, y.t AS u FROM a x JOIN b y ON x.t = y.t WHERE x.k <> y.k;"
        "SELECT x.t, y.t AS u, z.t AS v FROM a x LEFT JOIN b y ON x.t = y.t JOIN a z ON z.t = x.t"
        " WHERE y.k IS NULL OR x.k = z.k"
    )
    first, *lines = text.splitlines()
    assert first == "flowchart LR"
    nodes, ends = set(), set()
    for line in (line.strip() for line in lines):
        edge = re.fullmatch(r"(\w+) --> (\S.*)", line)
        if edge:
            ends.add(edge.group(1))
            node = NODE.fullmatch(edge.group(2))
            ends.add(node.group(1) if node else edge.group(2))
            nodes |= {node.group(1)} if node else set()
        elif line != "end" and not line.startswith("subgraph "):
            nodes.add(NODE.fullmatch(line).group(1))
    assert ends == nodes
    assert sum(line.strip().startswith("s") and "[(" in line for line in lines) == 2, "each source once"


def test_labels_are_escaped():
    text = chart(
        """SELECT x.t, y.t AS u FROM a x JOIN b y ON x.t = y.t
        AND concat(x.k, '"];#<b>&`%%{}') <> concat(y.k, '\\\\ -->')"""
    )
    (label,) = re.findall(r'q0j0\{\{"(.*)"\}\}', text)
    assert not set(re.sub(r"#\d+;|<br/>", "", label)) & set('"#<>&`%{};\\')
    shown = re.sub(r"#(\d+);", lambda found: chr(int(found.group(1))), label)
    assert '"];#<b>&' in shown
    assert "-->" in shown


def test_an_empty_input_name_is_no_word_of_mermaid():
    assert "q0i0[" in chart("SELECT `end`.t, y.t AS u FROM a `end` JOIN b y ON `end`.t = y.t")


def test_a_table_that_is_compared_is_drawn():
    """It is no stream of the plan's, and read as a whole, again and again."""
    text = chart(
        "CREATE TABLE p (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)"
        " WITH ('connector' = 'jdbc', 'url' = 'jdbc:postgresql://h/db', 'dbtable' = 'p',"
        " 'changes' = 'snapshot');"
        "CREATE TABLE o WITH ('connector' = 'console'); SET output_mode = 'changelog';"
        "INSERT INTO o SELECT id, name FROM p"
    )
    assert "p (jdbc)" in text
