"""The coverage-guided fuzzer: ``make fuzz``, or ``python -m tools.fuzz --seconds 60 [TARGET ...]``.

Inputs that reached something new are kept in ``.flinkstyle/fuzz``; one that found something is written to
``.flinkstyle/fuzz/found-...`` and shown with its traceback: ``python -m tools.fuzz --again FILE`` repeats it.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

try:
    import atheris
except ModuleNotFoundError:
    sys.exit("atheris was expected, found none: it is built for Linux on x86-64 only. Nothing was tried.")

from tools.common import HOME

with atheris.instrument_imports(include=["airflow_flinkstyle", "tools.fuzz_targets"]):
    from tools import fuzz_targets


def main() -> None:
    """Fuzz for the given time; the exit code is 0 if nothing was found."""
    parser = argparse.ArgumentParser(prog="tools.fuzz")
    parser.add_argument("targets", nargs="*", metavar="TARGET", choices=[*fuzz_targets.TARGETS, []])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--folder", type=Path, default=HOME / "fuzz")
    parser.add_argument("--again", type=Path, help="an input that found something")
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    names = list(fuzz_targets.TARGETS)
    wanted = set(asked.targets or names)

    def one(data: bytes) -> None:
        name = names[data[0] % len(names)] if data else names[0]
        if name in wanted:
            fuzz_targets.run(name, data[1:])

    if asked.again is not None:
        one(asked.again.read_bytes())
        return
    corpus = asked.folder / "corpus"
    fuzz_targets.write_corpus(corpus)
    options = [
        f"-max_total_time={asked.seconds}", "-timeout=20", "-rss_limit_mb=2048", "-max_len=65536",
        f"-artifact_prefix={asked.folder}/found-", "-print_final_stats=1", "-verbosity=1",
    ]  # fmt: skip
    atheris.Setup([sys.argv[0], *options, str(corpus)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
