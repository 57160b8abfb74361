"""`whatif`: what it shows is what a reading of the rules, row by row, gives; all that is wrong is told."""

from __future__ import annotations

import csv
import io
import json
import random
import sys
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyarrow import parquet

from watersmeet.cli.whatif.options import MAX_SETTINGS
from watersmeet.whatif import pairs

JOB = """
CREATE TABLE o (id BIGINT, t TIMESTAMP, note STRING, WATERMARK FOR t AS t - INTERVAL '5' SECONDS)
  WITH ('connector' = 'memory');
CREATE TABLE plain_d (id BIGINT, t TIMESTAMP) WITH ('connector' = 'memory');
CREATE VIEW d AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE plain_d, DESCRIPTOR(t), INTERVAL '5' SECONDS));
CREATE SINK out WITH ('connector' = 'console');
INSERT INTO out SELECT o.id, d.t AS at FROM o LEFT JOIN d
  ON o.id = d.id AND d.t BETWEEN o.t AND o.t + INTERVAL '20' SECONDS;
"""
START = datetime(2024, 7, 1, tzinfo=UTC)


def drawn(seed, count):
    """(id, seconds of the event time, seconds of arrival), in order of arrival."""
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        late = rng.randint(0, 12) if rng.random() < 0.4 else 0
        rows.append((rng.randint(1, 9), max(0, number - late), number))
    return rows


def table_of(rows, note=False):
    columns = {
        "id": [row[0] for row in rows],
        "t": [START + timedelta(seconds=row[1]) for row in rows],
        "came": [START + timedelta(seconds=row[2]) for row in rows],
    }
    return pa.table(columns | ({"note": ["x"] * len(rows)} if note else {}))


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A job, and a sample of it in every format."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sql").write_text(JOB)
    for name, seed in (("o", 1), ("d", 2)):
        rows = drawn(seed, 120)
        parquet.write_table(table_of(rows), f"{name}.parquet")
        texts = [
            (row[0], (START + timedelta(seconds=row[1])).strftime("%Y-%m-%d %H:%M:%S"), row[2])
            for row in rows
        ]
        with open(f"{name}.csv", "w") as file:
            file.write("id,t,n\n" + "".join(f"{a},{b},{c}\n" for a, b, c in texts))
        with open(f"{name}.json", "w") as file:
            file.writelines(json.dumps({"id": a, "t": b.replace(" ", "T") + "Z"}) + "\n" for a, b, _ in texts)
    return tmp_path


def sampled(ending="parquet"):
    return ("--sample", f"o=o.{ending}", "--sample", f"plain_d=d.{ending}")


ARRIVAL = ("--arrival", "o=came", "--arrival", "plain_d=came")


def compute_expected_figures(lag, interval, size=10):
    """Late rows, the most that is retained, lost and all matches: row by row, after the rules."""
    rows = {"o": drawn(1, 120), "d": drawn(2, 120)}
    arrived = sorted((row[2], name, row) for name, own in (("o", rows["o"]), ("d", rows["d"])) for row in own)
    arrived.sort(key=lambda one: (one[0], ("o", "d").index(one[1])))
    mark = {"o": None, "d": None}
    newest = {"o": None, "d": None}
    late, kept, most = {"o": set(), "d": set()}, [], 0
    places = {"o": 0, "d": 0}
    for first in range(0, len(arrived), size):
        for _, name, row in arrived[first : first + size]:
            place, places[name] = places[name], places[name] + 1
            newest[name] = row[1] if newest[name] is None else max(newest[name], row[1])
            if mark[name] is not None and row[1] < mark[name]:
                late[name].add(place)
            else:
                kept.append((name, row[1]))
        mark = {name: None if top is None else top - lag for name, top in newest.items()}
        needed = {
            "o": None if mark["d"] is None else mark["d"] - interval,
            "d": mark["o"],
        }
        kept = [(name, at) for name, at in kept if needed[name] is None or at >= needed[name]]
        most = max(most, len(kept))
    matched = [
        (left, right)
        for left, (a, at, _) in enumerate(rows["o"])
        for right, (b, to, _) in enumerate(rows["d"])
        if a == b and at <= to <= at + interval
    ]
    lost = sum(left in late["o"] or right in late["d"] for left, right in matched)
    return len(late["o"]), len(late["d"]), most, lost, len(matched)


