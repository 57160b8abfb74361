"""The command by which a JVM is started, beside that of Spark's own launcher, and what is left to it.

A few runs of ``spark-submit`` itself, each with many settings at once. Its Java is a script here, which lets
the launcher run and writes down what would be started then: arguments and environment.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.find_spark_home import _find_spark_home

from watersmeet.runtime.spark.job import class_archive
from watersmeet.runtime.spark.job.java_command import JARS_BY_CLASSES, MAIN, java_command
from watersmeet.runtime.spark.job.session import build_session_settings

HOME = os.environ.get("SPARK_HOME") or _find_spark_home()
needs_java = pytest.mark.skipif(class_archive._find_java() is None, reason="needs Java")

WRITES = """#!{python} -SEs
import os, sys
if "org.apache.spark.launcher.Main" in sys.argv:
    os.execv("{java}", ["{java}", *sys.argv[1:]])
with open(os.environ["WRITTEN"], "wb") as written:
    environment = [name + b"=" + value for name, value in os.environb.items()]
    written.write(b"\\0".join([*map(os.fsencode, sys.argv), b"", *environment]))
"""
OF_A_SHELL = {"SHLVL", "_", "PWD", "OLDPWD"}
OURS = build_session_settings(master="local[2]")
OPTIONS = "spark.driver.extraJavaOptions"


@pytest.fixture
def java_home(tmp_path) -> Path:
    java = tmp_path / "a java's home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(WRITES.format(python=sys.executable, java=class_archive._find_java()))
    java.chmod(0o755)
    return java.parent.parent


def capture_java_command(
    conf: Mapping[str, str], environment: Mapping[str, str], folder: Path
) -> tuple[list[str], dict[str, str]]:
    """What the real one would start: arguments, environment."""
    written = folder / "written"
    words = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    asked = [os.path.join(HOME, "./bin/spark-submit"), *words, "pyspark-shell"]
    subprocess.run(
        asked, env={**environment, "WRITTEN": str(written)}, input=b"", check=True, capture_output=True
    )
    arguments, _, rest = written.read_bytes().partition(b"\0\0")
    pairs = (os.fsdecode(pair).partition("=") for pair in rest.split(b"\0"))
    said = {name: value for name, _, value in pairs if name not in OF_A_SHELL | {"WRITTEN"}}
    return [os.fsdecode(each) for each in arguments.split(b"\0")], said


def of_java(arguments: list[str]) -> list[str]:
    return arguments[: arguments.index(MAIN) + 1]


def without_first_jars(arguments: list[str]) -> list[str]:
    """Those that come before their time on the class path, all of which are Spark's."""
    at = arguments.index("-cp") + 1
    entries = arguments[at].split(os.pathsep)
    last = entries.index(f"{HOME}/jars/*")
    begin = last - len(first := first_jars())
    assert entries[begin:last] == first
    return [*arguments[:at], os.pathsep.join([*entries[:begin], *entries[last:]]), *arguments[at + 1 :]]


def first_jars() -> list[str]:
    jars = [sorted(map(str, Path(HOME, "jars").glob(f"{pattern}.jar"))) for pattern in JARS_BY_CLASSES]
    assert all(len(each) == 1 for each in jars), "a pattern of no jar, or of several"
    return [jar for (jar,) in jars]


def test_what_comes_first_on_the_class_path_has_no_class_of_another_jar():
    def classes(jar: str | Path) -> set[str]:
        with zipfile.ZipFile(jar) as archive:
            names = {name for name in archive.namelist() if name.endswith(".class")}
        return {name for name in names if not re.search("META-INF/|-info.class|UnusedStubClass", name)}

    first = first_jars()
    theirs = [classes(jar) for jar in first]
    others = [classes(jar) for jar in Path(HOME, "jars").glob("*.jar") if str(jar) not in first]
    assert len(set().union(*theirs)) == sum(map(len, theirs))
    twice = set().union(*theirs) & set().union(*others)
    assert twice == {"org/apache/datasketches/memory/internal/ResourceImpl.class"}, "Spark's is to be taken"


