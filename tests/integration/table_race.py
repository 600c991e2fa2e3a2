"""A table that others write to while it is put back; a script, since a JVM needs its jars when it starts.

    python tests/integration/table_race.py delta|iceberg FOLDER

writes to ``FOLDER/found.json`` what each ``put_back`` said and which rows the table has behind it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parents[2]))
from airflow_flinkstyle.agent.spark.tables import DeltaSinkTable, IcebergSinkTable
from airflow_flinkstyle.errors import FlinkstyleError
from testbed.delta import delta_settings
from testbed.jvm import spark_options
from testbed.paths import SPARK, jar_set
from testbed.waiting import scaled

if TYPE_CHECKING:
    from airflow_flinkstyle.agent.core.spark import SinkTable

ROWS = 10
KEPT = {"written": 40, "refused": "TABLE_RESTORE", "kept": 40, "put back": 10, "written again": 20}
"""Numbers of rows: nobody's rows are lost, and a table that nobody else writes to goes back."""


def race(kind: str, folder: Path) -> dict[str, object]:
    """Run the script; return what it has found."""
    command = [sys.executable, __file__, kind, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=scaled(280))
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, object] = json.loads((folder / "found.json").read_text())
    return found


class Table:
    """One table of either format, whose versions are ten rows each."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self._place = kind, str(folder / "table") if kind == "delta" else "lake.db.table"
        self._spark = _session(kind, folder)
        self._rows = 0
        self.versions: list[int] = []

    def write(self) -> None:
        """Add ten rows."""
        frame = self._spark.range(self._rows, self._rows + ROWS)
        self._rows += ROWS
        if self.kind == "delta":
            frame.write.format("delta").mode("append").save(self._place)
        elif self.versions:
            frame.writeTo(self._place).append()
        else:
            frame.writeTo(self._place).using("iceberg").create()
        self.versions.append(next(iter(self.opened().line())).version)

    def opened(self) -> SinkTable:
        """Open it as a driver does."""
        sink = DeltaSinkTable if self.kind == "delta" else IcebergSinkTable
        return sink(self._spark, self._place)  # type: ignore[arg-type, return-value]

    def rows(self) -> int:
        """Count them; each is there once."""
        by_path = self._spark.read.format("delta").load if self.kind == "delta" else self._spark.table
        numbers = [row.id for row in by_path(self._place).collect()]
        assert len(numbers) == len(set(numbers))
        return len(numbers)


def _session(kind: str, folder: Path) -> SparkSession:
    if kind == "delta":
        settings = delta_settings()
    else:
        settings = {
            "spark.driver.extraClassPath": ":".join(str(jar) for jar in jar_set(f"iceberg-{SPARK}")),
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": str(folder / "warehouse"),
        }
    builder = SparkSession.builder.master("local[1]")
    java = spark_options()
    for name, value in {
        **settings,
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": java,
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(kind: str, folder: Path) -> int:
    """Put a table back that has moved on since it was looked at, and one that has not."""
    table = Table(kind, folder)
    for _ in range(3):
        table.write()
    looked_at, now = table.opened(), table.versions[-1]
    table.write()  # by somebody else
    found = {"written": table.rows()}
    try:
        looked_at.put_back(table.versions[0], now=now)
    except FlinkstyleError as error:
        found |= {"refused": error.code, "problem": error.problem}
    found["kept"] = table.rows()
    again = table.opened()
    again.put_back(table.versions[0], now=next(iter(again.line())).version)
    found["put back"] = table.rows()
    table.write()
    found["written again"] = table.rows()
    (folder / "found.json").write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
