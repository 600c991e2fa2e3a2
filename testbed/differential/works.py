"""The pieces of a script's text that depend on its queries: what each reads, computes and writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.differential.spec import QuerySpec

KAFKA_CAP = 5
"""Records of Kafka for each file that a cap speaks of."""
_WATERMARK = 'withWatermark("ts", "10 minutes")'


def reading(query: QuerySpec, place: int) -> str:
    """Return the function that reads the query's source, and the other one of a join."""
    text = f"\n\ndef rows_{place}():\n    return {_stream(query, 'a')}\n"
    if query.work == "join":
        text += f"\n\ndef others_{place}():\n    return {_stream(query, 'b')}\n"
    return text


def _stream(query: QuerySpec, name: str) -> str:
    cap = ""
    if query.cap is not None and query.source == "kafka":
        cap = f'.option("maxOffsetsPerTrigger", {query.cap * KAFKA_CAP})'
    elif query.cap is not None:
        cap = f'.option("maxFilesPerTrigger", {query.cap})'
    match query.source:
        case "files":
            return f'spark.readStream.schema(SCHEMA){cap}.json(f"{{inputs}}/{name}")'
        case "delta":
            return f'spark.readStream.format("delta"){cap}.load(f"{{inputs}}/{name}-delta")'
        case "rate":
            rate = 'spark.readStream.format("rate").option("rowsPerSecond", 20).load()'
            return f'{rate}.select(F.col("value").alias("id"))'
        case "kafka":
            return f"""(
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", f"{{topics}}-{name}")
        .option("startingOffsets", "earliest"){cap}
        .load()
        .select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("row"))
        .select("row.*")
    )"""


def result(query: QuerySpec, place: int) -> str:
    """Return the function that computes."""
    totals = 'F.count("*").alias("n"), F.sum("v").alias("s")'
    bodies = {
        "project": 'return rows.select("id", "k", (F.col("v") * 2).alias("w"))',
        "count": f'return rows.groupBy("k").agg({totals})',
        "windows": f"""\
counts = rows.{_WATERMARK}.groupBy(F.window("ts", "5 minutes"), "k").agg({totals})
    return counts.select(F.col("window.start").cast("long").alias("start"), "k", "n", "s")""",
        "dedup": f"""\
once = rows.{_WATERMARK}.dropDuplicates(["id", "ts"])
    return once.select("id", "k", F.col("ts").cast("long").alias("t"))""",
        "join": f"""\
left = rows.{_WATERMARK}.dropDuplicates(["id", "ts"]).alias("l")
    right = others_{place}().{_WATERMARK}.dropDuplicates(["id", "ts"]).alias("r")
    near = "l.id = r.id AND l.ts >= r.ts - interval 2 minutes AND l.ts <= r.ts + interval 2 minutes"
    return left.join(right, F.expr(near)).select("l.id", "l.k", F.col("r.v").alias("w"))""",
        "pandas-state": _PANDAS_STATE,
        "transform": _TRANSFORM,
    }
    return f"\n\ndef result_{place}(rows):\n    {bodies[query.work]}\n"


_PANDAS_STATE = """\
from pyspark.sql.streaming.state import GroupStateTimeout

    def add(key, frames, state):
        import pandas as pd

        n, s = state.get if state.exists else (0, 0)
        for frame in frames:
            n, s = n + len(frame), s + int(frame["v"].sum())
        state.update((n, s))
        yield pd.DataFrame({"k": [key[0]], "n": [n], "s": [s]})

    return rows.groupBy("k").applyInPandasWithState(
        add, "k int, n long, s long", "n long, s long", "update", GroupStateTimeout.NoTimeout
    )"""
_TRANSFORM = """\
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Totals(StatefulProcessor):
        def init(self, handle):
            self.totals = handle.getValueState("totals", "n long, s long")

        def handleInputRows(self, key, frames, timers):
            import pandas as pd

            n, s = self.totals.get() if self.totals.exists() else (0, 0)
            for frame in frames:
                n, s = n + len(frame), s + int(frame["v"].sum())
            self.totals.update((n, s))
            yield pd.DataFrame({"k": [key[0]], "n": [n], "s": [s]})

        def close(self):
            pass

    return rows.groupBy("k").transformWithStateInPandas(
        Totals(), "k int, n long, s long", "Update", "None"
    )"""


