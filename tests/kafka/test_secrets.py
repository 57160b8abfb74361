"""Passwords of all kinds, in one job: nobody sees them, whatever is printed, logged, explained or stored, and
however the job ends."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.registry import SchemaRegistry
from tests.support.s3 import make_bucket, s3_server
from watersmeet.cli.main import main
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.spark]

REPOSITORY = Path(__file__).resolve().parents[2]
SCHEMA = {"type": "record", "name": "R", "fields": [{"name": n, "type": "long"} for n in ("k", "t")]}
SECRETS = {
    name: f"{name}-5ecret/&x"
    for name in ("jaas", "keystore", "truststore", "key", "registry", "sasl", "writer", "oauth", "aws")
}
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="reader" password="{jaas}";'

JOB = """
CREATE TABLE l (k BIGINT, t BIGINT, WATERMARK FOR t AS t - 0) WITH ('connector' = 'kafka',
  'topic' = '{topic}', 'bootstrap.servers' = '{servers}', 'format' = 'avro', 'avro.schema' = '{schema}',
  'schema.registry' = '{registry_url}', 'schema.registry.user' = 'ada',
  'schema.registry.password' = '{registry}', 'sasl.jaas.config' = '{given_jaas}', 'sasl.mechanism' = 'PLAIN',
  'kafka.ssl.keystore.password' = '{keystore}',
  'ssl.truststore.password' = '{truststore}', 'ssl.key.password' = '{key}');
CREATE TABLE c (k BIGINT, name STRING) WITH ('connector' = 'jdbc', 'url' = '{jdbc}&password={postgres}',
  'dbtable' = 'secret_names', 'user' = 'watersmeet', 'refresh' = '1 hour');
CREATE TABLE p WITH ('connector' = 'postgres', 'url' = '{url}', 'table' = 'secret_rows', 'max_wait' = '1 s');
CREATE TABLE o WITH ('connector' = 'postgres', 'url' = '{plain_url}', 'user' = 'watersmeet',
  'password' = '{postgres}', 'table' = 'secret_others', 'max_wait' = '1 s');
CREATE TABLE once WITH ('connector' = 'kafka', 'topic' = '{topic}-once', 'bootstrap.servers' = '{servers}',
  'sasl.username' = 'writer', 'sasl.password' = '{sasl}', 'format' = 'json', 'max_wait' = '1 s',
  'ssl.key.password' = '{key}', 'sasl.oauthbearer.client.secret' = '{oauth}');
CREATE TABLE atleast WITH ('connector' = 'kafka', 'topic' = '{topic}-atleast',
  'bootstrap.servers' = '{servers}', 'delivery' = 'at-least-once', 'format' = 'json',
  'sasl.jaas.config' = '{writer_jaas}',
  'ssl.keystore.password' = '{keystore}');
