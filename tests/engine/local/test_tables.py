"""Tables of local files, read in this process."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.support.columns import column
from watersmeet.errors import EngineError
from watersmeet.runtime.local import sources
from watersmeet.spec.model import Source

COLUMNS = (column("id", "INT"), column("s", "VARCHAR(3)"), column("spare", "VARCHAR(1)"))


def test_lengths_are_compared_of_columns_that_are_used(tmp_path, monkeypatch):
    """As on Spark, or a job that runs could not be replayed."""
    rows = pa.table({"id": pa.array([1], pa.int32()), "s": ["äöü"], "spare": ["xx"]})
    parquet.write_table(rows, tmp_path / "a")
    source = Source("t", COLUMNS, "file", {"path": str(tmp_path), "format": "parquet"})
    read: list[pa.Table] = []
    monkeypatch.setattr(sources, "TableWriter", lambda *args: SimpleNamespace(add=read.append, finish=list))

    class Used:
        columns = COLUMNS[:2]

        def __call__(self, given):
            return given

    sources.open_reader(source, Used(), None).read(None, None, 1, None)
    assert read[0].column("s").to_pylist() == ["äöü"]
    Used.columns = COLUMNS
    with pytest.raises(EngineError, match=r'spare" is VARCHAR\(1\), but a value in its files is longer'):
        sources.open_reader(source, Used(), None).read(None, None, 1, None)
