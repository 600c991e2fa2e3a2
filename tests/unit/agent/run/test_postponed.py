from __future__ import annotations

import threading
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from airflow_flinkstyle.agent.core.run.postponed import Postponed
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from tests.small_spark import SmallSpark
from tests.unit.agent.conftest import a_claim
from tests.unit.agent.job_queries import a_query


def test_script_that_goes_on_after_its_first_start_has_failed_waits_for_nothing() -> None:
    """Spark may refuse a plan in ways that no rehearsal knows, and a script may catch that."""

    def fails(_query: object) -> None:
        raise ValueError("Spark has no answer")

    run = SimpleNamespace(claim=a_claim(rehearse=Rehearse()))
    driver: Any = SimpleNamespace(driver_run=run, ending=threading.Event())
    admission: Any = SimpleNamespace(to_prepare=lambda: "a savepoint")
    starter: Any = None
    begin: Any = lambda _manifest: SimpleNamespace(try_out=fails)  # noqa: E731
    postponed = Postponed(driver, admission, starter, begin)
    with pytest.raises(ValueError, match="no answer"):
        postponed.postpone(a_query("orders"))
    waiting = threading.Thread(target=postponed.await_turn)
    waiting.start()
    waiting.join(2)
    waits = waiting.is_alive()
    driver.ending.set()
    waiting.join(60)
    assert (waits, postponed.handles()) == (False, [])


@pytest.mark.parametrize(("failure", "recorded"), [(None, ["all went well"]), ("a query has failed", [])])
def test_leader_records_no_success_of_a_rehearsal_that_failed(
    failure: str | None, recorded: list[str]
) -> None:
    """The script's thread has recorded the failure, and is about to end the run."""
    written: list[str] = []
    looks = iter(range(3))

    def leave_if_ending() -> None:
        if next(looks, None) is None:
            raise SystemExit

    spark = SmallSpark()
    driver: Any = SimpleNamespace(
        leave_if_ending=leave_if_ending, queries=SimpleNamespace(spark=spark, names=list)
    )
    postponed = Postponed(driver, *[cast("Any", None)] * 3)
    postponed._manifest = cast("Any", SimpleNamespace(queries=()))
    postponed._rehearsal = cast(
        "Any",
        SimpleNamespace(failure=failure, missing=list, conclude=lambda: written.append("all went well")),
    )
    with suppress(SystemExit):
        postponed._await_others()
    assert written == recorded
