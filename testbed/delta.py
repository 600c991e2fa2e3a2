"""Delta Lake in the tests' Spark: its jars must be there when the JVM starts. Tables are written without."""

from __future__ import annotations

import json
import shutil
import uuid
from typing import TYPE_CHECKING, Any

from testbed import paths

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def delta_settings() -> dict[str, str]:
    """Return the settings of a session with Delta, as small as it goes."""
    jars = [str(jar) for jar in paths.jar_set(f"delta-{paths.SPARK}" if paths.SPARK else "delta")]
    return {
        "spark.driver.extraClassPath": ":".join(jars),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.shuffle.partitions": "1",
    }


def read_delta(table: Path) -> list[dict[str, object]]:
    """Return the rows of a small table by its log, without a JVM."""
    from pyarrow.parquet import read_table

    files: dict[str, None] = {}
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            if "remove" in action:
                files.pop(action["remove"]["path"])
            if "add" in action:
                if action["add"].get("deletionVector"):
                    raise NotImplementedError(
                        f"{table} has deletion vectors, which this reader does not know."
                    )
                files[action["add"]["path"]] = None
    return [row for file in files for row in read_table(table / file).to_pylist()]


def commit_again(table: Path) -> None:
    """Add the newest file of a table once more, as another writer does."""
    log = sorted((table / "_delta_log").glob("*.json"))
    lines = [json.loads(line) for commit in log for line in commit.read_text().splitlines()]
    added = [line["add"] for line in lines if "add" in line][-1]
    copied = {**added, "path": f"again-{len(log)}.parquet"}
    shutil.copyfile(table / added["path"], table / copied["path"])
    _write(table, len(log), {"commitInfo": {"operation": "WRITE"}}, {"add": copied})


def _write(table: Path, version: int, *actions: Mapping[str, Any]) -> None:
    draft = table / "_delta_log" / ".draft"
    draft.write_text("".join(json.dumps(action) + "\n" for action in actions))
    draft.rename(table / "_delta_log" / f"{version:020}.json")


class DeltaTable:
    """A table of numbers whose columns can be renamed and dropped; every call is a version of it."""

    def __init__(self, folder: Path, columns: Sequence[str]) -> None:
        self.folder, self.version = folder, -1
        self._id = str(uuid.uuid4())
        self._stored = {name: f"col-{name}" for name in columns}
        """Column -> its name in the files, which it keeps."""
        self._numbers = {name: number for number, name in enumerate(columns, start=1)}
        (folder / "_delta_log").mkdir(parents=True)
        self._commit({"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, self._metadata())

    def append(self, rows: Sequence[Mapping[str, int]]) -> None:
        """Add rows as one file."""
        from pyarrow import Table
        from pyarrow.parquet import write_table

        path = self.folder / f"part-{self.version + 1:05}.parquet"
        columns = {stored: [row[name] for row in rows] for name, stored in self._stored.items()}
        write_table(Table.from_pydict(columns), path)
        added = {
            "path": path.name,
            "partitionValues": {},
            "size": path.stat().st_size,
            "modificationTime": 1,
            "dataChange": True,
        }
        self._commit({"add": added})

    def rename(self, column: str, name: str) -> None:
        """Give a column another name; no file changes."""
        self._stored[name], self._numbers[name] = self._stored.pop(column), self._numbers.pop(column)
        self._commit(self._metadata())

    def drop(self, column: str) -> None:
        """Drop a column; no file changes."""
        del self._stored[column]
        self._commit(self._metadata())

    def _metadata(self) -> dict[str, Any]:
        fields = [
            {
                "name": name,
                "type": "long",
                "nullable": True,
                "metadata": {
                    "delta.columnMapping.id": self._numbers[name],
                    "delta.columnMapping.physicalName": stored,
                },
            }
            for name, stored in self._stored.items()
        ]
        most = str(max(self._numbers.values()))
        metadata = {
            "id": self._id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": [],
            "configuration": {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": most},
            "createdTime": 1,
        }
        return {"metaData": metadata}

    def _commit(self, *actions: Mapping[str, Any]) -> None:
        self.version += 1
        _write(self.folder, self.version, *actions)
