"""The package as others install it: what is in the wheel and in the archive of sources, and that it works so.

Nothing is fetched: the build backend is installed here, and dependencies are seen where the tests have them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email.parser import Parser
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

import watersmeet
from tests.support.package_paths import PACKAGE, find_paths
from tests.support.package_paths import REPOSITORY as ROOT
from watersmeet.cli.install.origin import requirement_of

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SITE = Path(os.path.dirname(__import__("numpy").__file__)).parent


def run_command(*command: object, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def installed_wheel(tmp_path_factory) -> SimpleNamespace:
    """An archive of sources, a wheel that is made of that alone, and an environment with the wheel in it."""
    folder = tmp_path_factory.mktemp("built")
    build = (sys.executable, "-m", "hatchling", "build")
    run_command(*build, "-t", "sdist", "-d", folder, cwd=ROOT)
    (sources,) = folder.glob("*.tar.gz")
    with tarfile.open(sources) as archive:
        names = set(archive.getnames())
        # what the first versions of 3.11 lack, and later ones ask for
        archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (unpacked,) = (path for path in folder.iterdir() if path.is_dir())
    run_command(*build, "-t", "wheel", "-d", folder, cwd=unpacked)
    (wheel,) = folder.glob("*.whl")
    environment = folder / "environment"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--python", python)
    install = (*pip, "install", "--no-index", "--no-compile", "--no-build-isolation")
    run_command(*install, "--no-deps", wheel, cwd=folder)
    (own,) = (environment / "lib").glob("python*/site-packages")
    (own / "dependencies.pth").write_text(f"{SITE}\n")  # behind its own
    return SimpleNamespace(
        sources={name.partition("/")[2] for name in names},
        folder=unpacked,
        wheel=wheel,
        bin=environment / "bin",
        own=own,
        install=install,
    )


def list_package_files() -> set[str]:
    """Files of the package, from its folder on, but for what Python and tools leave there."""
    return {path.relative_to(PACKAGE).as_posix() for path in find_paths(PACKAGE, "**/*") if path.is_file()}


def test_the_wheel_has_every_file_of_the_package_and_no_other(installed_wheel):
    with zipfile.ZipFile(installed_wheel.wheel) as archive:
        names = set(archive.namelist())
    inside = {name.removeprefix("watersmeet/") for name in names if name.startswith("watersmeet/")}
    assert inside == list_package_files()
    assert {"py.typed", "spec/spark_functions.json", "cli/jobs/connections.sql"} <= inside
    assert {
        name for name in names if ".dist-info/" not in name and not name.startswith("watersmeet/")
    } == set()


def test_the_archive_of_sources_has_the_package_the_tests_and_the_pages(installed_wheel):
    assert {f"src/watersmeet/{name}" for name in list_package_files()} <= installed_wheel.sources
    assert {
        "pyproject.toml",
        "LICENSE",
        "README.md",
        "docs/users/delivered.sql",
        "requirements.lock",
    } <= installed_wheel.sources
    assert "tests/boundary/test_wheel.py" in installed_wheel.sources
    assert not [
        name
        for name in installed_wheel.sources
        if re.search(r"(^|/)(\.venv|\.jars|\.cache|__pycache__)", name)
    ]


def test_the_wheel_says_what_the_project_says(installed_wheel):
    with zipfile.ZipFile(installed_wheel.wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        said = Parser().parsestr(archive.read(name).decode())
        assert [each for each in archive.namelist() if each.endswith("licenses/LICENSE")]
    assert said["Version"] == watersmeet.__version__
    assert set(said.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
    needed = [Requirement(each) for each in said.get_all("Requires-Dist")]
    of_spark = {each.name for each in needed if each.marker and "spark" in str(each.marker)}
    assert of_spark == {"pyspark", "pandas"}
    assert not of_spark & {each.name for each in needed if not each.marker}, "the core does without"


def test_the_command_works_from_the_wheel(installed_wheel, tmp_path):
    version = f"watersmeet {PROJECT['version']}\n"
    assert run_command(installed_wheel.bin / "watersmeet", "--version", cwd=tmp_path) == version
    assert (
        run_command(installed_wheel.bin / "python", "-m", "watersmeet", "--version", cwd=tmp_path) == version
    )


def test_the_long_description_leads_to_the_address_and_no_link_of_it_leads_nowhere(installed_wheel):
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]
    home = hatch["metadata"]["hooks"]["custom"]["address"]
    with zipfile.ZipFile(installed_wheel.wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        said = Parser().parsestr(archive.read(name).decode())
    assert said["Description-Content-Type"] == "text/markdown"
    assert f"Repository, {home}" in said.get_all("Project-URL")
    links = re.findall(r"\]\(([^)]+)\)", said.get_payload())
    assert len(links) > 20
    for link in links:
        kind, _, path = link.partition("#")[0].removeprefix(f"{home}/").partition("/main/")
        assert link.startswith(home), link
        assert kind in ("blob", "raw"), link
        assert (ROOT / path).exists(), link


def test_no_other_file_names_the_address():
    """A line in pyproject.toml is all that has to change when the project gets one."""
    named = [
        path.name
        for path in find_paths(ROOT, "*", "src/**/*", "docs/**/*", "deploy/*", "scripts/*")
        if path.is_file() and b"watersmeet.example" in path.read_bytes()
    ]
    assert named == ["pyproject.toml"]


def repository(installed_wheel: SimpleNamespace, place: Path) -> str:
    """A repository of git with the sources; its commit."""
    shutil.copytree(
        installed_wheel.folder, place, ignore=shutil.ignore_patterns("tests", "docs", "examples", "deploy")
    )
    git = ("git", "-C", place, "-c", "user.name=x", "-c", "user.email=x@example.org")
    run_command(*git, "init", "--quiet", cwd=place)
    run_command(*git, "add", "--all", cwd=place)
    run_command(*git, "commit", "--quiet", "--message", "all", cwd=place)
    return run_command(*git, "rev-parse", "HEAD", cwd=place).strip()


def named_by_a_project(installed_wheel: SimpleNamespace, place: Path) -> str:
    """The first line of the requirements file that the installed command writes."""
    run_command(installed_wheel.bin / "watersmeet", "init", "kafka", place, cwd=place.parent)
    return (place / "requirements.txt").read_text().splitlines()[0]


def test_projects_name_the_wheel_that_was_installed_and_its_extras_need_no_index(installed_wheel, tmp_path):
    assert (
        named_by_a_project(installed_wheel, tmp_path / "a")
        == f"watersmeet[spark,kafka] @ file://{installed_wheel.wheel}"
    )
    # as the hints of errors say: what is installed is not looked for
    run_command(*installed_wheel.install, "--dry-run", "watersmeet[spark,ui,delta]", cwd=tmp_path)


def test_it_is_installed_from_a_repository_and_projects_name_its_commit(installed_wheel, tmp_path):
    place = tmp_path / "repository"
    commit = repository(installed_wheel, place)
    run_command(
        *installed_wheel.install, "--no-deps", "--force-reinstall", f"git+file://{place}", cwd=tmp_path
    )
    line = named_by_a_project(installed_wheel, tmp_path / "a")
    assert line == f"watersmeet[spark,kafka] @ git+file://localhost{place}@{commit}"
    run_command(*installed_wheel.install, "--dry-run", "-r", "a/requirements.txt", cwd=tmp_path)


@pytest.mark.full
def test_it_is_installed_from_a_folder_and_projects_name_it(installed_wheel, tmp_path):
    run_command(*installed_wheel.install, "--no-deps", "--force-reinstall", ".", cwd=installed_wheel.folder)
    line = named_by_a_project(installed_wheel, tmp_path / "a")
    assert line == f"watersmeet[spark,kafka] @ file://{installed_wheel.folder}"
    run_command(*installed_wheel.install, "--dry-run", "-r", "a/requirements.txt", cwd=tmp_path)


@pytest.mark.parametrize(
    ("record", "version", "line"),
    [
        (None, "0.1.0", "watersmeet[spark]==0.1.0"),
        (None, None, "watersmeet[spark]"),
        ({"url": "file:///a%20b/c", "dir_info": {"editable": True}}, "0.1.0", "-e '/a b/c[spark]'"),
        ({"url": "file:///c", "dir_info": {}}, "0.1.0", "watersmeet[spark] @ file:///c"),
        (
            {"url": "https://x/r", "subdirectory": "s", "vcs_info": {"vcs": "git", "commit_id": "0a"}},
            "0.1.0",
            "watersmeet[spark] @ git+https://x/r@0a#subdirectory=s",
        ),
    ],
)
def test_the_line_that_installs_it_again(record, version, line):
    assert requirement_of(record, version, "spark") == line


@pytest.mark.full
def test_a_project_is_made_and_tested_with_the_wheel(installed_wheel, tmp_path):
    assert "made" in run_command(
        installed_wheel.bin / "python", "-m", "watersmeet", "init", "files", "shop", cwd=tmp_path
    )
    code = "import watersmeet.testing; print(watersmeet.__file__)"
    home = run_command(installed_wheel.bin / "python", "-c", code, cwd=tmp_path)
    assert Path(home.strip()) == installed_wheel.own / "watersmeet" / "__init__.py"
    tests = (installed_wheel.bin / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert "3 passed" in run_command(*tests, cwd=tmp_path / "shop")
    shown = run_command(installed_wheel.bin / "watersmeet", "preview", "job.sql", cwd=tmp_path / "shop")
    assert "Pier 7" in shown


def test_messages_name_exactly_the_extras_of_the_project():
    """An extra that nothing needs does nothing; one that a message names has to be there."""
    texts = [
        path.read_text()
        for path in find_paths(ROOT, "src/watersmeet/**/*.py", "README.md", "docs/users/*.md")
    ]
    asked = {
        name
        for text in texts
        for found in re.findall(r"watersmeet\[([a-z,]+)\]", text)
        for name in found.split(",")
    }
    own = {"dev", "docs"}  # of whoever works on it
    assert asked - own == set(PROJECT["optional-dependencies"]) - own
