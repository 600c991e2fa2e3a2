"""Calls to something that is out of reach for a while: they are made again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from airflow_flinkstyle.clock import CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.clock import Clock
    from airflow_flinkstyle.errors import FlinkstyleError

T = TypeVar("T")
log = logging.getLogger(__name__)


def patiently(
    call: Callable[[], T],
    *,
    of: tuple[type[FlinkstyleError], ...],
    for_s: float,
    every_s: float,
    clock: Clock = CLOCK,
) -> T:
    """Return what the call returns; it is made again while it raises one of these errors, if that may pass.

    Args:
        call: Must do no harm when it is made twice.
        of: The errors of which those that are ``retryable`` pass by themselves; the last one is raised when
            the time is up.
        for_s: How long it is made again; 0: never.
        every_s: Between an error and the next call.
        clock: Which measures both.
    """
    wait = clock.wait(for_s, every_s=every_s)
    while True:
        try:
            return call()
        except of as error:
            if not error.retryable or not wait.again():
                raise
            log.warning("Trying again: %s", error)
