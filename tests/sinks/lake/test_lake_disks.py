"""What a disk refuses of a table's data files is told of the table's place, whoever writes them."""

from __future__ import annotations

import errno
import io
import os

import pyarrow as pa
import pytest

from watersmeet.errors import EngineError
from watersmeet.sinks.lake import data_files
from watersmeet.sinks.lake.data_files import LakePart
from watersmeet.sinks.lake.storage import Storage

ROWS = pa.record_batch({"k": [1, 2]})


class Full(io.RawIOBase):
    """A file on a full disk: its first bytes were taken."""

    left = 4

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        self.left -= len(data)
        if self.left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return len(data)


def catch_engine_error(act) -> EngineError:
    with pytest.raises(EngineError) as caught:
        act()
    assert caught.value.hint
    return caught.value


def test_a_full_disk(tmp_path, monkeypatch):
    class Disk:
        def open_output_stream(self, path):
            return pa.PythonFile(Full(), mode="w")

    monkeypatch.setattr(Storage, "connect", lambda self: Disk())
    error = catch_engine_error(lambda: LakePart(str(tmp_path), "a").write(0, ROWS.schema, iter([ROWS])))
    assert error.code == "disk-full"
    assert str(tmp_path) in error.message


def test_a_disk_that_fails_when_it_is_waited_for(tmp_path, monkeypatch):
    def fails(path):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(data_files, "sync", fails)
    error = catch_engine_error(lambda: LakePart(str(tmp_path), "a").write(0, ROWS.schema, iter([ROWS])))
    assert error.code == "disk-not-writable"


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "table").write_text("in the way")
    error = catch_engine_error(lambda: Storage().make_folder(str(tmp_path / "table" / "ws-1")))
    assert error.code == "disk-not-writable"
    assert str(tmp_path) in error.message
