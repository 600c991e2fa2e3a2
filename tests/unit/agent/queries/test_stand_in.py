from __future__ import annotations

from types import SimpleNamespace

from airflow_flinkstyle.agent.spark.stand_in import StandIn, stand_in_of


def test_stand_in_tells_name_and_id_and_lets_everything_else_wait_for_the_real_query():
    real = SimpleNamespace(id=lambda: "7", name=lambda: "orders", runId=lambda: "run", stop=lambda: "stopped")
    waited: list[int] = []

    def begun() -> object:
        waited.append(1)
        return real

    known = StandIn("orders", "7", begun)
    assert (known.name(), known.id(), known.asked, waited) == ("orders", "7", "", [])
    assert (known.runId(), known.stop()) == ("run", "stopped")
    assert (known.asked, waited) == ("runId", [1, 1])

    new = StandIn("new", None, begun)
    assert new.id() == "7", "an id that no savepoint has is known once the query runs"


def test_handle_has_a_stand_in_until_the_query_was_started():
    stand_in = StandIn("orders", "7", lambda: None)
    assert stand_in_of(SimpleNamespace(_jsq=stand_in)) is stand_in
    assert stand_in_of(SimpleNamespace(_jsq=object())) is None
