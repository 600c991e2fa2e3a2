"""Questions that outlive a broker's restart, or the election of a leader: they are asked again."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from airflow_flinkstyle.kafka.errors import ClusterUnreachableError
from airflow_flinkstyle.patience import patiently

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.kafka.settings import KafkaCluster

RETRY_S: Final = 1.0
P = ParamSpec("P")
T = TypeVar("T")


def patient(ask: Callable[Concatenate[KafkaCluster, P], T]) -> Callable[Concatenate[KafkaCluster, P], T]:
    """Let a function ask its cluster again, from the beginning, for the cluster's ``patience_s``.

    Only for what does no harm when it is done twice. What brokers refuse is not asked again.
    """

    @functools.wraps(ask)
    def asks_again(cluster: KafkaCluster, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return patiently(
            lambda: ask(cluster, *args, **kwargs),
            of=(ClusterUnreachableError,),
            for_s=cluster.patience_s,
            every_s=RETRY_S,
        )

    return asks_again
