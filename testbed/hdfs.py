"""An HDFS of its own: one NameNode, one DataNode, of the version of Spark's Hadoop client."""

from __future__ import annotations

import subprocess
import urllib.request
from typing import TYPE_CHECKING, Self
from xml.sax.saxutils import escape

from testbed import paths
from testbed.ports import free_port, is_listening
from testbed.process import Service
from testbed.spark import spark_paths

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_HDFS = "org.apache.hadoop.hdfs.server"


class Hdfs:
    """The file system: its address and the settings a driver needs; what is stored ends with the folder."""

    def __init__(self, folder: Path, *, heap_mb: int = 256) -> None:
        self.port, self._web_port = free_port(), free_port()
        self._folder = folder
        class_path = f"{folder / 'conf'}:{paths.class_path('hdfs')}:{spark_paths().spark_home / 'jars'}/*"
        self._java = (str(paths.java()), f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", "-cp", class_path)
        self.name_node = Service(
            "HDFS NameNode",
            [*self._java, f"{_HDFS}.namenode.NameNode"],
            log_file=folder / "namenode.log",
            ready=lambda: is_listening(self.port) and is_listening(self._web_port),
        )
        self.data_node = Service(
            "HDFS DataNode",
            [*self._java, f"{_HDFS}.datanode.DataNode"],
            log_file=folder / "datanode.log",
            ready=self._has_data_node,
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def uri(self) -> str:
        """The root, ``hdfs://host:port``."""
        return f"hdfs://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Format the file system and wait until it takes files."""
        self._configure()
        try:
            self.name_node.start()
            self.data_node.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop both."""
        for service in (self.data_node, self.name_node):
            service.stop()

    def _has_data_node(self) -> bool:
        query = "jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
        with urllib.request.urlopen(f"http://127.0.0.1:{self._web_port}/{query}", timeout=10) as answer:
            return b'"NumLiveDataNodes" : 1' in answer.read()

    def _configure(self) -> None:
        conf = self._folder / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        here = "127.0.0.1"
        (conf / "core-site.xml").write_text(_as_xml({"fs.defaultFS": self.uri}))
        (conf / "hdfs-site.xml").write_text(
            _as_xml(
                {
                    "dfs.namenode.name.dir": f"file://{self._folder}/name",
                    "dfs.datanode.data.dir": f"file://{self._folder}/data",
                    "dfs.namenode.rpc-address": f"{here}:{self.port}",
                    "dfs.namenode.http-address": f"{here}:{self._web_port}",
                    "dfs.datanode.address": f"{here}:0",
                    "dfs.datanode.http.address": f"{here}:0",
                    "dfs.datanode.ipc.address": f"{here}:0",
                    "dfs.replication": "1",
                    "dfs.permissions.enabled": "false",
                    "dfs.namenode.safemode.extension": "0",
                }
            )
        )
        command = [*self._java, f"{_HDFS}.namenode.NameNode", "-format", "-force", "-nonInteractive"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)  # noqa: S603  # our own
        if done.returncode != 0:
            raise RuntimeError(f"Formatting HDFS ended with {done.returncode}: {done.stderr[-2000:]}")


def _as_xml(settings: Mapping[str, str]) -> str:
    rows = (
        f"<property><name>{name}</name><value>{escape(value)}</value></property>"
        for name, value in settings.items()
    )
    return f"<configuration>{''.join(rows)}</configuration>"
