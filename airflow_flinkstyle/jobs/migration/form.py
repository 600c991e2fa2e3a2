"""What a person answers about a migration: one form, by the names of its fields.

Imports no reader of its fields, so that a DAG's file that names it is parsed quickly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationForm:
    """A person's answers about a migration; the operators' ``migration`` has these names."""

    job: str
    source_kafka_conn_id: str | None = None
    """The cluster to leave; None: the one that the job reads, among those that jobs may use."""
    target_kafka_conn_id: str = ""
    mirror: Mapping[str, Any] | None = None
    """``MirrorSettings`` by its fields' names. Missing aliases are read from MirrorMaker's internal
    topics, where positions are to be proved; ``none`` as an alias says that there is no mirror."""
    rename: Mapping[str, str] | None = None
    """Source topic -> target topic, or several with commas, beyond what the mirror's policy renames."""
    way: str = "proved"
    """How sources move: ``proved``, ``new_identity`` or ``producers_first``."""
    start: str | Mapping[str, Any] | None = None
    """Where a source that drops its position begins, as ``kafka.start.text`` reads it."""
    topology: str = "refuse"
    """``repartitioned``: topics whose partitions do not fit one by one begin at ``start``."""
    sources: Mapping[str, Mapping[str, Any]] | None = None
    """``query/source`` -> any of ``way``, ``start``, ``topology``, where they differ."""
    fence: str | Mapping[str, Any] = "passive"
    """``acl``: producers are also kept away by ACL; see ``kafka.fence.fences.parse_fence``."""
    fence_spare: Sequence[str] | str = ()
    """Principals that an ``acl`` fence leaves alone."""
    group: str | None = None
    """Consumer group whose offsets on the target are set after the move."""
    isolation: str | None = None
    """The job's own ``kafka.isolation.level``; None: as it reads now."""
    allow: Sequence[str] | str = ("exact",)
    producer_switch: str | None = None
    script_servers: str | None = None
    """``kafka.bootstrap.servers`` as the script writes it; None: as the running job reports it, else as
    the source's connection has it."""
    kafka_options: Mapping[str, str] | None = None
    """More options of Spark's Kafka source on the target; recorded, so no secrets."""
    timeouts: Mapping[str, float] | None = None
    """``CutoverSettings`` by its fields' names."""
    spark_conn_id: str | None = None
    """Where the next driver runs; None: where the job runs now."""
    rehearse_batches: int | str = 2
    """How many batches of each query the next driver tries on a copy before anything is held, on the
    newest records of the target, writing nothing; 0: none."""
    rehearse_records: int | str = 10_000
    """How many records such a batch reads at most."""
    allow_untested: bool | str = False
    """Move all the same if a query found no rows to read in them."""
    back: bool = False
    """Producers know the two clusters by each other's names: it reverses an earlier migration."""

    unknown: Mapping[str, Any] = field(default_factory=dict)
    """Answers by other names: refused where the form is read, but not once a window has begun."""

    @classmethod
    def of(cls, job: str, answers: object) -> Self:
        """Take the answers as an operator has them, by name; refuses none."""
        given: Mapping[str, Any] = answers if isinstance(answers, Mapping) else {"migration": answers}
        names = {item.name for item in fields(cls)} - {"job", "unknown"}
        return cls(
            job=job,
            unknown={str(name): answer for name, answer in given.items() if name not in names},
            **{name: answer for name, answer in given.items() if name in names},
        )

    def answers(self) -> dict[str, Any]:
        """Return the answers that differ from the defaults, by name; ``of`` takes them."""
        given = ((item, getattr(self, item.name)) for item in fields(self) if item.name != "job")
        return {
            **{item.name: value for item, value in given if item.name != "unknown" and value != item.default},
            **self.unknown,
        }

    def told(self) -> dict[str, Any]:
        """Return the answers as plain values, the same for equal answers."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self), default=str))
        return {**values.pop("unknown"), **values}