def lines_of(found):
    assert found.status == 0, found.err
    return [json.loads(line) for line in found.out.splitlines()]


def extract_figures(line):
    own = line["queries"]["out"]
    late = (own["inputs"]["o"]["late"], own["inputs"]["d"]["late"])
    return (*late, own["max_retained_rows"], own["lost_matches"], own["matches"])


def test_what_is_shown_is_what_the_rules_give(watersmeet, files):
    found = watersmeet(
        "whatif", "job.sql", *sampled(), *ARRIVAL, "--rows-per-tick", 10, "--json",
        "--lag", "2 seconds", "--lag", "o=9 seconds, plain_d=9 s", "--interval", "1", "--interval", "0.5",
    )  # fmt: skip
    *lines, summary = lines_of(found)
    assert [(line["lags"]["o"] // 10**6, line["interval_scale"]) for line in lines] == [
        (5, 1.0), (5, 0.5), (2, 1.0), (2, 0.5), (9, 1.0), (9, 0.5),
    ]  # fmt: skip
    for line in lines:
        assert extract_figures(line) == compute_expected_figures(
            line["lags"]["o"] // 10**6, int(20 * line["interval_scale"])
        ), line
    assert any(extract_figures(line)[3] for line in lines)
    assert summary["whatif"]["by_arrival"]
    assert summary["whatif"]["sources"] == {"o": 120, "plain_d": 120}


def test_a_suggestion_is_the_least_lag_and_how_to_say_it(watersmeet, files):
    found = watersmeet(
        "whatif", "job.sql", *sampled(), *ARRIVAL, "--rows-per-tick", "10", "--late-share", "5%", "--json"
    )
    *lines, summary = lines_of(found)
    suggestion = summary["whatif"]["suggestion"]
    for place, name in enumerate(("o", "plain_d")):
        lag = suggestion["min_lags"][name] // 10**6
        assert compute_expected_figures(lag, 20)[place] <= 6 < compute_expected_figures(lag - 1, 20)[place]
    seconds = {name: lag // 10**6 for name, lag in suggestion["lags"].items()}
    assert suggestion["declarations"] == [
        f"WATERMARK FOR t AS t - INTERVAL '{seconds['o']}' SECONDS",
        f"IMPOSE_ORDER(TABLE plain_d, DESCRIPTOR(t), INTERVAL '{seconds['plain_d']}' SECONDS)",
    ]
    assert lines[0]["setting"] == "as it is"
    assert lines[-1]["setting"] == "none late"
    assert extract_figures(lines[-1])[:2] == (0, 0)
    said = JOB.replace("WATERMARK FOR t AS t - INTERVAL '5' SECONDS", suggestion["declarations"][0])
    said = said.replace(
        "IMPOSE_ORDER(TABLE plain_d, DESCRIPTOR(t), INTERVAL '5' SECONDS)", suggestion["declarations"][1]
    )
    (files / "said.sql").write_text(said)
    first, *_ = lines_of(
        watersmeet("whatif", "said.sql", *sampled(), *ARRIVAL, "--rows-per-tick", "10", "--json")
    )
    assert extract_figures(first) == extract_figures(suggestion)


def test_formats_say_the_same(watersmeet, files):
    answers = []
    for ending in ("parquet", "csv", "json"):
        *lines, _ = lines_of(watersmeet("whatif", "job.sql", *sampled(ending), "--json", "--tick", "4 s"))
        answers.append(lines)
    assert answers[0] == answers[1] == answers[2]


OWN_OPTIONS = [
    # options of the source, its file
    ({"sep": "';'"}, lambda rows: "id;t\n" + "".join(f"{a};{b}\n" for a, b in rows)),
    ({"timestampFormat": "'dd/MM/yyyy HH:mm:ss'"}, lambda rows: "id,t\n" + "".join(
        f"{a},{b[8:10]}/{b[5:7]}/{b[:4]} {b[11:]}\n" for a, b in rows)),
    ({"header": "'false'"}, lambda rows: "".join(f"{a},{b},\n" for a, b in rows)),
    ({"enforceSchema": "'true'"}, lambda rows: "x,y,z\n" + "".join(f"{a},{b},\n" for a, b in rows)),
    ({"quote": "'|'", "escape": "'|'"}, lambda rows: "|id|,t\n" + "".join(f"|{a}|,|{b}|\n" for a, b in rows)),
    ({"escape": "'\"'"}, lambda rows: ' ID , t ,"no""te"\n' + "".join(f'{a},{b},"a ""b"\n' for a, b in rows)),
    ({"nullValue": "'-'"}, lambda rows: "id,t,note\n" + "".join(f"{a},{b},-\n" for a, b in rows)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "written"), OWN_OPTIONS, ids=[str([*options]) for options, _ in OWN_OPTIONS]
)
def test_a_sample_is_read_by_the_options_of_its_source(watersmeet, files, options, written):
    plain = watersmeet("whatif", "job.sql", *sampled("csv"), "--json")
    of_files = "'connector' = 'file', 'path' = '{}', 'format' = 'csv'"
    said = "".join(f", '{name}' = {value}" for name, value in options.items())
    job = JOB
    for name in ("o", "d"):
        (files / name).mkdir()
        job = job.replace("'connector' = 'memory'", of_files.format(name) + said, 1)
        rows = [line.split(",")[:2] for line in (files / f"{name}.csv").read_text().splitlines()[1:]]
        (files / f"{name}.csv").write_text(written(rows))
    job = job.replace("plain_d (id BIGINT, t TIMESTAMP)", "plain_d (id BIGINT, t TIMESTAMP, note STRING)")
    (files / "job.sql").write_text(job)
    own = watersmeet("whatif", "job.sql", *sampled("csv"), "--json")
    assert lines_of(own)[:-1] == lines_of(plain)[:-1]


def test_csv_sample_reads_null_literals_as_text(watersmeet, files):
    """Arrow takes NULL, NaN and N/A for no value, unless it is told otherwise."""
    job = JOB.replace("o.id, d.t AS at", "o.id, o.note, d.t AS at").replace("o.id = d.id", "o.note = 'NULL'")
    (files / "job.sql").write_text(job)
    rows = (files / "o.csv").read_text().splitlines()[1:]
    (files / "o.csv").write_text("id,t,n,note\n" + "".join(f"{row},NULL\n" for row in rows))
    (line, *_) = lines_of(watersmeet("whatif", "job.sql", *sampled("csv"), "--json"))
    assert line["queries"]["out"]["matches"] > 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("comment", "#"),
        ("locale", "de"),
        ("timestampFormat", "d MMMM yyyy"),
        ("encoding", "ISO-8859-1"),
        ("timestamp.unit", "ms"),
    ],
)
def test_options_of_a_sample_that_only_spark_knows_are_refused(watersmeet, files, name, value):
    (files / "o").mkdir()
    of_files = f"'connector' = 'file', 'path' = 'o', 'format' = 'csv', '{name}' = '{value}'"
    (files / "job.sql").write_text(JOB.replace("'connector' = 'memory'", of_files, 1))
    found = watersmeet("whatif", "job.sql", *sampled("csv"), "--json")
    assert (found.status, found.out) == (2, "")
    assert f"only Spark supports '{name.lower()}' = '{value}' for csv" in found.err
    assert lines_of(watersmeet("whatif", "job.sql", *sampled("parquet"), "--json"))


