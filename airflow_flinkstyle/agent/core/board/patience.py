"""How the driver handles a store, or brokers, that are out of reach for a while: it asks again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from airflow_flinkstyle import patience
from airflow_flinkstyle.clock import LEASE_CLOCK
from airflow_flinkstyle.kafka.errors import ClusterUnreachableError, KafkaAnswerError
from airflow_flinkstyle.storage.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.clock import Clock

RETRY_S: Final = 0.5
T = TypeVar("T")


class Patience(Protocol):
    """``patiently`` with its time and clock set."""

    def __call__(self, call: Callable[[], T], /) -> T:
        """Return what the call returns."""


def patiently(call: Callable[[], T], *, for_s: float, clock: Clock = LEASE_CLOCK) -> T:
    """Return what the call returns; made again for so long while the store or the brokers do not answer.

    Raises:
        StoreUnavailableError: If the store does not answer in time; ``ClusterUnreachableError`` and
            ``KafkaAnswerError`` likewise.
    """
    away = (StoreUnavailableError, ClusterUnreachableError, KafkaAnswerError)
    return patience.patiently(call, of=away, for_s=for_s, every_s=RETRY_S, clock=clock)
