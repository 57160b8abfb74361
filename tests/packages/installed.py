"""The example package, installed into a folder as pip lays it out: its modules and its entry points."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

from tests.support.package_paths import REPOSITORY

PACKAGE = REPOSITORY / "tests" / "packages" / "watersmeet_sqlite"


def install_package(folder: Path) -> Path:
    """Install the example package into a folder."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    modules = PACKAGE / "src" / "watersmeet_sqlite"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(modules, folder / modules.name, ignore=ignored)
    write_metadata(folder, project["name"], project["entry-points"])
    return folder


def write_metadata(folder: Path, name: str, groups: Mapping[str, Mapping[str, str]]) -> None:
    """Write the metadata of an installed package, with its entry points."""
    metadata = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = []
    for group, entries in groups.items():
        lines += [f"[{group}]", *(f"{entry} = {value}" for entry, value in entries.items())]
    (metadata / "entry_points.txt").write_text("\n".join([*lines, ""]))


def run_with(folder: Path, *command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run Python with a folder of installed packages."""
    paths = [str(folder), str(REPOSITORY / "src"), str(REPOSITORY)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    words = [sys.executable, *map(str, command)]
    return subprocess.run(
        words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