def test_sample_with_quotes_after_backslashes_is_rejected(watersmeet, files):
    with open("o.csv", "a") as file:
        file.write('1,2024-07-01 00:00:00,"a \\" b"\n')
    found = watersmeet("whatif", "job.sql", *sampled("csv"), "--json")
    assert (found.status, found.out) == (2, "")
    assert "o.csv has quotes after backslashes, which only Spark can read" in found.err


def test_times_without_a_zone_are_of_the_jobs(watersmeet, files):
    (files / "job.sql").write_text("SET time_zone = 'America/New_York';" + JOB)
    zoned = watersmeet("whatif", "job.sql", *sampled("json"), "--json")
    local = watersmeet("whatif", "job.sql", *sampled("csv"), "--json")
    assert lines_of(zoned)[:-1] == lines_of(local)[:-1]
    text = (files / "d.csv").read_text().replace("2024-07-01 00:", "2024-07-01 04:")
    mixed = ("whatif", "job.sql", "--sample", "o=o.csv", "--json", "--sample")
    assert lines_of(watersmeet(*mixed, "plain_d=d.json"))[0] != lines_of(local)[0]
    rows = [row.split(",") for row in text.splitlines()[1:]]
    with open("utc.json", "w") as file:
        file.writelines(json.dumps({"id": int(a), "t": b.replace(" ", "T") + "Z"}) + "\n" for a, b, _ in rows)
    assert lines_of(watersmeet(*mixed, "plain_d=utc.json"))[0] == lines_of(local)[0]


