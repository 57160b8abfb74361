"""The tutorial is played as it stands: files are saved, commands are run, and print what it says."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from watersmeet.cli.main import main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "users" / "tutorial.md"
INSTALLING = 'python -m pip install "./watersmeet[spark]"\n'


def steps() -> Iterator[tuple[str, str, str]]:
    """(what is said before, language, text) of each block."""
    parts = re.split(r"^```(\w+)\n(.*?)^```\n", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    yield from zip(parts[::3], parts[1::3], parts[2::3], strict=False)


def run(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command prints; watersmeet's own run in this process."""
    if not command.startswith("watersmeet "):
        done = subprocess.run(["sh", "-c", command], check=True, capture_output=True, text=True)
        return done.stdout
    capsys.readouterr()
    status = main(shlex.split(command)[1:])
    said = capsys.readouterr()
    assert status == 0, said.err
    return said.out


@pytest.mark.spark
def test_every_step_does_what_the_tutorial_says(spark, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    printed, played = "", []
    for before, language, text in steps():
        if language in ("csv", "sql"):
            (name,) = re.findall(r"Save as\s+`([\w/.]+)`:\n\n\Z", before)
            Path(name).write_text(text)
        elif language == "sh" and text != INSTALLING:
            printed = run(text, capsys)
            played.append(text.split()[:2])
        elif language == "text":
            assert text in printed, f"{played[-1]}: {printed}"
    assert [words for words in played if words[0] == "watersmeet"] == [
        ["watersmeet", each] for each in ("explain", "preview", "run", "run", "state", "run")
    ]
