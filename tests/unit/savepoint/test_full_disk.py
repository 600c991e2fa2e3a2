"""A disk that is really full: a small file system of its own, or the kernel's limit on a file's size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[..., Any]

ROOT = Path(__file__).parents[3]

_SCRIPT = """
import resource, subprocess, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from airflow_flinkstyle.savepoint.exchange.export import export_archive, export_savepoint
from airflow_flinkstyle.savepoint.exchange.importing import import_savepoint
from airflow_flinkstyle.savepoint.manifest import KafkaLog
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.files.restore import restore_savepoint
from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy
from airflow_flinkstyle.savepoint.retention.prune import prune
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.storage.errors import StoreUnavailableError
from airflow_flinkstyle.storage.local import LocalStore

live, roomy, small, is_mount = Path(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]), sys.argv[5] == "mount"
kafka = {"0": KafkaLog(cluster_id="old", topic_ids={"orders": "t-1"}, log_range={})}
source = QuerySource(name="totals", checkpoint=LocalStore(live), kafka=kafka)
label = SavepointLabel(savepoint_id="sp-1", taken_at_ms=1, spark_version="4.2.0", taken_from_generation=None)

def files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]

def set_size(kib):
    if is_mount:
        subprocess.run(["mount", "-o", f"remount,size={kib}k", small], check=True)
    else:
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (kib << 10, hard))

def refused(work):
    set_size(160)
    try:
        work()
    except StoreUnavailableError as error:
        assert error.retryable and ("ENOSPC" in str(error) or "EFBIG" in str(error)
                                    or "No space" in str(error) or "too large" in str(error)), error
    else:
        raise AssertionError("there was space")

whole = SavepointRepository(LocalStore(roomy / "root"), "orders")
take_savepoint(whole, [source], label)
export_savepoint(whole, "sp-1", LocalStore(roomy / "folder"))

full = SavepointRepository(LocalStore(small / "root"), "orders")
refused(lambda: take_savepoint(full, [source], label))
assert full.ids() == () and {path.parent.name for path in files(small / "root")} <= {"blobs"}, files(small)
prune(full, RetentionPolicy(max_count=1), in_use=dict, holder="a prune", wait_s=0.0)
assert [path.name for path in files(small / "root")] == ["prune.json"], files(small)

target = LocalStore(small / "target")
refused(lambda: restore_savepoint(whole.read("sp-1"), whole, lambda _: target))
assert target.read("offsets/2").startswith(b"v2147483647")
refused(lambda: export_archive(whole, "sp-1", small / "sp-1.tar"))
assert not list(small.glob("*.tar*")) and not list(small.glob(".*"))
refused(lambda: export_savepoint(whole, "sp-1", LocalStore(small / "folder")))
assert not (small / "folder" / "savepoint.json").exists()
refused(lambda: import_savepoint(LocalStore(roomy / "folder"), full))
assert full.ids() == ()

set_size(4096)
verify_savepoint(take_savepoint(full, [source], label), full, level="full")
restore_savepoint(whole.read("sp-1"), whole, lambda _: target)
assert target.read("offsets/2") == LocalStore(live).read("offsets/2")
export_savepoint(whole, "sp-1", LocalStore(small / "folder"))
assert import_savepoint(LocalStore(small / "folder"), full) == full.read("sp-1")
print("done")
"""
_MOUNT = 'mount -t tmpfs -o size=160k tmpfs "$1" && shift && exec "$@"'


def test_full_disk_is_an_error_that_may_pass_and_leaves_nothing_half_made(a_checkpoint: Make, tmp_path: Path):
    from airflow_flinkstyle.storage.local import LocalStore

    live, small = tmp_path / "live", tmp_path / "small"
    checkpoint = a_checkpoint(batches=3, store=LocalStore(live))
    small.mkdir()
    for number, info in enumerate(list(checkpoint.store.list("state/0/0/SSTs/"))):
        (live / info.key).write_bytes(bytes([number]) * 200_000)
    script = [sys.executable, "-c", _SCRIPT, str(ROOT), live, tmp_path / "roomy", small]
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode == 0:
        command = [*unshare, "sh", "-c", _MOUNT, "sh", small, *script, "mount"]
    else:
        command = [*script, "limit"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
