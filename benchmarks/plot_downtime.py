"""Draw what the downtime benchmarks have found as SVG: ``plot_downtime.py RESULTS TARGET``.

Bars are medians, whiskers the whole range. Runs in the environment of benchmarks, the only one with
matplotlib, after each of them: those that have not run yet are left out.
"""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl  # type: ignore[import-not-found]

mpl.use("svg")
mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "flinkstyle", "font.size": 11})

from matplotlib import pyplot as plt  # noqa: E402  (after the choice of what draws)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

WAITING, OURS, SPARK, FLINK = (
    "before the window",
    "until Spark starts the queries",
    "Spark's first batch",
    "Flink",
)
GRID = "#d0d7de"
COLOURS = {WAITING: "#8c959f", OURS: "#1f6feb", SPARK: "#f2a33a", FLINK: "#8250df"}


@dataclass(frozen=True)
class Bar:
    """One way of replacing a job."""

    name: str
    parts: Mapping[str, float]
    """Who takes how many seconds."""
    seconds: Sequence[float]


def main() -> None:
    """Draw all bars, the shortest at the top."""
    folder, target = Path(sys.argv[1]), sys.argv[2]
    bars = sorted(_bars(folder), key=lambda bar: -statistics.median(bar.seconds))
    figure, axes = plt.subplots(figsize=(8.0, 0.9 + 0.5 * len(bars)))
    for row, bar in enumerate(bars):
        left = 0.0
        for who, seconds in bar.parts.items():
            axes.barh(row, seconds, left=left, color=COLOURS[who], height=0.6)
            left += seconds
        median = statistics.median(bar.seconds)
        reach = [[median - min(bar.seconds)], [max(bar.seconds) - median]]
        axes.errorbar(median, row, xerr=reach, color="#24292f", capsize=3, linewidth=1)
        axes.annotate(f"{median:.1f} s", (max(bar.seconds), row), (6, -4), textcoords="offset points")
    used = [who for who in COLOURS if any(bar.parts.get(who) for bar in bars)]
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLOURS[who]) for who in used]
    axes.legend(handles, used, loc="upper right", frameon=False)
    axes.set_yticks(range(len(bars)), [bar.name for bar in bars])
    axes.set_xlabel("seconds between the last commit before and the first one after")
    axes.set_xlim(0, 1.12 * max(max(bar.seconds) for bar in bars))
    axes.grid(axis="x", color=GRID)
    axes.set_axisbelow(True)
    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None, "Creator": None})


def _bars(folder: Path) -> Iterator[Bar]:
    for size, by in _raw(folder, "downtime").items():
        for how, found in by.items():
            yield _ours(f"upgrade, {how.partition(' (')[0]}, {size}", found)
    for size, found in _raw(folder, "downtime_migration").items():
        yield _ours(f"migration, rehearsed, {size}", found)
    beside = _raw(folder, "downtime_beside_flink")
    if beside:
        yield _ours("upgrade, rehearsed, 600 MiB", beside["ours"])
        flink = next(found for how, found in beside["seconds"].items() if "Flink" in how)
        yield Bar("Flink: stop, run -s, 600 MiB", {FLINK: statistics.median(flink)}, flink)


def _raw(folder: Path, name: str) -> dict[str, Any]:
    file = folder / f"{name}.json"
    return dict(json.loads(file.read_text())["raw"]) if file.exists() else {}


def _ours(name: str, found: Sequence[Mapping[str, float]]) -> Bar:
    parts = {WAITING: "before_s", OURS: "ours_s", SPARK: "spark_s"}
    medians = {who: statistics.median(one[key] for one in found) for who, key in parts.items()}
    return Bar(name, medians, [one["downtime_s"] for one in found])


if __name__ == "__main__":
    main()
