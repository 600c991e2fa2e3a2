"""``flinkstyle topic verify``: is each id there once."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType

from airflow_flinkstyle.cli.kafka.options import KafkaConfig, KafkaConn, one_cluster, the_cluster
from airflow_flinkstyle.cli.options import AsJson
from airflow_flinkstyle.cli.output import ExitCode, show, table
from airflow_flinkstyle.kafka.audit.id_counts import TopicVerdict
from airflow_flinkstyle.kafka.audit.record_ids import parse_ident
from airflow_flinkstyle.kafka.audit.verify_topic import TopicIds, verify_topic
from airflow_flinkstyle.kafka.settings import Isolation

_ID = "key, value, header:NAME, json:FIELD (dots for fields of fields) or regex:PATTERN (its first group)"


def verify(
    topic: Annotated[str, typer.Argument(help="What is read, as read_committed.", show_default=False)],
    config: KafkaConfig = None,
    conn_id: KafkaConn = None,
    ident: Annotated[str, typer.Option("--id", help=f"A record's id: {_ID}.")] = "value",
    expect_range: Annotated[
        str | None, typer.Option(help="Expect the numbers FIRST:END as ids, without END.")
    ] = None,
    expect_topic: Annotated[str | None, typer.Option(help="Expect the ids of this topic.")] = None,
    expect_id: Annotated[
        str | None, typer.Option(help="A record's id in that topic.", show_default="as --id")
    ] = None,
    expect_isolation: Annotated[
        Isolation, typer.Option(help="What that topic is read as.")
    ] = "read_committed",
    expect_config: Annotated[
        Path | None, typer.Option(help="Properties file of that topic's cluster.", show_default="the same")
    ] = None,
    expect_conn_id: Annotated[
        str | None, typer.Option(help="Airflow connection of that topic's cluster.", show_default="the same")
    ] = None,
    hidden: Annotated[
        bool, typer.Option("--hidden", help="Count the records of aborted transactions, too: reads twice.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Tell which ids are missing from a topic or in it more than once.

    Reads what exists up to the last stable offset. Ends with 3 if it is not exactly once.
    """
    cluster = the_cluster(config, conn_id, "kafka")
    if (expect_range is None) == (expect_topic is None):
        raise typer.BadParameter("give --expect-range or --expect-topic, one of them")
    expected: range | TopicIds
    if expect_topic is None:
        expected = _range(expect_range or "")
    else:
        other = one_cluster(expect_config, expect_conn_id, "expect")
        expected = TopicIds(
            cluster=other or cluster,
            topic=expect_topic,
            ident=parse_ident(expect_id or ident),
            isolation=expect_isolation,
        )
    with _progress_logged():
        found = verify_topic(cluster, topic, expected, parse_ident(ident), count_hidden=hidden)
    document = {"exactly_once": found.exactly_once, **asdict(found)}
    show(document, _text(found), as_json=as_json)
    if not found.exactly_once:
        raise typer.Exit(ExitCode.PARTLY)


def _range(text: str) -> range:
    first, colon, end = text.partition(":")
    try:
        return range(int(first), int(end if colon else "no end"))
    except ValueError as error:
        raise typer.BadParameter(
            f"expected FIRST:END, found {text!r}", param_hint="--expect-range"
        ) from error


@contextmanager
def _progress_logged() -> Iterator[None]:
    """Let the library log now and then how far it has read."""
    logger, handler = logging.getLogger("airflow_flinkstyle.kafka.reading"), logging.StreamHandler()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def _text(found: TopicVerdict) -> RenderableType:
    in_part = " in what is not deleted and can be read by now" if found.deleted or found.held_back else ""
    rows = [
        ("verdict", f"each id once{in_part}" if found.exactly_once else "not exactly once"),
        ("records", f"{found.read:,}"),
        ("ids", f"{found.distinct:,} of {found.expected:,} expected"),
        ("missing", found.missing),
        ("doubled", found.doubled),
        ("unexpected", found.unexpected),
        ("without an id", found.without_id),
        ("held back by open transactions", f"{found.held_back:,} offsets"),
        ("deleted before the log's start", f"{found.deleted:,} offsets"),
    ]
    if found.hidden is not None:
        rows.append(("hidden in aborted transactions", f"{found.hidden:,} records"))
    return table("", "", rows=rows)
