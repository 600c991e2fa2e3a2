"""Requests that are made again while a broker restarts or a leader is elected."""

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


def patient(request: Callable[Concatenate[KafkaCluster, P], T]) -> Callable[Concatenate[KafkaCluster, P], T]:
    """Let a function make its requests again, from the beginning, for the cluster's ``patience_s``.

    Only for functions that do no harm when run twice. A request that brokers refuse is not made again.
    """

    @functools.wraps(request)
    def with_retries(cluster: KafkaCluster, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return patiently(
            lambda: request(cluster, *args, **kwargs),
            of=(ClusterUnreachableError,),
            for_s=cluster.patience_s,
            every_s=RETRY_S,
        )

    return with_retries
