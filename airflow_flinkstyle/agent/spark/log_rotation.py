"""The driver's log, kept short from inside the driver."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_flinkstyle.protocol import driver_log

if TYPE_CHECKING:
    from collections.abc import Mapping

_POLL_S = 5.0
log = logging.getLogger(__name__)


def keep_log_short(env: Mapping[str, str]) -> None:
    """Rotate the log that the environment names, until this process ends."""
    path = env.get(driver_log.PATH_VARIABLE)
    if path:
        threading.Thread(target=_rotate, args=(Path(path),), name="flinkstyle-log", daemon=True).start()


def _rotate(path: Path) -> None:
    failed = False
    while True:
        try:
            if driver_log.rotate(path):
                log.info("Rotated this log; the older part is %s.1", path)
            failed = False
        except OSError as error:  # a full disk, or a log that was deleted, ends no driver
            if not failed:
                log.warning("The driver's log cannot be rotated for now: %s", error)
            failed = True
        time.sleep(_POLL_S)
