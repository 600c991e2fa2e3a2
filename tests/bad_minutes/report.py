"""What many runs came to: the table of faults and phases, and the seeds that went wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from testbed.bad_s3 import FAULTS

if TYPE_CHECKING:
    from collections.abc import Iterable

PHASES = ("start", "take", "stop", "relaunch", "migrate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one run came to."""

    seed: int
    wrong: list[str]
    hits: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Phase and fault -> requests that it hit."""
    requests: Counter[str] = field(default_factory=Counter)
    """By phase."""
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Phase and code of an error that a caller got, and tried again."""
    phases: Counter[str] = field(default_factory=Counter)
    after_s: dict[str, float] = field(default_factory=dict)
    """By phase: how long it took at most once all was well again."""
    drivers: int = 0
    savepoints: int = 0
    batches: int = 0
    seconds: float = 0.0


def total(results: Iterable[Result]) -> Result:
    """Add up."""
    every = list(results)
    after_s: dict[str, float] = {}
    for result in every:
        for phase, seconds in result.after_s.items():
            after_s[phase] = max(after_s.get(phase, 0.0), seconds)
    return Result(
        seed=0,
        wrong=[f"seed {result.seed}: {text}" for result in every for text in result.wrong],
        hits=sum((result.hits for result in every), Counter()),
        requests=sum((result.requests for result in every), Counter()),
        failures=sum((result.failures for result in every), Counter()),
        phases=sum((result.phases for result in every), Counter()),
        after_s=after_s,
        drivers=sum(result.drivers for result in every),
        savepoints=sum(result.savepoints for result in every),
        batches=sum(result.batches for result in every),
    )


def table(found: Result) -> str:
    """Return the requests that were hit, by fault and phase, as Markdown."""
    lines = ["| fault | " + " | ".join(PHASES) + " | all |", "|---" * (len(PHASES) + 2) + "|"]
    for fault in FAULTS:
        counts = [found.hits[phase, fault] for phase in PHASES]
        lines.append(_row(fault, [*counts, sum(counts)]))
    hit = [sum(found.hits[phase, fault] for fault in FAULTS) for phase in PHASES]
    lines.append(_row("**requests hit**", [*hit, sum(hit)]))
    asked = [found.requests[phase] for phase in PHASES]
    lines.append(_row("of requests", [*asked, sum(asked)]))
    failed = [sum(n for (where, _), n in found.failures.items() if where == phase) for phase in PHASES]
    lines.append(_row("tries that failed", [*failed, sum(failed)]))
    done = [found.phases[phase] for phase in PHASES]
    lines.append(_row("phases done", [*done, sum(done)]))
    after = [f"{found.after_s.get(phase, 0):.1f} s" for phase in PHASES]
    worst = max(found.after_s.values(), default=0)
    lines.append("| done at most so long after the last fault | " + " | ".join(after) + f" | {worst:.1f} s |")
    return "\n".join(lines)


def _row(name: str, counts: Iterable[int]) -> str:
    return f"| {name} | " + " | ".join(f"{count:,}" for count in counts) + " |"


def codes(found: Result) -> str:
    """Return what callers were told, the most frequent first."""
    by_code: Counter[str] = Counter()
    for (_, code), count in found.failures.items():
        by_code[code] += count
    return ", ".join(f"{code} {count:,}" for code, count in by_code.most_common())