def of_spark(arguments: list[str]) -> list[str]:
    """In any order: the launcher keeps settings in a hash table."""
    words = arguments[arguments.index(MAIN) + 1 :]
    assert words.pop() == "pyspark-shell"
    assert words[::2] == ["--conf"] * (len(words) // 2)
    return sorted(words[1::2])


def plain(java_home: Path | None = None, **more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "SPARK_HOME") if name in os.environ}
    home = {} if java_home is None else {"JAVA_HOME": str(java_home)}
    return {**kept, "LC_ALL": "C.UTF-8", "SPARK_CONNECT_MODE": "0", **home, **more}


DEFAULTS = """
# Spark's own file
spark.driver.memory      3g
spark.driver.defaultJavaOptions = -Ddefault="of file" -XX:+UseG1GC
! also a comment
\tspark.driver.extraClassPath:/opt/a.jar:{folder}
spark.driver.defaultExtraClassPath=/opt/b.jar:/opt/a.jar
spark.eventLog.enabled   false\x20\x20
spark.driver.memory=4g
spark.driver.extraJavaOptions  -Dnot=this
"""
CASES = {
    "what a job has": ({}, {}, None),
    "odd options": (
        {
            OPTIONS: (
                "-Da='b  c' -Dd=\"e 'f' $HOME `x`\" -Dg=h'i j'k -XX:+UseSerialGC -XX:+UseParallelGC "
                "-XX:TieredStopAtLevel=1 -XX:TieredStopAtLevel=4  -Dempty='' -Dü=€"
            ),
            "spark.driver.memory": "700m",
            "spark.app.name": 'a "name" with $signs; and = * \n lines, ü€',
            "spark.jars.packages": "org.example:thing:1,org.example:other:2",
            "spark.executorEnv.A": "b c",
            "spark.empty": "",
            "spark.driver.extraClassPath": "/x/y.jar::/tmp:/x/y.jar",
        },
        {"SPARK_DRIVER_MEMORY": "5g", "SPARK_SUBMIT_OPTS": "-Dx='y z' -Xss2m", "PYSPARK_PYTHON": "python3"},
        None,
    ),
    "files of Spark's": (
        {"spark.driver.memory": "", "spark.driver.defaultJavaOptions": ""},
        {
            "SPARK_DRIVER_MEMORY": "",
            "SPARK_MEM": "900m",
            "HADOOP_CONF_DIR": "/tmp:/nowhere",
            "SPARK_DIST_CLASSPATH": "/opt/hadoop/*:/tmp/",
            "JAVA_TOOL_OPTIONS": "-Dtool=1",
        },
        DEFAULTS,
    ),
    "memory of a file": ({"spark.master": "spark://host:7077"}, {"SPARK_DRIVER_MEMORY": "5g"}, DEFAULTS),
}


@needs_java
@pytest.mark.parametrize("case", CASES)
def test_the_command_is_that_of_the_launcher(case, java_home, tmp_path):
    conf, variables, file = CASES[case]
    conf, environment = {**OURS, **conf}, plain(java_home, **variables)
    if file is not None:
        folder = tmp_path / "a conf"
        folder.mkdir()
        (folder / "spark-defaults.conf").write_text(file.format(folder=tmp_path))
        environment["SPARK_CONF_DIR"] = str(folder)
        del conf[OPTIONS]
    ours = java_command(conf, environment)
    assert ours is not None, "this Spark's scripts or launcher are not known: compare, and add their digests"
    arguments, said = capture_java_command(conf, environment, tmp_path)
    assert without_first_jars(of_java(ours.arguments)) == of_java(arguments)
    assert of_spark(ours.arguments) == of_spark(arguments)
    assert ours.environment == said


