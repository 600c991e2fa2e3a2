"""Errors only this package raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import ErrorKind, FlinkstyleError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

NOTHING_CHANGED = "Nothing was written to either cluster."
_SHOWN = 8
"""How many partitions a message names before it only counts."""


def name_partitions(partitions: Collection[tuple[str, int]]) -> str:
    """Return ``topic-0, topic-1, ... and 12 more`` for a message."""
    shown = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(partitions)[:_SHOWN])
    more = len(partitions) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


class ClusterUnreachableError(FlinkstyleError):
    """No broker of the cluster answered in time."""

    code = "CLUSTER_UNREACHABLE"
    retryable = True


class ClusterDeniedError(FlinkstyleError):
    """The cluster answered, and rejected the credentials or lacks a permission."""

    code = "CLUSTER_DENIED"


class KafkaAnswerError(FlinkstyleError):
    """The cluster answered with an error that may pass by itself."""

    code = "KAFKA_ANSWER"
    retryable = True


class TopicMissingError(FlinkstyleError):
    """A topic that should exist does not."""

    code = "TOPIC_MISSING"

    @classmethod
    def on(cls, cluster: str, topics: Collection[str]) -> TopicMissingError:
        """Name the cluster and the topics."""
        return cls(
            f"Cluster {cluster} was expected to have the topics {', '.join(sorted(topics))}, "
            "but they do not exist there.",
            state_after=NOTHING_CHANGED,
            remedy="Check the rename map (MirrorMaker's replication policy), that the topics are mirrored, "
            "and that the credentials may describe them.",
        )


class TopicRecreatedError(FlinkstyleError):
    """A topic has the same name and another id: it was deleted and created again."""

    code = "TOPIC_RECREATED"

    @classmethod
    def between(
        cls, cluster: str, topic: str, *, expected: str | None, found: str | None
    ) -> TopicRecreatedError:
        """Name both ids."""
        return cls(
            f"Topic {topic} on {cluster} was expected to have id {expected}, but has id {found}: "
            "it was deleted and created again, so old positions mean nothing there.",
            state_after=NOTHING_CHANGED,
            remedy="Find out who did it; then choose where the job begins in the new topic: replace this "
            "source in its savepoint (ChangeSourcesOperator), or start the job fresh.",
        )


class PartitionSetError(FlinkstyleError):
    """Positions and live partitions are not the same set."""

    code = "PARTITION_SET"

    @classmethod
    def between(
        cls, cluster: str, *, missing: Collection[tuple[str, int]], unknown: Collection[tuple[str, int]]
    ) -> PartitionSetError:
        """Name live partitions without a position, and positions without a live partition."""
        parts = []
        if missing:
            parts.append(f"no position for the live partitions {name_partitions(missing)}")
        if unknown:
            parts.append(f"positions for partitions that do not exist: {name_partitions(unknown)}")
        return cls(
            f"Each live partition of {cluster} needs exactly one position; there is {' and '.join(parts)}.",
            state_after=NOTHING_CHANGED,
            remedy="Give a position for every partition and no other (for a start: ChangeSourcesOperator, "
            "replace). Spark would silently read a partition without one from its beginning.",
        )


class MirrorPositionMissingError(FlinkstyleError):
    """MirrorMaker's offsets topic does not exist, or has no position for a partition."""

    code = "MIRROR_POSITION_MISSING"


class MirrorTopicMissingError(FlinkstyleError):
    """A topic of MirrorMaker's syncs or checkpoints is not on the cluster that should have it."""

    code = "MIRROR_TOPIC_MISSING"

    @classmethod
    def between(cls, topic: str, what: str, cluster: str) -> MirrorTopicMissingError:
        """Name the topic, what it should hold, and the cluster that should have it."""
        return cls(
            f"MirrorMaker's {what} were expected in topic {topic} on {cluster}, but there is no such topic.",
            state_after=NOTHING_CHANGED,
            remedy="Start MirrorMaker 2 and let it emit them, or set the mirror's source_alias, target_alias "
            "and syncs_on to what it really uses; a proof needs neither syncs nor checkpoints.",
        )


KAFKA_REQUEST = ErrorKind(
    code="KAFKA_REQUEST",
    means="The cluster refused a request, and would refuse it again.",
)

CLUSTER_MISMATCH = ErrorKind(
    code="CLUSTER_MISMATCH",
    means="The cluster that answers is not the one the positions belong to.",
    problem="{what} belongs to Kafka cluster {expected}, but bootstrap.servers reach cluster {found}.",
    state_after=NOTHING_CHANGED,
    remedy="Correct the connection's bootstrap.servers, or take a savepoint on the cluster that is really "
    "used.",
)

OFFSET_BEFORE_START = ErrorKind(
    code="OFFSET_BEFORE_START",
    means="A position lies before the log's start: the records it asks for are deleted.",
    state_after=NOTHING_CHANGED,
)

OFFSET_BEYOND_END = ErrorKind(
    code="OFFSET_BEYOND_END",
    means="A position lies beyond the log's end.",
    state_after=NOTHING_CHANGED,
)

FENCE_DOWN = ErrorKind(
    code="FENCE_DOWN",
    means="Entries of a fence that was put up are gone.",
)

GROUP_IN_USE = ErrorKind(
    code="GROUP_IN_USE",
    means="A consumer group has members, who commit for it.",
)

GROUP_COMMIT = ErrorKind(
    code="GROUP_COMMIT",
    means="A cluster accepted a group's offsets for some partitions only.",
)

LOGIN_MISSING = ErrorKind(
    code="LOGIN_MISSING",
    means="A driver has to log in to a cluster, and was started without the login.",
    problem="The login of Kafka connection {connection} was expected in the environment ({variable}), "
    "found none: an override records the connection's name, never its settings.",
    state_after="Nothing was started.",
    remedy="Let Airflow start the driver (any sensor or operator of the job does), which reads the "
    "connection.",
)

MIRROR_START = ErrorKind(
    code="MIRROR_START",
    means="The positions at which a mirror is to begin could not be written.",
)

TRANSACTION_IN_USE = ErrorKind(
    code="TRANSACTION_IN_USE",
    means="The producer of a transaction that was to be aborted may still be at work.",
)

READ_STALLED = ErrorKind(
    code="READ_STALLED",
    means="Reading a range of a log did not end in time.",
    transient=True,
)

SECURITY_DISABLED = ErrorKind(
    code="SECURITY_DISABLED",
    means="The brokers have no authorizer, so no ACL can keep a producer from writing.",
)

FENCE_SCOPE = ErrorKind(
    code="FENCE_SCOPE",
    means="A fence as asked for would deny a principal that it should spare, or deny nobody.",
)

GROUP_MISSING = ErrorKind(
    code="GROUP_MISSING",
    means="A consumer group that should exist does not.",
)

LOG_TRUNCATED = ErrorKind(
    code="LOG_TRUNCATED",
    means="A log is shorter than it was: the cluster lost records it had acknowledged.",
)


def log_truncated(cluster: str, lost: Mapping[tuple[str, int], int]) -> FlinkstyleError:
    """Name the partitions and count the offsets."""
    return LOG_TRUNCATED.with_text(
        f"The logs of {cluster} should end where the plan saw them end, or later, but "
        f"{name_partitions(lost.keys())} end {sum(lost.values())} offsets before.",
        state_after=NOTHING_CHANGED,
        remedy="Find out what the cluster lost (an unclean leader election?), then plan again.",
    )
