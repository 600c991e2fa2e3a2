"""What holds for every unit test: random examples wait for a busy machine, and every error is whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from airflow_flinkstyle.errors import FlinkstyleError

if TYPE_CHECKING:
    from collections.abc import Iterator

# A test that fails for the time it takes would look as if it had found a mutant.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

_init = FlinkstyleError.__init__


@pytest.fixture(autouse=True, scope="module")
def whole_errors() -> Iterator[None]:
    """Fail a test in which an error does not say what failed, what is left behind, and what to do."""

    def checked(self: FlinkstyleError, problem: str, state_after: str, remedy: str) -> None:
        parts = {"problem": problem, "state_after": state_after, "remedy": remedy}
        missing = [name for name, text in parts.items() if not isinstance(text, str)]
        assert not missing, f"{type(self).__name__} has no {', '.join(missing)}: {parts}"
        _init(self, problem, state_after, remedy)
        ends = [text for text in (self.problem, self.state_after, self.remedy) if text.rstrip().endswith(":")]
        assert not ends, f"{type(self).__name__} announces what does not follow: {ends}"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FlinkstyleError, "__init__", checked)
        yield
