"""What was killed, when, what became of every number, and whether that was as much as promised. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.chaos_plan import PHASES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_flinkstyle.kafka.audit.id_counts import TopicVerdict
    from testbed.chaos_plan import StagePlan, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One strike, as the trace confirms it."""

    target: Target
    phase: str
    """What the worker that was aimed at was doing; it works for what was struck, or is it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResult:
    """What came out of one stage."""

    plan: StagePlan
    hits: Sequence[Hit]
    thawed: int
    """Frozen processes that were thawed after others had gone on."""
    woken: Counter[str]
    """Phases that thawed workers went on to."""
    relaunched: int
    """Drivers that were started again because they had ended by themselves, as a fenced batch makes them."""
    replays_skipped: int
    """Shards of batches that were run again and found their marker."""
    verdict: TopicVerdict
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The whole run."""

    results: Sequence[StageResult]
    seed: int
    seconds: float

    @property
    def hits(self) -> list[Hit]:
        """The strikes of all stages."""
        return [hit for result in self.results for hit in result.hits]

    def broken_promises(self, kills: int) -> list[str]:
        """Return what is wrong: numbers that are lost or doubled, and what was not tried enough."""
        by_phase = Counter(hit.phase for hit in self.hits)
        by_target = Counter(hit.target for hit in self.hits)
        each = kills // 15
        planned = dict.fromkeys(target for result in self.results for target in result.plan.mix)
        wrong = [str(result.verdict) for result in self.results if not result.verdict.exactly_once]
        if len(self.hits) < kills:
            wrong.append(f"{kills} kills were promised, {len(self.hits)} done")
        wrong += [
            f"{each} kills in {phase} were promised, {by_phase[phase]} confirmed"
            for phase in PHASES
            if by_phase[phase] < each
        ]
        wrong += [f"no {target}" for target in planned if not by_target[target]]
        if not each:
            return wrong  # a few kills need not meet every moment
        checks = {
            "no replay was skipped": sum(result.replays_skipped for result in self.results),
            "no aborted copy was hidden": sum(result.verdict.hidden or 0 for result in self.results),
            "no zombie was thawed": sum(result.thawed for result in self.results),
            "no zombie went on": sum(result.woken.total() for result in self.results),
        }
        return wrong + [problem for problem, count in checks.items() if not count]

    def as_markdown(self) -> str:
        """Return the tables of the documentation."""
        return "\n\n".join([self._kills(), self._stages(), self._sum()])

    def _kills(self) -> str:
        count = Counter((hit.target, hit.phase) for hit in self.hits)
        targets = sorted({hit.target for hit in self.hits}, key=str)
        others = sorted({hit.phase for hit in self.hits} - set(PHASES))
        columns = [*PHASES, *others]
        rows = [[str(target), *(count[target, phase] for phase in columns)] for target in targets]
        rows = [[*row, sum(row[1:])] for row in rows]  # type: ignore[arg-type]
        total = ["all", *(sum(row[n] for row in rows) for n in range(1, len(columns) + 2))]  # type: ignore[misc]
        return _table(["struck while a shard was in", *columns, "all"], [*rows, total])

    def _stages(self) -> str:
        rows = [
            [
                *(result.plan.name, len(result.hits), result.thawed, sum(result.woken.values())),
                *(result.relaunched, result.replays_skipped, result.verdict.hidden or 0),
                *(result.verdict.expected, result.verdict.missing.count, result.verdict.doubled.count),
                f"{result.seconds:.0f}",
            ]
            for result in self.results
        ]
        names = ["stage", "kills", "zombies thawed", "phases they went on to", "drivers relaunched"]
        names += ["replays skipped", "aborted copies hidden", "numbers", "lost", "doubled", "seconds"]
        return _table(names, rows)

    def _sum(self) -> str:
        woken: Counter[str] = sum((result.woken for result in self.results), Counter())
        phases = ", ".join(f"{phase} {count}" for phase, count in sorted(woken.items()))
        return (
            f"{len(self.hits)} kills in {self.seconds / 60:.0f} minutes, seed {self.seed}. "
            f"Thawed zombies went on to: {phases or 'nothing'}."
        )


def _table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)
