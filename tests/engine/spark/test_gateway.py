"""How the driver's JVM is started and connected with, mostly by a program that is none."""

from __future__ import annotations

import io
import os
import socket
import struct
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from watersmeet.errors import EngineError
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.spark.java_start import prestart_java_for_job
from watersmeet.runtime.spark.job import class_archive, external_session, gateway, session
from watersmeet.runtime.spark.job.java_command import Command
from watersmeet.runtime.spark.job.session import build_session_settings
from watersmeet.spec.secrets import OpaqueSecret

SAYS = """
import os, struct, sys
where = os.environ["_PYSPARK_DRIVER_CONN_INFO_PATH"]
with open(where + ".begun", "wb") as said:
    said.write(struct.pack("!i", 4711) + struct.pack("!i", 6) + b"secret")
os.rename(where + ".begun", where)
sys.stdin.read()  # to its end, as Spark does
"""


@pytest.fixture
def adopted_gateways(monkeypatch):
    """The gateways that PySpark would use."""
    gateways = []
    monkeypatch.setattr(gateway, "current_gateway", lambda: None)
    monkeypatch.setattr(gateway, "adopt_gateway", gateways.append)
    return gateways


JAVA = r"""#!{python} -SEs
import os, re, stat, sys
(file,) = sys.argv[1:]
with open(file[1:]) as arguments:  # @file
    assert stat.S_IMODE(os.fstat(arguments.fileno()).st_mode) == 0o600
    lines = arguments.read().splitlines()
words = [re.sub(r"\\(.)", lambda sign: "\n" if sign[1] == "n" else sign[1], line[1:-1]) for line in lines]
os.execv(sys.executable, [sys.executable, *words])
"""
"""Takes its arguments as Java's launcher does."""


@pytest.fixture
def java(tmp_path_factory):
    program = tmp_path_factory.mktemp("home") / "java"
    program.write_text(JAVA.format(python=sys.executable))
    program.chmod(0o755)
    return program


@pytest.fixture
def started(monkeypatch, adopted_gateways, java):
    """Starts a Python program for Java; what was started."""
    processes: list[subprocess.Popen] = []

    def by(program: str) -> list[subprocess.Popen]:
        command = Command([str(java), "-c", program], dict(os.environ))
        monkeypatch.setattr(gateway, "java_command", lambda *_: command)
        return processes

    def popen(*arguments, **more):
        processes.append(subprocess.Popen(*arguments, **more))
        return processes[-1]

    monkeypatch.setattr(gateway, "Popen", popen)
    monkeypatch.delenv(external_session.GATEWAY, raising=False)
    yield by
    gateway.end_unused()
    for process in processes:
        gateway.end(process)


class Connected:
    proc = None


def test_a_jvm_is_connected_with_by_what_it_says(started, adopted_gateways, monkeypatch):
    processes, seen = started(SAYS), []

    def launch_gateway():
        seen.append((os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]))
        asking.start()
        asking.join(0.2)
        assert asking.is_alive(), "it waits: else it took the JVM for one that started this process"
        return Connected()

    asked: list[dict[str, str]] = []
    asking = threading.Thread(target=lambda: asked.append(external_session.load_submit_settings()))
    monkeypatch.setattr(gateway, "launch_gateway", launch_gateway)
    gateway.launch(build_session_settings(), None)
    asking.join()
    assert seen == [("4711", "secret")]
    assert asked == [{}]
    assert "PYSPARK_GATEWAY_PORT" not in os.environ
    assert "PYSPARK_GATEWAY_SECRET" not in os.environ
    assert [each.proc for each in adopted_gateways] == processes
    assert processes[0].poll() is None


def test_a_jvm_that_ends_is_not_waited_for(started, tmp_path):
    processes = started("import sys; sys.exit('no memory')")
    with (tmp_path / "words").open("w+b") as words, pytest.raises(PySparkRuntimeError, match="gateway"):
        gateway.launch(build_session_settings(), words)
    assert (tmp_path / "words").read_text() == "no memory\n"
    assert processes[0].returncode == 1


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_to_all_processes_of_a_run_is_not_for_the_jvm(started, tmp_path, name):
    """It would end, and with it the tick that a stop lets finish."""
    started(f"import signal, sys; sys.exit(str(signal.getsignal(signal.{name}) is signal.SIG_IGN))")
    with (tmp_path / "words").open("w+b") as words, pytest.raises(PySparkRuntimeError):
        gateway.launch(build_session_settings(), words)
    assert (tmp_path / "words").read_text() == "True\n"


