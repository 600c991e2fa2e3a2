"""What stores, brokers, Spark and clusters answer instead of doing what they are asked: all their errors.

The answers are those of the real clients, and the package's own code makes its errors of them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from airflow_flinkstyle.agent.core.causes import FINAL_CLASSES, FINAL_TYPES
from airflow_flinkstyle.jobs.deployments.kubernetes import driver as kubernetes_driver
from airflow_flinkstyle.jobs.deployments.refusals import FINAL_STATUSES, not_taken, why_final
from airflow_flinkstyle.kafka.final_codes import FINAL
from airflow_flinkstyle.kafka.settings import KafkaCluster, translated_errors
from airflow_flinkstyle.sinks.producer import translated as translated_by_sink
from airflow_flinkstyle.sinks.settings import SinkSettings
from airflow_flinkstyle.storage.s3_errors import translated as translated_by_store
from testbed.error_broker import error_names
from testbed.java import Thrown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from testbed.histories.machine import Machine

Place = Literal["store", "kafka", "source", "sink", "submit", "look"]
"""Where it is answered: a call to a savepoint root or a checkpoint, a question of callers to Kafka, a batch
that is read, a batch that is written, a driver that is handed over, a look at one."""

_STATUSES = range(300, 600)
_OF_THE_OBJECT = frozenset({304, 404, 412})
"""Answers of S3 about the object itself, which are no failures: that it is unchanged, missing, or changed."""
S3_CODES: Mapping[str, int] = {
    "AccessDenied": 403,
    "InvalidAccessKeyId": 403,
    "SignatureDoesNotMatch": 403,
    "InvalidToken": 400,
    "ExpiredToken": 400,
    "RequestTimeTooSkewed": 403,
    "NoSuchBucket": 404,
    "NoSuchUpload": 404,
    "SlowDown": 503,
    "ServiceUnavailable": 503,
    "InternalError": 500,
    "RequestTimeout": 400,
    "Throttling": 400,
    "ThrottlingException": 400,
    "KMS.ThrottlingException": 400,
    "TooManyRequests": 429,
    "OperationAborted": 409,
    "ConditionalRequestConflict": 409,
    "BucketAlreadyOwnedByYou": 409,
    "InvalidRequest": 400,
    "InvalidArgument": 400,
    "MalformedXML": 400,
    "EntityTooLarge": 400,
    "KeyTooLongError": 400,
    "MethodNotAllowed": 405,
    "NotImplemented": 501,
    "BadRequest": 400,
    "PermanentRedirect": 301,
    "TemporaryRedirect": 307,
    "AuthorizationHeaderMalformed": 400,
    "QuotaExceeded": 403,
    "InvalidObjectState": 403,
    "XMinioStorageFull": 507,
    "RestoreInProgress": 409,
}
"""Codes of S3 services beside the bare status, as AWS, MinIO and Ceph answer with them."""
_S3_FINAL = frozenset(
    {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "NoSuchBucket"}
)
_DENIED = frozenset({401, 403})
JAVA_PASSES = (
    *("java.io.IOException", "java.io.EOFException", "java.io.InterruptedIOException"),
    *("java.net.ConnectException", "java.net.UnknownHostException", "java.net.SocketTimeoutException"),
    *(
        "java.net.NoRouteToHostException",
        "java.util.concurrent.TimeoutException",
        "java.lang.OutOfMemoryError",
    ),
    *("java.lang.IllegalStateException", "java.lang.NullPointerException", "java.lang.InterruptedException"),
    *("org.apache.spark.SparkException", "org.apache.spark.rpc.RpcTimeoutException"),
    *("org.apache.hadoop.ipc.RetriableException", "org.apache.hadoop.ipc.StandbyException"),
    *(
        "org.apache.hadoop.fs.s3a.AWSServiceIOException",
        "org.apache.hadoop.fs.s3a.AWSServiceThrottledException",
    ),
    *(
        f"org.apache.kafka.common.errors.{name}Exception"
        for name in (
            *(
                "Timeout",
                "Disconnect",
                "Network",
                "NotLeaderOrFollower",
                "LeaderNotAvailable",
                "UnknownServer",
            ),
            *("CoordinatorNotAvailable", "CoordinatorLoadInProgress", "NotCoordinator", "CorruptRecord"),
            *("KafkaStorage", "OutOfOrderSequence", "ProducerFenced", "InvalidProducerEpoch", "Interrupt"),
            *(
                "ThrottlingQuotaExceeded",
                "NotEnoughReplicas",
                "NotEnoughReplicasAfterAppend",
                "BrokerNotAvailable",
            ),
            *(
                "FencedLeaderEpoch",
                "UnknownLeaderEpoch",
                "OffsetNotAvailable",
                "ReplicaNotAvailable",
                "Wakeup",
            ),
        )
    ),
    "an.exception.that.NobodyKnowsException",
)
"""Classes of Java's exceptions that are not on the list."""
PYTHON_PASSES = (ConnectionError, TimeoutError, OSError, RuntimeError, EOFError, MemoryError, StopIteration)
SAID_BY_SUBMIT: Mapping[str, bool] = {
    'Exception in thread "main" java.net.ConnectException: Call From a to rm:8032 failed': True,
    'Exception in thread "main" java.net.UnknownHostException: rm': True,
    "Caused by: org.apache.hadoop.ipc.RetriableException: NameNode is in safe mode": True,
    "Caused by: org.apache.hadoop.ipc.StandbyException: state standby": True,
    "spark-submit did not end within 600 s": True,
    "Caused by: YarnException: submitted by user etl to unknown queue: nightly": False,
    "Caused by: org.apache.hadoop.security.AccessControlException: User etl cannot submit": False,
    "Caused by: InvalidResourceRequestException: Invalid resource request": False,
    'Exception in thread "main" java.lang.IllegalArgumentException: 9 GB is above the max threshold': False,
    "Error: Unrecognized option: --mastr": False,
    "JAVA_HOME is not set": False,
    "/opt/spark/bin/spark-submit could not be run: [Errno 2] No such file or directory": False,
    # Of a real YARN: Spark 4.2's spark-submit, each asked for what its last words name.
    'Exception in thread "main" '
    "YarnException: Failed to submit application_1 to YARN: it was submitted by user root to "
    "unknown queue: nope": False,
    'Exception in thread "main" '
    "IllegalArgumentException: Required executor memory (65536 MB), overhead (6553 MB), "
    "and PySpark memory (0 MB) is above the max threshold (2048 MB) of this cluster!": False,
    'Exception in thread "main" '
    "org.apache.hadoop.yarn.exceptions.InvalidResourceRequestException: Invalid resource request! Cannot "
    "allocate containers as requested resource is greater than maximum allowed allocation": False,
    'Exception in thread "main" '
    "org.apache.hadoop.yarn.exceptions.InvalidLabelResourceRequestException: Invalid resource request, node "
    "label not enabled but request contains label expression": False,
    'Exception in thread "main" java.io.FileNotFoundException: File file:/nowhere/x.py does not exist': False,
    'Exception in thread "main" '
    "java.lang.RuntimeException: [unresolved dependency: a.b#c;1: not found]": True,
    'Exception in thread "main" '
    "java.lang.IllegalArgumentException: java.net.UnknownHostException: nowhere.invalid": True,
    'Exception in thread "main" '
    "java.lang.IllegalArgumentException: requirement failed: Keytab file: /nowhere/k does not exist": True,
    'Exception in thread "main" java.net.ConnectException: Your endpoint configuration is wrong': True,
}
"""What ``spark-submit`` ends with, and whether that may pass."""
_SETTINGS = {"INVALID_TRANSACTION_TIMEOUT": "transaction.max.timeout.ms"}
"""Codes of which an error names the setting."""
_KAFKA = KafkaCluster(name="old", config={"bootstrap.servers": "old:9092"})
_SINK = SinkSettings(
    cluster=_KAFKA,
    topic="out",
    lineage="line",
    shards=1,
    control_topic="flinkstyle-line.internal",
    run="this",
)


