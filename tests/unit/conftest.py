"""What holds for every error that a unit test sees, whichever module refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.errors import FlinkstyleError

if TYPE_CHECKING:
    from collections.abc import Iterator

_init = FlinkstyleError.__init__


@pytest.fixture(autouse=True, scope="module")
def whole_errors() -> Iterator[None]:
    """Fail a test in which an error does not say what failed, what is left behind, and what to do."""

    def checked(self: FlinkstyleError, problem: str, left: str, remedy: str) -> None:
        parts = {"problem": problem, "left": left, "remedy": remedy}
        missing = [name for name, text in parts.items() if not isinstance(text, str)]
        assert not missing, f"{type(self).__name__} has no {', '.join(missing)}: {parts}"
        _init(self, problem, left, remedy)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FlinkstyleError, "__init__", checked)
        yield
