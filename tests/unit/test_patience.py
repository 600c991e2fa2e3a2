"""What is out of reach for a while is asked again, and for no longer than said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.kafka.errors import ClusterDeniedError, ClusterUnreachableError
from airflow_flinkstyle.kafka.patience import patient
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.patience import patiently
from tests.unit.clocks import SleptClock

if TYPE_CHECKING:
    from collections.abc import Callable

AWAY = ClusterUnreachableError("No broker answered.", state_after="Nothing was written.", remedy="Retry.")
DENIED = ClusterDeniedError("Rejected.", state_after="Nothing was written.", remedy="Check the password.")


def answers(*given: Exception | str) -> Callable[[], str]:
    """Return a call that raises or returns these, one each time; the last one from then on."""
    left = list(given)

    def call() -> str:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return call


def ask(call: Callable[[], str], clock: SleptClock, *, for_s: float = 5) -> str:
    return patiently(call, of=(ClusterUnreachableError,), for_s=for_s, every_s=1, clock=clock)


def test_an_error_that_passes_is_waited_out():
    clock = SleptClock()
    assert ask(answers(AWAY, AWAY, "here"), clock) == "here"
    assert clock.slept == [1, 1]


def test_what_stays_away_is_raised_when_the_time_is_up():
    clock = SleptClock()
    with pytest.raises(ClusterUnreachableError):
        ask(answers(AWAY), clock)
    assert sum(clock.slept) == 5


@pytest.mark.parametrize(("error", "for_s"), [(DENIED, 5), (AWAY, 0)])
def test_a_refusal_and_a_call_without_patience_are_not_tried_again(error: Exception, for_s: float):
    clock = SleptClock()
    with pytest.raises(type(error)):
        ask(answers(error, "here"), clock, for_s=for_s)
    assert not clock.slept


def test_a_cluster_says_how_patiently_it_is_asked():
    """One that says nothing is asked once."""
    call = answers(AWAY, "here")
    look = patient(lambda _cluster: call())
    hasty = KafkaCluster(name="orders", config={"bootstrap.servers": "broker:9092"})
    with pytest.raises(ClusterUnreachableError):
        look(hasty)
    assert look(hasty) == "here"
    call = answers(AWAY, "here")
    assert look(KafkaCluster(name="orders", config=hasty.config, patience_s=5)) == "here"
