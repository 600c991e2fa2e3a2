"""ACL entries of a cluster: list, create and delete them, each by its exact content."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from airflow_flinkstyle.kafka.errors import NOTHING_CHANGED, SECURITY_DISABLED, ClusterDeniedError
from airflow_flinkstyle.kafka.patience import patient
from airflow_flinkstyle.kafka.settings import admin_client

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from confluent_kafka.admin import AclBinding, AclBindingFilter, AdminClient
    from typing_extensions import Self

    from airflow_flinkstyle.kafka.settings import KafkaCluster

Permission = Literal["allow", "deny"]
Pattern = Literal["literal", "prefixed"]
EVERYBODY = "User:*"
_STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_OPEN = "allow.everyone.if.no.acl.found"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class AclRule:
    """One ACL entry; two with the same content are one and the same to a broker."""

    name: str
    """Topic or transactional id; with ``prefixed`` all that begin with it."""
    principal: str
    """``User:name``; ``User:*`` is everybody but super users, whom no ACL binds."""
    operation: str
    """As Kafka's tools write it: ``WRITE``, ``ALL``."""
    permission: Permission
    resource: Literal["topic", "transactional_id"] = "topic"
    pattern: Pattern = "literal"
    host: str = "*"

    def as_dict(self) -> dict[str, str]:
        """Return plain values, for a journal."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read what ``as_dict`` made."""
        return cls(**values)

    def __str__(self) -> str:
        """Return the entry as a sentence's part."""
        place = f"{self.resource} {self.name} ({self.pattern})"
        return f"{self.permission} {self.principal} {self.operation} on {place}"


@patient
def rules_on(cluster: KafkaCluster, topics: Collection[str]) -> dict[str, frozenset[AclRule]]:
    """Return per topic every entry that applies to it, wildcards and prefixes included.

    Raises:
        ClusterDeniedError: If the credentials may not describe ACLs.
    """
    from confluent_kafka.admin import (
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )

    anybody = cast("str", None)  # the stubs insist on a name
    with admin_client(cluster) as admin:
        _require_rights(cluster, admin, ("DESCRIBE",))
        futures = {
            topic: admin.describe_acls(
                AclBindingFilter(
                    ResourceType.TOPIC,
                    topic,
                    ResourcePatternType.MATCH,
                    anybody,
                    anybody,
                    AclOperation.ANY,
                    AclPermissionType.ANY,
                ),
                request_timeout=cluster.request_timeout_s,
            )
            for topic in sorted(set(topics))
        }
        answers = {topic: future.result(cluster.request_timeout_s) for topic, future in futures.items()}
        return {topic: frozenset(map(_rule_of, found)) for topic, found in answers.items()}


@patient
def topics_are_open(cluster: KafkaCluster) -> bool | None:
    """Return whether topics without any entry are open to all; None if that is not known.

    Brokers hide the value of ``allow.everyone.if.no.acl.found``: only its absence means anything, and only
    with Kafka's own authorizer.

    Raises:
        FlinkstyleError: ``SECURITY_DISABLED`` if the brokers have no authorizer: nobody can be denied
            anything.
        ClusterDeniedError: If the credentials may not describe, change and ask what a fence needs.
    """
    from confluent_kafka.admin import ConfigResource

    with admin_client(cluster) as admin:
        _require_rights(cluster, admin, ("DESCRIBE", "DESCRIBE_CONFIGS", "ALTER"))
        nodes = admin.describe_cluster(request_timeout=cluster.request_timeout_s).result().nodes
        broker = ConfigResource(ConfigResource.Type.BROKER, str(nodes[0].id))
        (future,) = admin.describe_configs([broker], request_timeout=cluster.request_timeout_s).values()
        config = future.result(cluster.request_timeout_s)
    authorizer = config["authorizer.class.name"].value
    if not authorizer:
        raise SECURITY_DISABLED.with_text(
            f"The brokers of Kafka cluster {cluster} have no authorizer, so nobody can be denied to write.",
            state_after=NOTHING_CHANGED,
            remedy="Set authorizer.class.name on the brokers, or migrate with fence='passive': then only "
            "the ends of the logs prove that nobody writes.",
        )
    return False if authorizer == _STANDARD and _OPEN not in config else None


def _require_rights(cluster: KafkaCluster, admin: AdminClient, wanted: Collection[str]) -> None:
    """Check the rights of the credentials: without them, brokers answer that there are no entries."""
    answer = admin.describe_cluster(
        include_authorized_operations=True, request_timeout=cluster.request_timeout_s
    ).result(cluster.request_timeout_s)
    held = {operation.name for operation in answer.authorized_operations or ()}
    if missing := sorted(set(wanted) - held):
        raise ClusterDeniedError(
            f"The credentials of Kafka cluster {cluster} should have {', '.join(sorted(wanted))} on the "
            f"cluster, to fence topics by ACL, but lack {', '.join(missing)}.",
            state_after=NOTHING_CHANGED,
            remedy="Allow the connection's principal these operations, or migrate with fence='passive'.",
        )


@patient
def create_rules(cluster: KafkaCluster, rules: Collection[AclRule]) -> None:
    """Create the entries; those that exist stay as they are."""
    if not rules:
        return
    with admin_client(cluster) as admin:
        futures = admin.create_acls(list(map(_binding, rules)), request_timeout=cluster.request_timeout_s)
        for future in futures.values():
            future.result(cluster.request_timeout_s)


@patient
def delete_rules(cluster: KafkaCluster, rules: Collection[AclRule]) -> None:
    """Delete exactly these entries; those that do not exist are no error."""
    if not rules:
        return
    with admin_client(cluster) as admin:
        futures = admin.delete_acls(list(map(_filter, rules)), request_timeout=cluster.request_timeout_s)
        for future in futures.values():
            future.result(cluster.request_timeout_s)


def _binding(rule: AclRule) -> AclBinding:
    from confluent_kafka.admin import AclBinding

    return AclBinding(*_parts(rule))


def _filter(rule: AclRule) -> AclBindingFilter:
    from confluent_kafka.admin import AclBindingFilter

    return AclBindingFilter(*_parts(rule))


def _parts(rule: AclRule) -> tuple[Any, ...]:
    from confluent_kafka.admin import AclOperation, AclPermissionType, ResourcePatternType, ResourceType

    return (
        ResourceType[rule.resource.upper()],
        rule.name,
        ResourcePatternType[rule.pattern.upper()],
        rule.principal,
        rule.host,
        AclOperation[rule.operation],
        AclPermissionType[rule.permission.upper()],
    )


def _rule_of(binding: AclBinding) -> AclRule:
    entry = cast("Any", binding)  # its fields are enumerations, unlike in the client's stubs
    return AclRule(
        name=entry.name,
        principal=entry.principal,
        operation=entry.operation.name,
        permission=entry.permission_type.name.lower(),
        resource=entry.restype.name.lower(),
        pattern=entry.resource_pattern_type.name.lower(),
        host=entry.host,
    )
