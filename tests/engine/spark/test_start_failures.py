"""Why Java did not start: told apart, before it is tried where that can be known."""

from __future__ import annotations

import errno
import os

import pytest

from watersmeet.errors import EngineError
from watersmeet.runtime.spark.job import gateway, session
from watersmeet.runtime.spark.job.gateway import JavaEnded
from watersmeet.runtime.spark.job.java_command import Command
from watersmeet.runtime.spark.start_failures import check_java, check_user, explain_start_failure


@pytest.fixture(autouse=True)
def no_session(monkeypatch):
    """As if no session ran; what `start` sets in this process is taken back."""
    monkeypatch.setattr(session.SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(gateway, "current_gateway", lambda: None)
    monkeypatch.setattr(gateway, "adopt_gateway", lambda _: None)
    for name in ("PYTHONPATH", "PYSPARK_PYTHON"):
        monkeypatch.setenv(name, os.environ.get(name, ""))


@pytest.fixture
def java(tmp_path):
    """Makes a directory with a program bin/java, and says its version as a Java's does."""

    def make(version: str | None, mode: int = 0o755):
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "java").write_text("#!/bin/sh\n")
        (tmp_path / "bin" / "java").chmod(mode)
        if version is not None:
            (tmp_path / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
        return tmp_path

    return make


def refusal(**environment: str) -> EngineError:
    with pytest.raises(EngineError) as raised:
        check_java(environment)
    assert raised.value.code == "no-java"
    assert "Java 17" in (raised.value.hint or "")
    return raised.value


def test_a_java_home_without_java_is_named(tmp_path):
    message = refusal(JAVA_HOME=str(tmp_path), PATH=os.environ["PATH"]).message
    assert message == f"JAVA_HOME is {tmp_path}, but {tmp_path}/bin/java is not a program"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may execute what has any right to be executed")
def test_a_java_that_is_not_executable_is_named(java):
    assert "is not a program" in refusal(JAVA_HOME=str(java("17.0.1", 0o644))).message


def test_a_directory_is_no_java(tmp_path):
    (tmp_path / "bin" / "java").mkdir(parents=True)
    assert "is not a program" in refusal(JAVA_HOME=str(tmp_path)).message


def test_missing_java_on_the_path_is_reported(tmp_path):
    message = refusal(PATH=str(tmp_path)).message
    assert message == "Java is not installed: JAVA_HOME is not set, and the PATH has no java"


@pytest.mark.parametrize(("version", "major"), [("11.0.22", 11), ("1.8.0_402", 8), ("16", 16)])
def test_outdated_java_is_reported_with_its_version(java, version, major):
    home = java(version)
    expected = f"{home}/bin/java is Java {major}, but Spark 4 needs Java 17 or newer"
    assert refusal(JAVA_HOME=str(home)).message == expected
    assert refusal(PATH=str(home / "bin")).message == expected


@pytest.mark.parametrize("version", ["17.0.1", "21", "25-ea", None])
def test_a_java_that_may_do_is_tried(java, version):
    check_java({"JAVA_HOME": str(java(version))})


def test_wrong_java_home_is_reported_before_java_starts(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(gateway, "Popen", pytest.fail)
    monkeypatch.setattr(gateway, "launch_gateway", pytest.fail)
    with pytest.raises(EngineError, match="JAVA_HOME is") as raised:
        session.start(session.build_session_settings())
    assert raised.value.code == "no-java"


def test_missing_bash_is_reported_if_spark_submit_needs_it(monkeypatch, java):
    monkeypatch.setenv("JAVA_HOME", str(java("17")))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(gateway, "java_command", lambda *_: None)
    monkeypatch.setattr(gateway, "launch_gateway", pytest.fail)
    with pytest.raises(EngineError, match="no bash on the PATH") as raised:
        session.start(session.build_session_settings())
    assert raised.value.code == "spark-not-started"


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EMFILE, "ulimit -n"),
        (errno.ENOMEM, "ulimit -v"),
        (errno.EAGAIN, "ulimit -u"),
        (errno.ENOSPC, "TMPDIR"),
        (errno.ENOEXEC, "another kind of processor"),
    ],
)
def test_operating_system_errors_are_reported_with_advice(monkeypatch, number, advice):
    def raise_os_error(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(gateway, "java_command", lambda *_: Command(["java"], {}))
    monkeypatch.setattr(gateway, "Popen", raise_os_error)
    with pytest.raises(EngineError) as raised:
        session.start(session.build_session_settings())
    assert raised.value.code == "spark-not-started"
    assert os.strerror(number) in raised.value.message
    assert advice in raised.value.hint
    assert "Java 17" not in raised.value.hint or number == errno.ENOEXEC


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("Invalid maximum heap size: -Xmxlots\nError: Could not create it.", "spark.driver.memory"),
        ("Error of VM\nCould not reserve enough space for object heap", "ulimit -v"),
        ("IOException: Too many open files\n" + "\tat java.base/a.B.c(B.java:1)\n" * 9, "ulimit -n"),
        ("UnsupportedClassVersionError: class file version 61.0", "Java 17"),
        ("Unrecognized option: --add-modules=x\nError: Could not create the Java Virtual Machine", "Java 17"),
        ("Unrecognized VM option 'UseNoGC'\nError: Could not create it.", "spark.driver.extraJavaOptions"),
        ("[warning][os,thread] Failed to start thread: pthread_create failed (EAGAIN)", "ulimit -u"),
        ("OutOfMemoryError: unable to create native thread", "ulimit -u"),
        ("java.io.IOException: No space left on device", "TMPDIR"),
        ("BindException: Cannot assign requested address: Service 'sparkDriver' failed", "/etc/hosts"),
        ("something else", "spark.log.level=INFO"),
    ],
)
def test_java_start_failure_is_explained_by_its_output(said, advice):
    error = explain_start_failure(RuntimeError("exited"), {}, said)
    assert error.code == "spark-not-started"
    assert said.splitlines()[0] in error.message
    assert "\tat " not in error.message
    assert advice in error.hint


def test_killed_java_is_reported():
    error = explain_start_failure(JavaEnded(-9), {}, "")
    assert error.message == "Spark did not start: Java ended by SIGKILL before watersmeet could connect to it"
    assert "spark.driver.memory" in error.hint


def test_packages_are_not_blamed_where_java_did_not_start():
    packages = {"spark.jars.packages": "a:b:1"}
    told = explain_start_failure(RuntimeError("exited"), packages, "Invalid maximum heap size: -Xmxlots")
    assert told.code == "spark-not-started"
    for said in ("", "unresolved dependency: org.x#heap-tools;1.0: not found"):
        assert explain_start_failure(RuntimeError("exited"), packages, said).code == "packages-unresolved"


def test_a_user_without_a_name(monkeypatch):
    """A container may run under any number. Java's home directory is "?" then, and Hadoop has no user."""
    assert check_user()
    monkeypatch.setattr("os.geteuid", lambda: 4_000_000_007)
    with pytest.raises(EngineError) as caught:
        gateway.check_start({})
    assert caught.value.code == "spark-not-started"
    assert "id 4000000007 has no name" in caught.value.message
    assert "useradd --uid 4000000007" in caught.value.hint
