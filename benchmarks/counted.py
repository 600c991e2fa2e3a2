"""Count what a store sends to S3."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.storage.s3 import S3Store

if TYPE_CHECKING:
    from airflow_flinkstyle.storage.base import ObjectStore


def requests_of(store: ObjectStore) -> Counter[str]:
    """Return how many requests of each kind the store sends from now on; it stays empty for other stores."""
    counted: Counter[str] = Counter()
    if isinstance(store, S3Store):

        def count(request: Any, event_name: str, **_: Any) -> None:  # noqa: ANN401 - botocore's own
            del request
            counted[event_name.rpartition(".")[2]] += 1

        store._client.meta.events.register("before-send.s3", count)  # noqa: SLF001 - nothing else sees each
    return counted
