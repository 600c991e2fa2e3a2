"""The classes that warm JVMs load, in a file that they map: made once, by a JVM that runs a few scripts."""

from __future__ import annotations

import tempfile
from pathlib import Path

from testbed.differential.plain import run_plain
from testbed.differential.spec import QuerySpec, ScriptSpec
from testbed.differential.stage import Stage
from testbed.differential.warm_jvm import ARCHIVE, WarmJvm
from testbed.jvm import QUICK
from testbed.kafka import Broker

_SAMPLES = (
    QuerySpec(name="a", source="files", work="join", mode="append", sink="json", cap=None),
    QuerySpec(name="b", source="kafka", work="count", mode="update", sink="batch-upsert", cap=None),
    QuerySpec(name="c", source="delta", work="windows", mode="append", sink="kafka", cap=None),
    QuerySpec(name="d", source="files", work="pandas-state", mode="update", sink="batch-merge", cap=None),
    QuerySpec(name="e", source="files", work="dedup", mode="append", sink="delta", cap=None),
    QuerySpec(name="f", source="files", work="transform", mode="update", sink="batch-upsert", cap=None),
    QuerySpec(name="g", source="files", work="project", mode="append", sink="parquet", cap=None),
)


def make_archive() -> None:
    """Make it unless it is there."""
    if ARCHIVE.exists():
        return
    ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
    draft = ARCHIVE.with_suffix(".draft")
    with tempfile.TemporaryDirectory() as scratch, Broker("archive", Path(scratch) / "kafka") as broker:
        options = " ".join((*QUICK, f"-XX:ArchiveClassesAtExit={draft}"))
        jvm = WarmJvm(Path(scratch) / "jvm", java_options=options)
        try:
            for provider in ("default", "changelog"):
                spec = ScriptSpec(
                    queries=_SAMPLES if provider == "changelog" else _SAMPLES[:2],
                    shape="straight",
                    trigger="available-now",
                    checkpoint="option",
                    provider=provider,
                )
                folder = Path(scratch) / provider
                stage = Stage(spec=spec, folder=folder, broker=broker, topics=provider)
                if (failure := run_plain(jvm, stage)) is not None:
                    raise RuntimeError(f"A sample script was expected to succeed: {failure}")
            jvm.end()
        finally:
            jvm.kill()
    draft.rename(ARCHIVE)
