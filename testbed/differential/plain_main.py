"""``python plain_main.py COUNT script.py args...``: plain Spark, until the fixed input is read.

The script runs as it is. With COUNT > 0 a thread waits until so many queries have started and have read
everything, and stops them, as the person would who watches the script.
"""

from __future__ import annotations

import runpy
import sys
import threading
import time
from pathlib import Path

_LOOK_S = 0.05
_PATIENCE_S = 15.0
"""For a query that the script does not start after all: it has failed elsewhere."""


def main() -> None:
    """Run the script."""
    count, script = int(sys.argv[1]), sys.argv[2]
    sys.argv = sys.argv[2:]
    sys.path.insert(0, str(Path(script).resolve().parent))
    if count:
        threading.Thread(target=_watch, args=(count,), daemon=True).start()
    runpy.run_path(script, run_name="__main__")


def _watch(count: int) -> None:
    from pyspark.sql import SparkSession

    seen: set[str] = set()
    news_s = time.monotonic()
    while True:
        time.sleep(_LOOK_S)
        spark = SparkSession._instantiatedSession  # noqa: SLF001  # the active one is another thread's
        active = spark.streams.active if spark is not None else []
        found = {query.id for query in active} - seen
        if found:
            seen |= found
            news_s = time.monotonic()
        if active and (len(seen) >= count or time.monotonic() - news_s > _PATIENCE_S):
            for query in active:
                _finish(query)


def _finish(query: object) -> None:
    try:
        query.processAllAvailable()  # type: ignore[attr-defined]
    except Exception as error:  # noqa: BLE001  # the query's own failure is the script's to see
        print("The query has ended:", type(error).__name__)  # noqa: T201  # into the log
    else:
        query.stop()  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
