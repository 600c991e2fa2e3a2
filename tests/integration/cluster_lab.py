"""One job in a folder, with its driver on this machine, on a standalone cluster, on YARN, or by a plugin."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.integration.detached_lab import Lab

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.spec import SubmitTarget
    from airflow_flinkstyle.protocol.records import IncarnationRecord
    from airflow_flinkstyle.types import Generation
    from testbed.clusters import Cluster


class ClusterLab(Lab):
    """One job on a cluster."""

    def __init__(
        self, folder: Path, cluster: Cluster, *, secret_env: Mapping[str, str] | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder)
        self.cluster, self._secret_env = cluster, secret_env or {}
        self.client = replace(
            self.client,
            view=replace(
                self.client.view, base_env={**os.environ, **cluster.env}, secret_env=self._secret_env
            ),
        )

    def target(self, *, conf: Mapping[str, str] | None = None) -> SubmitTarget:
        """Return where a driver starts on the cluster, with settings of Spark's beside the cluster's."""
        target = self.cluster.target(super().target())
        return replace(target, conf={**target.conf, **(conf or {})}, secret_env=self._secret_env)

    def end(self) -> None:
        """Kill whatever of the job still runs."""
        for generation in self.client.view.board.generations():
            if self.client.view.run(generation).submit is not None:
                self.client.drivers.end_driver(generation)

    def kill_9(self) -> None:
        """Kill the driver's JVM, as the kernel would."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.jvm(), signal.SIGKILL)

    def jvm(self) -> int:
        """Return the process id of the newest driver's JVM, as this machine counts."""
        return self.on_this_machine(self.newest().jvm_pid)

    def on_this_machine(self, pid: int) -> int:
        """Return this machine's number of a driver's process: in a pod it has another one."""
        if self.cluster.kubernetes is None:
            return pid
        claim = self.newest_claim().encode()
        for status in Path("/proc").glob("[0-9]*/status"):
            with contextlib.suppress(OSError):
                numbers = re.search(r"^NSpid:(.*)$", status.read_text(), re.MULTILINE)
                own = numbers is not None and int(numbers[1].split()[-1]) == pid
                if own and claim in status.with_name("cmdline").read_bytes():
                    return int(status.parent.name)
        raise ProcessLookupError(f"no process of claim {claim.decode()} has number {pid} in its pod")

    def pod(self) -> str:
        """Return the name of the newest driver's pod, as its caller knows it."""
        slot = self.client.view.board.submit(self.newest_generation())
        assert slot is not None
        return slot.value.native_id["pod"]

    def newest_generation(self) -> Generation:
        """Return the generation that was claimed last."""
        return self.client.view.board.generations()[-1]

    def newest_claim(self) -> str:
        """Return the claim of the newest generation."""
        claim = self.client.view.board.claim(self.newest_generation())
        assert claim is not None
        return claim.claim_id

    def newest(self) -> IncarnationRecord:
        """Return what the newest driver said of itself."""
        board, generation = self.client.view.board, self.newest_generation()
        record = board.incarnation(generation, board.incarnations(generation)[-1])
        assert record is not None
        return record

    def logs(self) -> str:
        """Return the ends of all files that drivers have written their logs to."""
        files = [*self.folder.glob("logs/*.log"), *self.cluster.folder.glob("**/stderr")]
        logs = "\n".join(f"{path}\n{path.read_text()[-4000:]}" for path in files)
        return f"{logs}\n{self.cluster.kubernetes.told()}" if self.cluster.kubernetes else logs
