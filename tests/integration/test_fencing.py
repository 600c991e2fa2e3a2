"""Fences on real brokers: who can still write, who can still read, and what is left afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.jobs.errors import LATE_WRITES
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.migration.fence_phase import (
    ENDS_PHASE,
    PHASE,
    LiveWatch,
    drop_fence,
    note_ends,
    raise_fence,
    require_quiet,
)
from airflow_flinkstyle.jobs.migration.kafka_side import LiveKafka
from airflow_flinkstyle.jobs.migration.preflight import _fence
from airflow_flinkstyle.kafka.audit.open_transactions import explain, open_transactions
from airflow_flinkstyle.kafka.audit.transactions import abort_transactions, matching
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.errors import FENCE_SCOPE, SECURITY_DISABLED, ClusterDeniedError
from airflow_flinkstyle.kafka.fence.acls import EVERYBODY, AclRule, create_rules, delete_rules, rules_on
from airflow_flinkstyle.kafka.fence.fences import AclFence, PassiveFence
from airflow_flinkstyle.kafka.fence.fencing import Moving, Steady, steady_ends
from airflow_flinkstyle.kafka.reading import ReadRange, count_records
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.protocol.query_records import SourceIdentity
from testbed.kafka import AUTHORIZER, Broker
from testbed.keys import SIGNER
from testbed.memory_store import MemoryStore
from testbed.ports import free_port
from testbed.refusals import refuses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Producer

pytestmark = [pytest.mark.integration, pytest.mark.kafka]

WINDOW_S = 0.3
SHUT_OUT = "TOPIC_AUTHORIZATION_FAILED"


NAMED = {
    "listener.name.named.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.named.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'user_shop="p" user_mirror="p" user_guest="p";'
    ),
}
"""A second listener, where clients have names; on the first all are ``User:ANONYMOUS``."""
NAMED_PORT = free_port()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker whose topics are open to all until somebody says otherwise."""
    with Broker(
        "guarded",
        tmp_path_factory.mktemp("guarded"),
        settings={**AUTHORIZER, **NAMED},
        listeners={"NAMED": ("SASL_PLAINTEXT", NAMED_PORT)},
    ) as broker:
        yield broker


def as_user(name: str) -> dict[str, str]:
    return {
        "bootstrap.servers": f"127.0.0.1:{NAMED_PORT}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": name,
        "sasl.password": "p",
    }


@pytest.fixture(scope="module")
def cluster(broker: Broker) -> KafkaCluster:
    return KafkaCluster(name="guarded", config={"bootstrap.servers": broker.bootstrap})


def a_producer(broker: Broker, **more: str) -> Producer:
    from confluent_kafka import Producer

    return Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": "0", "log_level": "0", **more})


def becomes_steady(cluster: KafkaCluster, topic: str) -> bool:
    """A transaction's marker may follow its end by a moment."""
    return any(isinstance(steady_ends(cluster, [topic], WINDOW_S), Steady) for _ in range(20))


def written(producer: Producer, topic: str, count: int = 1) -> list[str | None]:
    """Write records to partition 0; return the name of each one's error, or None."""
    from confluent_kafka import KafkaException

    answers: list[str | None] = []
    for _ in range(count):
        try:
            producer.produce(
                topic,
                value=b"v",
                partition=0,
                on_delivery=lambda e, _: answers.append(e.name() if e else None),
            )
        except KafkaException as error:  # the producer has learnt it already
            answers.append(error.args[0].name())
    producer.flush(30)
    return answers


def readable(cluster: KafkaCluster, topic: str, end: int) -> int:
    return count_records(cluster, {(topic, 0): ReadRange(low=0, high=end)}, "read_committed")[topic, 0]


