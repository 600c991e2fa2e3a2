"""What Python 3.10, which drivers run on beside Spark 3.5, lacks of the names that newer ones have.

``mypy`` reads the package as 3.10 does: it finds what should be taken from here.
"""

from __future__ import annotations

import hashlib
import sys
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from io import BufferedReader

if sys.version_info >= (3, 11):
    from typing import assert_never
else:
    from typing import NoReturn

    def assert_never(value: NoReturn) -> NoReturn:
        """Fail: a type checker was not run, or was wrong."""
        raise AssertionError(f"No value was expected here, found {value!r}.")


UTC: Final = timezone.utc
SAFE_PATH: Final = ("-P",) if sys.version_info >= (3, 11) else ()
"""For a Python that is started to run a module: the folder where it begins is not searched for modules."""
_CHUNK_BYTES: Final = 1 << 18

__all__ = ["SAFE_PATH", "UTC", "assert_never", "moment_of", "sha256_of"]


def moment_of(text: str) -> datetime:
    """Return the moment of a text in ISO 8601; 3.10 reads no ``Z`` at its end.

    Raises:
        ValueError: If it is no moment.
    """
    return datetime.fromisoformat(f"{text[:-1]}+00:00" if text.endswith("Z") else text)


def sha256_of(file: BufferedReader) -> str:
    """Return the SHA-256 of a file from where it is read to its end, in hex, as ``hashlib.file_digest``."""
    found, buffer = hashlib.sha256(), memoryview(bytearray(_CHUNK_BYTES))
    while read := file.readinto(buffer):
        found.update(buffer[:read])
    return found.hexdigest()
