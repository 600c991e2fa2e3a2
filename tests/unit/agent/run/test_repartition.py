from __future__ import annotations

import shutil
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.agent.run import repartition, scratch
from airflow_flinkstyle.savepoint.compat import REPARTITION
from airflow_flinkstyle.state import repartition as by_spark
from tests.unit.agent.drivers import SmallDriver

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_copy_that_a_killed_driver_has_left_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark has run a batch there, so that a restore into it would be refused."""
    driver = SmallDriver(tmp_path)
    driver.spark.settings[REPARTITION] = "4"
    left = scratch.location_of(driver.claim.checkpoint_location)
    (tmp_path / "1.rehearsal" / "4-partitions").mkdir(parents=True)
    published: Any = SimpleNamespace(savepoint_id="sp-repartition-1")

    def spread(*args: Any) -> Any:  # noqa: ANN401
        assert args[4] == left
        assert not (tmp_path / "1.rehearsal").exists()
        return SimpleNamespace(keys=7, savepoint=published)

    monkeypatch.setattr(by_spark, "to_repartition", lambda *_: ["orders"])
    monkeypatch.setattr(by_spark, "repartition", spread)
    monkeypatch.setattr(scratch, "remove", lambda _spark, place: shutil.rmtree(place, ignore_errors=True))
    manifest: Any = SimpleNamespace(savepoint_id="sp-1")
    assert repartition.as_asked(driver, manifest) is published  # type: ignore[arg-type]
