"""`make bench` only: the environment with what benchmarks compare with, from its lock file."""

from __future__ import annotations

import sys

from tools.common import LOCKS, VENV_BENCH
from tools.setup import install_venv


def main() -> int:
    """Make the environment if its inputs changed."""
    install_venv(VENV_BENCH, LOCKS / "bench.txt", project=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
