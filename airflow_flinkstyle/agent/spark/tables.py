"""Tables that queries write to, by Spark's SQL and Iceberg's Java (``core.spark.SinkTable``)."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.agent.spark.hadoop_store import HadoopStore
from airflow_flinkstyle.checkpoint.table_position import TableCommit, TablePosition, iceberg_commit
from airflow_flinkstyle.savepoint.capture.table_history import delta_line
from airflow_flinkstyle.savepoint.errors import TABLE_RESTORE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from airflow_flinkstyle.agent.spark.untyped import Java, PySpark

_RETENTIONS: Final = {
    "delta.deletedFileRetentionDuration": "interval 7 days",
    "delta.logRetentionDuration": "interval 30 days",
}
"""Properties of a Delta table -> their defaults."""
_IGNORES_MISSING: Final = "spark.sql.files.ignoreMissingFiles"


class DeltaSinkTable:
    """A table of Delta Lake, by its path."""

    def __init__(self, spark: PySpark, path: str) -> None:
        self._spark, self._path = spark, path
        quoted = path.replace("`", "``")
        self._name = f"delta.`{quoted}`"
        self._id = ""

    def line(self) -> Iterator[TableCommit]:
        """Yield the versions that the table is made of, the newest first."""
        return delta_line(HadoopStore(self._spark, self._path))

    def holds(self, position: TablePosition) -> bool:
        """Return whether a source's position is in this table."""
        if position.format != "delta":
            return False
        self._id = self._id or self._spark.sql(f"DESCRIBE DETAIL {self._name}").first().id
        return position.table_id == self._id

    def missing(self, version: int) -> str | None:
        """Return a file of a version that was vacuumed; files that the table has now are not checked."""

        def files(**options: str) -> list[str]:
            return list(self._spark.read.format("delta").options(**options).load(self._path).inputFiles())

        then, now = files(versionAsOf=str(version)), set(files())
        return next((file for file in then if file not in now and not self._is_there(file)), None)

    def _is_there(self, file: str) -> bool:
        context = self._spark.sparkContext
        path = context._jvm.org.apache.hadoop.fs.Path(file)  # noqa: SLF001  # not encoded, as Delta writes it
        conf = context._jsc.hadoopConfiguration()  # noqa: SLF001
        return bool(path.getFileSystem(conf).exists(path))

    def put_back(self, version: int, *, now: int) -> None:
        """Put the table back to one of its versions, which makes a new one with the same content.

        ``RESTORE`` takes back whatever there is when it runs; what others wrote since ``now`` it is put back
        to in turn.
        """
        undone = range(now + 1, self._restore(version))
        if not undone:
            return
        lost = range(undone[-1] + 2, self._restore(undone[-1]))
        raise TABLE_RESTORE.with_text(
            f"Delta table {self._path} was expected to be at version {now} when it was put back, found that "
            f"others had written version {_numbers(undone)} since.",
            state_after=f"Version {_numbers(lost)}, written by others while theirs were put back, is taken "
            f"back: RESTORE TABLE {self._name} TO VERSION AS OF {lost[-1]} shows its rows."
            if lost
            else "The table has the rows that others wrote; the query was not started.",
        )

    def _restore(self, version: int) -> int:
        """Put the table back; return the version that this has made."""
        with _missing_files_matter(self._spark):
            self._spark.sql(f"RESTORE TABLE {self._name} TO VERSION AS OF {version:d}").collect()
        made = version + 1
        for commit in takewhile(lambda one: one.version != version, self.line()):
            made = commit.version
        return made

    def tags(self) -> None:
        """Return that Delta has no names for versions."""

    def set_tags(self, add: Mapping[str, int], remove: Collection[str]) -> None:
        """Do nothing: there are none."""

    def kept_for(self) -> str:
        """Return the settings by which ``VACUUM`` and the log's cleaning delete what a version needs."""
        properties = self._spark.sql(f"DESCRIBE DETAIL {self._name}").first().properties
        return ", ".join(f"{name}={properties.get(name, usual)}" for name, usual in _RETENTIONS.items())


def _numbers(versions: range) -> str:
    return f"{versions[0]}" if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"


@contextmanager
def _missing_files_matter(spark: PySpark) -> Iterator[None]:
    """Let Delta refuse a version whose files were vacuumed; with the setting it restores the others."""
    before = spark.conf.get(_IGNORES_MISSING)
    spark.conf.set(_IGNORES_MISSING, "false")
    try:
        yield
    finally:
        spark.conf.set(_IGNORES_MISSING, before)


class IcebergSinkTable:
    """A table of Iceberg, by its name in a catalog, or by the path of one without a catalog."""

    def __init__(self, spark: PySpark, name: str) -> None:
        iceberg = spark.sparkContext._jvm.org.apache.iceberg  # noqa: SLF001
        self._table: Java
        if "/" in name:
            conf = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
            self._table = iceberg.hadoop.HadoopTables(conf).load(name)
        else:
            self._table = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)  # noqa: SLF001
        self._metadata = iceberg.TableMetadata
        self._table.refresh()

    def line(self) -> Iterator[TableCommit]:
        """Yield the snapshots that the table is made of, the newest first."""
        snapshot = self._table.currentSnapshot()
        while snapshot is not None:
            parent = snapshot.parentId()
            yield iceberg_commit(
                snapshot.snapshotId(), parent, str(snapshot.operation()), dict(snapshot.summary())
            )
            snapshot = self._table.snapshot(parent) if parent is not None else None

    def holds(self, position: TablePosition) -> bool:
        """Return whether a source's position is in this table: the ids of snapshots are random."""
        return position.format == "iceberg" and self._table.snapshot(position.version) is not None

    def missing(self, version: int) -> None:
        """Return that nothing is: files of snapshots that have not expired stay."""

    def put_back(self, version: int, *, now: int) -> None:
        """Put the table back to one of the snapshots that it is made of.

        Iceberg's own rollback is tried again upon the table as others have written it meanwhile.
        """
        operations = self._table.operations()
        base = operations.refresh()
        found = base.currentSnapshot().snapshotId()
        if found != now:
            raise TABLE_RESTORE.with_text(
                f"Iceberg table {self._table.name()} was expected to be at snapshot {now} when it was put "
                f"back, found {found}, which others wrote since."
            )
        changed = self._metadata.buildFrom(base).setBranchSnapshot(version, "main").build()
        operations.commit(base, changed)
        self._table.refresh()

    def tags(self) -> set[str]:
        """Return the tags and branches of the table."""
        return {str(name) for name in self._table.refs()}

    def set_tags(self, add: Mapping[str, int], remove: Collection[str]) -> None:
        """Tag snapshots, so that ``expire_snapshots`` leaves them; remove other tags, in one commit."""
        change = self._table.manageSnapshots()
        for name in remove:
            change = change.removeTag(name)
        for name, version in add.items():
            change = change.createTag(name, version)
        change.commit()

    def kept_for(self) -> str:
        """Return nothing: snapshots expire only by ``expire_snapshots``."""
        return ""
