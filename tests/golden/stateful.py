"""The queries behind the golden checkpoints and the restore tests: each stateful operator, each provider."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    import pandas as pd
    from pyspark.sql import DataFrame

    Read = Callable[[str], DataFrame]
    Untyped = Any
    """What Spark hands to a state function."""

STATE = "spark.sql.streaming.stateStore"
PROVIDERS = "org.apache.spark.sql.execution.streaming.state"
HDFS = {f"{STATE}.providerClass": f"{PROVIDERS}.HDFSBackedStateStoreProvider"}
ROCKSDB = {f"{STATE}.providerClass": f"{PROVIDERS}.RocksDBStateStoreProvider"}
CHANGELOG = {**ROCKSDB, f"{STATE}.rocksdb.changelogCheckpointing.enabled": "true"}
FORMAT_V2 = {**ROCKSDB, f"{STATE}.checkpointFormatVersion": "2"}
FORMAT_V2_CHANGELOG = {**CHANGELOG, f"{STATE}.checkpointFormatVersion": "2"}
EVOLUTION = "spark.sql.streaming.queryEvolution"
NAMED_SOURCES = {
    f"{EVOLUTION}.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
}
NAMED_SINK = {**FORMAT_V2, f"{EVOLUTION}.enableSinkEvolution": "true"}
DELAY = "1 minute"


@dataclass(frozen=True)
class Case:
    """One query and the settings it runs with."""

    name: str
    build: Callable[[Read], DataFrame]
    """From a function that reads a source by name; its columns are k, v and the event time ts."""
    confs: Mapping[str, str] = field(default_factory=dict)
    mode: str = "update"
    since: tuple[int, int] = (3, 5)
    """Spark version that brought it."""
    partitions: int = 2
    named_sources: bool = False
    named_sink: bool = False


def no_state(read: Read) -> DataFrame:
    """Project only."""
    return read("only").select("k", "v")


def totals(read: Read) -> DataFrame:
    """Aggregate per key."""
    return read("only").groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("s"))


def grand_total(read: Read) -> DataFrame:
    """Aggregate without keys, in one partition."""
    return read("only").agg(F.count("*").alias("n"), F.sum("v").alias("s"))


def union_totals(read: Read) -> DataFrame:
    """Aggregate over two sources."""
    return totals(lambda _: read("zeta").unionByName(read("alpha")))


def join(read: Read) -> DataFrame:
    """Join two streams within a time range."""
    left = read("left").withWatermark("ts", DELAY).alias("l")
    right = read("right").withWatermark("ts", DELAY).alias("r")
    near = F.expr("l.v = r.v AND l.ts >= r.ts - interval 1 minute AND l.ts <= r.ts + interval 1 minute")
    return left.join(right, near).select("l.k", "l.v", F.col("r.ts").cast("long").alias("t"))


def sessions(read: Read) -> DataFrame:
    """Count per key and session; each batch prolongs every key's session."""
    window = F.session_window("ts", "2 minutes")
    found = read("only").withWatermark("ts", DELAY).groupBy("k", window).agg(F.count("*").alias("n"))
    return found.select("k", F.col("session_window.start").cast("long").alias("start"), "n")


def dedup(read: Read) -> DataFrame:
    """Keep the first row of each key and minute."""
    rows = read("only").withWatermark("ts", DELAY).dropDuplicates(["k", "ts"])
    return rows.select("k", F.col("ts").cast("long").alias("t"))


def dedup_within_watermark(read: Read) -> DataFrame:
    """Keep the first row of each key until its watermark has passed."""
    rows = read("only").withWatermark("ts", "3 minutes").dropDuplicatesWithinWatermark(["k"])
    return rows.select("k", F.col("ts").cast("long").alias("t"))


def pandas_state(read: Read) -> DataFrame:
    """Add up per key in Python."""
    from pyspark.sql.streaming.state import GroupStateTimeout

    def add(key: tuple[int], frames: Iterator[pd.DataFrame], state: Untyped) -> Iterator[pd.DataFrame]:
        import pandas as pd

        total = state.get[0] if state.exists else 0
        total += sum(int(frame["v"].sum()) for frame in frames)
        state.update((total,))
        yield pd.DataFrame({"k": [key[0]], "s": [total]})

    return (
        read("only")
        .groupBy("k")
        .applyInPandasWithState(add, "k int, s long", "total long", "update", GroupStateTimeout.NoTimeout)
    )


def transform_with_state(read: Read) -> DataFrame:
    """Keep a sum, the last values and counts per remainder, each in a state of its own."""
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Totals(StatefulProcessor):
        def init(self, handle: Untyped) -> None:
            self.total = handle.getValueState("total", "s long")
            self.last = handle.getListState("last", "v int")
            self.counts = handle.getMapState("counts", "r int", "n long")

        def handleInputRows(
            self, key: tuple[int], rows: Iterator[pd.DataFrame], timers: Untyped
        ) -> Iterator[pd.DataFrame]:
            import pandas as pd

            values = [int(value) for frame in rows for value in frame["v"]]
            known = self.total.get()
            self.total.update(((known[0] if known else 0) + sum(values),))
            self.last.put([(value,) for value in values[-2:]])
            for value in values:
                before = self.counts.getValue((value % 3,)) if self.counts.containsKey((value % 3,)) else (0,)
                self.counts.updateValue((value % 3,), (before[0] + 1,))
            counts = ",".join(f"{r[0]}:{n[0]}" for r, n in sorted(self.counts.iterator()))
            last = ",".join(str(value[0]) for value in self.last.get())
            yield pd.DataFrame(
                {"k": [key[0]], "s": [self.total.get()[0]], "last": [last], "counts": [counts]}
            )

        def close(self) -> None:
            pass

    return (
        read("only")
        .groupBy("k")
        .transformWithStateInPandas(Totals(), "k int, s long, last string, counts string", "Update", "None")
    )


