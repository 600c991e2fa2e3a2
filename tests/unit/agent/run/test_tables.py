"""A rewind that puts a query's table back: after the takeover, before the query starts, once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.agent.core.job_query import Sink
from airflow_flinkstyle.agent.core.run.taking import KEEP, keep_versions
from airflow_flinkstyle.checkpoint.table_position import TablePosition
from airflow_flinkstyle.errors import FlinkstyleError, SignatureError
from airflow_flinkstyle.protocol.table_records import RestoredTable, TablesToRestore
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.errors import SinkSkipsError
from tests.small_spark import SmallTable
from tests.unit.agent.conftest import G1, G2
from tests.unit.agent.drivers import SmallDriver, commit, end_run

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from tests.unit.clocks import SleptClock as Clock

SAVED = TablePosition(format="delta", table_id=None, version=1, files_read=None)


class Rewound:
    """A job that wrote batches 0 to 2 into a table, saved behind batch 1, and its next generation."""

    def __init__(self, folder: Path, clock: Clock, *, reads_itself: bool = False) -> None:
        self.folder = folder
        self.table = SmallTable(folder / "table")
        first = SmallDriver(folder, clock=clock)
        first.tell_order()
        query = first.start("copy")
        for batch in (0, 1, 2):
            commit(query, batch)
            self.table.commit("q-1", batch)
            if batch == 1 and reads_itself:
                at = {"reservoirId": self.table.store.uri, "reservoirVersion": 0, "index": 0}
                log = query.checkpoint.read("offsets/1").decode().rpartition("\n")[0]
                query.checkpoint.write("offsets/1", f"{log}\n{json.dumps(at)}".encode())
            if batch == 1:
                self._save(first, query)
        end_run(query)
        first.heartbeat_writer.end("closed")
        self.driver = first.followed_by(G2, adopts=False)

    def _save(self, driver: SmallDriver, query: JobQuery) -> None:
        label = SavepointLabel(
            savepoint_id="sp-1", taken_at_ms=1, spark_version="4.2.0", taken_from_generation=G1
        )
        source = QuerySource(
            name="copy", checkpoint=query.checkpoint, kafka={}, sink="delta", find_written=lambda *_: SAVED
        )
        take_savepoint(driver.repository, [source], label)

    def tell(self) -> None:
        """Order the fork, and what it takes back."""
        self.driver.board.create_tables_to_restore(G2, TablesToRestore(own_ids={"copy": ("q-1",)}))
        self.driver.tell_order(savepoint_id="sp-1", closed_at={"copy": 2}, rewind="fork")

    def register(self, sink: str = "delta") -> JobQuery:
        query = self.driver.register("copy")
        query.sink = Sink(name=sink, path=str(self.folder / "table"))
        return query

    def start(self) -> JobQuery:
        query = self.register()
        self.driver.admission.admit(query)
        self.driver.run(query)
        return query

    @property
    def made_of(self) -> list[int]:
        return [one.version for one in self.table.line()]

    @property
    def done(self) -> RestoredTable | None:
        return self.driver.board.restored_table(G2, "copy")

    def holder(self) -> int | None:
        current = self.driver.board.current()
        return current.value.generation if current else None


@pytest.fixture
def rewound(tmp_path: Path, clock: Clock) -> Rewound:
    return Rewound(tmp_path, clock)


def test_rows_since_the_savepoint_are_taken_back_before_the_query_starts(rewound: Rewound):
    rewound.tell()
    rewound.start()
    assert rewound.made_of == [3, 1, 0]
    assert rewound.done == RestoredTable(format="delta", found=2, put_back_to=1, rows=10)
    assert "from version 2 to 1: 10 rows taken back" in str(rewound.done)


def test_table_stays_where_nobody_asked_for_it(rewound: Rewound):
    rewound.driver.tell_order(savepoint_id="sp-1", closed_at={"copy": 2}, rewind="fork")
    rewound.start()
    assert (rewound.made_of, rewound.done) == ([2, 1, 0], None)


def test_driver_that_ends_before_it_has_put_the_table_back_leaves_that_to_the_next(
    rewound: Rewound, monkeypatch: pytest.MonkeyPatch
):
    rewound.tell()

    def dies(*_: object, **__: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(SmallTable, "put_back", dies)
        with pytest.raises(SystemExit):
            rewound.start()
    assert (rewound.holder(), rewound.made_of, rewound.done) == (G2, [2, 1, 0], None)
    rewound.driver = rewound.driver.relaunched()
    rewound.start()
    assert rewound.made_of == [3, 1, 0]


def test_driver_that_ends_behind_the_restore_is_followed_by_one_that_finds_it_done(
    rewound: Rewound, monkeypatch: pytest.MonkeyPatch
):
    rewound.tell()

    def dies(*_: object, **__: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(rewound.driver.board, "create_restored_table", dies)
        with pytest.raises(SystemExit):
            rewound.start()
    assert (rewound.made_of, rewound.done) == ([3, 1, 0], None)
    rewound.driver = rewound.driver.relaunched()
    rewound.start()
    assert rewound.made_of == [3, 1, 0]
    assert str(rewound.done) == "its delta table held nothing to take back any more"


def test_what_the_generation_has_written_itself_is_never_taken_back(rewound: Rewound):
    rewound.tell()
    query = rewound.start()
    rewound.table.commit("q-1", 2)  # written, and it dies before its commit log says so; the id is kept
    end_run(query)
    rewound.start()
    rewound.driver = rewound.driver.relaunched()
    rewound.start()
    assert rewound.made_of == [4, 3, 1, 0]


def test_table_that_others_have_written_to_is_refused_before_the_takeover(rewound: Rewound):
    rewound.table.commit("somebody")
    rewound.tell()
    with pytest.raises(FlinkstyleError, match="some of others: 3") as refused:
        rewound.start()
    assert refused.value.code == "TABLE_RESTORE"
    assert (rewound.holder(), rewound.made_of) == (G1, [3, 2, 1, 0])


def test_version_whose_files_are_gone_is_refused_before_the_takeover(
    rewound: Rewound, monkeypatch: pytest.MonkeyPatch
):
    rewound.tell()
    monkeypatch.setattr(SmallTable, "vacuumed", "part-1.parquet")
    with pytest.raises(FlinkstyleError, match=r"Version 1 .* found part-1.parquet deleted"):
        rewound.start()
    assert (rewound.holder(), rewound.made_of) == (G1, [2, 1, 0])


def test_delta_table_is_not_taken_back_where_its_batch_ids_are_used_again(rewound: Rewound):
    """A caller of an older version may order it."""
    rewound.driver.board.create_tables_to_restore(G2, TablesToRestore(own_ids={"copy": ("q-1",)}))
    order = {"savepoint_id": "sp-1", "closed_at": {"copy": 2}, "skip_known_batches": True}
    rewound.driver.tell_order(**order, rewind="re-emit")
    with pytest.raises(SinkSkipsError, match="keeps their ids"):
        rewound.start()
    assert (rewound.holder(), rewound.made_of) == (G1, [2, 1, 0])


def test_query_that_writes_elsewhere_now_is_refused(rewound: Rewound):
    rewound.tell()
    with pytest.raises(FlinkstyleError, match="found that it writes to parquet"):
        rewound.driver.admission.admit(rewound.register("parquet"))
    assert rewound.holder() == G1


def test_table_that_a_stream_of_the_job_reads_is_refused(tmp_path: Path, clock: Clock):
    rewound = Rewound(tmp_path, clock, reads_itself=True)
    rewound.tell()
    with pytest.raises(FlinkstyleError, match="found query copy, which would read what is taken back"):
        rewound.start()
    assert (rewound.holder(), rewound.made_of) == (G1, [2, 1, 0])


def test_restore_that_nobody_with_the_key_asked_for_is_not_obeyed(rewound: Rewound):
    rewound.driver.tell_order(savepoint_id="sp-1", closed_at={"copy": 2}, rewind="fork")
    rewound.driver.board.create_tables_to_restore(G2, TablesToRestore(own_ids={"copy": ("q-1",)}))
    object.__setattr__(rewound.driver.driver_run, "order_keys", ("k" * 64,))
    with pytest.raises(SignatureError):
        rewound.start()
    assert rewound.made_of == [2, 1, 0]


def test_versions_of_savepoints_are_tagged_until_these_are_disposed_of(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
):
    driver, table = SmallDriver(tmp_path, clock=clock), SmallTable(tmp_path / "table")
    driver.tell_order()
    query = driver.start("copy")
    query.sink = Sink(name="delta", path=str(tmp_path / "table"))

    def take(savepoint_id: str) -> set[str]:
        """Take a savepoint; return of which ones versions are tagged then."""
        commit(query, len(driver.repository.ids()))
        label = SavepointLabel(
            savepoint_id=savepoint_id, taken_at_ms=1, spark_version="4.2.0", taken_from_generation=G1
        )
        source = QuerySource(
            name="copy", checkpoint=query.checkpoint, kafka={}, sink="delta", find_written=lambda *_: SAVED
        )
        taken = take_savepoint(driver.repository, [source], label)
        keep_versions(driver.board, driver.repository, [query], taken)
        return {tag.rpartition("/copy/")[2] for tag in table.tags() or set()}

    table.set_tags({"theirs": 1}, ())
    assert take("sp-1") == {"theirs"}, "nobody has asked for it"
    driver.spark.settings[KEEP] = "true"
    assert take("sp-2") == {"theirs", "sp-2"}
    assert take("sp-3") == {"theirs", "sp-2", "sp-3"}
    driver.repository.delete_manifest("sp-2")
    assert take("sp-4") == {"theirs", "sp-3", "sp-4"}
    table.store.delete("tags.json")
    assert take("sp-5") == set()
    assert "delta has no tags" in caplog.text
    assert "a week" in caplog.text
