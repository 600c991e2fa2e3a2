"""A migration with nothing but what it must say, and one that says everything."""

from __future__ import annotations

from dataclasses import replace

from airflow_flinkstyle.jobs.cutover.context import CutoverSettings
from airflow_flinkstyle.jobs.migration.approved import ClusterRef, Migration
from airflow_flinkstyle.kafka.fence.fences import FenceTerms
from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
from airflow_flinkstyle.kafka.policies import parse_policies
from airflow_flinkstyle.kafka.start.kinds import (
    AtOffsets,
    AtTimestamp,
    Earliest,
    FromGroup,
    Latest,
    LogIdentity,
    Shifted,
    StartRules,
)
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from airflow_flinkstyle.rewrite.rules import SourceRule, StrategyRules

LOGS = {"orders": LogIdentity(cluster_id="c", topic_id="t")}
STARTS = StartRules(
    default=Earliest(),
    topics={
        "a.b": Latest(),
        "c": FromGroup("g:1", missing="latest"),
        "d": AtTimestamp(1_800_000_000_000, after_last="latest"),
        "e": Shifted(records=-5),
        "f": Shifted(ms=1000),
    },
    partitions={
        ("orders", 3): AtOffsets(
            Offsets({("orders", 3): 17, ("orders", 4): 0}), origin="savepoint:sp-1", logs=LOGS
        ),
    },
)
PLAIN = Migration(
    job="orders",
    source=ClusterRef(conn_id="old", servers="old:9092"),
    target=ClusterRef(conn_id="new", servers="new:9092"),
    producer_switch="manual",
    script_servers="old:9092",
)
FULL = replace(
    PLAIN,
    rehearse=Rehearse(batches=3, elsewhere=True),
    mirror=MirrorSettings(
        source_alias="old",
        target_alias="new",
        renamed={"a": "b"},
        ignored_headers=("x", "y"),
        sole_writer=True,
    ),
    rename={"a": "b,c"},
    strategies=StrategyRules(
        default=SourceRule(strategy="producers_first", topology="repartitioned"),
        sources={"q/0": SourceRule(strategy="new_identity", start=STARTS), "q/1": SourceRule()},
    ),
    isolation="read_committed",
    allow=parse_policies("exact,duplicate<=100,superseded,chosen"),
    fence=FenceTerms(kind="acl", principals=("User:a",), spare=("User:mirror",), open_topics=False),
    group="watchers",
    kafka_options={"kafka.client.id": "x"},
    settings=CutoverSettings(hold_timeout_s=7.5),
    spark_conn_id="spark_b",
    back=True,
)
