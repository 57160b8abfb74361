"""The benchmark of hot keys runs: one task has all the work without the hint, and its share with it."""

from __future__ import annotations

import re

from benchmarks import hot_key


def test_both_ways_put_out_the_same(capsys):
    assert hot_key.main(["--rows", "2000", "--ticks", "3", "--kind", "full", "--tasks", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [re.match(r"3 tasks, (.*?): [\d,]+ rows out", line)[1] for line in lines] == [
        "by the key's hash",
        "BROADCAST",
    ]