def test_fence_keeps_writers_out_and_readers_in_and_goes_without_a_trace(
    broker: Broker, cluster: KafkaCluster
):
    broker.create_topic("f.open", partitions=1)
    sleeper = a_producer(broker)
    assert written(sleeper, "f.open", 3) == [None] * 3
    before = rules_on(cluster, ["f.open"])
    fence = AclFence(cluster=cluster, open_topics=True)
    record = fence.plan(["f.open"])
    assert rules_on(cluster, ["f.open"]) == before
    for _ in range(2):
        fence.put(record)
    assert fence.missing(record) == ()
    assert written(sleeper, "f.open") == [SHUT_OUT]
    assert isinstance(steady_ends(cluster, ["f.open"], WINDOW_S), Steady)
    assert readable(cluster, "f.open", 3) == 3
    for _ in range(2):
        fence.lift(record)
    assert rules_on(cluster, ["f.open"]) == before
    assert len(fence.missing(record)) == len(record.rules) == 2
    assert written(a_producer(broker), "f.open") == [None]


def test_entries_that_stood_before_stay_when_the_fence_goes(broker: Broker, cluster: KafkaCluster):
    broker.create_topic("f.kept", partitions=1)
    theirs = [
        AclRule(name="f.kept", principal=EVERYBODY, operation="ALL", permission="allow"),
        AclRule(name="f.kept", principal=EVERYBODY, operation="WRITE", permission="deny", pattern="prefixed"),
    ]
    create_rules(cluster, theirs)
    fence = AclFence(cluster=cluster, open_topics=True)
    record = fence.plan(["f.kept"])
    assert record.rules == ()
    fence.put(record)
    fence.lift(record)
    assert rules_on(cluster, ["f.kept"])["f.kept"] == frozenset(theirs)
    delete_rules(cluster, theirs[1:])
    again = fence.plan(["f.kept"])
    fence.put(again)
    assert written(a_producer(broker), "f.kept") == [SHUT_OUT]
    fence.lift(again)
    assert rules_on(cluster, ["f.kept"])["f.kept"] == frozenset(theirs[:1])


def test_writers_who_are_spared_go_on_and_the_others_do_not(broker: Broker, cluster: KafkaCluster):
    broker.create_topic("f.spared", partitions=1)
    theirs = [
        AclRule(name="f.spared", principal=f"User:{name}", operation="ALL", permission="allow")
        for name in ("shop", "mirror", "ANONYMOUS")
    ]
    create_rules(cluster, theirs)
    shop, mirror = (a_producer(broker, **as_user(name)) for name in ("shop", "mirror"))
    assert written(shop, "f.spared") == written(mirror, "f.spared") == [None]
    fence = AclFence(cluster=cluster, spare=("User:mirror", "User:ANONYMOUS"))
    record = fence.plan(["f.spared"])
    fence.put(record)
    assert (written(shop, "f.spared"), written(mirror, "f.spared")) == ([SHUT_OUT], [None])
    fence.lift(record)
    assert written(a_producer(broker, **as_user("shop")), "f.spared") == [None]


def test_topic_without_entries_is_fenced_only_if_it_is_known_who_may_use_it(
    broker: Broker, cluster: KafkaCluster
):
    broker.create_topic("f.bare", partitions=1)
    with refuses(FENCE_SCOPE, match=r"f\.bare.*acl:open"):
        AclFence(cluster=cluster).plan(["f.bare"])


def test_fence_of_one_topic_never_covers_another_with_a_longer_name(broker: Broker, cluster: KafkaCluster):
    for topic in ("f.pair", "f.pair.more"):
        broker.create_topic(topic, partitions=1)
    record = AclFence(cluster=cluster, open_topics=True).plan(["f.pair", "f.pair.more"])
    patterns = {(rule.name, rule.pattern) for rule in record.rules}
    assert patterns == {("f.pair", "literal"), ("f.pair.more", "prefixed")}