def test_a_table_for_people(watersmeet, files):
    found = watersmeet("whatif", "job.sql", *sampled(), "--late-share", "0", "--idle", "none", "--idle", "9s")
    assert found.status == 0, found.err
    for words in ("late o", "matches", "retained", "a row", "as it is", "suggested"):
        assert words in found.out
    assert "For at most 0% late rows:\n  WATERMARK FOR t AS t - INTERVAL" in found.out
    assert "note: rows arrived in the order of the files" in found.out
    assert "note: silence was measured by event times" in found.out
    assert "Sample: rows of o 120, plain_d 120; 240 ticks of about 1 row. " in found.out
    assert "\x1b" not in found.out


def test_limits_of_the_job_are_set_aside_and_named(watersmeet, files):
    """At limits at which rows are shed no setting would say how much it comes to."""
    limits = "SET at_limit = shed_oldest; SET max_job_rows = 5; SET max_drift = INTERVAL '1' DAY;"
    text = limits + JOB.replace("'memory');", "'memory', 'max_rows' = '7');", 1)
    (files / "shed.sql").write_text(text)
    found = watersmeet("whatif", "shed.sql", *sampled())
    assert found.status == 0, found.err
    named = "max_job_rows, max_drift, 'max_rows' of \"o\""
    assert f"note: limits are set aside, and no rows are shed: {named}" in found.out
    assert "set aside" not in watersmeet("whatif", "job.sql", *sampled()).out


def test_too_many_matches_are_not_looked_at(watersmeet, files, monkeypatch):
    monkeypatch.setattr(pairs, "MAX_BATCH_PAIRS", 10)
    first, *_, summary = lines_of(watersmeet("whatif", "job.sql", *sampled(), "--json"))
    assert first["queries"]["out"]["lost_matches"] is None
    assert any("has more than 10 rows" in note for note in summary["whatif"]["notes"])


def test_csv_has_a_line_per_input(watersmeet, files):
    found = watersmeet("whatif", "job.sql", *sampled(), "--csv", "--lag", "1 second", "--no-matches")
    rows = list(csv.DictReader(io.StringIO(found.out)))
    assert [(row["number"], row["lag o"], row["input"]) for row in rows] == [
        ("1", "5000000", "o"), ("1", "5000000", "d"), ("2", "1000000", "o"), ("2", "1000000", "d"),
    ]  # fmt: skip
    assert {row["query_matches"] for row in rows} == {""}
    assert all(0 <= float(row["late_share"]) < 1 for row in rows)


def test_silence_and_partitions(watersmeet, files):
    """A silent partition holds the watermark back until it is idle."""
    rows = [(1, n, n) for n in range(60)] + [(1, 61, 61), (1, 20, 62), (1, 63, 63)]
    table = table_of(rows).append_column("p", pa.array(["a"] + ["b"] * (len(rows) - 1)))
    parquet.write_table(table, "o.parquet")
    found = watersmeet(
        "whatif", "job.sql", *sampled(), *ARRIVAL, "--partition", "o=p", "--rows-per-tick", "1", "--json",
        "--lag", "1 s", "--idle", "none", "--idle", "10 seconds",
    )  # fmt: skip
    *lines, _ = lines_of(found)
    late = {(line["lags"]["o"], line["idle_timeout_us"]): extract_figures(line)[0] for line in lines}
    assert late[10**6, None] == 0
    assert late[10**6, 10**7] == 1


WINDOWS = """
CREATE TABLE o (id BIGINT, t BIGINT, WATERMARK FOR t AS t - 2) WITH ('connector' = 'memory');
CREATE SINK out WITH ('connector' = 'console');
INSERT INTO out SELECT window_start, count(*) AS n FROM TABLE(TUMBLE(TABLE o, DESCRIPTOR(t), 10))
  GROUP BY window_start;
"""


