"""A soak of half a minute, in which everything is killed once; and that a soak sees what is wrong."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from tests.soak.disturbed import KINDS, SHORT, drawn, sizes_drawn
from tests.soak.job import differences
from tests.soak.watched import Look, figure
from tests.soak.whole import soak


@pytest.mark.full
@pytest.mark.kill
@pytest.mark.spark
@pytest.mark.kafka
def test_a_job_of_which_all_is_killed_comes_to_the_batch_answer(tmp_path, seed):
    done = soak(tmp_path, 0.5, seed, 100)
    assert done.wrong == []
    paired = done.got["paired"]
    lost, doubled = paired.slice(1), pa.concat_tables([paired, paired.slice(0, 1)])
    said = [each for table in (lost, doubled) for each in differences({"paired": table}, done.sent)]
    assert [each.split(",")[0] for each in said] == ["paired: 1 rows missing", "paired: 1 rows too many"]


def test_each_third_has_the_same(seed):
    events = drawn(random.Random(seed), 30)
    third = len(events) // 3
    assert events[:third] == events[third : 2 * third] == events[2 * third :]
    assert {*events} == {*KINDS}
    assert len(sizes_drawn(random.Random(seed), events)) == events[:third].count("rescale") == 3
    assert {*drawn(random.Random(seed), 0.5)} == {*SHORT}


def looks(value):
    """Processes that live for 100 s, of which each has what ``value`` says of its age and the time."""
    return [Look(at, "MB", at % 100, value(at % 100, at)) for at in map(float, range(0, 900, 2))]


def test_processes_are_compared_at_equal_age():
    grows_with_age = figure("MB", looks(lambda age, _: 100 + age), 900)
    assert grows_with_age.holds
    assert grows_with_age.ages == 7
    assert grows_with_age.first == pytest.approx(grows_with_age.last, rel=0.01)
    younger = [each for each in looks(lambda age, _: 100 + age) if each.at_s > 450 or each.age_s < 60]
    assert figure("MB", younger, 900).holds, "the first third has no old ones"


def test_what_grows_is_seen():
    assert not figure("MB", looks(lambda age, at: 100 + age + at / 30), 900).holds
    assert figure("MB", looks(lambda age, at: 100 + age + at / 300), 900).holds, "within ten in a hundred"
    assert not figure("MB", [Look(at, "files", 0, 50 + at) for at in range(900)], 900).holds


def test_too_few_samples_are_reported_as_not_compared():
    seen = figure("MB", [each for each in looks(lambda *_: 1) if each.at_s < 500], 900)
    assert seen.holds
    assert "not compared" in str(seen)
