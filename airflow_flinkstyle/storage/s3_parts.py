"""Large objects of S3 in parts: sent from one open file, or copied inside the service.

Nothing is visible before the last call; an upload that fails earlier is aborted: no part is left to pay for.
"""

from __future__ import annotations

import contextlib
import io
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from io import BufferedReader

PART_BYTES: Final = 32 << 20
COPY_PART_BYTES: Final = 512 << 20
_MOST_PARTS = 10_000
_AT_ONCE = 2


def send_parts(
    client: Any,  # noqa: ANN401
    file: BufferedReader,
    at: Mapping[str, str],
    extra: Mapping[str, str],
    *,
    check: Callable[[], None],
) -> str:
    """Send an open file's content, never more of it in memory than a connection buffers; returns the ETag.

    Args:
        client: boto3's.
        file: Read by position, so that a file renamed over its name meanwhile is not mixed in.
        at: Bucket and key.
        extra: What the object gets besides, as for a put.
        check: Called before the object becomes visible; an exception keeps it from that.
    """
    size_bytes = os.fstat(file.fileno()).st_size

    def send(upload: Mapping[str, str], number: int, start: int, length: int) -> str:
        answer = client.upload_part(
            **upload, PartNumber=number, Body=_Slice(file.fileno(), start, length), ContentLength=length
        )
        return str(answer["ETag"])

    return _in_parts(client, at, extra, size_bytes, _part_bytes(size_bytes, PART_BYTES), send, check)


def copy_parts(
    client: Any,  # noqa: ANN401
    source: Mapping[str, object],
    size_bytes: int,
    at: Mapping[str, str],
    extra: Mapping[str, str],
) -> str:
    """Copy an object inside the service; returns the ETag.

    Args:
        client: boto3's.
        source: ``CopySource`` and ``CopySourceIfMatch``, as each part is asked for.
        size_bytes: Of the source.
        at: Bucket and key of the copy.
        extra: What the object gets besides, as for a put.
    """

    def copy(upload: Mapping[str, str], number: int, start: int, length: int) -> str:
        answer = client.upload_part_copy(
            **upload, **source, PartNumber=number, CopySourceRange=f"bytes={start}-{start + length - 1}"
        )
        return str(answer["CopyPartResult"]["ETag"])

    return _in_parts(client, at, extra, size_bytes, _part_bytes(size_bytes, COPY_PART_BYTES), copy, None)


def _part_bytes(size_bytes: int, usual: int) -> int:
    return max(usual, -(-size_bytes // _MOST_PARTS))


def _in_parts(
    client: Any,  # noqa: ANN401
    at: Mapping[str, str],
    extra: Mapping[str, str],
    size_bytes: int,
    part_bytes: int,
    move: Callable[[Mapping[str, str], int, int, int], str],
    check: Callable[[], None] | None,
) -> str:
    starts = range(0, size_bytes, part_bytes)
    with _upload(client, at, extra) as upload, ThreadPoolExecutor(_AT_ONCE) as pool:
        moves = [
            pool.submit(move, upload, number, start, min(part_bytes, size_bytes - start))
            for number, start in enumerate(starts, start=1)
        ]
        try:
            tags = [part.result() for part in moves]
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        if check is not None:
            check()
        parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(tags, start=1)]
        return str(client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})["ETag"])


@contextlib.contextmanager
def _upload(client: Any, at: Mapping[str, str], extra: Mapping[str, str]) -> Iterator[dict[str, str]]:  # noqa: ANN401
    """Begin an upload, and abort it if its end is not reached."""
    upload = {**at, "UploadId": client.create_multipart_upload(**at, **extra)["UploadId"]}
    try:
        yield upload
    except BaseException:
        with contextlib.suppress(Exception):  # the first error is the one to raise
            client.abort_multipart_upload(**upload)
        raise


class _Slice(io.RawIOBase):
    """A part of an open file as a request's body; may be read again from its start."""

    def __init__(self, descriptor: int, start: int, length: int) -> None:
        self._descriptor, self._start, self._length, self._at = descriptor, start, length, 0

    def __len__(self) -> int:
        return self._length

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        wanted = max(0, min(len(buffer), self._length - self._at))
        count = os.preadv(self._descriptor, [memoryview(buffer)[:wanted]], self._start + self._at)
        self._at += count
        return count
