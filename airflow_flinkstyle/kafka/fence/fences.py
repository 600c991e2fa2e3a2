"""Keep producers from writing to some topics: a fence that is planned, recorded, put up and taken down.

The record names exactly the ACL entries that were absent before. Journal it before ``put``, so that
a later attempt can ``lift`` what a dead one left behind, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.cluster import describe, existing_topics
from airflow_flinkstyle.kafka.errors import (
    CLUSTER_MISMATCH,
    FENCE_SCOPE,
    NOTHING_CHANGED,
    SECURITY_DISABLED,
)
from airflow_flinkstyle.kafka.fence.acls import (
    EVERYBODY,
    AclRule,
    Pattern,
    Permission,
    create_rules,
    delete_rules,
    rules_on,
    topics_are_open,
)
from airflow_flinkstyle.types import ids_differ

if TYPE_CHECKING:
    from collections.abc import Collection

    from typing_extensions import Self

    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.kafka.settings import KafkaCluster

FenceKind = Literal["passive", "acl"]
_WRITES = frozenset(("WRITE", "ALL"))
_BY_NAME: Mapping[str, Mapping[str, Any]] = {
    "passive": {"kind": "passive"},
    "acl": {"kind": "acl"},
    "acl:open": {"kind": "acl", "open_topics": True},
    "acl:closed": {"kind": "acl", "open_topics": False},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceRecord:
    """What a fence adds to a cluster; nothing for a passive one."""

    kind: FenceKind
    cluster_id: str | None
    topics: tuple[str, ...]
    rules: tuple[AclRule, ...] = ()
    """Entries that were not there before; only these are ever removed."""
    stood: tuple[AclRule, ...] = ()
    """Entries that it needs and that were there before; their owner may remove them."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for a journal."""
        return {
            "kind": self.kind,
            "cluster_id": self.cluster_id,
            "topics": list(self.topics),
            "rules": [rule.as_dict() for rule in self.rules],
            "stood": [rule.as_dict() for rule in self.stood],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read what ``as_dict`` made."""
        return cls(
            kind=values["kind"],
            cluster_id=values["cluster_id"],
            topics=tuple(values["topics"]),
            rules=tuple(map(AclRule.from_dict, values["rules"])),
            stood=tuple(map(AclRule.from_dict, values["stood"])),
        )

    @property
    def needed(self) -> tuple[AclRule, ...]:
        """Every entry that must be there, added by the fence or before it."""
        return (*self.rules, *self.stood)

    def describe(self) -> str:
        """Return in one sentence what keeps producers away."""
        if self.kind == "passive":
            return "No fence: only the ends of the logs show that no producer writes."
        if not self.rules:
            return "Fenced by ACLs that existed before."
        return f"Fenced by ACLs: {'; '.join(map(str, self.rules))}."


class Fence(Protocol):
    """Keeps producers away from topics of one cluster. Every call may be made again."""

    def plan(self, topics: Collection[str]) -> FenceRecord:
        """Return what ``put`` would add; changes nothing."""

    def put(self, record: FenceRecord) -> None:
        """Add the entries of the record."""

    def missing(self, record: FenceRecord) -> tuple[AclRule, ...]:
        """Return the entries that the record needs and that are gone."""

    def lift(self, record: FenceRecord) -> None:
        """Remove what ``put`` has added for the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassiveFence:
    """Keeps nobody away: the ends of the logs are the only proof."""

    cluster: KafkaCluster

    def plan(self, topics: Collection[str]) -> FenceRecord:
        """Return a record without entries."""
        cluster_id = describe(self.cluster, ()).cluster_id
        return FenceRecord(kind="passive", cluster_id=cluster_id, topics=tuple(sorted(topics)))

    def put(self, record: FenceRecord) -> None:
        """Add nothing."""

    def missing(self, record: FenceRecord) -> tuple[AclRule, ...]:
        """Return nothing: nothing was added."""
        return ()

    def lift(self, record: FenceRecord) -> None:
        """Remove what an active fence with this record has added, if it was one."""
        AclFence(cluster=self.cluster).lift(record)


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFence:
    """Denies WRITE by ACL. Super users of the brokers stay free: no ACL binds them.

    A transaction that is open can still commit, which the ends show; none can begin.
    """

    cluster: KafkaCluster
    principals: tuple[str, ...] = (EVERYBODY,)
    """Whom to deny."""
    spare: tuple[str, ...] = ()
    """Who may continue to write, e.g. a mirror in the other direction. An ACL knows no exception, so
    everybody else who is allowed to write is denied by name."""
    open_topics: bool | None = None
    """Whether topics without any entry are open to all (``allow.everyone.if.no.acl.found``), where the
    brokers hide it."""

    def plan(self, topics: Collection[str]) -> FenceRecord:
        """Return the entries to add to those that the cluster has.

        Raises:
            FlinkstyleError: ``SECURITY_DISABLED`` if the brokers have no authorizer.
            ClusterDeniedError: If the credentials may not describe or change entries.
            FlinkstyleError: ``FENCE_SCOPE`` if a principal to spare may write only because everybody may, or
                if it is not known whether a topic without entries is open.
        """
        names = sorted(set(topics))
        cluster_id = describe(self.cluster, ()).cluster_id
        if cluster_id is None:  # asking it for rights would end the process, see kafka.cluster
            raise SECURITY_DISABLED.with_text(
                f"An id was expected of Kafka cluster {self.cluster}, found none: a fence could be taken "
                "for one on another cluster, and managed endpoints without an id take no ACLs.",
                state_after=NOTHING_CHANGED,
                remedy="Migrate with fence='passive': then only the logs' ends prove that nobody writes.",
            )
        reported = topics_are_open(self.cluster)
        entries = rules_on(self.cluster, names)
        existing = existing_topics(self.cluster)
        is_open = self.open_topics if reported is None else reported
        if is_open is None and (bare := [name for name in names if not entries[name]]):
            raise _unknown_openness(self.cluster, bare)
        wanted = [
            rule
            for name in names
            for rule in rules_for(
                self, name, entries=entries[name], others=existing - {name}, is_open=bool(is_open)
            )
        ]
        return FenceRecord(
            kind="acl",
            cluster_id=cluster_id,
            topics=tuple(names),
            rules=tuple(rule for rule in wanted if rule not in entries[rule.name]),
            stood=tuple(rule for rule in wanted if rule in entries[rule.name]),
        )

    def put(self, record: FenceRecord) -> None:
        """Add the entries; those that allow come first, so that no reader is shut out in between."""
        self._require_cluster(record)
        create_rules(self.cluster, [rule for rule in record.rules if rule.permission == "allow"])
        create_rules(self.cluster, [rule for rule in record.rules if rule.permission == "deny"])

    def missing(self, record: FenceRecord) -> tuple[AclRule, ...]:
        """Return the entries that are gone."""
        if not record.needed:
            return ()
        self._require_cluster(record)
        entries = rules_on(self.cluster, {rule.name for rule in record.needed})
        return tuple(rule for rule in record.needed if rule not in entries[rule.name])

    def lift(self, record: FenceRecord) -> None:
        """Remove the entries; those that allow go last."""
        if not record.rules:
            return
        self._require_cluster(record)
        delete_rules(self.cluster, [rule for rule in record.rules if rule.permission == "deny"])
        delete_rules(self.cluster, [rule for rule in record.rules if rule.permission == "allow"])

    def _require_cluster(self, record: FenceRecord) -> None:
        found = describe(self.cluster, ()).cluster_id
        if ids_differ(record.cluster_id, found):
            raise CLUSTER_MISMATCH.error(what="The fence", expected=record.cluster_id, found=found)


def denials(cluster: KafkaCluster, topics: Collection[str]) -> list[AclRule]:
    """Return the entries that deny somebody to write to topics; none where brokers have no authorizer.

    Raises:
        ClusterDeniedError: If the credentials may not describe entries.
    """
    from confluent_kafka import KafkaError, KafkaException

    if describe(cluster, ()).cluster_id is None:  # asking it for rights would end the process
        return []
    try:
        entries = rules_on(cluster, topics)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.SECURITY_DISABLED:
            return []
        raise
    denied = {rule for rules in entries.values() for rule in rules if rule.permission == "deny"}
    return sorted(rule for rule in denied if rule.operation in _WRITES)


def rules_for(
    fence: AclFence,
    topic: str,
    *,
    entries: Collection[AclRule],
    others: Collection[str],
    is_open: bool,
) -> list[AclRule]:
    """Return the entries that fence a topic. Pure.

    MirrorMaker copies denials of literal names to the target (``sync.topic.acls.enabled``, on by
    default), where they would shut out the producers that move there; it leaves prefixes alone.

    Args:
        fence: Whom to deny.
        topic: What to fence.
        entries: The entries that apply to it.
        others: Names of the cluster's other topics.
        is_open: Whether topics without any entry are open to all. The first entry of any kind closes
            such a topic to all, so one must then allow what was allowed.
    """
    pattern: Pattern = "literal" if any(other.startswith(topic) for other in others) else "prefixed"

    def rule(principal: str, operation: str, permission: Permission) -> AclRule:
        return AclRule(
            name=topic, principal=principal, operation=operation, permission=permission, pattern=pattern
        )

    denied = [rule(principal, "WRITE", "deny") for principal in _denied(fence, topic, entries)]
    return [rule(EVERYBODY, "ALL", "allow"), *denied] if is_open and not entries else denied


def _unknown_openness(cluster: KafkaCluster, topics: Collection[str]) -> FlinkstyleError:
    return FENCE_SCOPE.with_text(
        f"Whether topics without ACLs ({', '.join(topics)}) are open to all depends on "
        f"allow.everyone.if.no.acl.found of {cluster}, which brokers hide. If they are, the first ACL of any "
        "kind would close such a topic to its readers.",
        state_after=NOTHING_CHANGED,
        remedy="Give it: fence='acl:open' or 'acl:closed', as the brokers are configured.",
    )


def _denied(fence: AclFence, topic: str, entries: Collection[AclRule]) -> list[str]:
    if not fence.spare:
        return list(fence.principals)
    allowed = {rule.principal for rule in entries if rule.permission == "allow" and rule.operation in _WRITES}
    if not allowed or EVERYBODY in allowed:
        raise FENCE_SCOPE.with_text(
            f"To spare {', '.join(fence.spare)}, writers of topic {topic} should be allowed by name on "
            f"{fence.cluster}, but every principal may write.",
            state_after=NOTHING_CHANGED,
            remedy="Name the principals to deny instead, or give each writer an ACL of its own.",
        )
    return sorted(allowed - set(fence.spare))


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceTerms:
    """The fence that a caller asks for, before it has a cluster; fields as in ``AclFence``."""

    kind: FenceKind = "passive"
    principals: tuple[str, ...] = (EVERYBODY,)
    spare: tuple[str, ...] = ()
    open_topics: bool | None = None

    def around(self, cluster: KafkaCluster) -> Fence:
        """Return the fence of this cluster's topics."""
        if self.kind == "passive":
            return PassiveFence(cluster=cluster)
        return AclFence(
            cluster=cluster, principals=self.principals, spare=self.spare, open_topics=self.open_topics
        )


PASSIVE = FenceTerms()


def parse_fence(answer: str | Mapping[str, Any] | None, *, spare: Collection[str] = ()) -> FenceTerms:
    """Return the fence that a form or an operator asks for.

    Args:
        answer: ``passive`` (None too), ``acl``, ``acl:open`` or ``acl:closed`` (that is, with
            ``open_topics``), or a mapping with ``kind`` and the fields of ``AclFence``.
        spare: More principals to spare.

    Raises:
        BadInputError: If it is something else.
    """
    asked = dict(answer) if isinstance(answer, Mapping) else dict(_BY_NAME.get(answer or "passive", {}))
    kind = asked.pop("kind", None)
    if spare:
        asked["spare"] = [*(asked.get("spare") or ()), *spare]
    options = {name: value for name, value in asked.items() if value not in (None, [])}
    if kind == "passive" and not options:
        return PASSIVE
    if kind == "acl" and all(_is_option(name, value) for name, value in options.items()):
        given: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in options.items()}
        return FenceTerms(kind="acl", **given)
    raise BadInputError(
        f"A fence should be one of {', '.join(_BY_NAME)} or a mapping with kind, principals and spare (lists "
        f"of 'User:name') and open_topics (true or false), but is {answer!r}.",
        state_after=NOTHING_CHANGED,
        remedy="Correct the operator's argument or the DAG's form.",
    )


def _is_option(name: str, value: object) -> bool:
    if name == "open_topics":
        return isinstance(value, bool)
    is_list = name in ("principals", "spare") and isinstance(value, list | tuple)
    return is_list and all(isinstance(item, str) and ":" in item for item in value)  # type: ignore[attr-defined]
