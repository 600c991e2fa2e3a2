"""A broker that answers with any error one asks for: the one that librdkafka brings for its own tests.

It speaks Kafka's protocol over TCP, transactions included, and keeps what was written. It does not hide
what was aborted, so it tells nothing of who reads what: that needs a real broker.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PRODUCER, _BROKER, _ERROR_BYTES = 0, 1, 512


class Api(IntEnum):
    """Requests, by Kafka's own numbers."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    FIND_COORDINATOR = 10
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    END_TXN = 26


def error_names() -> dict[str, int]:
    """Return every error that this librdkafka knows, by name."""
    from confluent_kafka import KafkaError

    codes = (KafkaError(number) for number in range(-250, 250) if number)
    return {code.name(): code.code() for code in codes if not code.name().startswith("ERR_")}


class ErrorBroker:
    """One broker of librdkafka's mock cluster."""

    def __init__(self, library: ctypes.CDLL, cluster: int) -> None:
        self._library, self._cluster = library, ctypes.c_void_p(cluster)
        self.bootstrap: str = library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic with one copy of each partition."""
        self._library.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1)

    @contextmanager
    def answers(self, request: Api, code: int, times: int = 1) -> Iterator[None]:
        """Let the next requests of a kind, within the block, be answered with an error."""
        codes = (ctypes.c_int * times)(*[code] * times)
        push = self._library.rd_kafka_mock_push_request_errors_array
        push(self._cluster, ctypes.c_int16(request), ctypes.c_size_t(times), codes)
        try:
            yield
        finally:
            self._library.rd_kafka_mock_clear_request_errors(self._cluster, ctypes.c_int16(request))

    @contextmanager
    def away(self) -> Iterator[None]:
        """Be out of reach for the block."""
        self._library.rd_kafka_mock_broker_set_down(self._cluster, ctypes.c_int32(_BROKER))
        try:
            yield
        finally:
            self._library.rd_kafka_mock_broker_set_up(self._cluster, ctypes.c_int32(_BROKER))


@contextmanager
def error_broker() -> Iterator[ErrorBroker]:
    """Run a broker in this process."""
    library = _library()
    said = ctypes.create_string_buffer(_ERROR_BYTES)
    # It has no servers to connect to, and would say so.
    conf = ctypes.c_void_p(library.rd_kafka_conf_new())
    library.rd_kafka_conf_set(conf, b"log_level", b"0", said, ctypes.c_size_t(_ERROR_BYTES))
    handle = library.rd_kafka_new(_PRODUCER, conf, said, ctypes.c_size_t(_ERROR_BYTES))
    if not handle:
        raise RuntimeError(said.value.decode())
    cluster = library.rd_kafka_mock_cluster_new(ctypes.c_void_p(handle), 1)
    try:
        yield ErrorBroker(library, cluster)
    finally:
        library.rd_kafka_mock_cluster_destroy(ctypes.c_void_p(cluster))
        library.rd_kafka_destroy(ctypes.c_void_p(handle))


def _library() -> ctypes.CDLL:
    """Return the library that the client uses: the wheel brings its own."""
    found = importlib.util.find_spec("confluent_kafka")
    packages = [Path(place) for place in (found and found.submodule_search_locations) or ()]
    beside = [place.with_name("confluent_kafka.libs") for place in packages]
    brought = next((file for folder in beside for file in folder.glob("librdkafka*")), None)
    library = ctypes.CDLL(str(brought or ctypes.util.find_library("rdkafka")))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library
