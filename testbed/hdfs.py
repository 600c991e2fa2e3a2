"""An HDFS of its own: NameNode and DataNode in one JVM, of the version of Spark's Hadoop client."""

from __future__ import annotations

import getpass
import json
import urllib.request
from typing import TYPE_CHECKING, Any, Self

from testbed import paths
from testbed.ports import LOOPBACK, free_port
from testbed.process import Service
from testbed.spark import spark_paths

if TYPE_CHECKING:
    from pathlib import Path

CLIENT_CONF = {"spark.hadoop.dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "20"}
"""For Spark: by default each small file takes 0.4 s where the only DataNode reports its blocks late."""


class Hdfs:
    """The file system: its address, for as long as it runs; a new start begins empty."""

    def __init__(self, folder: Path, *, heap_mb: int = 256) -> None:
        self.port, self._web_port = free_port(), free_port()
        details = folder / "details.json"
        class_path = f"{paths.class_path('hdfs')}:{spark_paths().spark_home / 'jars'}/*"
        self.service = Service(
            "HDFS",
            [
                *(paths.java(), f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                *("-cp", class_path, "org.apache.hadoop.test.MiniDFSClusterManager", "-format"),
                *("-nnport", str(self.port), "-httpport", str(self._web_port), "-datanodes", "1"),
                *("-D", f"hdfs.minidfs.basedir={folder / 'data'}", "-writeDetails", details),
            ],
            log_file=folder / "hdfs.log",
            ready=details.exists,  # written once the DataNode has reported
            ready_timeout_s=120,
        )

    def __enter__(self) -> Self:
        self.service.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.service.stop()

    @property
    def uri(self) -> str:
        """The root, ``hdfs://host:port``."""
        return f"hdfs://127.0.0.1:{self.port}"

    def put(self, file: Path, place: str) -> str:
        """Copy a file there, and return its address."""
        create = f"http://{LOOPBACK}:{self._web_port}/webhdfs/v1{place}?op=CREATE&noredirect=true"
        user = f"&user.name={getpass.getuser()}"
        with _put(create + user) as answer:
            where: str = json.load(answer)["Location"]
        with _put(where, file.read_bytes()):
            return f"{self.uri}{place}"

    def folders(self, place: str) -> list[str]:
        """Return the names of what is in a folder, sorted."""
        url = f"http://{LOOPBACK}:{self._web_port}/webhdfs/v1{place}?op=LISTSTATUS"
        with urllib.request.urlopen(url) as answer:
            found = json.load(answer)["FileStatuses"]["FileStatus"]
        return sorted(one["pathSuffix"] for one in found)


def _put(url: str, data: bytes | None = None) -> Any:  # noqa: ANN401 - as urllib has it
    request = urllib.request.Request(url, data, method="PUT")  # noqa: S310 - of this machine
    return urllib.request.urlopen(request)  # noqa: S310