def test_windows_are_played_through_the_engine(watersmeet, files):
    (files / "windows.sql").write_text(WINDOWS)
    parquet.write_table(pa.table({"id": [1] * 6, "t": [5, 30, 29, 10, 31, None]}), "o.parquet")
    found = watersmeet(
        "whatif", "windows.sql", "--sample", "o=o.parquet", "--rows-per-tick", "1", "--lag", "30", "--json",
        "--late-share", "0",
    )  # fmt: skip
    declared, generous, summary = lines_of(found)
    assert [line["queries"]["out"]["inputs"]["o"]["late"] for line in (declared, generous)] == [1, 0]
    assert declared["queries"]["out"]["lost_matches"] is None
    assert summary["whatif"]["suggestion"]["min_lags"] == {"o": 20}
    assert summary["whatif"]["suggestion"]["declarations"] == ["WATERMARK FOR t AS t - 20"]
    assert any("was played through the engine" in note for note in summary["whatif"]["notes"])
    assert "o: 1 row without an event time" in summary["whatif"]["notes"]
    assert watersmeet("whatif", "windows.sql", "--sample", "o=o.parquet").status == 0


CASCADE = """
SET plan = cascade;
CREATE TABLE a (k BIGINT, t BIGINT, WATERMARK FOR t AS t - 0) WITH ('connector' = 'memory');
CREATE TABLE b (k BIGINT, t BIGINT, WATERMARK FOR t AS t - 0) WITH ('connector' = 'memory');
CREATE TABLE c (k BIGINT, t BIGINT, WATERMARK FOR t AS t - 0) WITH ('connector' = 'memory');
CREATE SINK out WITH ('connector' = 'console');
INSERT INTO out SELECT a.k, c.t AS u FROM a JOIN b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + 5
  JOIN c ON c.k = b.k AND c.t BETWEEN b.t AND b.t + 9;
"""


def test_rows_waiting_in_an_upper_join_count_as_retained(watersmeet, files):
    (files / "cascade.sql").write_text(CASCADE)
    for name, times in (("a", [1, 2]), ("b", [2, 3]), ("c", [0, 0])):
        parquet.write_table(pa.table({"k": [1, 1], "t": times}), f"{name}.parquet")
    samples = [word for name in "abc" for word in ("--sample", f"{name}={name}.parquet")]
    first, *_ = lines_of(watersmeet("whatif", "cascade.sql", *samples, "--rows-per-tick", "6", "--json"))
    own = first["queries"]["out"]
    inputs = sum(i["max_retained_rows"] for i in own["inputs"].values())
    assert own["max_retained_rows"] == inputs + 4  # every a with every b


def test_whatif_suggests_pipeline_options_for_a_pipeline(watersmeet, files):
    text = """
name = "p"
[[sources]]
name = "o"
lag = "1 second"
[sources.connection]
connector = "file"
path = "in"
format = "parquet"
[sources.columns]
id = "BIGINT"
t = "TIMESTAMP"
[[sources]]
name = "d"
lag = "1 second"
[sources.connection]
connector = "file"
path = "in2"
format = "parquet"
[sources.columns]
id = "BIGINT"
t = "TIMESTAMP"
[transform.join]
kind = "stream_stream_join"
left_source = "o"
right_source = "d"
left_keys = ["id"]
right_keys = ["id"]
min_delta = "0 seconds"
max_delta = "20 seconds"
event_time_column = "t"
how = "inner"
[target]
name = "out"
[target.connection]
connector = "console"
"""
    (files / "p.toml").write_text(text)
    found = watersmeet(
        "whatif",
        "p.toml",
        "--sample",
        "o=o.parquet",
        "--sample",
        "d=d.parquet",
        "--late-share",
        "0",
        "--json",
    )
    summary = lines_of(found)[-1]["whatif"]
    assert [line.partition(" = ")[0] for line in summary["suggestion"]["declarations"]] == ["lag", "lag"]


def test_partitions_are_those_of_the_source(watersmeet, files):
    declared = JOB.replace(
        "WITH ('connector' = 'memory');\nCREATE TABLE plain_d",
        "WITH ('connector' = 'memory', 'partitions' = 'x,y');\nCREATE TABLE plain_d",
    )
    (files / "declared.sql").write_text(declared)
    assert "[no-partition]" in errors_of(watersmeet("whatif", "declared.sql", *sampled()))
    of_files = JOB.replace(
        "'connector' = 'memory'", "'connector' = 'file', 'path' = 'x', 'format' = 'csv'", 1
    )
    (files / "files.sql").write_text(of_files)
    err = errors_of(watersmeet("whatif", "files.sql", *sampled(), "--partition", "o=id"))
    assert 'rows of "o" come in one partition, as those of any file source' in err


