"""A migration as it was approved: one value, parsed once, that every task and every try applies.

Nothing in it is resolved again by name: it holds a file's offsets, not its path. Clusters are the
exception: how to log in to them is a connection's secret, and no secret is stored. So it holds their ids,
to be compared.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.errors import FlinkstyleError, MessageFormatError
from airflow_flinkstyle.jobs.cutover.context import CutoverSettings
from airflow_flinkstyle.jobs.migration.kafka_side import LiveKafka
from airflow_flinkstyle.kafka.fence.fences import PASSIVE, FenceTerms
from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
from airflow_flinkstyle.kafka.policies import EXACT_ONLY, Policies, parse_policies
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.kafka.start.kinds import AtOffsets, text_of
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from airflow_flinkstyle.rewrite.rules import PROVED, SourceRule, StrategyRules
from airflow_flinkstyle.typed_json import decode, encode
from airflow_flinkstyle.wording import row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from typing_extensions import Self

    from airflow_flinkstyle.kafka.settings import Isolation
    from airflow_flinkstyle.kafka.start.kinds import Start, StartRules

FORMAT_VERSION = 1
_SHORT = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRef:
    """A cluster by the connection that leads to it."""

    conn_id: str
    servers: str
    """Where that led when the migration was approved: ``bootstrap.servers``, no login."""

    def without_login(self) -> KafkaCluster:
        """Return the cluster as far as no connection is needed."""
        return KafkaCluster(name=self.conn_id, config={"bootstrap.servers": self.servers})


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """What moves, from where, to where, and how."""

    job: str
    source: ClusterRef
    target: ClusterRef
    mirror: MirrorSettings | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    """Source topic -> target topic, or several with commas, beyond what the mirror's policy renames."""
    strategies: StrategyRules = PROVED
    isolation: Isolation = "read_uncommitted"
    """The job's own."""
    allow: Policies = EXACT_ONLY
    fence: FenceTerms = PASSIVE
    group: str | None = None
    """Consumer group whose offsets on the target are set after the move."""
    producer_switch: str
    """``store``, ``manual`` or ``module:attribute``."""
    script_servers: str
    """``kafka.bootstrap.servers`` as the script writes it."""
    kafka_options: Mapping[str, str] = field(default_factory=dict)
    """More options of Spark's Kafka source on the target; no secrets."""
    settings: CutoverSettings = field(default_factory=CutoverSettings)
    spark_conn_id: str | None = None
    """Where the next driver runs; None: where the job runs now."""
    rehearse: Rehearse | None = None
    """What the next driver tries on the target before anything is held."""
    back: bool = False
    """Producers know the two clusters by each other's names: it reverses an earlier migration."""

    def on(self, *, old: KafkaCluster, new: KafkaCluster) -> LiveKafka:
        """Return both clusters, asked as patiently as the window may wait, and the rules between them."""
        old, new = (replace(one, patience_s=self.settings.broker_timeout_s) for one in (old, new))
        return LiveKafka(
            old=old,
            new=new,
            mirror=self.mirror,
            rename=self.rename,
            isolation=self.isolation,
            allow=self.allow,
            strategies=self.strategies,
            fence=self.fence.around(old),
        )

    def as_fields(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {
            **values,
            "source": asdict(self.source),
            "target": asdict(self.target),
            "mirror": None if self.mirror is None else asdict(self.mirror),
            "rename": dict(self.rename),
            "strategies": encode(self.strategies),
            "allow": self.allow.describe(),
            "fence": asdict(self.fence),
            "kafka_options": dict(self.kafka_options),
            "settings": asdict(self.settings),
            "rehearse": None if self.rehearse is None else asdict(self.rehearse),
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Read what ``as_fields`` made, once it has been through JSON."""
        mirror, fence, rehearse = fields["mirror"], fields["fence"], fields["rehearse"]
        parsed = {
            "source": ClusterRef(**fields["source"]),
            "target": ClusterRef(**fields["target"]),
            "mirror": None if mirror is None else MirrorSettings(**_tuples(mirror)),
            "strategies": decode(StrategyRules, fields["strategies"]),
            "allow": parse_policies(fields["allow"]),
            "fence": FenceTerms(**_tuples(fence)),
            "settings": CutoverSettings(**fields["settings"]),
            "rehearse": None if rehearse is None else Rehearse(**rehearse),
        }
        return cls(**{**fields, **parsed})


@dataclass(frozen=True, slots=True, kw_only=True)
class Approved:
    """What a person was shown before the approval, and what is applied."""

    migration: Migration
    told: Mapping[str, Any]
    """The answers that it was read from, as the DAG's tasks get them: they show which have changed."""
    source_cluster_id: str | None = None
    target_cluster_id: str | None = None
    """As the clusters themselves answered; None if they were not asked."""

    @property
    def digest(self) -> str:
        """Return a short name for exactly this content."""
        fields = {**self.as_fields(), "told": None}
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:_SHORT]

    def as_fields(self) -> dict[str, Any]:
        """Return plain values, for the journal."""
        return {
            "format_version": FORMAT_VERSION,
            "migration": self.migration.as_fields(),
            "told": dict(self.told),
            "source_cluster_id": self.source_cluster_id,
            "target_cluster_id": self.target_cluster_id,
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Read what the journal has.

        Raises:
            MessageFormatError: If it is of another format, or nothing of the kind.
        """
        try:
            values = dict(fields)
            version = values.pop("format_version")
            if version == FORMAT_VERSION:
                return cls(**{**values, "migration": Migration.from_fields(values["migration"])})
        except (AttributeError, KeyError, TypeError, ValueError, FlinkstyleError) as error:
            raise _malformed(str(error)) from error
        raise _malformed(f"format {version}")

    def differing(self, answers: Mapping[str, Any]) -> dict[str, str]:
        """Return the answers that differ now: by name, what was approved and what was found."""
        names = sorted(self.told.keys() | answers.keys())
        return {
            name: f"approved {self.told.get(name)!r:.200}, found {answers.get(name)!r:.200}"
            for name in names
            if self.told.get(name) != answers.get(name)
        }

    def as_markdown(self) -> str:
        """Render for the approval."""
        rows = "\n".join(row(cells) for cells in self._rows())
        return (
            f"#### What is approved\n\nIt has the digest `{self.digest}`. It is stored and applied exactly "
            "as shown here, even if the form, its files or the DAG change later.\n\n"
            f"| | |\n|---|---|\n{rows}"
        )

    def _rows(self) -> Iterator[tuple[str, str]]:
        moved = self.migration
        for name, ref, cluster_id in (
            ("from", moved.source, self.source_cluster_id),
            ("to", moved.target, self.target_cluster_id),
        ):
            yield name, f"{ref.conn_id} ({ref.servers}), cluster {cluster_id or 'not asked'}"
        yield "sources", _rule_text(moved.strategies.default)
        for source, rule in sorted(moved.strategies.sources.items()):
            yield f"source {source}", _rule_text(rule)
        yield "accepted positions", moved.allow.describe()
        if moved.rename:
            yield "renamed topics", ", ".join(f"{old} -> {new}" for old, new in sorted(moved.rename.items()))
        yield "mirror", _changed(moved.mirror, "source_alias", "target_alias")
        yield "fence", _changed(moved.fence, "kind")
        yield "producers are held by", moved.producer_switch
        yield "the job's isolation level", moved.isolation
        yield "next driver", moved.spark_conn_id or "where the job runs now"
        if (tried := moved.rehearse) is not None:
            yield "rehearsal", f"{tried.batches} batches of at most {tried.records} records"
        if moved.kafka_options:
            yield "Kafka options", ", ".join(f"{n}={v}" for n, v in sorted(moved.kafka_options.items()))
        if moved.group:
            yield "consumer group kept up", moved.group
        yield "time-outs", ", ".join(f"{n} {v:g}" for n, v in asdict(moved.settings).items())


def _rule_text(rule: SourceRule) -> str:
    topology = "" if rule.topology == "refuse" else f", {rule.topology} topics there too"
    start = "" if rule.start is None else f", starting at {_starts_text(rule.start)}"
    return f"{rule.strategy}{start}{topology}"


def _starts_text(rules: StartRules) -> str:
    named = {"": rules.default} if rules.default is not None else {}
    named |= dict(rules.topics)
    named |= {f"{topic}-{number}": start for (topic, number), start in rules.partitions.items()}
    return "; ".join(
        f"{name}: {_start_text(one)}" if name else _start_text(one) for name, one in named.items()
    )


def _start_text(start: Start) -> str:
    if isinstance(start, AtOffsets):
        return f"{start.origin} ({len(start.offsets)} partitions, as read before the approval)"
    return text_of(start)


def _changed(settings: MirrorSettings | FenceTerms | None, *always: str) -> str:
    """Return the fields that differ from the default, after those that are always shown."""
    if settings is None:
        return "none"
    values = asdict(settings)
    defaults = {name: item.default for name, item in type(settings).__dataclass_fields__.items()}
    others = {n: v for n, v in values.items() if n not in always and v not in (defaults[n], {}, ())}
    return ", ".join([*(str(values[name]) for name in always), *(f"{n}={v}" for n, v in others.items())])


def _tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


def _malformed(found: str) -> MessageFormatError:
    return MessageFormatError(
        f"An approved migration of format {FORMAT_VERSION} was expected in its journal, found {found}.",
        state_after="It was not acted on.",
        remedy="Upgrade airflow-flinkstyle if a newer version wrote it; else trigger a new migration.",
    )
