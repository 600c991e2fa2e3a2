"""`make bench` only: what benchmarks compare with, from its lock file, and the S3 server they copy to."""

from __future__ import annotations

import sys
from pathlib import Path

from tools import jars, versitygw
from tools.common import BENCH_JARS, HOME, JAVA_HOME_FILE, LOCKS, VENV_BENCH
from tools.setup import install_venv


def main() -> int:
    """Make what is missing or changed."""
    versitygw.ensure()
    install_venv(VENV_BENCH, LOCKS / "bench.txt", project=False)
    jars.ensure(Path(JAVA_HOME_FILE.read_text()), BENCH_JARS, HOME / "jars-bench")
    return 0


if __name__ == "__main__":
    sys.exit(main())
