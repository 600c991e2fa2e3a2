"""A slice of each Spark that the other tests do not run on; `make test-versions` runs everything on each."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from tests.integration.agent_lab import Lab
from tests.nightly import matrix_but
from tools.common import ENDS, SLICED_SPARKS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_flinkstyle.savepoint.manifest import Manifest
    from tests.integration.agent_lab import Driver

pytestmark = [pytest.mark.nightly, pytest.mark.integration, pytest.mark.spark]
JOB = Path(__file__).with_name("slice_job.py")
KEYS, ROWS = 3, 10


class Slice:
    """One job that goes from each Spark to the next, by savepoints."""

    def __init__(self, folder: Path) -> None:
        self.lab = Lab(folder / "lab")
        self._files, self._fed = folder / "in", 0
        self._files.mkdir()

    def feed(self) -> None:
        """Add a file of numbers; all of them together are a batch's totals."""
        rows = [{"k": n % KEYS, "n": n} for n in range(self._fed, self._fed + ROWS)]
        part = self._files / f".{self._fed}.json"
        part.write_text("".join(json.dumps(row) + "\n" for row in rows))
        part.rename(self._files / f"{self._fed}.json")
        self._fed += ROWS

    def totals(self) -> list[list[int]]:
        counts, sums = Counter(n % KEYS for n in range(self._fed)), Counter[int]()
        for n in range(self._fed):
            sums[n % KEYS] += n
        return [[key, counts[key], sums[key]] for key in range(KEYS)]

    def start(self, generation: int, minor: str, savepoint: Manifest | None) -> Driver:
        self.lab.spark = minor
        order = {"savepoint_id": savepoint.savepoint_id} if savepoint else {}
        return self.lab.start(generation, JOB, str(self.lab.out), str(self._files), **order)

    def until_counted(self, driver: Driver) -> dict[str, Any]:
        """Wait until a batch holds all numbers; return it."""

        def newest() -> dict[str, Any] | None:
            assert driver.process.poll() is None, driver.text[-8000:]
            lines = [line for line in self.lab.rows() if "batch" in line]
            return lines[-1] if lines and lines[-1]["totals"] == self.totals() else None

        return self.lab.until("a batch with all numbers", newest)

    def save(self, generation: int, *, stop: bool) -> Manifest:
        request = self.lab.ask(generation, "stop_with_savepoint" if stop else "savepoint")
        end = self.lab.end_of(generation, request)
        assert end.outcome == "done", end.detail
        manifest = self.lab.repository.read(end.savepoint_id)
        verify_savepoint(manifest, self.lab.repository, level="full")
        return manifest


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Slice]:
    job = Slice(tmp_path)
    yield job
    job.lab.close()


@pytest.mark.parametrize("sparks", matrix_but(ENDS.__eq__, [ENDS, SLICED_SPARKS]), ids=len)
def test_job_is_saved_stopped_and_resumed_on_each_spark_with_right_totals(job: Slice, sparks: Sequence[str]):
    """Each Spark goes on from the hot savepoint of the one before, and reads again what came after it."""
    hot: Manifest | None = None
    for generation, minor in enumerate(sparks, 1):
        job.feed()
        driver = job.start(generation, minor, hot)
        assert job.until_counted(driver)["spark"].startswith(f"{minor}.")
        hot = job.save(generation, stop=False)
        assert any(entry.path.startswith("state/") for entry in hot.queries[0].files)
        job.feed()
        batch = job.until_counted(driver)["batch"]
        stopped = job.save(generation, stop=True)
        assert driver.wait() == 0
        assert (stopped.spark_version.rpartition(".")[0], stopped.queries[0].batch_id) == (minor, batch)
    streams = [line for line in job.lab.rows() if "whole" in line]
    assert [line["spark"].rpartition(".")[0] for line in streams] == list(sparks)
    for line in streams:
        assert line["broken"] == "no rows taken for whole; cut: True"
        assert line["whole"] == [20_000]
