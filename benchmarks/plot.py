"""Draw savepoint time over size as SVG: ``plot.py TARGET``, with ``{"100": [seconds, ...], ...}`` on stdin.

Runs in the environment of benchmarks, the only one with matplotlib.
"""

from __future__ import annotations

import json
import statistics
import sys

import matplotlib as mpl  # type: ignore[import-not-found]

mpl.use("svg")
mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "flinkstyle", "font.size": 11})

from matplotlib import pyplot as plt  # noqa: E402  (after the choice of what draws)

FOREGROUND, GRID = "#1f6feb", "#d0d7de"


def main() -> None:
    """Draw medians as a line, with the range of each."""
    seconds = {int(size): found for size, found in json.load(sys.stdin).items()}
    sizes = sorted(seconds)
    medians = [statistics.median(seconds[size]) for size in sizes]
    below = [median - min(seconds[size]) for size, median in zip(sizes, medians, strict=True)]
    above = [max(seconds[size]) - median for size, median in zip(sizes, medians, strict=True)]
    figure, axes = plt.subplots(figsize=(6.4, 3.6))
    axes.errorbar(sizes, medians, yerr=[below, above], marker="o", capsize=4, color=FOREGROUND)
    for size, median in zip(sizes, medians, strict=True):
        axes.annotate(f"{median:.1f} s", (size, median), textcoords="offset points", xytext=(8, -12))
    axes.set(xlabel="state (MiB)", ylabel="full savepoint (s)", xlim=(0, None), ylim=(0, None))
    axes.grid(color=GRID)
    axes.set_axisbelow(True)
    figure.tight_layout()
    figure.savefig(sys.argv[1], metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main()