class QueryError(Exception):
    """What a query of a driver has failed of, as Spark or Python raised it: its cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One error of one system."""

    system: str
    """For people: which system, and how its answers are told apart."""
    name: str
    """Among those of its system."""
    place: Place
    is_final: bool
    """Whether the list of what lasts has it, read from the list alone."""
    error: Callable[[str], Exception]
    """What the caller of a place gets, told what was being done."""
    said: str = ""
    """In which words the system itself says it; empty for its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """An answer that comes to some calls of a place, while one thing is asked of a job."""

    system: str
    name: str
    at: int
    """The first of these calls, from 1, of whoever makes them."""
    lasts_s: float = 0.0
    """How long every later one is answered so, too; 0: no later one."""
    took_effect: bool = False
    """What was asked for has happened all the same."""


class Troubles:
    """Counts the calls of each place, and lets the trouble that is told of come to some."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.counts: Counter[str] = Counter()
        self._trouble: Trouble | None = None
        self._answer: Answer | None = None
        self._until_s: float | None = None
        self.came = 0
        """How many calls were answered so."""

    def tell(self, trouble: Trouble | None) -> None:
        """Begin to count, and let a trouble come from now on; None: nothing comes any more."""
        self.counts.clear()
        self._trouble, self._until_s, self.came = trouble, None, 0
        self._answer = ANSWERS[trouble.system, trouble.name] if trouble is not None else None

    def at(self, place: Place, doing: str) -> tuple[Exception, bool] | None:
        """Return the error of a call, and whether it takes effect all the same; None if it goes well."""
        if self._machine.process is None:  # the history itself looks
            return None
        self.counts[place] += 1
        trouble, answer = self._trouble, self._answer
        if trouble is None or answer is None or answer.place != place:
            return None
        if self._until_s is None:
            if self.counts[place] < trouble.at:
                return None
            self._until_s = self._machine.now_s + trouble.lasts_s
        elif trouble.lasts_s == 0.0 or self._machine.now_s > self._until_s:
            return None
        self.came += 1
        return answer.error(doing), trouble.took_effect

    def come(self, place: Place, doing: str) -> None:
        """Raise the error of a call that only asks."""
        found = self.at(place, doing)
        if found is not None:
            raise found[0]