LEFT = {
    "another master": ({"spark.master": "yarn"}, {}, {}),
    "on a cluster": ({"spark.master": "spark://host:7077", "spark.submit.deployMode": "cluster"}, {}, {}),
    "on a cluster, by a file": ({}, {}, {"spark-defaults.conf": "spark.submit.deployMode cluster"}),
    "Spark Connect": ({"spark.api.mode": "connect"}, {}, {}),
    "libraries": ({"spark.driver.extraLibraryPath": "/opt/lib"}, {}, {}),
    "libraries, by a file": ({}, {}, {"spark-defaults.conf": "spark.driver.extraLibraryPath /opt/lib"}),
    "a heap among options": ({OPTIONS: "-Xmx2g"}, {}, {}),
    "an open quote": ({OPTIONS: "-Da='b"}, {}, {}),
    "a backslash": ({OPTIONS: r"-Da=b\ c"}, {}, {}),
    "lines of options": ({}, {"SPARK_SUBMIT_OPTS": "-Da=b\n-Dc=d"}, {}),
    "a carriage return": ({"spark.app.name": "a\rb"}, {}, {}),
    "a script": ({}, {}, {"spark-env.sh": "SPARK_DRIVER_MEMORY=3g"}),
    "options in a file": ({}, {}, {"java-opts": "-Da=b"}),
    "a line that goes on": ({}, {}, {"spark-defaults.conf": "spark.driver.memory \\\n 3g"}),
    "a line without a name": ({}, {}, {"spark-defaults.conf": "= 3g"}),
    "a file in Latin-1": ({}, {}, {"spark-defaults.conf": "spark.app.name \udcfc"}),
    "arguments": ({}, {"PYSPARK_SUBMIT_ARGS": "--driver-memory 3g pyspark-shell"}, {}),
    "tests of Spark's": ({}, {"SPARK_TESTING": "1"}, {}),
    "it is asked for": ({}, {"SPARK_LAUNCHER_OPTS": "-Dany=thing"}, {}),
    "no Java there": ({}, {"JAVA_HOME": "/nowhere"}, {}),
    "no Java at all": ({}, {"PATH": "/nowhere"}, {}),
    "no Spark there": ({}, {"SPARK_HOME": "/nowhere"}, {}),
}


@needs_java
@pytest.mark.parametrize("case", LEFT)
def test_what_only_a_shell_or_the_launcher_knows_is_left_to_them(case, tmp_path):
    conf, variables, files = LEFT[case]
    for name, text in files.items():
        (tmp_path / name).write_bytes(os.fsencode(text))
    environment = plain(**{"SPARK_CONF_DIR": str(tmp_path), **variables})
    assert java_command({**OURS, **conf}, environment) is None


@pytest.fixture
def other_home(tmp_path) -> Path:
    """This Spark in another place, of which files may be changed."""
    home = tmp_path / "spark"
    shutil.copytree(Path(HOME, "bin"), home / "bin")
    (home / "jars").mkdir()
    for name in ("slf4j-api-*.jar", "spark-launcher_*.jar"):
        for jar in Path(HOME, "jars").glob(name):
            shutil.copy(jar, home / "jars")
    return home


@needs_java
def test_another_spark_is_left_to_its_launcher(other_home, java_home):
    def is_command_found() -> bool:
        return java_command(OURS, plain(java_home, SPARK_HOME=str(other_home))) is not None

    assert is_command_found()
    script = other_home / "bin" / "spark-class"
    text = script.read_text()
    script.write_text(text + "\n")
    assert not is_command_found(), "its scripts are others"
    script.write_text(text)
    (jar,) = (other_home / "jars").glob("spark-launcher_*.jar")
    with zipfile.ZipFile(jar, "a") as archive:
        archive.writestr("org/apache/spark/launcher/Vendor.class", b"")
    assert not is_command_found(), "its launcher is another"
    jar.write_bytes(b"")
    assert not is_command_found()
    shutil.copy(jar, jar.with_name("spark-launcher_2.13-other.jar"))
    assert not is_command_found(), "two of them"


def test_a_java_without_a_home_is_one_that_says_where_it_is(tmp_path):
    """A script on the path may start another Java: its own home is not known."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexec /elsewhere/bin/java\n")
    java.chmod(0o755)
    environment = plain(PATH=f"{java.parent}:{os.environ['PATH']}")
    assert java_command(OURS, environment) is None
    library = tmp_path / "lib" / "server" / "libjvm.so"
    library.parent.mkdir(parents=True)
    library.touch()
    found = java_command(OURS, environment)
    assert found is not None
    assert found.arguments[0] == str(java)
    linked = tmp_path / "other" / "java"
    linked.parent.mkdir()
    linked.symlink_to(java)
    again = java_command(OURS, {**environment, "PATH": f"{linked.parent}:{os.environ['PATH']}"})
    assert again is not None
    assert again.arguments[0] == str(java), "as Java finds its home: through links"
