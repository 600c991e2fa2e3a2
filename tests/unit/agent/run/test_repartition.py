from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.agent.core.run import repartition, scratch
from airflow_flinkstyle.protocol.places import MARK_KEY, own_place
from airflow_flinkstyle.savepoint.compat import REPARTITION, SOURCE_NAMES
from airflow_flinkstyle.state import repartition as by_spark
from airflow_flinkstyle.storage.local import LocalStore
from tests.unit.agent.conftest import G1
from tests.unit.agent.drivers import SmallDriver
from tests.unit.rewrite.golden_savepoint import Savepoint

if TYPE_CHECKING:
    import pytest


def scratch_of(driver: SmallDriver) -> LocalStore:
    return LocalStore(Path(scratch.location_of(driver.claim.checkpoint_location)))


def test_copy_that_a_killed_driver_has_left_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark has run a batch there, so that a restore into it would be refused."""
    driver = SmallDriver(tmp_path)
    driver.spark.settings[REPARTITION] = "4"
    own_place(scratch_of(driver), driver.board, G1)
    scratch_of(driver).write("4-partitions/orders/sp-1/orders/metadata", b"{}")
    published: Any = SimpleNamespace(savepoint_id="sp-repartition-1")

    def spread(*args: Any) -> Any:  # noqa: ANN401
        assert args[3] == scratch.location_of(driver.claim.checkpoint_location)
        assert [info.key for info in scratch_of(driver).list()] == [MARK_KEY]
        return published, 7

    monkeypatch.setattr(by_spark, "to_repartition", lambda *_: ["orders"])
    monkeypatch.setattr(driver.spark, "repartitioned", spread)
    manifest: Any = SimpleNamespace(savepoint_id="sp-1")
    assert repartition.as_asked(driver, manifest) is published  # type: ignore[arg-type]
    assert not (tmp_path / "1.rehearsal").exists()


def test_sources_are_called_as_the_session_says_once(tmp_path: Path) -> None:
    savepoint, driver = Savepoint("kafka"), SmallDriver(tmp_path)
    driver.repository = savepoint.repository
    assert repartition.as_asked(driver, savepoint.manifest) is savepoint.manifest
    driver.spark.settings[SOURCE_NAMES] = '{"q": {"0": "orders"}, "another": {"0": "x"}}'
    named = repartition.as_asked(driver, savepoint.manifest)
    assert named.queries[0].kafka.keys() == {"orders"}
    assert repartition.as_asked(driver, savepoint.manifest) == named
    assert repartition.as_asked(driver, named) is named
