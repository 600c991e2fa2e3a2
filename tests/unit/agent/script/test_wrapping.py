from __future__ import annotations

import pytest

from airflow_flinkstyle.agent.core.errors import UNSUPPORTED_MODE
from airflow_flinkstyle.agent.core.run.reasons import Failure
from airflow_flinkstyle.agent.core.stream_options import StreamOptions
from airflow_flinkstyle.agent.spark.wrapping import overrides_for, refuse_unsupported
from airflow_flinkstyle.protocol.records import KafkaOverride
from testbed.refusals import refuses

RULE = KafkaOverride(role="source", servers="old:9092", options={"kafka.bootstrap.servers": "new:9092"})


def a_reader(form: str = "kafka", servers: str = "old:9092") -> StreamOptions:
    seen = StreamOptions()
    seen.format = form
    seen.set_options({"Kafka.Bootstrap.Servers": servers})
    return seen


def test_override_needs_the_role_and_the_old_servers() -> None:
    assert overrides_for([RULE], "source", a_reader()) == {"kafka.bootstrap.servers": "new:9092"}
    assert overrides_for([RULE], "source", a_reader("KAFKA")) == {"kafka.bootstrap.servers": "new:9092"}
    assert overrides_for([RULE], "sink", a_reader()) == {}
    assert overrides_for([RULE], "source", a_reader(servers="other:9092")) == {}
    assert overrides_for([RULE], "source", a_reader("rate")) == {}


@pytest.mark.parametrize(
    ("trigger", "options", "words"),
    [
        ({"realTime": "5 seconds"}, {}, "real-time mode"),
        ({"continuous": "1 second"}, {}, "continuous processing"),
        ({}, {"asyncProgressTrackingEnabled": True}, "asynchronous progress tracking"),
    ],
)
def test_modes_without_cuts_are_refused_by_name(
    trigger: dict[str, str], options: dict[str, object], words: str
) -> None:
    seen = StreamOptions()
    seen.trigger = dict(trigger)
    seen.set_options(options)
    with refuses(UNSUPPORTED_MODE, match=words):
        refuse_unsupported(seen)


def test_failure_shows_the_scripts_error_and_not_sparks_plan() -> None:
    failure = Failure.of(ValueError("poisoned\n\n=== Streaming Query ===\nplan"))
    assert failure.code == "SCRIPT_FAILED"
    assert failure.text.endswith("ValueError: poisoned")
