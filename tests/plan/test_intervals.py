import pytest
import sqlglot
from sqlglot import exp

from watersmeet.plan.intervals import interval_us

S = 1_000_000
H = 3600 * S


@pytest.mark.parametrize(
    ("sql", "us"),
    [
        ("INTERVAL '1' HOUR", H),
        ("INTERVAL 10 SECONDS", 10 * S),
        ("INTERVAL '-5' MINUTE", -300 * S),
        ("INTERVAL '1.5' SECOND", 1_500_000),
        ("INTERVAL 3 MILLISECONDS", 3000),
        ("INTERVAL 7 MICROSECONDS", 7),
        ("INTERVAL 2 WEEKS", 14 * 24 * H),
        ("INTERVAL '1 02:03:04.5' DAY TO SECOND", 26 * H + 184_500_000),
        ("INTERVAL '-1 01' DAY TO HOUR", -25 * H),
        ("INTERVAL '1:30' HOUR TO MINUTE", H + 1800 * S),
        ("INTERVAL '2:03.25' MINUTE TO SECOND", 123_250_000),
        ("INTERVAL '1 hour 30 minutes'", H + 1800 * S),
        ("INTERVAL '1' MONTH", None),
        ("INTERVAL '1-2' YEAR TO MONTH", None),
        ("INTERVAL '1 month 2 days'", None),
        ("INTERVAL '0.0000001' SECOND", None),
    ],
)
def test_length_of_an_interval(sql, us):
    interval = sqlglot.parse_one(sql, dialect="spark")
    assert isinstance(interval, exp.Interval)
    assert interval_us(interval) == us