def errors_of(found):
    assert found.status == 2, found.out
    assert "Traceback" not in found.err
    return found.err


def test_whatif_reports_all_invalid_flags_at_once(watersmeet, files):
    err = errors_of(
        watersmeet(
            "whatif",
            "job.sql",
            "--sample",
            "o=o.parquet",
            "--sample",
            "x=o.parquet",
            "--sample",
            "o",
            "--arrival",
            "o=a",
            "--arrival",
            "o=b",
            "--lag",
            "soon",
            "--lag",
            "o=-1 s",
            "--lag",
            "o=1s,o=2s",
            "--lag",
            "y=1 s",
            "--interval",
            "0",
            "--interval",
            "wide",
            "--idle",
            "0 s",
            "--late-share",
            "100%",
            "--late-share",
            "101%",
            "--rows-per-tick",
            "5",
            "--tick",
            "1 second",
            "--plot",
            "no/such.gif",
        )
    )
    for words in (
        'no sample exists for "plain_d"',
        'no stream "x"',
        '"--sample o" is not of the form',
        '--arrival names 2 columns of "o"',
        "'soon'",
        "less than nothing",
        'says 2 lags of "o"',
        'no stream "y"',
        "--interval '0' is not a factor",
        "--interval 'wide' is not a factor",
        "--idle is '0 s'",
        "--late-share '101%' is not a share",
        "both say what a tick is",
        "no picture is known",
        "there is no directory no",
    ):
        assert words in err, words


def test_whatif_reports_all_invalid_sample_files_at_once(watersmeet, files):
    (files / "many").mkdir()
    parquet.write_table(pa.table({"id": [1]}), "many/1.parquet")
    (files / "many" / "2.parquet").write_bytes(b"PAR1 not really")
    (files / "many" / "3.txt").write_text("x")
    (files / "many" / "4.json").write_text("")
    err = errors_of(
        watersmeet("whatif", "job.sql", "--sample", "o=many", "--sample", "plain_d=gone/*.csv", *ARRIVAL)
    )
    for words in (
        'many/1.parquet has no column "t"',
        'many/1.parquet has no column "came", which --arrival names',
        "many/2.parquet cannot be read",
        "many/3.txt: its name does not show its format",
        "many/4.json cannot be read",
        "no file exists at gone/*.csv",
    ):
        assert words in err, words


@pytest.mark.parametrize(
    ("columns", "options", "code"),
    [
        ({"id": [], "t": []}, (), "empty-sample"),
        ({"id": [1], "t": [None]}, (), "no-event-times"),
        ({"id": ["one"], "t": [START]}, (), "wrong-type"),
        ({"id": [2**40], "t": [START], "came": [None]}, ARRIVAL, "null-arrival"),
        ({"id": [1], "t": [START], "came": ["soon"]}, ARRIVAL, "bad-value"),
        ({"id": [1], "t": [START], "came": [0.5]}, ARRIVAL, "wrong-type"),
        ({"id": [1], "t": [START], "came": [START]}, ARRIVAL[:2], "mixed-arrival"),
        ({"id": [1], "t": [START], "came": [1]}, ARRIVAL, "mixed-arrival"),
    ],
)
def test_samples_that_are_none(watersmeet, files, columns, options, code):
    kinds = {"id": None, "t": pa.timestamp("us", "UTC"), "came": None}
    if columns.get("came") == [None] or columns.get("came") == [START]:
        kinds["came"] = pa.timestamp("us", "UTC")
    parquet.write_table(
        pa.table({name: pa.array(values, kinds[name] or None) for name, values in columns.items()})
        if columns["id"]
        else pa.table({"id": pa.array([], pa.int64()), "t": pa.array([], kinds["t"])}),
        "o.parquet",
    )
    assert f"[{code}]" in errors_of(watersmeet("whatif", "job.sql", *sampled(), *options))


def test_invalid_time_text_is_reported_with_its_row(watersmeet, files):
    (files / "o.csv").write_text("id,t\n1,2024-07-01 10:00:00\n2,yesterday\n")
    err = errors_of(watersmeet("whatif", "job.sql", *sampled("csv")))
    assert "o.csv, row 2: \"t\" is 'yesterday'" in err


