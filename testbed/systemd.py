"""A real systemd in namespaces of its own: what its units end, it ends here alone.

It has its own processes, mounts, cgroups and network, and sees this machine's files read-only, except for the
folder that it is given. Its units are those of a test: none of this machine's is known to it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Self

from testbed.process import Service, ServiceError
from testbed.waiting import PATIENCE_S

PROGRAMS = ("systemd", "dbus-daemon", "unshare", "nsenter")
_NAMESPACES = ("--pid", "--mount", "--cgroup", "--ipc", "--uts", "--net")
_TARGETS = ("sysinit", "basic", "shutdown", "sockets", "paths", "timers", "slices")
_UNITS = {
    **{f"{name}.target": "[Unit]\nDefaultDependencies=no\n" for name in _TARGETS},
    "tests.target": "[Unit]\nWants=dbus.service\n",
    "dbus.socket": "[Socket]\nListenStream=/run/dbus/system_bus_socket\n",
    "dbus.service": "[Unit]\nRequires=dbus.socket\n[Service]\nType=notify\nExecStart=dbus-daemon "
    "--system --nofork --nopidfile --systemd-activation --address=systemd:\n",
    # A user's manager, as logind starts it for users that linger.
    "user@.service": "[Service]\nType=notify\nUser=%i\nSlice=user-%i.slice\nDelegate=yes\n"
    "Environment=XDG_RUNTIME_DIR=/run/user/%i SYSTEMD_UNIT_PATH=/run/units\n"
    "ExecStart=/lib/systemd/systemd --user --unit=basic.target\n",
}
_BEGIN = """
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
mount -t proc proc /proc
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
umount --recursive /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/lib/systemd
mount -o remount,bind,ro /
mkdir -p /run/dbus /run/systemd /run/user /var/lib/systemd/linger
cp -r "$UNITS" /run/units
exec env -i container=test SYSTEMD_UNIT_PATH=/run/units PATH="$PATH" \\
  /lib/systemd/systemd --system --unit=tests.target --show-status=no --log-target=console
"""


def why_not() -> str | None:
    """Return why this machine cannot run one; None if it can."""
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        return f"programs are missing: {', '.join(missing)}"
    if os.geteuid() != 0:
        return "only root may make the namespaces"
    if (parent := _own_cgroup()) is None or not os.access(parent, os.W_OK):
        return "no cgroup v2 that can be written"
    mounts = "mount --make-rprivate / && mount -t tmpfs tmpfs /run && mount -t cgroup2 cgroup2 /run"
    command = ["unshare", *_NAMESPACES, "--fork", "sh", "-c", mounts]
    probe = subprocess.run(command, capture_output=True, text=True)  # noqa: S603  # in namespaces that end with it
    return f"namespaces or mounts are refused: {probe.stderr.strip()}" if probe.returncode else None


class Systemd:
    """Runs inside ``with``; its processes end with it."""

    def __init__(self, folder: Path) -> None:
        """Prepare; ``folder`` is what its services may write to."""
        self.folder = folder
        self._cgroup = (_own_cgroup() or Path("/nonexistent")) / f"flinkstyle-test-{os.getpid()}"
        units = folder / "units"
        units.mkdir()
        for name, text in _UNITS.items():
            (units / name).write_text(text)
        enter = f'echo $$ > {self._cgroup}/cgroup.procs && exec "$@"'
        begin = ("unshare", *_NAMESPACES, "--fork", "--kill-child", "sh", "-c", _BEGIN, "sh")
        self._service = Service(
            "systemd",
            ["sh", "-c", enter, "sh", *begin, folder],
            log_file=folder / "systemd.log",
            env={"PATH": os.environ["PATH"], "UNITS": str(units)},
            ready=self._is_ready,
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Return once its bus answers; raises ``ServiceError`` where it does not come up."""
        self._cgroup.mkdir()
        try:
            self._service.start()
        except BaseException:
            self._remove_cgroups()
            raise

    def close(self) -> None:
        """End it with all that runs in it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)  # the first of its namespace: all others end with it
        self._service.stop()
        self._remove_cgroups()

    @property
    def pid(self) -> int:
        """Process id, as this process sees it, of the systemd itself."""
        children = Path(f"/proc/{self._service.pid}/task/{self._service.pid}/children").read_text().split()
        return int(children[0])

    def run(self, *command: str | Path) -> str:
        """Run a command beside the units, as root, and return what it says.

        Raises:
            ServiceError: If it fails, with what it said.
        """
        enter = ("nsenter", f"--target={self.pid}", "--pid", *_NAMESPACES[1:], "--")
        done = subprocess.run(  # noqa: S603  # a test's own commands
            [*enter, *(str(part) for part in command)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise ServiceError(f"{command} failed: {done.stdout}{done.stderr}{self._service.log_text()}")
        return done.stdout

    def _is_ready(self) -> bool:
        try:
            return self.run("systemctl", "is-active", "dbus.service").strip() == "active"
        except (ServiceError, IndexError, OSError):
            return False

    def _remove_cgroups(self) -> None:
        """Remove what it made, the innermost first; a cgroup is busy until its last process is reaped."""
        deadline_s = time.monotonic() + PATIENCE_S
        while self._cgroup.exists():
            for folder in sorted(self._cgroup.rglob("*/"), reverse=True):
                with contextlib.suppress(OSError):
                    folder.rmdir()
            try:
                self._cgroup.rmdir()
            except OSError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.05)


def _own_cgroup() -> Path | None:
    """Return this process's cgroup in the hierarchy of cgroup v2."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    root = next((fields[1] for fields in mounts if fields[2] == "cgroup2"), None)
    own = [line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")]
    return Path(f"{root}{own[0]}") if root and own else None
