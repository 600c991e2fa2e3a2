"""Take one savepoint of a checkpoint in a process of its own: ``python -m benchmarks.take CHECKPOINT ROOT``.

Prints seconds and bytes as JSON. ``--unhashed`` shows what hashing costs: a stand-in answers for SHA-256 at
once and always the same. What is left behind then is no savepoint.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from pathlib import Path
from typing import IO

from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.repository.summary import newest_savepoint
from airflow_flinkstyle.storage.open import open_store
from benchmarks.counted import requests_of


class NoHash:
    """Looks like SHA-256 and reads nothing."""

    def __init__(self, _content: bytes = b"") -> None:
        """Take what SHA-256 takes."""

    def update(self, _content: bytes) -> None:
        """Ignore it."""

    def hexdigest(self) -> str:
        """Return 64 digits."""
        return "0" * 64


def digest_of_nothing(file: IO[bytes], _name: str) -> NoHash:
    """Stand at the end of the file, as after reading it."""
    file.seek(0, os.SEEK_END)
    return NoHash()


def main() -> None:
    """Take it, timed without the start of Python."""
    parser = argparse.ArgumentParser(prog="benchmarks.take", description=__doc__)
    parser.add_argument("checkpoint", help="of a query without Kafka sources")
    parser.add_argument("root", help="savepoint root")
    parser.add_argument("--unhashed", action="store_true")
    parser.add_argument("--out", type=Path, help="also write the answer to this file")
    args = parser.parse_args()
    if args.unhashed:
        vars(hashlib).update(sha256=NoHash, file_digest=digest_of_nothing)
    store = open_store(args.root)
    counted = requests_of(store)
    repository = SavepointRepository(store, "bench")
    source = QuerySource(name="query", checkpoint=open_store(args.checkpoint), kafka={})
    now_ms = time.time_ns() // 1_000_000
    label = SavepointLabel(
        savepoint_id=f"sp-{now_ms}", taken_at_ms=now_ms, spark_version="4.2.0", taken_from_generation=None
    )
    previous = newest_savepoint(repository)
    counted.clear()
    began_s = time.monotonic()
    manifest = take_savepoint(repository, [source], label, previous=previous)
    seconds = time.monotonic() - began_s
    answer = json.dumps({"seconds": seconds, "size_bytes": manifest.total_bytes, "requests": counted.total()})
    print(answer)  # noqa: T201  (its purpose)
    if args.out:
        args.out.write_text(answer)


if __name__ == "__main__":
    main()