def test_credentials_that_may_not_see_entries_never_take_that_for_none(broker: Broker, cluster: KafkaCluster):
    from confluent_kafka.admin import (
        AclBinding,
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )

    broker.create_topic("f.hidden", partitions=1)
    place = (ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL)
    entry = (*place, "User:ANONYMOUS", "*", AclOperation.ALL, AclPermissionType.ALLOW)
    for future in broker.admin().create_acls([AclBinding(*entry)]).values():
        future.result(20)
    guest = KafkaCluster(name="guest", config=as_user("guest"))
    try:
        with pytest.raises(ClusterDeniedError, match="DESCRIBE"):
            rules_on(guest, ["f.hidden"])
        with pytest.raises(ClusterDeniedError, match="ALTER"):
            AclFence(cluster=guest, open_topics=True).plan(["f.hidden"])
    finally:
        for future in broker.admin().delete_acls([AclBindingFilter(*entry)]).values():
            future.result(20)


def test_open_transaction_is_named_can_end_behind_the_fence_and_none_can_begin(
    broker: Broker, cluster: KafkaCluster
):
    broker.create_topic("f.txn", partitions=1)
    shop = a_producer(broker, **{"transactional.id": "shop-1"})
    shop.init_transactions(20)
    shop.begin_transaction()
    assert written(shop, "f.txn", 2) == [None, None]
    fence = AclFence(cluster=cluster, open_topics=True)
    record = fence.plan(["f.txn"])
    fence.put(record)
    found = steady_ends(cluster, ["f.txn"], WINDOW_S)
    assert isinstance(found, Moving)
    assert found.open_transactions == {("f.txn", 0): (0, 2)}
    assert "transactional.id shop-1" in explain(cluster, found)
    shop.commit_transaction(20)
    assert becomes_steady(cluster, "f.txn")
    assert readable(cluster, "f.txn", 3) == 2
    other = a_producer(broker, **{"transactional.id": "shop-2"})
    other.init_transactions(20)
    other.begin_transaction()
    assert written(other, "f.txn") != [None]
    assert isinstance(steady_ends(cluster, ["f.txn"], WINDOW_S), Steady)
    fence.lift(record)


