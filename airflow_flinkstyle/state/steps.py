"""The progress of a change of state, in this module's log: as a step begins, while it runs, as it ends."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Tasks = Callable[[], tuple[int, int]]
    """Returns how many tasks of the running stages are done, and how many there are."""

log = logging.getLogger(__name__)
TOOK: Final = "%s took %.1f s"
PROGRESS_PREFIX: Final = "flinkstyle: "
"""Begins such a line on standard error, for ``flinkstyle``, which runs this in another process."""
_EVERY_S: Final = 10.0


@contextlib.contextmanager
def step(what: str, tasks: Tasks, *, every_s: float = _EVERY_S) -> Iterator[None]:
    """Log that a step begins, every few seconds how far Spark is, and how long it took.

    Args:
        what: The step, such as ``writing operator 0``.
        tasks: How far Spark is; its errors are ignored, since it only informs.
        every_s: Seconds between two lines.
    """
    begun_s = time.monotonic()
    log.info("%s", what)
    ends = threading.Event()
    reporter = threading.Thread(target=_report, args=(what, tasks, ends, every_s), daemon=True)
    reporter.start()
    try:
        yield
    finally:
        ends.set()
        reporter.join()
    log.info(TOOK, what, time.monotonic() - begun_s)


def log_to_stderr() -> None:
    """Write these lines to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(f"{PROGRESS_PREFIX}%(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)


def _report(what: str, tasks: Tasks, ends: threading.Event, every_s: float) -> None:
    while not ends.wait(every_s):
        with contextlib.suppress(Exception):
            done, total = tasks()
            log.info("%s: %d of %d tasks", what, done, total)
