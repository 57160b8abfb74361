"""Both demos from end to end, over fewer and larger files than a user gets: the same rows, in less time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.lent_jvms import lent

SOURCES = Path(__file__).resolve().parents[2] / "src"


@pytest.mark.spark
@pytest.mark.parametrize(("query", "rows"), [("weather", "336,776"), ("connections", "28,234")])
def test_the_demo_is_equal_row_for_row(tmp_path, query, rows):
    code = (
        "import sys; from pathlib import Path; from watersmeet.cli.demo import run_demo;"
        "from watersmeet.cli.demo_data import Layout;"
        f"sys.exit(run_demo({query!r}, Path({str(tmp_path)!r}), False, Layout(files=4)))"
    )
    environment = os.environ | {"PYTHONPATH": str(SOURCES)} | lent()
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert f"rows: {rows} from the streams, {rows} from the batch join" in found.stdout
    assert "EQUAL, row for row" in found.stdout
    assert "NO:" not in found.stdout, "the account adds up"
