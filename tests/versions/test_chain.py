"""One job over all versions of Spark, from savepoint to savepoint; only ``make test-versions`` runs this."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.agent_lab import Lab
from tools.common import SPARKS

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.integration, pytest.mark.spark]
JOB = Path(__file__).with_name("chain_job.py")
KEYS, ROWS = 5, 20
PROVIDERS = {
    "RocksDB": "RocksDBStateStoreProvider",
    "HDFS": "HDFSBackedStateStoreProvider",
}
OPERATORS = ("aggregation", "deduplication", "join", "session-window", "applyInPandasWithState")
WITH_STATE = "transformWithState"
"""Since 4.0, on RocksDB only."""
UNCHECKED = {"spark.sql.streaming.stateStore.stateSchemaCheck": "false"}
"""What every Spark after 3.5 needs to read the state of its join. 3.5 records as never null what newer ones
call nullable, and they refuse that (STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE). The rows are the same bytes."""


@cache
def rows_of(step: int) -> tuple[tuple[int, int, int], ...]:
    """Return id, key and second of a version's input: keys of the versions before, and one of its own."""
    first = step * ROWS
    return tuple((first + n, n % KEYS if n else KEYS + step, first + n) for n in range(ROWS))


class Chain:
    """One job that has gone over the versions, and what it wrote."""

    def __init__(self, folder: Path, provider: str) -> None:
        self.lab, self.provider = Lab(folder, patience_s=600.0), provider
        self.lab.conf["spark.sql.streaming.stateStore.providerClass"] = (
            f"org.apache.spark.sql.execution.streaming.state.{PROVIDERS[provider]}"
        )
        self.savepoints: list[str] = []
        self.output, self.input = folder / "out", folder / "in"
        self.output.mkdir()
        self.input.mkdir()

    def step(self, number: int, minor: str) -> None:
        """Let one version go on with the savepoint of the one before: one batch of every query."""
        rows = [
            {"id": i, "k": k, "t": f"2026-01-01T00:{at // 60:02}:{at % 60:02}"}
            for i, k, at in rows_of(number)
        ]
        part = self.input / f".{number}.json"
        part.write_text("".join(json.dumps(row) + "\n" for row in rows))
        part.rename(self.input / f"{number}.json")
        driver = self.begin(number + 1, minor)
        for query in self.queries(minor):
            above = number - 1 - (query == WITH_STATE)
            self.lab.until_batch(number + 1, query, above=above, driver=driver)
        stopped = self.lab.end_of(number + 1, self.lab.ask(number + 1, "stop_with_savepoint"))
        assert stopped.outcome == "done", stopped.detail
        assert driver.wait(600) == 0
        self.savepoints.append(stopped.savepoint_id)

    def begin(self, generation: int, minor: str) -> Any:  # the driver
        self.lab.spark = minor
        order = {"savepoint_id": self.savepoints[-1]} if self.savepoints else {}
        self.lab.conf.update(UNCHECKED if self.savepoints else {})
        return self.lab.start(
            generation, JOB, str(self.output), str(self.input), PROVIDERS[self.provider], **order
        )

    def queries(self, minor: str) -> tuple[str, ...]:
        has_state = self.provider == "RocksDB" and minor != SPARKS[0]
        return (*OPERATORS, WITH_STATE) if has_state else OPERATORS

    def batches(self, query: str) -> list[list[list[int]]]:
        lines = [json.loads(line) for line in (self.output / f"{query}.jsonl").read_text().splitlines()]
        assert [line["batch"] for line in lines] == list(range(len(lines)))
        return [line["rows"] for line in lines]


@pytest.fixture(scope="module", params=PROVIDERS)
def chain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    chain = Chain(tmp_path_factory.mktemp("chain") / "lab", request.param)
    try:
        for number, minor in enumerate(SPARKS):
            chain.step(number, minor)
        yield chain
    finally:
        chain.lab.close()


def all_rows(first: int = 0) -> list[tuple[int, int, int]]:
    return [row for step in range(first, len(SPARKS)) for row in rows_of(step)]


def test_each_savepoint_names_the_spark_that_took_it(chain: Chain):
    taken = [chain.lab.repository.read(one).spark_version for one in chain.savepoints]
    assert [version.rpartition(".")[0] for version in taken] == list(SPARKS)


def test_aggregation_counts_each_row_once(chain: Chain):
    counts, sums = Counter[int](), Counter[int]()
    for number, key, _ in all_rows():
        counts[key] += 1
        sums[key] += number
    assert sorted(chain.batches("aggregation")[-1]) == sorted([k, counts[k], sums[k]] for k in counts)


def test_deduplication_lets_each_key_through_once(chain: Chain):
    seen = [key for batch in chain.batches("deduplication") for (key,) in batch]
    assert sorted(seen) == sorted({key for _, key, _ in all_rows()})


def test_join_finds_each_pair_once(chain: Chain):
    rows = all_rows()
    pairs = [[i, j] for i, k, _ in rows for j, other, _ in rows if k == other and i % 2 == 0 and j % 2 == 1]
    assert sorted(pair for batch in chain.batches("join") for pair in batch) == sorted(pairs)


def test_session_windows_hold_each_row_once(chain: Chain):
    last = chain.batches("session-window")[-1]
    assert sum(count for _, _, count in last) == len(all_rows())
    assert Counter(key for _, key, count in last for _ in range(count)) == Counter(
        k for _, k, _ in all_rows()
    )


@pytest.mark.parametrize("query", ["applyInPandasWithState", WITH_STATE])
def test_state_of_the_scripts_own_counts_each_row_once(chain: Chain, query: str):
    if query not in chain.queries(SPARKS[-1]):
        assert not (chain.output / f"{query}.jsonl").exists()  # Spark keeps its state in RocksDB only
        return
    newest = {key: n for batch in chain.batches(query) for key, n in batch}
    assert newest == Counter(key for _, key, _ in all_rows())


def test_way_back_behind_a_newer_sparks_batch_is_refused_by_name(chain: Chain):
    generation = len(SPARKS) + 1
    chain.lab.spark = SPARKS[0]
    driver = chain.begin(generation, SPARKS[0])
    assert driver.wait(600) == 1
    code, text = chain.lab.heartbeat(generation).error  # type: ignore[union-attr,misc]
    assert code == "SPARK_INCOMPATIBLE"
    assert f"Run the job on Spark {SPARKS[-1]} or newer" in text
