"""What the parts of a repository share: the job's folder, and how its stored records are parsed.

The error of a record that cannot be parsed names its key, and what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from airflow_flinkstyle.errors import MessageFormatError, ProtocolVersionError

if TYPE_CHECKING:
    from airflow_flinkstyle.protocol.record import Record
    from airflow_flinkstyle.storage.base import ObjectStore


class JobFolder(Protocol):
    """A job's folder below a savepoint root; ``SavepointRepository`` is one."""

    @property
    def store(self) -> ObjectStore:
        """The store at the savepoint root."""

    @property
    def job(self) -> str:
        """Name of the job, unique under the savepoint root."""


R = TypeVar("R", bound="Record")


def parse_stored(kind: type[R], repository: JobFolder, key: str, data: bytes) -> R:
    """Parse a record that was read from the repository's store.

    Raises:
        MessageFormatError: If it is no such record.
        ProtocolVersionError: If another version of this package wrote it.
    """
    try:
        return kind.from_bytes(data)
    except (MessageFormatError, ProtocolVersionError) as error:
        raise type(error)(
            f"{repository.store.uri}/{key}: {error.problem}",
            "Nothing was published or deleted.",
            "If a newer airflow-flinkstyle wrote that object, upgrade. Otherwise delete it once no take, "
            f"restore, export, prune or dispose of job {repository.job} runs: the next one does without it.",
        ) from error