CREATE TABLE s WITH ('connector' = 'file', 'path' = 's3://{bucket}/rows', 'endpoint' = '{endpoint}');
SET state_store = '{state}';
CREATE VIEW named AS SELECT l.k, l.t, c.name FROM l JOIN c FOR SYSTEM_TIME AS OF PROCTIME() ON l.k = c.k;
INSERT INTO p SELECT k, t, name FROM named;
INSERT INTO o SELECT a.k, b.t FROM l a JOIN l b ON a.k = b.k AND a.t BETWEEN b.t - 5 AND b.t;
INSERT INTO once SELECT k, t FROM l;
INSERT INTO atleast SELECT k, upper(CAST(t AS STRING)) AS t FROM l;
INSERT INTO s SELECT k, t FROM l;
"""

JAVA_LOG = """
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {folder}/java.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %p %c %m%n%ex
"""

TOPIC = "secrets"


def jaas(password: str) -> str:
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    return f'{login} username="reader" password="{password}";'


class Place:
    """The job, and the servers that it needs."""

    def __init__(self, folder, broker, postgres, registry, endpoint) -> None:
        self.folder, self.postgres, self._broker, self._rows = folder, postgres, broker, 0
        self.given = SECRETS | {
            "topic": TOPIC, "servers": broker.bootstrap_servers, "schema": json.dumps(SCHEMA),
            "registry_url": registry.url, "jdbc": f"{postgres.jdbc_url}?ssl=false", "url": postgres.url,
            "plain_url": f"postgresql://127.0.0.1:{postgres.port}/postgres", "postgres": postgres.password,
            "bucket": make_bucket(endpoint), "endpoint": endpoint, "given_jaas": jaas(SECRETS["jaas"]),
            "writer_jaas": jaas(SECRETS["writer"]), "state": f"{postgres.url}?pipeline=secrets",
        }  # fmt: skip
        login = f"ada:{SECRETS['registry']}".encode()
        self._looked_for = [
            form
            for secret in (b"5ecret", postgres.password.encode(), base64.b64encode(login))
            for form in (secret, secret.hex().encode(), base64.b64encode(secret)[:-2])
        ]

    def job(self, was: str = "", now: str = "", **given: str) -> Path:
        assert was in JOB
        path = self.folder / "job.sql"
        path.write_text(JOB.replace(was, now, 1).format(**self.given | given) if was else self.text)
        return path

    def row_comes(self) -> None:
        """Its number is its key and its time. Only who asks the registry can read it."""
        self._rows += 1
        self._broker.produce(TOPIC, [(0, None, bytes([0, 0, 0, 0, 1, 2 * self._rows, 2 * self._rows]))])

    @property
    def text(self) -> str:
        return JOB.format(**self.given)

    def found(self, *contents: str | bytes) -> list[bytes]:
        """Where one of the secrets stands, with what is around it."""
        raw = [content.encode() if isinstance(content, str) else content for content in contents]
        return [
            content[max(0, content.index(secret) - 100) :][:300]
            for content in raw
            for secret in self._looked_for
            if secret in content
        ]


@pytest.fixture(scope="module")
def place(tmp_path_factory, kafka_broker, postgres):
    for name in (TOPIC, f"{TOPIC}-once", f"{TOPIC}-atleast"):
        kafka_broker.create_topic(name)
    postgres.run(
        "CREATE TABLE secret_names (k bigint, name text); INSERT INTO secret_names VALUES (1, 'Ann')"
    )
    with SchemaRegistry(login=("ada", SECRETS["registry"])) as registry, s3_server() as endpoint:
        registry.add(1, SCHEMA)
        place = Place(tmp_path_factory.mktemp("secrets"), kafka_broker, postgres, registry, endpoint)
        for _ in range(3):
            place.row_comes()
        yield place


@pytest.mark.full
def test_nowhere_of_a_job_that_runs(place):
    """In a process of its own, in which Spark logs all events, with plans and settings."""
    folder = place.folder / "run"
    for name in ("events", "state"):
        (folder / name).mkdir(parents=True)
    (folder / "log4j2.properties").write_text(JAVA_LOG.format(folder=folder))
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.log.level": "INFO",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": str(folder / "events"),
        "spark.sql.ui.explainMode": "extended",
        "spark.local.dir": str(folder / "local"),
    }
    jars = ",".join(str(REPOSITORY / ".jars" / name) for name in ("spark-kafka", "postgres-jdbc"))
    command = ["run", str(place.job()), "--json", "--until-caught-up", "--checkpoint", str(folder / "state")]
    command += ["--master", "local[2]", "--jars", jars]
    command += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    java = os.environ.get("SPARK_SUBMIT_OPTS", "").replace("-Xlog:disable", "")
    environment = {
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)]),
        "SPARK_SUBMIT_OPTS": f"{java} -Dlog4j2.configurationFile={folder}/log4j2.properties",
        "AWS_ACCESS_KEY_ID": "tester",
        "AWS_SECRET_ACCESS_KEY": SECRETS["aws"],
    }
    ran = subprocess.run(
        [sys.executable, "-m", "watersmeet.cli.main", *command],
        env=os.environ | environment,
        cwd=folder,
        capture_output=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr.decode()
    assert place.postgres.run("SELECT count(*) FROM secret_rows").strip() == "1"
    assert place.postgres.run("SELECT count(*) FROM secret_others").strip() == "3"
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    logged = (folder / "java.log").read_text(errors="replace")
    assert "ConsumerConfig values" in logged
    assert any(b"== Analyzed Logical Plan ==" in content for content in files.values())
    assert not place.found(ran.stdout, ran.stderr)
    assert not {path: found for path, content in files.items() if (found := place.found(content))}
    tables = place.postgres.run(
        "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables"
        " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
    ).splitlines()  # other tests' tables have names of several words
    assert len(tables) > 5
    for table in tables:
        assert not place.found(place.postgres.run(f"SELECT t::text FROM {table} AS t")), table


def test_nowhere_of_what_is_explained(place, capfd):
    job = place.job()
    assert main(["explain", str(job)]) == 0
    main(["explain", str(job), "--check-sources"])
    told = capfd.readouterr()
    assert 'into postgres "p"' in told.out
    parsed = parse_job(place.text)
    assert not place.found(told.out, told.err, repr(parsed), repr(plan_job(parsed)))


@pytest.mark.parametrize(
    ("was", "now"),
    [
        (
            "'user' = 'watersmeet',\n  'password' = '{postgres}'",
            "'user' = 'watersmeet',\n  'password' = 'no-5ecret'",
        ),
        ("'{url}'", "'postgresql://watersmeet:no-5ecret@127.0.0.1:1/postgres'"),
        ("'{url}'", "'postgresql://watersmeet:no-5ecret@host:port/postgres'"),
        pytest.param(
            "'{url}'",
            "'postgresql://watersmeet:no-5ecret@127.0.0.1/postgres?sslmod=5ecret'",
            marks=pytest.mark.full,
        ),
        ("password={postgres}", "password=no-5ecret"),
        pytest.param(  # waits for the database
            "'{jdbc}&password={postgres}'",
            "'jdbc:postgresql://127.0.0.1:1/x?password=no-5ecret'",
            marks=pytest.mark.full,
        ),
        pytest.param("'{registry}'", "'no-5ecret'", marks=pytest.mark.full),
        ("'{registry_url}'", "'http://ada:no-5ecret@127.0.0.1:1'"),
        (
            "'sasl.username' = 'writer'",
            "'security.protocol' = 'SASL_PLAINTEXT', 'sasl.mechanism' = 'PLAIN', 'sasl.username' = 'w'",
        ),
        ("'sasl.password'", "'sasl.pasword'"),
        pytest.param("'password' = '{postgres}'", "'passwort' = '{postgres}'", marks=pytest.mark.full),
        pytest.param("'schema.registry.password'", "'schema.registry.pasword'", marks=pytest.mark.full),
        ("'user' = 'watersmeet',\n  'password'", "'user' = 'watersmeet'\n  'password'"),
        ("'{given_jaas}'", "'{given_jaas}"),
        ("'endpoint' = '{endpoint}'", "'secret_access_key' = 'no-5ecret'"),
        pytest.param(
            "'endpoint' = '{endpoint}'",
            "'endpoint' = 'http://me:no-5ecret@127.0.0.1:1'",
            marks=pytest.mark.full,
        ),
        ("'{state}'", "'postgresql://watersmeet:no-5ecret@127.0.0.1:1/postgres'"),
        pytest.param("'{state}'", "'s3://me:no-5ecret@bucket/state'", marks=pytest.mark.full),
        ("'{state}'", "'http://me:no-5ecret@bucket/state'"),
        ("SET state_store", "SET state_stor"),
    ],
)
def test_nowhere_of_how_it_fails(spark, place, capfd, tmp_path, monkeypatch, caplog, was, now):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tester")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRETS["aws"])
    job = place.job(was, now)
    place.row_comes()
    status = main(["run", str(job), "--json", "--until-caught-up", "--checkpoint", str(tmp_path / "state")])
    told = capfd.readouterr()
    assert status != 0, told.out
    assert "Error[" in told.err
    assert not place.found(told.out, told.err, caplog.text)
    files = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert not place.found(*(path.read_bytes() for path in files))
