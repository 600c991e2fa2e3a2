"""What a run must leave, found out without the classes that made it where that can be."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from tests.bad_minutes.job import QUERY, TOPIC, base, read_ledger
from tests.manifests import manifests_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from tests.bad_minutes.job import Line
    from tests.bad_minutes.lab import Lab

_LEAVES_S = 10.0


def judge(lab: Lab) -> list[str]:
    """Return everything that is wrong with a run that was stopped with a savepoint."""
    board, repository = lab.direct()
    wrong = [*lab.surprises, *_left_alive(lab)]
    ledger = read_ledger(lab.folder / "ledger.jsonl")
    wrong += order_of_drivers(ledger)
    found = list(manifests_of(repository))
    for manifest in found:
        wrong += _not_whole(manifest, repository)
    missing = set(lab.savepoints) - {manifest.savepoint_id for manifest in found}
    wrong += [f"savepoint {one} was told of, and is not there" for one in sorted(missing)]
    current = board.current()
    last = board.heartbeat(current.value.generation) if current else None
    if last is None or last.value.state != "closed" or last.value.savepoint_id is None:
        return [*wrong, f"the job was expected to have closed with a savepoint, found {last}"]
    saved = repository.read(last.value.savepoint_id)
    return [*wrong, *counted(ledger, _records(saved))]


def _left_alive(lab: Lab) -> list[str]:
    until_s = time.monotonic() + _LEAVES_S
    while (alive := lab.processes.alive()) and time.monotonic() < until_s:
        time.sleep(0.1)
    return [f"driver process {pid} did not leave" for pid in alive]


def order_of_drivers(ledger: Sequence[Line]) -> Iterator[str]:
    """No driver writes a batch once a later one has."""
    newest = (0, 0)
    for line in ledger:
        who = (line.generation, line.incarnation)
        if who < newest:
            yield f"driver {who} wrote {line} although driver {newest} had written before"
        newest = max(newest, who)


def counted(ledger: Sequence[Line], end: int) -> Iterator[str]:
    """Every record stands in the sink once; a batch that was written again is known to it by its id."""
    at = 0
    for batch, begin, behind in sorted({(line.batch, line.begin, line.end) for line in ledger}):
        if begin != at:
            yield f"batch {batch} was expected to begin at record {at}, found {begin} to {behind}"
        at = behind
    if at != end:
        yield f"the sink holds records up to {at}, the last savepoint stands at {end}"


def _records(manifest: Manifest) -> int:
    position = manifest.queries[0].kafka["0"]
    return int(position.offsets[TOPIC, 0]) - base(position.cluster_id)


def _not_whole(manifest: Manifest, repository: SavepointRepository) -> Iterator[str]:
    """Every blob has its digest, and the state is that of the offsets."""
    try:
        verify_savepoint(manifest, repository, level="full")
        query = manifest.queries[0]
        assert query.name == QUERY
        entry = query.file(f"offsets/{query.batch_id}")
        states = [file for file in query.files if file.path.endswith(f"/{query.batch_id + 1}.delta")]
        states += [file for file in query.files if file.path.endswith(f"/{query.batch_id + 1}.snapshot")]
        assert entry is not None
        log = offset_log.parse(repository.read_file(entry).decode())
        at = {int(log.kafka_offsets("0")[TOPIC, 0]) - base(query.kafka["0"].cluster_id), _records(manifest)}
        at |= {int(repository.read_file(file).split(b"\n")[0]) for file in states}
        if len(at) != 1 or not states:
            yield f"savepoint {manifest.savepoint_id} stands at {sorted(at)}: its files are not of one batch"
    except FlinkstyleError as error:
        yield f"savepoint {manifest.savepoint_id}: {error.code}: {error}"
