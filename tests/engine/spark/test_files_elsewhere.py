"""Files of another file system that are gone before their tick reads them: named, or counted; never passed
over. The other file system is Hadoop's viewfs, over a directory of this machine.
"""

from __future__ import annotations

import json

import pytest

from tests.engine.spark.running import Running, until_caught_up
from watersmeet.errors import EngineError
from watersmeet.runtime.spark.sources.files.progress import FileProgress

pytestmark = pytest.mark.spark


def test_file_deleted_between_planning_and_reading_is_reported(spark, tmp_path, monkeypatch):
    place = "gone"
    spark._jsc.hadoopConfiguration().set(f"fs.viewfs.mounttable.{place}.link./d", f"file://{tmp_path}")
    text = f"""
        CREATE TABLE a (id INT, t BIGINT, WATERMARK FOR t AS t - 5)
          WITH ('connector' = 'file', 'path' = 'viewfs://{place}/d/in', 'format' = 'csv'{{more}});
        CREATE TABLE o WITH ('connector' = 'file', 'path' = '{tmp_path}/out', 'format' = 'json');
        INSERT INTO o SELECT id, t FROM a;"""
    (tmp_path / "in").mkdir()
    for number in (1, 2):
        (tmp_path / "in" / f"{number} %2b").write_text(f"id,t\n{number},{number}\n")

    def ends(*_: object, **__: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(FileProgress, "of_batch", ends)
        with pytest.raises(EngineError, match="killed"):
            until_caught_up(spark, text.format(more=""), tmp_path / "state")
    (tmp_path / "in" / "2 %2b").rename(tmp_path / "2")
    for _ in range(2):
        with pytest.raises(EngineError, match=f"viewfs://{place}/d/in/2 %2b was deleted before") as gone:
            until_caught_up(spark, text.format(more=""), tmp_path / "state")
        assert gone.value.code == "file-gone"
    warned = text.format(more=", 'on_changed_file' = 'warn'")
    result = Running(spark, warned, tmp_path / "state", until_caught_up=True).to_the_end()
    put_out = [json.loads(part.read_text()) for part in (tmp_path / "out").glob("*.json")]
    assert put_out == [{"id": 1, "t": 1}]
    assert result.changed["a"].names == [f"viewfs://{place}/d/in/2 %2b"]