def variables(ttl_ms: int | None) -> Callable[[Read], DataFrame]:
    """Keep a value, a list and a map, each of them for so long; without a time for ever."""

    def build(read: Read) -> DataFrame:
        from pyspark.sql.streaming.stateful_processor import StatefulProcessor

        class Kept(StatefulProcessor):
            def init(self, handle: Untyped) -> None:
                self.total = handle.getValueState("total", "s long", ttl_ms)
                self.last = handle.getListState("last", "v int", ttl_ms)
                self.counts = handle.getMapState("counts", "r int", "n long", ttl_ms)

            def handleInputRows(
                self, key: tuple[int], rows: Iterator[pd.DataFrame], timers: Untyped
            ) -> Iterator[pd.DataFrame]:
                import pandas as pd

                values = [int(value) for frame in rows for value in frame["v"]]
                known = self.total.get()
                self.total.update(((known[0] if known else 0) + sum(values),))
                self.last.appendList([(value,) for value in values])
                for value in values:
                    rest = (value % 3,)
                    before = self.counts.getValue(rest) if self.counts.containsKey(rest) else (0,)
                    self.counts.updateValue(rest, (before[0] + 1,))
                listed = sum(int(value[0]) for value in self.last.get())
                counted = sum((r[0] + 1) * n[0] for r, n in self.counts.iterator())
                yield pd.DataFrame({"k": [key[0]], "s": [self.total.get()[0]], "l": listed, "n": counted})

            def close(self) -> None:
                pass

        grouped, columns = read("only").groupBy("k"), "k int, s long, l long, n long"
        times = "None" if ttl_ms is None else "ProcessingTime"
        return grouped.transformWithStateInPandas(Kept(), columns, "Update", times)

    return build


def timed(read: Read) -> DataFrame:
    """Tell of a key three minutes of events after each of its first rows."""
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Timed(StatefulProcessor):
        def init(self, handle: Untyped) -> None:
            self.handle, self.rows = handle, handle.getValueState("rows", "n long")

        def handleInputRows(
            self, key: tuple[int], rows: Iterator[pd.DataFrame], timers: Untyped
        ) -> Iterator[pd.DataFrame]:
            import pandas as pd

            known = self.rows.get()
            frames = list(rows)
            self.rows.update(((known[0] if known else 0) + sum(map(len, frames)),))
            for frame in frames:
                for ts in frame["ts"]:
                    self.handle.registerTimer(int(ts.timestamp() * 1000) + 180_000)
            yield pd.DataFrame({"k": [key[0]], "at": [0], "n": [self.rows.get()[0]]})

        def handleExpiredTimer(
            self, key: tuple[int], timerValues: Untyped, expiredTimerInfo: Untyped
        ) -> Iterator[pd.DataFrame]:
            import pandas as pd

            at = [expiredTimerInfo.getExpiryTimeInMs()]
            yield pd.DataFrame({"k": [key[0]], "at": at, "n": [self.rows.get()[0]]})

        def close(self) -> None:
            pass

    grouped = read("only").withWatermark("ts", DELAY).groupBy("k")
    return grouped.transformWithStateInPandas(Timed(), "k int, at long, n long", "Update", "EventTime")


def two_operators(read: Read) -> DataFrame:
    """Deduplicate, then aggregate per window."""
    rows = read("only").withWatermark("ts", DELAY).dropDuplicates(["k", "v", "ts"])
    found = rows.groupBy(F.window("ts", "1 minute"), "k").agg(F.sum("v").alias("s"))
    return found.select("k", F.col("window.start").cast("long").alias("start"), "s")


CASES = (
    Case("stateless", no_state, mode="append"),
    Case("hdfs", totals, HDFS),
    Case("rocksdb", totals, ROCKSDB),
    Case("rocksdb-changelog", totals, CHANGELOG),
    Case("format-v2", totals, FORMAT_V2, since=(4, 0)),
    Case("format-v2-changelog", totals, FORMAT_V2_CHANGELOG, since=(4, 0)),
    Case("without-keys", grand_total, HDFS),
    Case("join", join, HDFS, mode="append", partitions=1),
    Case("join-format-v2", join, FORMAT_V2_CHANGELOG, mode="append", since=(4, 0), partitions=1),
    Case(
        "join-one-store",
        join,
        {**FORMAT_V2_CHANGELOG, "spark.sql.streaming.join.stateFormatVersion": "3"},
        mode="append",
        since=(4, 1),
        partitions=1,
    ),
    Case(
        "join-by-time",
        join,
        {**CHANGELOG, "spark.sql.streaming.join.stateFormatVersion": "4"},
        mode="append",
        since=(4, 3),
        partitions=1,
    ),
    Case("session-window", sessions, CHANGELOG, mode="append"),
    Case("dedup", dedup, HDFS, mode="append"),
    Case("dedup-within-watermark", dedup_within_watermark, CHANGELOG, mode="append"),
    Case("pandas-state", pandas_state, HDFS),
    Case("transform-with-state", transform_with_state, CHANGELOG, since=(4, 0)),
    Case("transform-with-state-v2", transform_with_state, FORMAT_V2_CHANGELOG, since=(4, 0)),
    Case("two-operators", two_operators, CHANGELOG, mode="append"),
    Case("named-sources", union_totals, {**HDFS, **NAMED_SOURCES}, since=(4, 2), named_sources=True),
    Case("named-sink", totals, NAMED_SINK, since=(4, 2), named_sink=True),
    Case("kafka", totals, HDFS),
)
