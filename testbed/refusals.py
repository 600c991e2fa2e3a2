"""What a test expects to be refused: by the row of the table of errors that it is told under."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.errors import ErrorKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_flinkstyle.errors import FlinkstyleError


@contextmanager
def refuses(
    kind: ErrorKind | type[FlinkstyleError], match: str | None = None
) -> Iterator[pytest.ExceptionInfo[FlinkstyleError]]:
    """Expect an error with the code of a kind or a class, as ``pytest.raises`` does one of a class."""
    with pytest.raises(kind.family if isinstance(kind, ErrorKind) else kind, match=match) as caught:
        yield caught
    if caught.value.code != kind.code:
        raise AssertionError(f"{kind.code} was expected, found {caught.value.code}: {caught.value}")
