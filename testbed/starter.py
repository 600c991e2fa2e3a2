"""Starts copies of the hot job's checkpoints for one batch each, and tells what is in them.

``starter.py CONF_JSON``, in Spark's virtual environment. One JSON line in: ``{"bootstrap", "topic",
"checkpoints": {NAME: PATH}, "read": true}``; one JSON line out: ``{NAME: {"read": TOTALS, "batch": N,
"totals": TOTALS}}``, or ``{NAME: {"error": TEXT}}`` where Spark refused. ``read`` is the state before the
start, by Spark's own reader.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from testbed import hot_job
from testbed.answers import own_output

BATCH_TIMEOUT_S = 120


class Starter:
    """All copies of one job at once, as the job itself would run them."""

    def __init__(self, sessions: Mapping[str, SparkSession], question: dict[str, Any]) -> None:
        self._sessions = sessions
        self._bootstrap, self._topic = question["bootstrap"], question["topic"]
        self._checkpoints: dict[str, str] = question["checkpoints"]
        self._read = bool(question["read"])
        self.answer: dict[str, dict[str, Any]] = {name: {} for name in self._checkpoints}

    def run(self) -> None:
        """Read, start, wait; what fails for one copy is that copy's answer."""
        queries: dict[str, StreamingQuery] = {}
        for name, checkpoint in self._checkpoints.items():
            try:
                if self._read:
                    self.answer[name]["read"] = self._state(name, checkpoint)
                queries[name] = self._start(name, checkpoint)
            except Exception as error:  # noqa: BLE001  (told to whoever asked)
                self.answer[name] = {"error": str(error)}
        for name, query in queries.items():
            try:
                self._wait(name, query)
            except Exception as error:  # noqa: BLE001  (told to whoever asked)
                self.answer[name] = {"error": str(error)}

    def _wait(self, name: str, query: StreamingQuery) -> None:
        if not query.awaitTermination(BATCH_TIMEOUT_S):
            query.stop()
            raise TimeoutError(f"no end within {BATCH_TIMEOUT_S} s")
        if "batch" not in self.answer[name]:
            raise LookupError("no batch was run")

    def _state(self, name: str, checkpoint: str) -> dict[str, list[object]]:
        state = self._sessions[name].read.format("statestore").load(checkpoint)
        # By position: Spark names the columns of the aggregates' buffers as it likes.
        return _totals((row.key[0], *row.value) for row in state.select("key", "value").collect())

    def _start(self, name: str, checkpoint: str) -> StreamingQuery:
        def note(batch: DataFrame, batch_id: int) -> None:
            self.answer[name] |= {"batch": batch_id, "totals": _totals(batch.collect())}

        orders = hot_job.totals(self._sessions[name], bootstrap=self._bootstrap, topic=self._topic)
        # Complete mode shows every customer's state, also of those without a new order.
        writer = orders.writeStream.queryName(name).outputMode("complete").foreachBatch(note)
        return writer.option("checkpointLocation", checkpoint).trigger(once=True).start()


def _totals(rows: Iterable[Sequence[Any]]) -> dict[str, list[object]]:
    """Return orders, amount and bitmap per customer, as ``testbed.judge.totals_of`` reads them."""
    return {row[0]: [row[1], row[2], bytes(row[3]).rstrip(b"\0").hex()] for row in rows}


def main() -> None:
    """Answer until standard input ends."""
    answers = own_output()
    sessions = hot_job.sessions(json.loads(sys.argv[1]))
    for session in sessions.values():
        session.sparkContext.setLogLevel("ERROR")
        _ = session.streams  # the state reader looks for the coordinator that only this brings up
    for line in sys.stdin:
        starter = Starter(sessions, json.loads(line))
        starter.run()
        print(json.dumps(starter.answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