TABLE = (
    "CREATE TABLE names (id BIGINT, name STRING) WITH ('connector' = 'file', 'path' = 'n', 'format' = 'csv');"
)
LOOKS_UP = (
    "INSERT INTO out SELECT o.id, n.name FROM o JOIN names FOR SYSTEM_TIME AS OF now() AS n ON n.id = o.id;"
)
CHANGES = """
CREATE TABLE c (id BIGINT, op STRING) WITH ('connector' = 'kafka', 'bootstrap.servers' = 'b:1', 'topic' = 'c',
  'format' = 'json', 'op.column' = 'op');
SELECT c.id, e.id AS other FROM c JOIN c e ON c.id = e.id;
"""
NO_QUERY = """
CREATE TABLE a (t BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
EXPLAIN SELECT t FROM a;
"""


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (TABLE + JOB + LOOKS_UP, "not-tried", "it looks up a table"),
        (CHANGES, "not-tried", "it reads a table"),
        (NO_QUERY, "no-query", ""),
    ],
)
def test_jobs_that_are_not_tried(watersmeet, files, text, code, words):
    (files / "job.sql").write_text(text)
    err = errors_of(watersmeet("whatif", "job.sql", *sampled()))
    assert f"[{code}]" in err
    assert words in err


def test_whatif_rejects_settings_that_it_cannot_try(watersmeet, files):
    """Nothing to scale, a clock of numbers without silence, too many settings, two forms of one answer."""
    (files / "one.sql").write_text(WINDOWS)
    parquet.write_table(pa.table({"id": [1], "t": [5]}), "n.parquet")
    numbers = ("whatif", "one.sql", "--sample", "o=n.parquet")
    assert "[nothing-to-scale]" in errors_of(watersmeet(*numbers, "--interval", "2"))
    assert "its times are numbers" in errors_of(watersmeet(*numbers, "--lag", "2 seconds"))
    err = errors_of(watersmeet(*numbers, "--idle", "2 seconds", "--tick", "2 seconds"))
    assert "--idle says times on the clock, and rows of the sample arrive by numbers" in err
    assert "--tick says a time on the clock" in err
    assert watersmeet(*numbers, "--tick", "5", "--json").status == 0
    assert "--tick says a number" in errors_of(watersmeet("whatif", "job.sql", *sampled(), "--tick", "5"))
    many = [word for n in range(MAX_SETTINGS) for word in ("--lag", str(n))]
    assert "[too-many-settings]" in errors_of(watersmeet(*numbers, *many))
    assert "exclude each other" in errors_of(watersmeet(*numbers, "--json", "--csv"))


def test_a_computed_event_time_needs_an_arrival(watersmeet, files):
    text = JOB.replace("CREATE VIEW d AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE plain_d,",
        "CREATE VIEW e AS SELECT id, t + INTERVAL '1' SECOND AS t FROM plain_d;"
        "CREATE VIEW d AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE e,")  # fmt: skip
    (files / "job.sql").write_text(text)
    assert "[no-arrival]" in errors_of(watersmeet("whatif", "job.sql", *sampled()))
    *_, summary = lines_of(
        watersmeet("whatif", "job.sql", *sampled(), *ARRIVAL, "--json", "--late-share", "1%")
    )
    assert "DESCRIPTOR(its event time)" in summary["whatif"]["suggestion"]["declarations"][1]


def test_a_plot_is_written(watersmeet, files):
    pytest.importorskip("matplotlib")
    found = watersmeet("whatif", "job.sql", *sampled(), "--plot", "late.svg", "--late-share", "1%",
                       "--interval", "1", "--interval", "2", "--idle", "none", "--idle", "5 s")  # fmt: skip
    assert found.status == 0, found.err
    assert "plot: late.svg" in found.out
    drawing = (files / "late.svg").read_text()
    assert drawing.lstrip().startswith("<?xml")
    assert len(drawing) > 5_000
    (files / "dangling.png").symlink_to(files / "gone" / "late.png")
    assert "[not-written]" in errors_of(watersmeet("whatif", "job.sql", *sampled(), "--plot", "dangling.png"))


def test_without_matplotlib_a_plot_is_refused_first(watersmeet, files, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    err = errors_of(watersmeet("whatif", "job.sql", "--sample", "o=gone", "--plot", "late.png"))
    assert "[missing-library]" in err
    assert "pip install 'watersmeet[plot]'" in err
