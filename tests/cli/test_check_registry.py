"""A schema registry is asked before Spark is started: whether it answers, and whether its schemas fit."""

from __future__ import annotations

import json

import pytest

from tests.support.registry import SchemaRegistry
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.spark.preflight import servers, sources

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
NEWEST = "/subjects/o-value/versions/latest"
JOB = """
CREATE TABLE o (id BIGINT, at TIMESTAMP, WATERMARK FOR at) WITH ('connector' = 'kafka',
  'bootstrap.servers' = '127.0.0.1:1', 'topic' = 'o', 'format' = 'avro', 'avro.schema' = '{schema}',
  'metadata.at' = 'timestamp', 'schema.registry' = '{url}', 'schema.registry.user' = 'ada',
  'schema.registry.password' = 'very-secret');
CREATE TABLE out WITH ('connector' = 'memory');
INSERT INTO out SELECT id FROM o;
"""


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    monkeypatch.setattr(servers, "PATIENCE_S", 0.1)
    monkeypatch.setattr(sources, "check_topics", lambda source: None)


def plan(url: str):
    return plan_job(parse_job(JOB.format(schema=json.dumps(SCHEMA), url=url)))


def problems(url: str, *, thorough: bool = False) -> list[tuple[str, str]]:
    told = sources.find_source_problems(plan(url), thorough=thorough)
    assert "very-secret" not in repr([(str(each), each.hint) for each in told])
    return [(each.code, each.message) for each in told]


def test_a_registry_that_does_not_answer_refuses_the_run():
    with SchemaRegistry() as server:
        url = server.url
        assert problems(url) == []
    (problem,) = problems(url)
    assert problem[0] == "registry-away"
    assert problem[1].startswith(f'Kafka source "o": the schema registry at {url} does not answer')


def test_one_that_refuses_and_one_that_is_none():
    with SchemaRegistry(login=("ada", "other")) as server:
        assert [code for code, _ in problems(server.url)] == ["registry-refused"]
    with SchemaRegistry(login=("ada", "very-secret")) as server:
        assert problems(server.url) == []
        server.answers[NEWEST] = (404, b"no such page")
        assert [code for code, _ in problems(server.url)] == ["no-registry"]


def test_newest_schema_is_checked_only_if_thorough():
    with SchemaRegistry() as server:
        assert problems(server.url, thorough=True) == []
        assert any('has no schema "o-value"' in note for note in sources.list_source_notes(plan(server.url)))
        server.add(3, SCHEMA)
        server.schemas[NEWEST] = {"id": 3, "version": 1, "schema": json.dumps(SCHEMA)}
        assert problems(server.url, thorough=True) == []
        assert not any("registry" in note for note in sources.list_source_notes(plan(server.url)))
        other = {**SCHEMA, "fields": [{"name": "id", "type": "string"}]}
        server.add(4, other)
        server.schemas[NEWEST] = {"id": 4, "version": 2, "schema": json.dumps(other)}
        assert problems(server.url) == []
        assert problems(server.url, thorough=True) == [
            (
                "wrong-types",
                'Kafka source "o": the schema of topic "o" is now 4: column "id" is declared BIGINT,'
                " but the schema has string",
            )
        ]
        server.add(5, {"type": "object"}, schemaType="JSON")
        server.schemas[NEWEST] = {"id": 5, "schemaType": "JSON", "schema": "{}"}
        assert [code for code, _ in problems(server.url, thorough=True)] == ["wrong-types"]
