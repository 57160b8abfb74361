"""`watersmeet why` of topics: random joins run on Spark from a real broker, against a nested-loop oracle, and
what is said when records, topics or brokers have gone."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.support.fates import ROW, Known, fates
from tests.support.kafka import KafkaBroker
from tests.why.test_random_fates import ALL, differences, guesses
from watersmeet import topics
from watersmeet.cli.main import main
from watersmeet.cli.why import topics as topics_of_why
from watersmeet.cli.why.command import answer_question
from watersmeet.names import CASE_PARTITION
from watersmeet.why.answer import Answer
from watersmeet.why.question import Question

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

TICKS = 3
COLUMNS = {"t": "BIGINT", "k": "STRING", "v": "BIGINT", ROW: "BIGINT"}
LAGS = {"l": 2, "r": 4}
QUERIES = (
    "SELECT l.rid AS x, r.rid AS y FROM l FULL JOIN r ON l.k = r.k AND r.t BETWEEN l.t - 3 AND l.t + 6",
    "SELECT l.rid AS x FROM l LEFT ANTI JOIN r ON l.v <> r.v AND r.t BETWEEN l.t AND l.t + 2",
)
Rows = list[tuple[str, int, dict[str, Any]]]
"""Of a tick: stream, partition, row."""


def random_ticks(rng: random.Random) -> list[Rows]:
    ticks: list[Rows] = []
    number = 0
    for tick in range(TICKS):
        ticks.append([])
        for name in LAGS:
            for _ in range(10):
                time = None if rng.random() < 0.05 else 8 * tick + rng.randint(-9, 6)
                row = {"t": time, "k": rng.choice(["a", "b", None]), "v": rng.randint(0, 4), ROW: number}
                ticks[-1].append((name, rng.randint(0, 1), row))
                number += 1
    return ticks


class TopicJob:
    """A job of two topics of two partitions each, run tick by tick; ``known``: per query what became of its
    rows."""

    def __init__(self, broker: KafkaBroker, ticks: list[Rows]) -> None:
        self.broker = broker
        self.text = ""
        for name, lag in LAGS.items():
            broker.create_topic(self.topic(name), partitions=2)
            columns = ", ".join(f"{column} {kind}" for column, kind in COLUMNS.items())
            begins = ", ".join(f'"{partition}": {begin}' for partition, begin in enumerate((1, 0)))
            self.text += f"CREATE TABLE {name} ({columns}, WATERMARK FOR t AS t - {lag}) WITH ("
            self.text += f"'connector' = 'kafka', 'bootstrap.servers' = '{broker.bootstrap_servers}',"
            self.text += f"'topic' = '{self.topic(name)}', 'format' = 'json',"
            self.text += f"'startingOffsets' = '{{\"{self.topic(name)}\": {{{begins}}}}}');\n"
        for number, query in enumerate(QUERIES):
            self.text += f"CREATE SINK q{number} WITH ('connector' = 'memory');\n"
            self.text += f"INSERT INTO q{number} {query};\n"
        Path("job.sql").write_text(self.text)
        skipped = json.dumps({"t": 0, "k": "a", "v": 1, ROW: -1})
        for name in LAGS:
            broker.produce(self.topic(name), [(0, None, skipped)])
        for tick in ticks:
            for name in LAGS:
                own = [(at, None, json.dumps(row)) for of, at, row in tick if of == name]
                broker.produce(self.topic(name), own)
            assert main(["run", "job.sql", "--quiet", "--until-caught-up"]) == 0
        streams = {
            name: {"columns": COLUMNS, "time": {"t": {"lag": lag}}, "partitions": ["0", "1"]}
            for name, lag in LAGS.items()
        }
        steps = [{"rows": [[of, {**row, CASE_PARTITION: str(at)}] for of, at, row in tick]} for tick in ticks]
        self.known = [
            fates({"case": "q", "streams": streams, "query": query, "steps": steps}) for query in QUERIES
        ]

    @staticmethod
    def topic(name: str) -> str:
        return f"why-{name}"

    def told(self, alias: str, text: str | None = None) -> list[Answer]:
        question = Question(alias, most=ALL)
        return answer_question(text or self.text, Path("job.sql"), question, None, Path(".watersmeet/job"))

    def wrong(self, compared: Any) -> list[Any]:
        """Of all rows that are told of, what is said of them and is not so; see `test_random_fates`."""
        problems = []
        for alias, other in (("l", "r"), ("r", "l")):
            for answer, known in zip(self.told(alias), self.known, strict=True):
                for fate in answer.fates:
                    if fate.what == "not_read":
                        continue
                    own: Known = known[alias, fate.row[ROW]]
                    problems += [
                        (answer.query, fate, own, own_problem) for own_problem in compared(fate, own, other)
                    ]
        return problems


def test_rows_of_topics(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path, monkeypatch: Any, capsys: Any, seed: int
) -> None:
    monkeypatch.chdir(tmp_path)
    ticks = random_ticks(random.Random(seed))
    job = TopicJob(kafka_broker, ticks)
    count = sum(of == "l" for tick in ticks for of, _, _ in tick)
    began = "the job has read why-{0}/0 from offset 1 on: of what is before that nothing is told"
    for alias in LAGS:
        for answer in job.told(alias):
            assert answer.ticks == (1, TICKS)
            assert set(answer.notes) == {f'"{name}": {began.format(name)}' for name in LAGS}
            assert len(answer.fates) == count
            places = {(fate.place, fate.row[ROW]) for fate in answer.fates}
            assert len({place for place, _ in places}) == count
            assert all(fate.place.startswith(f"why-{alias}/") for fate in answer.fates)
    assert not job.wrong(differences)
    groups = kafka_broker._admin().list_consumer_groups().result(30).valid
    assert not [group for group in groups if "why" in group.group_id]

    kafka_broker.produce(job.topic("l"), [(1, None, json.dumps({"t": 99, "k": "a", "v": 1, ROW: 999}))])
    (fate,) = [fate for fate in job.told("l")[0].fates if fate.row[ROW] == 999]
    assert (fate.what, fate.tick) == ("not_read", None)

    kafka_broker.delete_records(job.topic("r"), 1, 4)  # as retention does
    assert not job.wrong(guesses)
    (note, *_) = [note for note in job.told("l")[0].notes if "begins at" in note]
    assert note == '"r": why-r/1 begins at offset 4 now, and the job has read from 0 on'

    monkeypatch.setattr(topics_of_why, "MOST_RECORDS", 24)
    assert not job.wrong(guesses)
    answer = job.told("l")[0]
    assert any(
        "30 records those are read again that came after tick 1: no more than 24" in n for n in answer.notes
    )
    assert {fate.tick.number for fate in answer.fates if fate.tick} == {2, 3}
    monkeypatch.setattr(topics_of_why, "MOST_BYTES", 100)
    assert any("would take more than 0 MB" in note for note in job.told("l")[0].notes)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)

    monkeypatch.setattr(topics, "ANSWER_S", 0.5)
    away = job.text.replace(kafka_broker.bootstrap_servers, "127.0.0.1:9")
    said = [note for note in job.told("l", away)[0].notes if "no broker" in note]
    assert said == [f'"{n}": its records are not read again: no broker answers at 127.0.0.1:9' for n in LAGS]
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)

    kafka_broker.delete_topic(job.topic("r"))
    assert '"r": topic why-r is not there any more' in job.told("r")[0].notes
    kafka_broker.create_topic(job.topic("r"), partitions=2)
    assert (
        '"r": topic why-r was deleted and created again, and has other records now' in job.told("r")[0].notes
    )
    assert not job.wrong(guesses)
    assert (
        main(["run", "job.sql", "--quiet", "--until-caught-up"]) != 0
    )  # it is refused, and said how to go on
    kafka_broker.produce(
        job.topic("r"), [(0, None, json.dumps({"t": 9, "k": "b", "v": 0, ROW: n})) for n in (500, 501)]
    )
    assert main(["run", "job.sql", "--quiet", "--until-caught-up", "--accept-loss", "r"]) == 0
    fates_of_new = {fate.row[ROW]: fate.tick for fate in job.told("r")[0].fates}
    assert fates_of_new.keys() == {500, 501}
    assert {tick.number for tick in fates_of_new.values() if tick is not None and tick.exact} == {TICKS + 1}
    capsys.readouterr()


CHANGES = """
    CREATE TABLE c (id BIGINT, segment STRING, PRIMARY KEY (id) NOT ENFORCED)
      WITH ('connector' = 'kafka', 'bootstrap.servers' = '{servers}', 'topic' = 'why-c',
            'format' = 'upsert-json');
    CREATE TABLE o (number BIGINT, customer BIGINT)
      WITH ('connector' = 'kafka', 'bootstrap.servers' = '{servers}', 'topic' = 'why-o',
            'format' = 'debezium-json');
    CREATE SINK s WITH ('connector' = 'memory');
    INSERT INTO s SELECT o.number, c.segment FROM o LEFT JOIN c ON o.customer = c.id EMIT CHANGES"""


@pytest.mark.full
def test_topics_of_changes(spark: Any, kafka_broker: KafkaBroker, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    text = CHANGES.format(servers=kafka_broker.bootstrap_servers)
    Path("job.sql").write_text(text)
    ten, eleven = ({"number": number, "customer": 1} for number in (10, 11))
    ticks: list[dict[str, list[Any]]] = [
        {
            "c": [({"id": 1}, {"segment": "new"}), ({"id": 2}, {"segment": "gold"})],
            "o": [{"op": "c", "after": ten}],
        },
        {"c": [({"id": 1}, {"segment": "old"})], "o": [{"op": "u", "before": ten, "after": eleven}, None]},
        {"c": [({"id": 1}, None), ({"id": 9}, None)], "o": [{"op": "d", "before": eleven}]},
    ]
    for name in "co":
        kafka_broker.create_topic(f"why-{name}", partitions=1)
    for tick in ticks:
        upserts = [(0, json.dumps(key), None if row is None else json.dumps(row)) for key, row in tick["c"]]
        kafka_broker.produce("why-c", upserts)
        events = [(0, None, None if own is None else json.dumps(own)) for own in tick["o"]]
        kafka_broker.produce("why-o", events)
        assert main(["run", "job.sql", "--quiet", "--until-caught-up"]) == 0

    def of(alias: str) -> Answer:
        (answer,) = answer_question(text, Path("job.sql"), Question(alias), None, Path(".watersmeet/job"))
        return answer

    assert of("c").notes == of("o").notes == ()
    assert [(fate.what, str(fate.tick)[3:], fate.left and fate.left.number) for fate in of("c").fates] == [
        ("replaced", "tick 1", 2),
        ("there", "tick 1", None),
        ("withdrawn", "tick 2", 3),
        ("delete", "tick 3", 3),
        ("delete_of_nothing", "tick 3", None),
    ]
    came, went, again, gone = of("o").fates
    assert came.place == "why-o/0 at offset 0"
    assert went.place == again.place == "why-o/0 at offset 1"  # an update is of two rows
    assert [fate.what for fate in (came, went, again, gone)] == ["withdrawn", "delete", "withdrawn", "delete"]
    met = [(own.row["c"] and own.row["c"]["segment"], own.tick.number, own.until) for own in again.met]
    assert [(segment, tick) for segment, tick, _ in met] == [("old", 2)]
    assert str(met[0][2]) == "in tick 3"
    kafka_broker.delete_records("why-c", 0, 2)  # what is certain without them is told
    left = of("c")
    assert [fate.what for fate in left.fates] == ["withdrawn", "delete", "delete"]
    assert left.fates[2].text == "deleted its key in tick 3; what was there before is not known"
    assert "begins at offset 2 now" in left.notes[0]
