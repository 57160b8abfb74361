"""Storage of a table's files: a local (or mounted) directory, or S3.

Credentials come from the environment of the driver and the tasks; nothing in this module stores any.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from watersmeet.durable_files import make_folders
from watersmeet.errors import EngineError
from watersmeet.objects.object_store import MAKE_ROOM, is_full
from watersmeet.sinks.directory import translate_write_errors
from watersmeet.spec.options.files import local_path

S3 = ("s3", "s3a", "s3n")


@dataclass(frozen=True)
class Storage:
    """Access to the files of a table.

    Args:
        s3: True for S3; False for a local directory.
        endpoint: URL of an S3 server; empty for Amazon's.
        region: Region; empty to use the environment's.
    """

    s3: bool = False
    endpoint: str = ""
    region: str = ""

    def connect(self) -> Any:
        """Create a pyarrow file system; its paths begin with the bucket or with ``/``."""
        from pyarrow import fs

        if not self.s3:
            return fs.LocalFileSystem()
        options: dict[str, Any] = {}
        if self.region:
            options["region"] = self.region
        if self.endpoint:
            url = urlsplit(self.endpoint)
            options |= {"endpoint_override": url.netloc or self.endpoint, "scheme": url.scheme or "https"}
        return fs.S3FileSystem(**options)

    def make_folder(self, folder: str) -> None:
        """Make it with all above it, where there are folders."""
        if not self.s3:
            with translate_storage_errors(folder, s3=False):
                make_folders(folder)

    def files_in(self, folder: str) -> Iterator[str]:
        """Return the paths of all files in a folder and its subfolders.

        Empty if there is no such folder.
        """
        return (info.path for info in self._infos(folder))

    def gone(self, files: Sequence[tuple[str, int]]) -> list[str]:
        """Return the paths of files that no longer exist or have another size.

        Lists the files' folders, because one request per file would run sequentially.

        Args:
            files: Pairs of a path and the expected size in bytes.
        """
        folders = {os.path.dirname(path) for path, _ in files}
        sizes = {
            (folder, os.path.basename(info.path)): info.size
            for folder in folders
            for info in self._infos(folder)
        }
        return [path for path, size in files if sizes.get(os.path.split(path)) != size]

    def _infos(self, folder: str) -> Iterator[Any]:
        from pyarrow import fs

        infos = self.connect().get_file_info(fs.FileSelector(folder, allow_not_found=True, recursive=True))
        return (info for info in infos if info.type == fs.FileType.File)

    def remove(self, paths: list[str]) -> None:
        """Remove files and local folders that become empty; ignore files that do not exist."""
        connected = self.connect()
        for path in paths:
            try:
                connected.delete_file(path)
            except FileNotFoundError:
                continue
        if not self.s3:
            for folder in {os.path.dirname(path) for path in paths}:
                try:
                    os.rmdir(folder)
                except OSError:
                    continue


def path_in(location: str) -> str:
    """Return a table's path for file systems: ``bucket/table`` for ``s3://bucket/table``."""
    parts = urlsplit(location)
    if parts.scheme in S3:
        return f"{parts.netloc}{parts.path}".rstrip("/")
    return os.path.abspath(local_path(location) or location)


def is_s3(location: str) -> bool:
    """Return True if the location is in S3."""
    return urlsplit(location).scheme in S3


@contextmanager
def translate_storage_errors(folder: str, *, s3: bool) -> Iterator[None]:
    """Translate errors of writes into ``folder`` within the block.

    Raises:
        EngineError: The storage refused a write.
    """
    if not s3:
        with translate_write_errors(
            folder, "free some space there, or check the permissions, then run again: the tick is repeated"
        ):
            yield
        return
    try:
        yield
    except ConnectionError:  # of the rows, which Spark gives: the store's are none
        raise
    except OSError as error:
        said = f"s3://{folder} cannot be written: {error}"
        if is_full(said):
            raise EngineError(said, code="store-full", hint=MAKE_ROOM) from None
        hint = "run again once it can be written: the tick is repeated"
        raise EngineError(said, code="sink-failed", hint=hint) from None
