"""Errors only this package raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import ErrorKind, FlinkstyleError

if TYPE_CHECKING:
    from collections.abc import Collection

REPLAYS = "Nothing of this attempt is visible to read_committed readers; Spark runs the batch again."


class ProducerFencedError(FlinkstyleError):
    """The broker ended the transaction: another attempt began, or it took too long."""

    code = "PRODUCER_FENCED"
    retryable = True


class TransactionLeftOpenError(FlinkstyleError):
    """Brokers have not ended a transaction in its partitions, though they have answered that it is ended."""

    code = "TRANSACTION_LEFT_OPEN"
    retryable = True

    @classmethod
    def of(cls, control_topic: str, shards: Collection[int]) -> TransactionLeftOpenError:
        """Name the shards."""
        names = ", ".join(map(str, sorted(shards)))
        return cls(
            f"Brokers have left the transactions of shards {names} open in {control_topic}: partitions were "
            "without a leader when they were to be ended (Kafka 4.3 and 4.4 forget them then).",
            state_after="The batch is not complete, and is run again.",
            remedy="See that every partition of the control topic and of the output has a leader. Do not end "
            "the transactions by hand: the sink does, and only then knows what is readable.",
        )

    @classmethod
    def of_others(cls, topic: str) -> TransactionLeftOpenError:
        """Name the topic, where another producer's transaction hides what is in the output."""
        return cls(
            f"A transaction of another producer in {topic} does not end; until then it is unknown which of "
            "the sink's own records have to be written again.",
            state_after="The batch is not complete, and is run again.",
            remedy="Find the other producer that writes to the topic (flinkstyle transactions names it), and "
            "let it commit or end it.",
        )


SINK_LINEAGE = ErrorKind(
    code="SINK_LINEAGE",
    means="The markers of a lineage are not where this query's batches say they should be.",
    state_after="Nothing was written.",
)

SINK_INPUT = ErrorKind(
    code="SINK_INPUT",
    means="The rows of a batch cannot be records: a column is missing, or of another type.",
)

SINK_CONFIG = ErrorKind(
    code="SINK_CONFIG",
    means="The sink, Spark or the broker is set up so that the sink could not keep its promise.",
)

TRANSACTION_TIMEOUT = ErrorKind(
    code="TRANSACTION_TIMEOUT",
    means="The sink's transactions may take longer than the broker allows.",
)

CONTROL_TOPIC = ErrorKind(
    code="CONTROL_TOPIC",
    means="The topic with the markers is missing, or would not keep them.",
)

SHARD_COUNT = ErrorKind(
    code="SHARD_COUNT",
    means="The number of shards was changed in the middle of a batch.",
)

REPLAY_DIFFERS = ErrorKind(
    code="REPLAY_DIFFERS",
    means="A batch that is written again has other records than the first time: its plan is not "
    "deterministic.",
)

PLAN_CHANGED = ErrorKind(
    code="PLAN_CHANGED",
    means="A batch that is written again is to have other columns, or to go to another topic.",
)

TRANSACTION_ABORTED = ErrorKind(
    code="TRANSACTION_ABORTED",
    means="A transaction met an error that is not known to last, and was given up.",
    transient=True,
)

OUTPUT_UNKNOWN = ErrorKind(
    code="OUTPUT_UNKNOWN",
    means="Brokers have left a transaction open, and it is unknown what readers get of its batch.",
    problem="What brokers have left open of lineage {lineage} was expected to be found in one topic, "
    "but {why}.",
    state_after="The batch is not complete. A part of it may be readable, another part be open.",
    remedy="End the transactions (kafka-transactions.sh find-hanging, then abort) and start the job "
    "with rewind='fork' or 're-emit': what is readable of this batch appears twice.",
)

RUN_SUPERSEDED = ErrorKind(
    code="RUN_SUPERSEDED",
    means="A later run of the query has claimed the shards of its sink.",
    problem="Shard {shard} of lineage {lineage} is not this run's to write any more: another run has begun "
    "to write since (or the control topic was deleted).",
    state_after="Nothing of this attempt is visible to read_committed readers.",
    remedy="Nothing is to be done if the other run is the one that is wanted; else end it, and start "
    "this one again.",
)

PRODUCERS_POOL_EMPTY = ErrorKind(
    code="PRODUCERS_POOL_EMPTY",
    means="A worker has as many open producers as it may have.",
)

INPUT_CUT = ErrorKind(
    code="INPUT_CUT",
    means="Spark stopped giving a task its rows before their end.",
    problem="A task was expected to be given all of its rows, but Spark's JVM broke off on the way: it "
    "was killed, or could not read on.",
    state_after=REPLAYS,
    remedy="Nothing, if the job continues; otherwise find out why the executor failed.",
    transient=True,
)

RECORD_REFUSED = ErrorKind(
    code="RECORD_REFUSED",
    means="The broker, or the client, will not take a record.",
)


def replay_differs(batch_id: int, shards: Collection[int]) -> FlinkstyleError:
    """Name the batch and the shards."""
    names = ", ".join(map(str, sorted(shards)))
    return REPLAY_DIFFERS.with_text(
        f"Batch {batch_id}, run again, was expected to have the records that shards {names} committed "
        "the first time, but has others: its plan is not deterministic, or was changed in between.",
        state_after=f"Those shards hold what the first run wrote, the others nothing of the batch. {REPLAYS}",
        remedy="Take what is not deterministic (rand, current_timestamp, a changed lookup table) out "
        "of the plan and start the job again; or fork from a savepoint before the batch, which writes "
        "it a second time.",
    )


def plan_changed(batch_id: int, shards: Collection[int]) -> FlinkstyleError:
    """Name the batch and the shards."""
    names = ", ".join(map(str, sorted(shards)))
    return PLAN_CHANGED.with_text(
        f"Batch {batch_id}, run again, was expected to have the columns, topic and number of shards that "
        f"shards {names} committed it with, but has others: the job was changed while the batch was "
        "half written.",
        state_after=f"Those shards hold what the first run wrote, the others nothing of the batch. {REPLAYS}",
        remedy="Start the job once as it was until the batch has completed, stop it, then change it.",
    )


def producers_pool_empty(transactional_id: str, size: int, taken: Collection[str]) -> FlinkstyleError:
    """Name the size, its setting and who has the producers."""
    return PRODUCERS_POOL_EMPTY.with_text(
        f"Transaction {transactional_id} needs a producer, but this worker may have {size} open "
        f"(producer_pool_size), and has, for {', '.join(sorted(taken))}.",
        state_after=REPLAYS,
        remedy="Write fewer shards at the same time in one process, or raise producer_pool_size.",
    )
