"""``python -m benchmarks [NAME ...] [--quick]``: run benchmarks one after another and publish their tables.

A quick run uses small sizes and only prints: its figures say nothing.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from typing import TYPE_CHECKING

from benchmarks import publish

if TYPE_CHECKING:
    from benchmarks.common import Report

NAMES = (
    *("copy_speed", "small_files", "many_files", "flink_native", "slowdown", "copies_people_make"),
    *("translation_accuracy", "translation_speed"),
    *("commit_cost", "sink_speed", "sink_beside_flink"),
    *("downtime", "downtime_beside_flink", "downtime_migration", "rehearsal_cost"),
    "compare",
    *("recovery", "recovery_on_clusters", "recovery_beside_flink"),
    *("state_reader", "state_rows", "state_transform", "store_requests"),
    *("ten_thousand", "ten_thousand_job", "many_jobs"),
)
"""Modules of this package with ``run(*, quick: bool) -> Report``, in the order of the docs."""


def main() -> int:
    """Return 1 if a benchmark failed or a promise was not kept in a full run."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], help="default: all")
    parser.add_argument("--quick", action="store_true", help="small sizes; nothing is written")
    options = parser.parse_args()
    kept = True
    for name in options.names or NAMES:
        began_s = time.monotonic()
        report: Report = importlib.import_module(f"benchmarks.{name}").run(quick=options.quick)
        when = publish.occasion(time.monotonic() - began_s)
        print(f"\n## {name}\n\n{publish.as_markdown(report, when)}", flush=True)  # noqa: T201  (its purpose)
        if not options.quick:
            publish.save(name, report, when)
            if name.startswith("downtime"):
                publish.draw_downtime()
            kept = kept and all(target.met for target in report.targets)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
