"""The text of a script, as people write it.

Its arguments: the folder of the inputs, the folder of the outputs, the folder of its checkpoints, the Kafka
servers, and what its topics' names begin with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.differential import works

if TYPE_CHECKING:
    from testbed.differential.spec import QuerySpec, ScriptSpec

RELEASED = "go-on"
"""A file beside the inputs: a staggered script starts its next query once it is there."""
_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def render(spec: ScriptSpec) -> str:
    """Return the script."""
    parts = [_head(spec)]
    for place, query in enumerate(spec.queries):
        parts.append(works.reading(query, place))
        if query.source != "rate":
            parts.append(works.result(query, place))
        parts.append(works.writing(query, place, fails_once=spec.fails_once and place == 0))
        parts.append(_start(spec, query, place))
    parts.append(_SHAPES[spec.shape](spec))
    parts += [_show(query, place) for place, query in enumerate(spec.queries) if query.sink == "memory"]
    return "\n".join(parts)


def _head(spec: ScriptSpec) -> str:
    confs = []
    if spec.provider != "default":
        confs.append(("spark.sql.streaming.stateStore.providerClass", _PROVIDER))
    if spec.provider == "changelog":
        confs.append(("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true"))
    configured = "".join(f'.config("{name}", "{value}")' for name, value in confs)
    text = f"""\
import json
import os
import sys
import threading
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

inputs, outputs, checkpoints, servers, topics = sys.argv[1:6]
spark = SparkSession.builder.appName("orders"){configured}.getOrCreate()
SCHEMA = "id long, k int, v int, ts timestamp"
"""
    if spec.checkpoint == "conf":
        text += 'spark.conf.set("spark.sql.streaming.checkpointLocation", checkpoints)\n'
    return text


def _start(spec: ScriptSpec, query: QuerySpec, place: int) -> str:
    options = f'.queryName("{query.name}")' if query.name is not None else ""
    options += f'.outputMode("{query.mode}")'
    if spec.checkpoint == "option":
        options += f'.option("checkpointLocation", f"{{checkpoints}}/{place}")'
    triggers = {
        "default": "",
        "interval": '.trigger(processingTime="300 milliseconds")',
        "once": ".trigger(once=True)",
        "available-now": ".trigger(availableNow=True)",
    }
    rows = f"rows_{place}()" if query.source == "rate" else f"result_{place}(rows_{place}())"
    return f"""
def start_{place}():
    writer = {rows}{works.as_records(query)}.writeStream{options}{triggers[spec.trigger]}
    return {works.sink(query, place)}
"""


def _all(spec: ScriptSpec) -> str:
    return ", ".join(f"start_{place}" for place in range(len(spec.queries)))


def _straight(spec: ScriptSpec) -> str:
    count = len(spec.queries)
    lines = [f"query_{place} = start_{place}()" for place in range(count)]
    lines += [f"query_{place}.awaitTermination()" for place in range(count)]
    return "\n".join(lines) + "\n"


def _loop(spec: ScriptSpec) -> str:
    return f"""
queries = []
for start in [{_all(spec)}]:
    queries.append(start())
for query in queries:
    query.awaitTermination()
"""


def _sequence(spec: ScriptSpec) -> str:
    return f"""
for start in [{_all(spec)}]:
    start().awaitTermination()
"""


def _staggered(spec: ScriptSpec) -> str:
    return f"""
queries = []
for start in [{_all(spec)}]:
    queries.append(start())
    while not os.path.exists(f"{{inputs}}/{RELEASED}"):
        time.sleep(0.05)
while any(query.isActive for query in queries):
    time.sleep(0.1)
for query in queries:
    query.awaitTermination()
"""


def _threads(spec: ScriptSpec) -> str:
    return f"""
def run(start):
    start().awaitTermination()

threads = [threading.Thread(target=run, args=(start,)) for start in [{_all(spec)}]]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def _restart(spec: ScriptSpec) -> str:
    others = ", ".join(f"start_{place}" for place in range(1, len(spec.queries)))
    return f"""
others = [start() for start in [{others}]]
for attempt in range(3):
    try:
        query = start_0()
        query.awaitTermination()
        break
    except Exception as error:
        print("starting again after", type(error).__name__)
        time.sleep(0.1)
for query in others:
    query.awaitTermination()
"""


def _conditional(spec: ScriptSpec) -> str:
    last = len(spec.queries) - 1
    starts = "\n".join(f"queries.append(start_{place}())" for place in range(last))
    return f"""
queries = []
{starts}
if os.path.isdir(inputs):
    queries.append(start_{last}())
while [query for query in queries if query.isActive]:
    spark.streams.awaitAnyTermination(1)
for query in queries:
    if query.exception() is not None:
        raise query.exception()
"""


def _show(query: QuerySpec, place: int) -> str:
    return f"""
found = [row.asDict() for row in spark.table("{query.name}").collect()]
os.makedirs(f"{{outputs}}/{place}", exist_ok=True)
with open(f"{{outputs}}/{place}/table.json", "w") as file:
    json.dump(found, file, default=str)
"""


_SHAPES = {
    "straight": _straight,
    "loop": _loop,
    "sequence": _sequence,
    "staggered": _staggered,
    "threads": _threads,
    "restart": _restart,
    "conditional": _conditional,
}
