"""Compare two versions of a job before one replaces the other: both run the same batches, on scratch copies.

Each version has a driver of its own, a drill of the same savepoint. The old one's chooses the batches, the
new one's follows it and compares what both have computed. If something differs, the old version runs once
more in a third driver, to set apart what differs from run to run. The job is not touched: none of these
drivers takes it over, writes to an output, or commits offsets.
"""

from __future__ import annotations

import itertools
import json
import logging
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.jobs.answers.rules import names_of
from airflow_flinkstyle.jobs.answers.values import one_of
from airflow_flinkstyle.jobs.cutover.steps import require_room
from airflow_flinkstyle.jobs.drills import is_drilled
from airflow_flinkstyle.jobs.errors import COMPARISON_FAILED, NOT_COMPARABLE, STEP_TIMEOUT, VERSIONS_DIFFER
from airflow_flinkstyle.protocol.comparison_records import COMPARE, Compare
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from airflow_flinkstyle.savepoint.repository.summary import newest_summary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_flinkstyle.jobs.client import JobClient
    from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget
    from airflow_flinkstyle.protocol.comparison_records import Comparison, Part
    from airflow_flinkstyle.types import Generation

Expect = Literal["same", "differs"]
EXPECTED: Final[tuple[Expect, ...]] = ("same", "differs")
_MOST_BATCHES: Final = 1000
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareAsked:
    """What is compared, and on how much."""

    batches: int = 4
    """Batches of each query."""
    records: int = 250_000
    """How many records a batch reads from Kafka at most."""
    how: Compare = field(default_factory=lambda: Compare(part="old"))
    """Keys, and what may differ; its part is each driver's own."""
    timeout_s: float = 3600.0
    """For all drivers together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """What one side runs, and where."""

    spec: JobSpec
    target: SubmitTarget


def compare_asked(
    *,
    batches: object,
    records: object,
    keys: Mapping[str, Any] | str | None = None,
    ignore: Sequence[str] | str | None = None,
    tolerance: Mapping[str, Any] | str | None = None,
    state: bool = True,
    allow_writes: bool = False,
    timeout_s: float = 3600.0,
) -> CompareAsked | None:
    """Read the answers of a form or an operator, as values or as JSON; None for no batches.

    Raises:
        BadInputError: If they are something else.
    """
    try:
        asked = CompareAsked(
            batches=int(str(batches)),
            records=int(str(records)),
            how=Compare(
                part="old",
                keys={str(query): names_of(columns) for query, columns in _mapping(keys).items()},
                ignore=names_of(ignore),
                tolerance={str(column): float(amount) for column, amount in _mapping(tolerance).items()},
                state=state,
                allow_writes=allow_writes,
            ),
            timeout_s=timeout_s,
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise _bad(f"{batches!r}, {records!r}, {keys!r}, {ignore!r}, {tolerance!r}") from error
    if not 0 <= asked.batches <= _MOST_BATCHES or asked.records < 1:
        raise _bad(f"{batches!r} batches of {records!r} records")
    return asked if asked.batches else None


def expected(answer: str | None) -> Expect:
    """Return which verdict is expected; ``same`` by default."""
    return one_of("expect", answer or "same", EXPECTED)


def _mapping(given: Mapping[str, Any] | str | None) -> Mapping[str, Any]:
    mapping = json.loads(given.strip() or "{}") if isinstance(given, str) else given or {}
    return dict(mapping.items())


def _bad(found: str) -> BadInputError:
    return BadInputError(
        f"A comparison should be of 0 to {_MOST_BATCHES:,} batches of 1 record at least, with keys by query, "
        f"columns to ignore, and a tolerance by column; found {found}.",
        state_after="Nothing was started.",
        remedy='For example keys={"totals": ["customer"]}, ignore=["loaded_at"], tolerance={"price": 0.01}.',
    )


def savepoint_to_compare(client: JobClient, savepoint_id: str | None) -> str:
    """Return the savepoint from which both versions run; the newest one if none is named.

    Raises:
        SavepointMissingError: If the job has no such savepoint.
        BadInputError: If the job has none.
    """
    if savepoint_id and savepoint_id != "latest":
        return client.view.repository.read(savepoint_id).savepoint_id
    newest = newest_summary(client.view.repository)
    if newest is None:
        raise BadInputError(
            f"Two versions of job {client.view.job} were expected to run from a savepoint, found none.",
            state_after="Nothing was started.",
            remedy="Take one; both then read the records behind it.",
        )
    return newest.savepoint_id


def compare_versions(
    client: JobClient, old: Version, new: Version, *, key: str, savepoint_id: str, asked: CompareAsked
) -> Comparison:
    """Run both versions, and return the comparison; a retry finds the drivers of an earlier try.

    Args:
        client: The job; whether it runs does not matter.
        old: What the job runs, and where.
        new: What is to replace it.
        key: The caller, without the try number.
        savepoint_id: The savepoint that both start from.
        asked: How much, and how it is compared.

    Raises:
        FlinkstyleError: ``COMPARISON_FAILED`` if one of the versions failed on these records.
        JobError: ``STEP_TIMEOUT`` if that took too long.
        JobError: ``NO_ROOM`` if a cluster has no room for the drivers; nothing was started then.
    """
    return _BothVersions(client, old, new, f"{key}/compare", savepoint_id, asked).run()


@dataclass(slots=True)
class _BothVersions:
    client: JobClient
    old: Version
    new: Version
    key: str
    savepoint_id: str
    asked: CompareAsked

    def run(self) -> Comparison:
        for version in (self.old, self.new):
            require_room(self.client.view, version.spec, version.target)
        wait = self.client.view.waiting(self.asked.timeout_s)
        begun: list[Generation] = []
        attempt = self._attempt()
        try:
            old = self._start(attempt, "old", self.old)
            begun.append(old)
            new = self._start(attempt, "new", self.new, old=old)
            begun.append(new)
            found = self._await(wait, new, begun)
            if found.asks_for_another_run:
                log.info("They differ (%s): the old version runs once more", found.summary())
                again = self._start(attempt, "again", self.old, old=old, new=new)
                begun.append(again)
                found = self._await(wait, again, [again])
        finally:
            for generation in begun:
                with suppress(FlinkstyleError):  # it ends by itself
                    self.client.drivers.dismiss(generation)
        log.info("Compared:\n%s", found.as_markdown())
        return found

    def _start(
        self,
        attempt: int,
        part: Part,
        version: Version,
        *,
        old: Generation | None = None,
        new: Generation | None = None,
    ) -> Generation:
        setting = replace(self.asked.how, part=part, old=old, new=new).as_setting()
        handle = self.client.starts.standby(
            replace(version.spec, conf={**version.spec.conf, COMPARE: setting}),
            version.target,
            claim_key=self._claim_key(attempt, part),
            prepare_savepoint_id=self.savepoint_id,
            rehearse=Rehearse(
                batches=self.asked.batches,
                records=self.asked.records,
                timeout_s=self.asked.timeout_s,
                only=True,
            ),
        )
        log.info("Generation %d of job %s runs version %s", handle.generation, version.spec.name, part)
        return handle.generation

    def _await(self, wait: Any, last: Generation, running: Sequence[Generation]) -> Comparison:  # noqa: ANN401
        """Wait until the last driver has compared."""
        view = self.client.view
        while True:
            for generation in running:
                if is_drilled(view, generation):
                    self._require_good(generation, "old" if generation != last else "")
            found = view.board.comparison(last)
            if found is not None and is_drilled(view, last):
                return found
            if not wait.again():
                raise STEP_TIMEOUT.with_text(
                    f"The comparison of two versions of job {view.job} was expected to end within "
                    f"{self.asked.timeout_s:g} s.",
                    state_after="Its drivers were told to end; the job was not touched.",
                    remedy="Compare fewer batches or records, or give it more time.",
                )

    def _require_good(self, generation: Generation, which: str) -> None:
        rehearsal = self.client.view.board.rehearsal(generation)
        if rehearsal is None:
            raise self.client.drivers.driver_failed(self.client.view.run(generation))
        if rehearsal.failure is not None:
            code, text = rehearsal.failure
            raise COMPARISON_FAILED.error(
                which=which or "new", job=self.client.view.job, savepoint_id=self.savepoint_id, code=code,
                text=text,
            )  # fmt: skip

    def _claim_key(self, attempt: int, part: Part) -> str:
        return f"{self.key}-{attempt}/{part}"

    def _attempt(self) -> int:
        """Return the number of the comparison of this caller that has not ended."""
        return next(number for number in itertools.count(1) if not self._is_spent(number))

    def _is_spent(self, attempt: int) -> bool:
        """Return whether it has ended, with a result or without."""
        view = self.client.view
        parts: tuple[Part, ...] = ("old", "new", "again")
        own = [view.own_claim(self._claim_key(attempt, part)) for part in parts]
        for generation in own:
            if generation is not None and is_drilled(view, generation):
                rehearsal = view.board.rehearsal(generation)
                if rehearsal is None or rehearsal.failure is not None:
                    return True
                found = view.board.comparison(generation)
                if found is not None and not found.asks_for_another_run:
                    return True
        return False


def as_values(found: Comparison) -> dict[str, Any]:
    """Return plain values, for XCom and a journal."""
    queries = {}
    for name, one in found.queries.items():
        shown = {
            "samples": len(one.samples),
            "states": list(map(str, one.states)),
            "first_from": {source: at.by_topic for source, at in one.first_from.items()},
            "first_to": {source: at.by_topic for source, at in one.first_to.items()},
        }
        queries[name] = {"verdict": one.verdict, **asdict(one), **shown}
    return {
        "verdict": found.verdict,
        "summary": found.summary(),
        "table": found.as_markdown(),
        "savepoint_id": found.savepoint_id,
        "queries": json.loads(json.dumps(queries, default=str)),
    }


def require_expected(found: Mapping[str, Any], expect: Expect, *, job: str) -> None:
    """Require that two versions compute the same, if that is expected.

    Args:
        found: As ``as_values`` returned it.
        expect: With ``differs`` any result is accepted.
        job: For the message.

    Raises:
        FlinkstyleError: ``VERSIONS_DIFFER`` or ``NOT_COMPARABLE``.
    """
    if expect == "differs" or found["verdict"] == "same":
        return
    kind = VERSIONS_DIFFER if found["verdict"] == "differs" else NOT_COMPARABLE
    raise kind.error(job=job, summary=found["summary"], savepoint_id=found["savepoint_id"])
