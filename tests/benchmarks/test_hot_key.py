"""The benchmark of hot keys runs, and all ways put out the same. By the hash one task has all the work."""

from __future__ import annotations

import re

import pytest

from benchmarks import hot_key


def test_split_relieves_the_busiest_task(capsys):
    asked = ["--rows", "20000", "--ticks", "3", "--kind", "full", "--tasks", "3"]
    assert hot_key.main(asked) == 0
    told = [
        re.match(r"3 tasks, (.*?): ([\d,]+) rows out.* the busiest task has (\d+)%", line)
        for line in capsys.readouterr().out.splitlines()
    ]
    assert [match[1] for match in told] == ["by the key's hash", "split", "BROADCAST"]
    assert {match[2] for match in told} != {"0"}
    assert int(told[0][3]) > 80 > int(told[1][3])


@pytest.mark.full
def test_benchmark_compares_a_hot_key_share_with_no_hot_key(capsys):
    asked = ["--rows", "20000", "--ticks", "2", "--share", "0.3", "--small", "3", "--tasks", "2"]
    assert hot_key.main(asked) == 0
    assert "against no hot key" in capsys.readouterr().out
