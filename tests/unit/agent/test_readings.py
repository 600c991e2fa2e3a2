"""How a query's Kafka sources read, as its heartbeat says it."""

from __future__ import annotations

from airflow_flinkstyle.agent.core.job_query import readings
from airflow_flinkstyle.agent.core.spark import StreamingSource
from airflow_flinkstyle.protocol.query_records import Reading


def a_source(
    position: int, *, name: str | None = None, provider: str = "kafka", **options: str
) -> StreamingSource:
    told = {option.replace("_", "."): value for option, value in options.items()}
    return StreamingSource(position=position, name=name, provider=provider, options=told)


def test_sources_are_called_as_they_were_recorded_and_no_login_is_told():
    sources = [
        a_source(0, kafka_bootstrap_servers="a:9092", kafka_sasl_jaas_config="secret"),
        a_source(1, name="clicks", kafka_Bootstrap_Servers="b:9092", kafka_isolation_level="read_committed"),
        a_source(2, provider="rate"),
    ]
    assert readings(sources, {"0", "clicks"}) == {
        "0": Reading(servers="a:9092", isolation="read_uncommitted"),
        "clicks": Reading(servers="b:9092", isolation="read_committed"),
    }
    assert set(readings(sources, {"0", "1"})) == {"0", "1"}, "an offset log v1 calls sources by position"


def test_source_that_was_not_recorded_or_is_very_long_is_left_out():
    assert readings([a_source(0, kafka_bootstrap_servers="a:9092")], {}) == {}
    assert readings([a_source(0, kafka_bootstrap_servers="a:9092," * 200)], {"0"}) == {}
