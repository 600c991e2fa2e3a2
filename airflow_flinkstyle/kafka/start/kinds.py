"""The start positions a person can pick. Pure; ``resolve`` makes offsets of them.

A start that was read from a file or a savepoint is stored as its table: those may change or vanish.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.errors import NOTHING_CHANGED
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.python_versions import assert_never
from airflow_flinkstyle.typed_json import stored, stored_as
from airflow_flinkstyle.types import KafkaId

if TYPE_CHECKING:
    from collections.abc import Collection

    from airflow_flinkstyle.types import TopicPartition

IfMissing = Literal["refuse", "earliest", "latest"]


@stored
@dataclass(frozen=True, slots=True)
class Earliest:
    """The oldest record that exists."""

    kind: ClassVar[str] = "earliest"


@stored
@dataclass(frozen=True, slots=True)
class Latest:
    """Behind the last record: only what is written from now on."""

    kind: ClassVar[str] = "latest"


@stored
@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first record, in the order of the log, whose timestamp is at or after this moment.

    Timestamps are the records' own, so they may go back and forth: later records can be older than the
    moment, and records before the found one never are at or after it.
    """

    kind: ClassVar[str] = "timestamp"

    ms: int
    """Epoch milliseconds."""
    after_last: Literal["refuse", "latest"] = "refuse"
    """For a partition all of whose records are older. An empty one starts at its end either way."""


@stored
@dataclass(frozen=True, slots=True)
class FromGroup:
    """The offsets that a consumer group has committed on this cluster; nothing proves them."""

    kind: ClassVar[str] = "group"

    group: str
    missing: IfMissing = "refuse"
    """For a partition the group has not committed."""


@stored
@dataclass(frozen=True, slots=True)
class LogIdentity:
    """Which log the offsets of a topic count in."""

    cluster_id: KafkaId | None
    topic_id: KafkaId | None


@stored
@dataclass(frozen=True, slots=True)
class AtOffsets:
    """Offsets from a table; a partition that it leaves out is refused."""

    kind: ClassVar[str] = "offsets"

    offsets: Offsets
    origin: str = "offsets"
    """Where the table is from, for the plan: ``offsets``, ``file:...``, ``savepoint:...``."""
    logs: Mapping[str, LogIdentity] = field(default_factory=dict)
    """By topic, where the table knows it; another log then refuses the offsets."""


@stored
@dataclass(frozen=True, slots=True)
class Shifted:
    """The position so far, moved back (negative) or on; exactly one of the two is given."""

    kind: ClassVar[str] = "shift"

    records: int | None = None
    """Records as the job's own reader sees them; neither transaction markers nor compacted gaps count."""
    ms: int | None = None
    """Added to the timestamp of the record at the position; ``AtTimestamp``'s rule finds the new one."""

    def __post_init__(self) -> None:
        if (self.records is None) == (self.ms is None):
            raise BadInputError(
                f"A shift should be by records or by a time, but there is {self.records} and {self.ms}.",
                state_after=NOTHING_CHANGED,
                remedy="Give exactly one, for example shift:-100 or shift:-5m.",
            )


Start = Earliest | Latest | AtTimestamp | FromGroup | AtOffsets | Shifted


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredRules:
    """``StartRules`` in JSON, whose keys are texts: partitions by topic, then by number."""

    default: Start | None
    topics: Mapping[str, Start]
    partitions: Mapping[str, Mapping[str, Start]]


@stored_as(_StoredRules)
@dataclass(frozen=True, slots=True, kw_only=True)
class StartRules:
    """Which start each partition takes: its own, else its topic's, else the default."""

    default: Start | None = None
    """None refuses partitions that no other rule names."""
    topics: Mapping[str, Start] = field(default_factory=dict)
    """By the topic's name on the cluster where the job will read."""
    partitions: Mapping[TopicPartition, Start] = field(default_factory=dict)

    @classmethod
    def from_stored(cls, rules: _StoredRules) -> StartRules:
        """Read what ``to_stored`` made."""
        partitions = {
            (topic, int(number)): start
            for topic, numbers in rules.partitions.items()
            for number, start in numbers.items()
        }
        return cls(default=rules.default, topics=rules.topics, partitions=partitions)

    def to_stored(self) -> _StoredRules:
        """Return what ``from_stored`` reads back."""
        by_topic: dict[str, dict[str, Start]] = {}
        for (topic, number), start in self.partitions.items():
            by_topic.setdefault(topic, {})[str(number)] = start
        return _StoredRules(default=self.default, topics=self.topics, partitions=by_topic)

    def of(self, partition: TopicPartition) -> Start | None:
        """Return the rule of one partition, or None."""
        return self.partitions.get(partition) or self.topics.get(partition[0]) or self.default

    @property
    def all(self) -> tuple[Start, ...]:
        """Every start that is named."""
        named = (*self.topics.values(), *self.partitions.values())
        return named if self.default is None else (self.default, *named)

    def about(self, topics: Collection[str]) -> StartRules:
        """Return the rules as far as they concern these topics, for one of several sources."""
        return replace(
            self,
            topics={topic: start for topic, start in self.topics.items() if topic in topics},
            partitions={tp: start for tp, start in self.partitions.items() if tp[0] in topics},
        )


def text_of(start: Start) -> str:
    """Return a rule as people write it; of a table only where it is from."""
    match start:
        case Earliest():
            return "earliest"
        case Latest():
            return "latest"
        case AtTimestamp(ms, after_last):
            return f"timestamp:{ms}" + (f":after_last={after_last}" if after_last != "refuse" else "")
        case FromGroup(group, missing):
            return f"group:{group}" + (f":missing={missing}" if missing != "refuse" else "")
        case AtOffsets(_, origin):
            return origin
        case Shifted(records, ms):
            return f"shift:{records:+d}" if records is not None else f"shift:{ms:+d}ms"
        case _:
            assert_never(start)
