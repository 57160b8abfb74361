"""Times that the client of Iceberg has not are refused before anything of a tick is published."""

from __future__ import annotations

import pyarrow as pa
import pytest

from watersmeet.errors import EngineError
from watersmeet.sinks.lake.data_files import LakePart

LAST = 253_402_300_799_999_999
"""µs of 9999-12-31 23:59:59.999999."""
FIRST = -62_135_596_800_000_000


def written(folder, times, *, widened):
    at = pa.array(times, pa.timestamp("us", "UTC"))
    rows = pa.record_batch({"at": at, "s": [{"t": None}] * len(times)})
    return LakePart(str(folder), "ws", widened=widened).write(0, rows.schema, iter([rows]))


@pytest.mark.parametrize("time", [LAST + 1, FIRST - 1])
def test_a_time_beyond_is_refused(tmp_path, time):
    with pytest.raises(EngineError, match='a time in "at" is outside of the years 1 to 9999') as raised:
        written(tmp_path, [0, time, None], widened=True)
    assert raised.value.code == "sink-refused-row"
    assert written(tmp_path, [0, time, None], widened=False)["rows"] == 3  # Delta takes it


def test_first_and_last_supported_times_are_accepted(tmp_path):
    assert written(tmp_path, [FIRST, LAST, None], widened=True)["rows"] == 3
