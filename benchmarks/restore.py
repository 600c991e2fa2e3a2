"""Restore the newest savepoint in a process of its own: ``python -m benchmarks.restore ROOT TARGET``."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from airflow_flinkstyle.savepoint.files.restore import restore_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.repository.summary import newest_savepoint
from airflow_flinkstyle.storage.open import open_store
from benchmarks.counted import requests_of


def main() -> None:
    """Restore it, timed without the start of Python."""
    parser = argparse.ArgumentParser(prog="benchmarks.restore", description=__doc__)
    parser.add_argument("root", help="savepoint root")
    parser.add_argument("target", help="of its query")
    parser.add_argument("--out", type=Path, required=True, help="where the answer goes")
    args = parser.parse_args()
    store = open_store(args.root)
    counted = requests_of(store)
    repository = SavepointRepository(store, "bench")
    began_s = time.monotonic()
    manifest = newest_savepoint(repository)
    if manifest is None:
        raise RuntimeError(f"Expected a savepoint below {args.root}, found none.")
    restore_savepoint(manifest, repository, lambda _: open_store(args.target))
    answer = {"seconds": time.monotonic() - began_s, "requests": counted.total()}
    args.out.write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