def test_ctrl_c_while_it_is_waited_for_leaves_no_process(started, monkeypatch):
    processes = started("import time; time.sleep(600)")

    def raise_interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(gateway, "sleep", raise_interrupt)
    with pytest.raises(KeyboardInterrupt):
        gateway.launch(build_session_settings(), None)
    assert [process.returncode for process in processes] == [-9]


def test_prestarted_jvm_is_used(started, adopted_gateways, monkeypatch):
    processes = started(SAYS)
    monkeypatch.setattr(gateway, "launch_gateway", Connected)
    gateway.start_ahead(build_session_settings(), None)
    gateway.start_ahead(build_session_settings(), None)
    assert len(processes) == 1, "at most one"
    gateway.launch(build_session_settings(), None)
    gateway.end_unused()
    assert [each.proc for each in adopted_gateways] == processes
    assert processes[0].poll() is None


@pytest.mark.parametrize("changed", ["arguments", "environment"])
def test_jvm_prestarted_with_other_settings_is_not_used(started, monkeypatch, changed):
    processes = started(SAYS)
    monkeypatch.setattr(gateway, "launch_gateway", Connected)
    gateway.start_ahead(build_session_settings(), None)
    command = gateway.java_command()
    more = {"arguments": [*command.arguments, "-"], "environment": {**command.environment, "A": "1"}}
    other = replace(command, **{changed: more[changed]})
    monkeypatch.setattr(gateway, "java_command", lambda *_: other)
    gateway.launch(build_session_settings(), None)
    assert [process.poll() for process in processes] == [-9, None]


def test_one_that_nobody_takes_is_ended(started, monkeypatch, tmp_path):
    processes = started("import time; time.sleep(600)")
    monkeypatch.setattr(gateway.tempfile, "tempdir", str(tmp_path))
    gateway.start_ahead(build_session_settings(), None)
    assert len(list(tmp_path.iterdir())) == 1
    gateway.end_unused()
    assert [process.returncode for process in processes] == [-9]
    assert not list(tmp_path.iterdir())


def test_prestart_error_is_raised_at_launch(started, monkeypatch):
    started("")
    monkeypatch.setattr(gateway, "java_command", lambda *_: Command(["/there/is/no/java"], {}))
    gateway.start_ahead(build_session_settings(), None)
    with pytest.raises(FileNotFoundError):
        gateway.launch(build_session_settings(), None)


def test_output_of_a_dead_prestarted_jvm_is_reported(started, monkeypatch):
    processes = started("import sys; sys.exit('Could not reserve enough space for object heap')")
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    with session.prestart_java(build_session_settings()):
        processes[0].wait()
        with pytest.raises(EngineError) as raised:
            session.start(build_session_settings())
    assert "enough space" in raised.value.message
    assert len(processes) == 1


def test_the_java_of_a_job_ends_with_what_it_was_begun_for(started, monkeypatch):
    processes = started(SAYS)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    job = parse_job(
        "CREATE TABLE a (id BIGINT) WITH ('connector' = 'memory');"
        "CREATE SINK out WITH ('connector' = 'console'); INSERT INTO out SELECT id FROM a"
    )
    with prestart_java_for_job(job, plan_job(job)):
        assert [process.poll() for process in processes] == [None]
    assert [process.poll() for process in processes] == [-9]


def test_existing_gateway_is_reused(started, monkeypatch):
    processes = started(SAYS)
    monkeypatch.setattr(gateway, "current_gateway", Connected)
    gateway.launch(build_session_settings(), io.BytesIO())
    assert processes == []


HOSTILE = [
    "",
    " ",
    "a b",
    "#x",
    "@x",
    "*",
    "'",
    '"',
    "\\",
    'C:\\"x"\\',
    "\n",
    "a\nb\tc\fd",
    "ä日\udcff",
    "-Dx=${y}",
]


@pytest.mark.skipif(class_archive._find_java() is None, reason="needs Java")
def test_java_reads_arguments_as_they_were_written(tmp_path):
    """By its launcher, which shows a program's arguments among its properties."""
    program = tmp_path / "Shown.java"
    program.write_text(
        "public class Shown { public static void main(String[] words) throws Exception {"
        " for (String word : words) System.out.print(word + '\\0'); } }"
    )
    plain = [word for word in HOSTILE if word.isprintable() or word.isascii()]
    file = gateway._write_arguments([str(program), *plain], tmp_path)
    run = subprocess.run(
        [class_archive._find_java(), f"@{file}"], capture_output=True, check=False, timeout=60
    )
    assert (run.stdout.decode().split("\0")[:-1], run.stderr) == (plain, b"")
    file.unlink()
    before = os.umask(0)
    try:
        assert gateway._write_arguments(HOSTILE, tmp_path).stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)


