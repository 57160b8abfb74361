"""What ``python -m examples`` and ``python -m examples.nexmark`` do, at a small size: jobs of SQL, TOML and
of calls over DataFrames, compared with answers that are computed without watersmeet.
"""

from __future__ import annotations

import pytest

from examples import __main__ as examples
from examples.nexmark import __main__ as nexmark
from examples.running import summed


@pytest.mark.spark
def test_examples_run_on_spark(spark, tmp_path, capsys):
    asked = ["clicks", "sensors", "--rows", "1500", "--ticks", "3", "--folder", str(tmp_path)]
    status = examples.main(asked)
    told = capsys.readouterr().out
    assert status == 0, told
    jobs = [line.split(":")[0] for line in told.splitlines() if "as computed without watersmeet" in line]
    assert jobs == ["clicks/attributed.sql", "clicks/pairs.toml", "sensors/job.py"]


@pytest.mark.full
@pytest.mark.spark
def test_a_query_of_nexmark_says_how_fast_it_was(spark, tmp_path, capsys, monkeypatch):
    asked = ["--events", "4000", "--ticks", "2", "--query", "q9", "--folder", str(tmp_path)]
    assert nexmark.main([*asked, "--form", "changes"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("q9   changes   3,920 rows in ")
    assert told.endswith("rows, as DuckDB has them\n")
    monkeypatch.setattr("examples.running.summed", lambda tables: summed(list(tables)[:-1]))  # a file is lost
    assert nexmark.main([*asked, "--form", "changes"]) == 1
    assert "rows missing" in capsys.readouterr().out


def test_invalid_example_arguments_are_refused(capsys):
    with pytest.raises(SystemExit):
        examples.main(["click"])
    assert "no example click; there are flights_weather, clicks" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        nexmark.main(["--rate", "10"])
    assert "below 1,000 the intervals" in capsys.readouterr().err
