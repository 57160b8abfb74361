"""Processes that serve all tests of this one, and end with it."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def folder_of(what: str) -> Path:
    """A new directory, which goes with this process."""
    folder = Path(tempfile.mkdtemp(prefix=f"{what}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def serve(module: str, socket: str, python_path: Sequence[Path]) -> None:
    """Start the module, which is told of its socket; returns when it has said that it is ready. It is to end
    when its standard input does."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, socket],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, python_path))},
        start_new_session=True,  # Ctrl-C is for pytest, which then ends it
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    atexit.register(process.wait)
    atexit.register(process.stdin.close)  # first
