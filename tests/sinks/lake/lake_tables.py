"""Tables for tests, as other readers than the sinks see them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa


class Table:
    """A table in a directory of its own."""

    connector: str
    options: dict[str, str]

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.state = folder / "state.json"

    def arrow(self) -> pa.Table:
        raise NotImplementedError

    def rows(self) -> list[tuple[Any, ...]]:
        table = self.arrow()
        return (
            sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))
            if table.num_rows
            else []
        )

    def files(self) -> int:
        """How many data files lie in the sink's folders, whether a table has them or not."""
        return len(list(self.folder.rglob("ws-*/*/*.parquet")))


class Delta(Table):
    connector = "delta"

    def __init__(self, folder: Path, **options: str) -> None:
        super().__init__(folder)
        self.path = folder / "table"
        self.options = {"path": str(self.path), **options}

    def arrow(self) -> pa.Table:
        from deltalake import DeltaTable

        return DeltaTable(str(self.path)).to_pyarrow_table()

    def recreate(self) -> None:
        """As somebody does who drops it first."""
        from deltalake import DeltaTable

        shutil.rmtree(self.path)
        DeltaTable.create(str(self.path), pa.schema([("k", pa.int64()), ("v", pa.string())]))

    def append_foreign(self, key: int) -> None:
        """A row of somebody else's."""
        from deltalake import write_deltalake

        write_deltalake(str(self.path), pa.table({"k": [key], "v": ["foreign"]}), mode="append")

    def delete(self, condition: str | None) -> None:
        """As others do, of all rows without a condition."""
        from deltalake import DeltaTable

        DeltaTable(str(self.path)).delete(condition)

    def go_back(self) -> None:
        """To the version before the last commit, as others do."""
        from deltalake import DeltaTable

        table = DeltaTable(str(self.path))
        table.restore(table.version() - 1)

    def maintain(self) -> None:
        """All that is done to tables: nothing of older versions is left."""
        from deltalake import DeltaTable

        table = DeltaTable(str(self.path))
        table.optimize.compact()
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)
        table.create_checkpoint()
        log = self.path / "_delta_log"
        for commit in log.glob("*.json"):
            if commit.stem.isdigit() and int(commit.stem) < table.version():
                commit.unlink()


class Iceberg(Table):
    connector = "iceberg"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.options = {
            "table": "shop.delivered",
            "catalog.type": "sql",
            "catalog.uri": f"sqlite:///{folder}/catalog.db",
            "catalog.warehouse": f"file://{folder}/warehouse",
        }

    def table(self) -> Any:
        from pyiceberg.catalog import load_catalog

        options = {name.removeprefix("catalog."): value for name, value in self.options.items()}
        return load_catalog("default", **options).load_table("shop.delivered")

    def arrow(self) -> pa.Table:
        return self.table().scan().to_arrow()

    def recreate(self) -> None:
        """As somebody does who drops it first."""
        catalog = self.table().catalog
        catalog.drop_table("shop.delivered")
        catalog.create_table("shop.delivered", pa.schema([("k", pa.int64()), ("v", pa.string())]))

    def append_foreign(self, key: int) -> None:
        """A row of somebody else's."""
        self.table().append(pa.table({"k": [key], "v": ["foreign"]}))

    def delete(self, condition: str | None) -> None:
        """As others do, of all rows without a condition."""
        self.table().delete(condition or "true")

    def go_back(self) -> None:
        """To the snapshot before the last one, as others do."""
        table = self.table()
        table.manage_snapshots().set_current_snapshot(table.current_snapshot().parent_snapshot_id).commit()

    def maintain(self) -> None:
        """All that is done to tables: of snapshots only the last one, of somebody else, is left."""
        table = self.table()
        old = [snapshot.snapshot_id for snapshot in table.snapshots()][:-1]
        table.maintenance.expire_snapshots().by_ids(old).commit()
        assert len(self.table().snapshots()) == 1
