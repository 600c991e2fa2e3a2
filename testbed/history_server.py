"""YARN's ApplicationHistoryServer: shows the logs that its nodes have gathered and no longer keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.ports import LOOPBACK, free_port, is_listening
from testbed.process import Service

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.yarn import Yarn

_MAIN = "org.apache.hadoop.yarn.server.applicationhistoryservice.ApplicationHistoryServer"
_STORE = "org.apache.hadoop.yarn.server.timeline"


class HistoryServer:
    """Its addresses, and its process; nodes lead to it those who ask them for a log."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, free_port()

    def settings(self) -> dict[str, str]:
        """Return what the YARN must know of it: nodes gather logs, and delete theirs then."""
        service = "yarn.timeline-service"
        return {
            "yarn.log-aggregation-enable": "true",
            "yarn.nodemanager.remote-app-log-dir": f"file://{self._folder / 'gathered'}",
            "yarn.nodemanager.delete.debug-delay-sec": "0",
            "yarn.log.server.web-service.url": f"http://{LOOPBACK}:{self._port}/ws/v1/applicationhistory",
            f"{service}.webapp.address": f"{LOOPBACK}:{self._port}",
            f"{service}.address": f"{LOOPBACK}:{free_port()}",
            f"{service}.bind-host": LOOPBACK,
            f"{service}.store-class": f"{_STORE}.MemoryTimelineStore",
            f"{service}.state-store-class": f"{_STORE}.recovery.MemoryTimelineStateStore",
        }

    def of(self, yarn: Yarn) -> Service:
        """Return the process that serves a YARN which has these settings."""
        return Service(
            "ApplicationHistoryServer",
            yarn.daemon(_MAIN, yarn.conf_dir),
            log_file=self._folder / "historyserver.log",
            ready=lambda: is_listening(self._port),
            env=yarn.env(),
        )