SECRETS = {
    "spark.plugin.password": "s3cret",
    "spark.plugin.pin": OpaqueSecret("s3cret"),
    "spark.plugin.uri": "x://me:s3cret@host/y",
    "spark.hadoop.fs.s3a.secret.key": "s3cret",
}
TRUST = {"spark.driver.extraJavaOptions": "-Djavax.net.ssl.trustStorePassword=s3cret"}


@pytest.mark.parametrize(
    ("more", "exposed"),
    [
        ({}, []),
        (TRUST, ["spark.driver.extraJavaOptions"]),
        ({"spark.jars": "s3a://bucket/a.jar"}, ["spark.hadoop.fs.s3a.secret.key"]),
        ({"spark.jars.repositories": "https://me:s3cret@repository"}, ["spark.jars.repositories"]),
    ],
)
def test_spark_submit_receives_only_the_secrets_it_needs(monkeypatch, adopted_gateways, more, exposed):
    """Where the command of Java is not known; the session is given all of them by its builder."""
    conf = build_session_settings(conf={**SECRETS, **more})
    seen = []
    monkeypatch.setattr(gateway, "launch_gateway", lambda conf, **_: seen.append(dict(conf.getAll())))
    monkeypatch.setattr(gateway, "java_command", lambda *_: None)
    gateway.launch(conf, None)
    assert [name for name, value in seen[0].items() if "s3cret" in value] == exposed
    assert conf.keys() - seen[0].keys() == SECRETS.keys() - set(exposed)
    assert gateway.list_exposed_settings(conf) == exposed
    monkeypatch.setattr(gateway, "java_command", lambda *_: Command(["java"], {}))
    assert gateway.list_exposed_settings(conf) == []


@pytest.mark.spark
def test_no_setting_stands_where_other_users_can_read_it(spark):
    """The arguments of a process are for all users of a machine."""
    java = gateway.current_gateway().proc.pid
    arguments = Path(f"/proc/{java}/cmdline").read_bytes().split(b"\0")
    assert [len(arguments), arguments[1][:1]] == [3, b"@"]
    assert not os.path.exists(arguments[1][1:])


@pytest.mark.spark
def test_other_users_of_the_machine_are_no_part_of_spark(spark):
    """Its ports are on loopback, which is open to all of them: a request without its secret is not looked at,
    where before Java deserialised what it has."""
    body = b"\xac\xed\x00\x05no object"
    frame = struct.pack(">BqI", 3, 7, len(body)) + body  # an RPC
    blocks = spark.sparkContext._jsc.sc().env().blockManager().blockTransferService().port()
    for port in (int(spark.conf.get("spark.driver.port")), blocks):
        with socket.create_connection(("127.0.0.1", port), 10) as asking:
            asking.settimeout(10)
            asking.sendall(struct.pack(">q", 8 + len(frame)) + frame)
            assert b"Expected SaslMessage" in asking.recv(4096)


@pytest.mark.spark
def test_the_jvm_of_a_session_is_started_directly(spark):
    """Else a JVM more is started for each job, and nothing else would show it."""
    assert gateway.current_gateway().proc.args[0].endswith("/bin/java")


INTERRUPTED = """
import os, signal, sys
from watersmeet.runtime.spark.job import gateway
from watersmeet.runtime.spark.job.java_command import Command
def interrupt(number, frame):
    raise KeyboardInterrupt
signal.signal(signal.SIGTERM, interrupt)
signal.signal(signal.SIGHUP, interrupt)
os.register_at_fork(after_in_parent=lambda: signal.raise_signal(signal.{name}))
sleeps = Command(["{java}", "-c", "import time; time.sleep(60)"], dict(os.environ))
try:
    gateway._StartedJava.by(sleeps, None)
except KeyboardInterrupt:
    with open(f"/proc/self/task/{{os.getpid()}}/children") as children:
        print("interrupted, left:", children.read().split())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="children are asked of the kernel")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_while_java_is_forked_is_not_lost(name, java):
    """It comes within the hooks of the fork, in which an exception would be printed and forgotten."""
    run = subprocess.run(
        [sys.executable, "-c", INTERRUPTED.format(name=name, java=java)],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (run.stdout, run.stderr) == ("interrupted, left: []\n", "")
