"""What a fence adds, and who holds a log's end back: everything that needs no broker."""

from __future__ import annotations

import struct

import pytest

from airflow_flinkstyle.errors import BadInputError, MessageFormatError
from airflow_flinkstyle.kafka.audit.open_transactions import OpenTransaction, parse
from airflow_flinkstyle.kafka.errors import FENCE_SCOPE
from airflow_flinkstyle.kafka.fence.acls import EVERYBODY, AclRule
from airflow_flinkstyle.kafka.fence.fences import AclFence, FenceRecord, PassiveFence, parse_fence, rules_for
from airflow_flinkstyle.kafka.settings import KafkaCluster
from testbed.refusals import refuses

CLUSTER = KafkaCluster(name="old", config={"bootstrap.servers": "h:1"})
FENCE = AclFence(cluster=CLUSTER)


def a_rule(
    principal: str = EVERYBODY, operation: str = "WRITE", *, allow: bool = False, **more: str
) -> AclRule:
    values = {"name": "orders", "pattern": "prefixed", **more}
    return AclRule.from_dict(
        {
            "principal": principal,
            "operation": operation,
            "permission": "allow" if allow else "deny",
            **values,
        }
    )


def test_where_topics_without_entries_are_open_a_fence_keeps_them_open_for_readers():
    assert rules_for(FENCE, "orders", entries=[], others=[], is_open=True) == [
        a_rule(operation="ALL", allow=True),
        a_rule(),
    ]


@pytest.mark.parametrize("entries", [[], [a_rule("User:a", "READ", allow=True)]])
def test_a_fence_allows_nobody_anything_that_was_closed_before(entries: list[AclRule]):
    assert rules_for(FENCE, "orders", entries=entries, others=[], is_open=bool(entries)) == [a_rule()]


def test_a_prefix_is_used_only_if_it_names_no_other_topic():
    (rule,) = rules_for(FENCE, "orders", entries=[], others=["orders-retry"], is_open=False)
    assert rule == a_rule(pattern="literal")


def test_whoever_is_spared_is_left_out_of_those_denied_by_name():
    fence = AclFence(cluster=CLUSTER, spare=("User:mirror",))
    entries = [a_rule(f"User:{name}", "WRITE", allow=True) for name in ("mirror", "shop")]
    entries += [a_rule("User:job", "READ", allow=True), a_rule("User:root", "ALL", allow=True)]
    found = rules_for(fence, "orders", entries=entries, others=[], is_open=False)
    assert found == [a_rule("User:root"), a_rule("User:shop")]


@pytest.mark.parametrize("entries", [[], [a_rule(EVERYBODY, "ALL", allow=True)]])
def test_nobody_can_be_spared_where_everybody_may_write(entries: list[AclRule]):
    fence = AclFence(cluster=CLUSTER, spare=("User:mirror",))
    with refuses(FENCE_SCOPE, match="orders"):
        rules_for(fence, "orders", entries=entries, others=[], is_open=True)


def test_a_record_comes_back_from_a_journal_as_it_was():
    stood = a_rule("User:shop")
    record = FenceRecord(kind="acl", cluster_id="c", topics=("orders",), rules=(a_rule(),), stood=(stood,))
    assert FenceRecord.from_dict(record.as_dict()) == record
    assert record.needed == (a_rule(), stood)
    assert "deny User:* WRITE on topic orders" in record.describe()


def test_a_fence_is_asked_for_by_name_or_in_detail():
    assert parse_fence(None) == parse_fence("passive")
    assert parse_fence(None).around(CLUSTER) == PassiveFence(cluster=CLUSTER)
    assert parse_fence("acl").around(CLUSTER) == FENCE
    assert parse_fence("acl:open").around(CLUSTER) == AclFence(cluster=CLUSTER, open_topics=True)
    detail = {"kind": "acl", "principals": ["User:shop"], "spare": [], "open_topics": True}
    wanted = AclFence(cluster=CLUSTER, principals=("User:shop",), open_topics=True)
    assert parse_fence(detail).around(CLUSTER) == wanted


@pytest.mark.parametrize(
    "answer",
    [
        "wall",
        {"kind": "acl", "principals": "User:shop"},
        {"kind": "acl", "principals": ["shop"]},
        {"kind": "acl", "height": 3},
        {"kind": "acl", "open_topics": "perhaps"},
        {"kind": "passive", "principals": ["User:shop"]},
        {},
    ],
)
def test_a_fence_that_does_not_exist_is_refused(answer: object):
    with pytest.raises(BadInputError, match="fence"):
        parse_fence(answer)  # type: ignore[arg-type]


KEY = struct.pack(">hh", 0, 6) + b"shop-1"
TRANSACTION = OpenTransaction(
    transactional_id="shop-1",
    producer_id=4001,
    epoch=7,
    timeout_ms=60_000,
    state="Ongoing",
    updated_ms=1_002,
    started_ms=1_001,
    partitions=frozenset({("orders", 0), ("orders", 3)}),
)


def a_value(version: int, status: int = 1, tags: bytes = b"\x00") -> bytes:
    head = struct.pack(">hqhib", version, 4001, 7, 60_000, status)
    if version == 0:
        return head + struct.pack(">ih6siii", 1, 6, b"orders", 2, 0, 3) + struct.pack(">qq", 1002, 1001)
    partitions = b"\x02" + b"\x07orders" + b"\x03" + struct.pack(">ii", 0, 3) + tags
    return head + partitions + struct.pack(">qq", 1002, 1001) + b"\x00"


@pytest.mark.parametrize("version", [0, 1])
def test_an_open_transaction_is_read_from_the_brokers_log(version: int):
    assert parse(KEY, a_value(version)) == TRANSACTION
    assert "shop-1 (producer 4001, epoch 7, time-out 60 s)" in str(TRANSACTION)


def test_fields_that_later_brokers_add_are_passed_over():
    assert parse(KEY, a_value(1, tags=b"\x02\x05\x02\xff\xfe\x06\x00")) == TRANSACTION


@pytest.mark.parametrize(("status", "state"), [(2, "PrepareCommit"), (3, "PrepareAbort")])
def test_a_transaction_that_is_about_to_end_is_still_open(status: int, state: str):
    found = parse(KEY, a_value(1, status))
    assert found is not None
    assert found.state == state


@pytest.mark.parametrize("status", [0, 4, 5])
def test_a_transaction_that_has_ended_holds_nothing(status: int):
    assert parse(KEY, a_value(1, status)) is None


@pytest.mark.parametrize("value", [a_value(1)[:20], struct.pack(">h", 2) + a_value(1)[2:], b""])
def test_a_record_of_an_unknown_form_is_refused(value: bytes):
    with pytest.raises(MessageFormatError, match="__transaction_state"):
        parse(KEY, value)