def test_open_transaction_is_kept_from_its_commit_only_by_a_denial_of_its_id(
    broker: Broker, cluster: KafkaCluster
):
    from confluent_kafka import KafkaException

    broker.create_topic("f.id", partitions=1)
    shop = a_producer(broker, **{"transactional.id": "shop-3"})
    shop.init_transactions(20)
    shop.begin_transaction()
    assert written(shop, "f.id") == [None]
    rule = AclRule(
        name="shop-3",
        principal=EVERYBODY,
        operation="WRITE",
        permission="deny",
        resource="transactional_id",
    )
    create_rules(cluster, [rule])
    with pytest.raises(KafkaException, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        shop.commit_transaction(20)
    assert isinstance(steady_ends(cluster, ["f.id"], WINDOW_S), Moving)
    delete_rules(cluster, [rule])
    a_producer(broker, **{"transactional.id": "shop-3"}).init_transactions(20)  # ends it
    assert becomes_steady(cluster, "f.id")
    assert readable(cluster, "f.id", 2) == 0


def test_credentials_that_may_not_see_or_end_transactions_are_told_which_acl_they_lack(
    broker: Broker, cluster: KafkaCluster
):
    broker.create_topic("f.guest", partitions=1)
    shop = a_producer(broker, **{"transactional.id": "shop-4"})
    shop.init_transactions(20)
    shop.begin_transaction()
    assert written(shop, "f.guest") == [None]
    guest = KafkaCluster(name="guest", config=as_user("guest"))
    found = matching(open_transactions(guest), "shop-4")

    def without(**place: Any) -> list[AclRule]:
        """Return the entries that keep the guest, and nobody else, from something."""
        guests = AclRule(principal="User:guest", operation="ALL", permission="deny", **place)
        return [guests, AclRule(principal=EVERYBODY, operation="ALL", permission="allow", **place)]

    rules = without(name="shop-4", resource="transactional_id")
    create_rules(cluster, rules)
    with pytest.raises(ClusterDeniedError, match="WRITE and DESCRIBE on the transactional id"):
        abort_transactions(guest, found)
    delete_rules(cluster, rules)
    rules = without(name="__transaction_state")
    create_rules(cluster, rules)
    with pytest.raises(ClusterDeniedError, match="READ and DESCRIBE on topic __transaction_state"):
        open_transactions(guest)
    delete_rules(cluster, rules)
    shop.commit_transaction(20)


def test_broker_without_an_authorizer_is_named_and_only_the_ends_prove(old_broker: Broker):
    old = KafkaCluster(name="old", config={"bootstrap.servers": old_broker.bootstrap})
    old_broker.create_topic("f.plain", partitions=1)
    with refuses(SECURITY_DISABLED, match="authorizer"):
        AclFence(cluster=old).plan(["f.plain"])
    fence = PassiveFence(cluster=old)
    record = fence.plan(["f.plain"])
    fence.put(record)
    assert "only the ends" in record.describe()
    assert written(a_producer(old_broker), "f.plain") == [None]
    fence.lift(record)


def test_producer_that_wakes_behind_the_proof_is_found_with_the_offsets_of_its_records(
    old_broker: Broker,
):
    old = KafkaCluster(name="old", config={"bootstrap.servers": old_broker.bootstrap})
    old_broker.create_topic("f.sleeper", partitions=2)
    sleeper = a_producer(old_broker)
    written(sleeper, "f.sleeper", 4)
    watch = LiveWatch(cluster=old, fence=PassiveFence(cluster=old))
    journal = CutoverJournal(MemoryStore(), "job", "m1", (PHASE, ENDS_PHASE, "rollback"), signer=SIGNER)
    journal.begin(lambda: 1)
    raise_fence(journal, watch, ["f.sleeper"])
    assert isinstance(steady_ends(old, ["f.sleeper"], WINDOW_S), Steady)
    note_ends(journal, watch, ["f.sleeper"])
    require_quiet(journal, watch)
    written(sleeper, "f.sleeper", 3)
    with refuses(LATE_WRITES, match=r"f\.sleeper-0 \(4 to 7\)"):
        require_quiet(journal, watch)


def test_fence_of_a_dead_attempt_is_taken_down_by_the_next(broker: Broker, cluster: KafkaCluster):
    broker.create_topic("f.dead", partitions=1)
    store, watch = (
        MemoryStore(),
        LiveWatch(cluster=cluster, fence=AclFence(cluster=cluster, open_topics=True)),
    )

    def an_attempt(number: int) -> CutoverJournal:
        journal = CutoverJournal(store, "job", "m1", (PHASE, ENDS_PHASE, "rollback"), signer=SIGNER)
        journal.begin(lambda: number)
        return journal

    raise_fence(an_attempt(1), watch, ["f.dead"])
    assert written(a_producer(broker), "f.dead") == [SHUT_OUT]
    drop_fence(an_attempt(2), LiveWatch(cluster=cluster, fence=PassiveFence(cluster=cluster)))
    assert rules_on(cluster, ["f.dead"]) == {"f.dead": frozenset()}
    assert written(a_producer(broker), "f.dead") == [None]


def test_fence_that_a_migration_left_on_the_target_is_in_the_way_of_the_next_one_there(
    broker: Broker, cluster: KafkaCluster
):
    broker.create_topic("shut", partitions=1)
    sources = {"q/0": SourceIdentity(cluster_id=describe(cluster, ()).cluster_id, topic_ids={"shut": None})}
    kafka = LiveKafka(old=cluster, new=cluster, mirror=None)
    fence = AclFence(cluster=cluster, open_topics=True)
    record = fence.plan(["shut"])
    fence.put(record)
    found = _fence(kafka, sources)
    assert found.level == "refusal"
    assert "deny User:* WRITE on topic shut" in found.detail
    fence.lift(record)
    assert _fence(kafka, sources).level == "ok"
    one = AclRule(name="shut", principal="User:guest", operation="WRITE", permission="deny")
    create_rules(cluster, [one])
    assert _fence(kafka, sources).level == "warning"
    delete_rules(cluster, [one])