def writing(query: QuerySpec, place: int, *, fails_once: bool) -> str:
    """Return the query's ``foreachBatch`` function, if it has one."""
    body = _bodies(query, place).get(query.sink)
    if body is None:
        return ""
    fails = ""
    if fails_once:
        fails = """\
    if batch_id == 1 and not os.path.exists(f"{outputs}/failed"):
        open(f"{outputs}/failed", "w").close()
        raise RuntimeError("the database is away")
"""
    before = ""
    if query.sink == "transactional":
        before = f"""

from airflow_flinkstyle.sinks import TransactionalKafkaSink

sink_{place} = TransactionalKafkaSink(
    {{"bootstrap.servers": servers}},
    topic=f"{{topics}}-out-{place}",
    shards=2,
    lineage=f"{{topics}}-{place}",
)"""
    return f"{before}\n\ndef write_{place}(batch, batch_id):\n{fails}{body}\n"


def _bodies(query: QuerySpec, place: int) -> dict[str, str]:
    folder = f"{{outputs}}/{place}"
    collect = f"""\
    rows = [row.asDict() for row in batch.collect()]
    os.makedirs(f"{folder}", exist_ok=True)
"""
    upsert = f'    path = f"{folder}/table.json"\n'
    if query.mode == "update":
        upsert += """\
    table = {}
    if os.path.exists(path):
        with open(path) as file:
            table = {str((row.get("start"), row["k"])): row for row in json.load(file)}
    table.update({str((row.get("start"), row["k"])): row for row in rows})
    rows = list(table.values())
"""
    return {
        "batch-append": collect
        + f"""\
    with open(f"{folder}/rows.jsonl", "a") as file:
        file.write("".join(json.dumps(row) + "\\n" for row in rows))""",
        "batch-file": collect + f'    path = f"{folder}/{{batch_id:06d}}.json"\n' + _replace("rows"),
        "batch-upsert": collect + upsert + _replace("rows"),
        "batch-remember": collect
        + f"""\
    path, seen = f"{folder}/seen.json", {{"last": -1, "rows": []}}
    if os.path.exists(path):
        with open(path) as file:
            seen = json.load(file)
    if batch_id <= seen["last"]:
        return  # written before
    seen = {{"last": batch_id, "rows": seen["rows"] + [[batch_id, row] for row in rows]}}
"""
        + _replace("seen"),
        "batch-txn": f"""\
    writer = batch.write.format("delta").mode("append")
    writer.option("txnAppId", "orders-{place}").option("txnVersion", batch_id).save(f"{folder}")""",
        "batch-merge": f"""\
    path = f"{folder}"
    if not os.path.isdir(f"{{path}}/_delta_log"):
        batch.limit(0).write.format("delta").save(path)
    batch.createOrReplaceTempView("changes_{place}")
    batch.sparkSession.sql(
        f"MERGE INTO delta.`{{path}}` AS t USING changes_{place} AS c ON {_same(query)} "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )""",
        "transactional": f"    sink_{place}.foreach_batch(batch, batch_id)",
    }


def _same(query: QuerySpec) -> str:
    return "t.k = c.k AND t.start = c.start" if query.work == "windows" else "t.k = c.k"


def _replace(what: str) -> str:
    return f"""\
    with open(path + ".new", "w") as file:
        json.dump({what}, file)
    os.replace(path + ".new", path)"""


def sink(query: QuerySpec, place: int) -> str:
    """Return what starts the writer."""
    match query.sink:
        case "json" | "parquet" | "delta":
            return f'writer.format("{query.sink}").start(f"{{outputs}}/{place}")'
        case "memory":
            return 'writer.format("memory").start()'
        case "kafka":
            return (
                'writer.format("kafka").option("kafka.bootstrap.servers", servers)'
                f'.option("topic", f"{{topics}}-out-{place}").start()'
            )
        case _:
            return f"writer.foreachBatch(write_{place}).start()"


def as_records(query: QuerySpec) -> str:
    """Return what makes records for Kafka of the result's rows."""
    if query.sink not in ("kafka", "transactional"):
        return ""
    key = 'F.col("id").cast("string").alias("key"), ' if query.sink == "transactional" else ""
    if key and query.work == "windows":
        key = 'F.col("k").cast("string").alias("key"), '
    return f'.select({key}F.to_json(F.struct("*")).alias("value"))'
