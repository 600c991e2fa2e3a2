"""A checkpoint that looks like RocksDB's, of any size, without Spark: random bytes in files of real sizes."""

from __future__ import annotations

import io
import json
import os
import uuid
import zipfile
from typing import TYPE_CHECKING

from benchmarks.common import MIB

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SST_BYTES = tuple(size * MIB for size in (64, 64, 32, 16, 4))
"""Sizes in turn: RocksDB's target size, and younger files."""
PARTITIONS = 4
_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class SyntheticCheckpoint:
    """One query, whose state is replaced a piece at a time."""

    def __init__(
        self,
        root: Path,
        size_bytes: int,
        *,
        partitions: int = PARTITIONS,
        sst_bytes: Sequence[int] = SST_BYTES,
    ) -> None:
        """Write it; ``sst_bytes`` are the sizes of its files in turn, all ``partitions`` share them."""
        self.root = root
        self._batch, self._partitions = -1, partitions
        self._ssts: list[list[str]] = [[] for _ in range(partitions)]
        self._block = os.urandom(MIB)
        self._write("metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
        self._write("sources/0/0", b"\0v1\n{}")
        left, number = size_bytes, 0
        while left > 0:
            size = min(left, sst_bytes[number % len(sst_bytes)])
            self._add_sst(number % partitions, size)
            left, number = left - size, number + 1
        self._commit()
        self._commit()

    def replace_bytes(self, size_bytes: int) -> int:
        """Run a batch that replaces at least so many bytes by new files; returns how many."""
        replaced, partition = 0, 0
        while replaced < size_bytes:
            places = [self._sst_path(partition, name) for name in self._ssts[partition]]
            oldest = min(places, key=lambda path: path.stat().st_size)
            size = oldest.stat().st_size
            self._ssts[partition].remove(oldest.name)
            oldest.unlink()
            self._add_sst(partition, size)
            replaced, partition = replaced + size, (partition + 1) % self._partitions
        self._commit()
        return replaced

    def _commit(self) -> None:
        """Write a batch: offsets, a zip with the list of files per partition, commit."""
        self._batch += 1
        conf = {
            "spark.sql.streaming.stateStore.providerClass": _PROVIDER,
            "spark.sql.shuffle.partitions": str(self._partitions),
        }
        header = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": conf})
        offsets = f'v1\n{header}\n{{"logOffset":{self._batch}}}'
        self._write(f"offsets/{self._batch}", offsets.encode())
        for partition, names in enumerate(self._ssts):
            for stale in (self.root / f"state/0/{partition}").glob("*.zip"):
                stale.unlink()
            content = io.BytesIO()
            with zipfile.ZipFile(content, "w") as archive:
                entries = [{"dfsSstFileName": name} for name in names]
                archive.writestr("metadata", "v1\n" + json.dumps({"sstFiles": entries}))
            self._write(f"state/0/{partition}/{self._batch + 1}.zip", content.getvalue())
        self._write(f"commits/{self._batch}", b'v1\n{"nextBatchWatermarkMs":0}')

    def _add_sst(self, partition: int, size_bytes: int) -> None:
        name = f"{len(self._ssts[partition]):06}-{uuid.uuid4()}.sst"
        self._ssts[partition].append(name)
        path = self._sst_path(partition, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for start in range(0, size_bytes, MIB):  # no two blocks of the checkpoint are equal
                file.write((uuid.uuid4().bytes + self._block[16:])[: size_bytes - start])

    def _sst_path(self, partition: int, name: str) -> Path:
        return self.root / f"state/0/{partition}/SSTs/{name}"

    def _write(self, path: str, content: bytes) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
