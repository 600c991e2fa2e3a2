"""Translate positions in a process of its own: ``python -m benchmarks.translating TASK.json ANSWER.json``.

The task names both clusters, the positions and where each must be translated to; the answer has the
seconds, without the start of Python.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path

from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.kafka.translation.request import ProofRequest
from airflow_flinkstyle.kafka.translation.translator import translate_positions
from airflow_flinkstyle.kafka.verdict import Exact
from airflow_flinkstyle.offsets import Offsets

MIRROR = MirrorSettings(source_alias="left", target_alias="right")


def main() -> None:
    """Translate, and insist on the right offsets."""
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(message)s")
    task = json.loads(Path(sys.argv[1]).read_text())
    old, new = (
        KafkaCluster(name=name, config={"bootstrap.servers": task[name]}, request_timeout_s=60)
        for name in ("old", "new")
    )
    positions = Offsets({(topic, number): offset for topic, number, offset in task["positions"]})
    request = ProofRequest(positions=positions, mirror=MIRROR, isolation="read_uncommitted")
    began_s = time.monotonic()
    verdicts = translate_positions(old, new, request).verdicts
    seconds = time.monotonic() - began_s
    wrong = {
        tp: verdict for tp, verdict in verdicts.items() if verdict != Exact(positions[tp] - task["shift"])
    }
    if wrong or len(verdicts) != len(positions):
        raise RuntimeError(
            f"{len(wrong)} positions are wrong, for example {next(iter(wrong.items()), None)}."
        )
    Path(sys.argv[2]).write_text(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
