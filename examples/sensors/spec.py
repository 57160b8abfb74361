"""The same question without Spark and without SQL: a join as data, for a service beside the machines."""

from __future__ import annotations

from examples.sensors.job import FAILURES, READINGS
from watersmeet.local import AllOf, Between, Equal, JoinSpec, left, right

BEFORE = JoinSpec(
    names=("failures", "readings"),
    left=FAILURES,
    right=READINGS,
    left_times={"at": "5 seconds"},
    right_times={"at": "5 seconds"},
    how="left",
    condition=AllOf(
        Equal(left("machine"), right("machine")),
        Between(right("at"), left("at") - "5 minutes", left("at")),
    ),
    outputs={
        "failure": left("failure"),
        "machine": left("machine"),
        "failed_at": left("at"),
        "read_at": right("at"),
        "celsius": right("celsius"),
    },
)