def _of_store(code: str, status: int) -> Callable[[str], Exception]:
    def error(doing: str) -> Exception:
        from botocore.exceptions import ClientError

        answer: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
        what, _, key = doing.partition(" ")

        def call() -> None:
            with translated_by_store(what, key, uri="s3://bucket", where="s3://bucket"):
                raise ClientError(answer, "GetObject")

        return _raised(call)

    return error


def _of_client(number: int) -> Callable[[str], Exception]:
    def error(_: str) -> Exception:
        from confluent_kafka import KafkaError, KafkaException

        def call() -> None:
            with translated_errors(_KAFKA, []):
                raise KafkaException(KafkaError(number))

        return _raised(call)

    return error


def _of_producer(number: int) -> Callable[[str], Exception]:
    def error(_: str) -> Exception:
        from confluent_kafka import KafkaError, KafkaException

        def call() -> None:
            with translated_by_sink(_SINK, "line-0"):
                raise KafkaException(KafkaError(number))

        return _raised(call)

    return error


def _raised(call: Callable[[], None]) -> Exception:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - whatever the package makes of it
        return error
    raise AssertionError("it raises")


def _of_java(name: str) -> Callable[[str], Exception]:
    def error(_: str) -> Exception:
        spark = RuntimeError(f"the query has failed: {name}")
        vars(spark)["_origin"] = Thrown("org.apache.spark.SparkException", cause=Thrown(name))
        return _of_query(spark)

    return error


def _of_python(kind: type[BaseException]) -> Callable[[str], Exception]:
    def error(_: str) -> Exception:
        if issubclass(kind, UnicodeError):
            return _of_query(kind("ascii", b"a" if kind is UnicodeDecodeError else "a", 0, 1, "told to"))
        return _of_query(kind("it was told to fail"))

    return error


def _of_query(cause: BaseException) -> QueryError:
    error = QueryError(str(cause))
    error.__cause__ = cause
    return error


def _of_api_server(status: int) -> Callable[[str], Exception]:
    return lambda _: kubernetes_driver.failed(f"the API server answered {status}.", status=status)


def _of_submit(said: str) -> Callable[[str], Exception]:
    return lambda _: not_taken(f"{said}.", by="YARN", remedy="Correct the connection.", why=why_final(said))


def _of_look(status: int) -> Callable[[str], Exception]:
    return lambda _: ConnectionError(f"http://cluster answered {status}")


def _all() -> Iterator[Answer]:
    from confluent_kafka import KafkaError

    for status in (status for status in _STATUSES if status >= 400 and status not in _OF_THE_OBJECT):
        is_final = status in _DENIED
        yield Answer(
            system="S3 by HTTP status",
            name=str(status),
            place="store",
            is_final=is_final,
            error=_of_store(str(status), status),
        )
    for code, status in S3_CODES.items():
        is_final = code in _S3_FINAL
        yield Answer(
            system="S3 by code", name=code, place="store", is_final=is_final, error=_of_store(code, status)
        )
    for name, number in error_names().items():
        yield Answer(
            system="Kafka, asked by callers",
            name=name,
            place="kafka",
            is_final=name in FINAL,
            error=_of_client(number),
            said=KafkaError(number).str(),
        )
        yield Answer(
            system="Kafka, written by the sink",
            name=name,
            place="sink",
            is_final=name in FINAL,
            error=_of_producer(number),
            said=_SETTINGS.get(name) or KafkaError(number).str(),
        )
    for name in (*FINAL_CLASSES, *JAVA_PASSES):
        is_final = name in FINAL_CLASSES
        yield Answer(
            system="Java, in a query", name=name, place="source", is_final=is_final, error=_of_java(name)
        )
    for kind in (*FINAL_TYPES, *PYTHON_PASSES):
        yield Answer(
            system="Python, in a query",
            name=kind.__name__,
            place="source",
            is_final=kind in FINAL_TYPES,
            error=_of_python(kind),
        )
    for status in _STATUSES:
        yield Answer(
            system="Kubernetes takes no driver, by HTTP status",
            name=str(status),
            place="submit",
            is_final=status in FINAL_STATUSES,
            error=_of_api_server(status),
        )
        yield Answer(
            system="a cluster tells nothing of a driver, by HTTP status",
            name=str(status),
            place="look",
            is_final=False,
            error=_of_look(status),
        )
    for said, passes in SAID_BY_SUBMIT.items():
        yield Answer(
            system="spark-submit takes no driver",
            name=said,
            place="submit",
            is_final=not passes,
            error=_of_submit(said),
        )


@cache
def _by_name() -> dict[tuple[str, str], Answer]:
    return {(answer.system, answer.name): answer for answer in _all()}


ANSWERS: Mapping[tuple[str, str], Answer] = _by_name()
"""System and name -> the answer; every one there is."""
