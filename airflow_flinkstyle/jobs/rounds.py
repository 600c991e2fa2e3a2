"""Which of a root's many jobs are inspected next, by their signs of life.

Pure: the watcher notes what it has seen, and asks which jobs are due. A job whose pulse changes needs no
inspection; one whose pulse stands still is due within seconds; the others are due in turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.clock import CLOCK

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_flinkstyle.clock import Clock
    from airflow_flinkstyle.types import Generation

QUIET_S: Final = 6.5
"""A job without a sign of life for so long is inspected. Signs come every 5 s."""
TURN_S: Final = 5.0
"""The least time between two inspections of a job that runs without pulses, or starts."""
SUSPECT_S: Final = 2.0
"""The least time between two inspections of a job that may have ended."""
DOWN_S: Final = 60.0
"""The same for one that is meant to be down."""
WHOLE_S: Final = 300.0
"""The least time between two whole inspections of a job: also of its savepoints and unfinished upgrades."""
BETWEEN_WHOLE_S: Final = 10.0
"""The least time between two whole inspections of any jobs, so that not all come at once."""
MOST_PAUSE_S: Final = 60.0
"""The longest time between two calls for the same job; each is twice the one before."""


@dataclass(slots=True)
class _Known:
    due_s: float
    whole_due_s: float
    pulse: str | None = None
    heartbeat: tuple[Generation, str] | None = None
    """Of a job that runs without pulses: its generation, and the version of its newest heartbeat."""
    lived_s: float | None = None
    """When a sign of life was seen last; None for a job that is meant to be down, or was not inspected."""
    calls: int = 0
    """How many times in a row a task was called for it."""
    is_urgent: bool = False
    """Whether its whole inspection comes before those of the others."""
    was_unreadable: bool = False
    """Whether it could not be inspected the last time, so that the whole of it was not."""


class Rounds:
    """What one watcher knows of each job; a few hundred bytes for each."""

    def __init__(self, clock: Clock = CLOCK) -> None:
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._next_whole_s = 0.0

    @property
    def has_pulses(self) -> bool:
        """Whether any job has a pulse, so that frequent listings are useful."""
        return any(known.pulse is not None for known in self._known.values())

    def watch(self, jobs: Iterable[str]) -> None:
        """Watch these jobs, and no others."""
        now_s = self._clock.now_s
        before, self._known = self._known, {}
        for job in jobs:
            self._known[job] = before.get(job) or _Known(due_s=now_s, whole_due_s=now_s)

    def saw_pulses(self, versions: Mapping[str, str]) -> None:
        """Note the pulses of a listing; one that has changed since the listing before is a sign of life."""
        now_s = self._clock.now_s
        for job, version in versions.items():
            known = self._known.get(job)
            if known is None or known.pulse == version:
                continue
            if known.pulse is not None:
                known.lived_s, known.calls = now_s, 0
            known.pulse, known.heartbeat, known.due_s = version, None, now_s + QUIET_S

    def due(self) -> list[str]:
        """Return the jobs to inspect now because they may have ended, the most urgent first."""
        return self._due(suspects=True)

    def in_turn(self) -> list[str]:
        """Return the others that are due, the one that has waited longest first."""
        return self._due(suspects=False)

    def _due(self, *, suspects: bool) -> list[str]:
        now_s = self._clock.now_s
        found = [
            (known.due_s, job)
            for job, known in self._known.items()
            if known.due_s <= now_s and self.is_suspect(job) is suspects
        ]
        return [job for _, job in sorted(found)]

    def is_suspect(self, job: str) -> bool:
        """Return whether a job that lived has given no sign of life for too long."""
        known = self._known[job]
        is_quiet = known.lived_s is not None and self._clock.now_s - known.lived_s >= QUIET_S
        return is_quiet and known.heartbeat is None

    def whole(self) -> str | None:
        """Return the job whose whole inspection is due: the one that has waited longest; or None."""
        now_s = self._clock.now_s
        due = [
            (not known.is_urgent, known.whole_due_s, job)
            for job, known in self._known.items()
            if known.whole_due_s <= now_s
        ]
        if not due or now_s < self._next_whole_s:
            return None
        self._next_whole_s = now_s + BETWEEN_WHOLE_S
        return min(due)[-1]

    def heartbeat_of(self, job: str) -> tuple[Generation, str] | None:
        """Return generation and heartbeat of a job that runs without pulses; None if that is not known."""
        return self._known[job].heartbeat

    # --- results of inspections ---------------------------------------------------------------

    def lives(self, job: str, heartbeat: tuple[Generation, str] | None) -> None:
        """Note that a job was seen to run, with its newest heartbeat."""
        known, now_s = self._known[job], self._clock.now_s
        known.heartbeat, known.lived_s, known.calls = heartbeat, now_s, 0
        known.due_s = now_s + TURN_S

    def is_silent(self, job: str, *, certain_in_s: float) -> None:
        """Note that a job may have ended, which will be certain in so many seconds."""
        known, now_s = self._known[job], self._clock.now_s
        known.heartbeat, known.due_s = None, now_s + max(SUSPECT_S, certain_in_s / 2)
        known.lived_s = known.lived_s if known.lived_s is not None else now_s - QUIET_S

    def starts(self, job: str) -> None:
        """Note that a job is coming up."""
        known, now_s = self._known[job], self._clock.now_s
        known.heartbeat, known.due_s = None, now_s + TURN_S

    def is_down(self, job: str) -> None:
        """Note that a job is meant to be down, or that all that it needs was reported."""
        known, now_s = self._known[job], self._clock.now_s
        if known.lived_s is not None:  # an upgrade may have stopped it and then died
            known.is_urgent, known.whole_due_s = True, now_s
        known.heartbeat, known.lived_s, known.due_s, known.calls = None, None, now_s + DOWN_S, 0

    def was_whole(self, job: str, *, is_urgent: bool, has_need: bool = False) -> None:
        """Note that the whole of a job was inspected; it is again soon if not all of it is well.

        Args:
            job: Which.
            is_urgent: Whether an upgrade of it is unfinished.
            has_need: Whether a task is called for it, which may fail of what passes.
        """
        known = self._known[job]
        is_soon = is_urgent or has_need or known.was_unreadable
        known.is_urgent, known.was_unreadable = is_urgent, False
        known.whole_due_s = self._clock.now_s + (DOWN_S if is_soon else WHOLE_S)

    def was_unreadable(self, job: str) -> None:
        """Note that a job could not be inspected now: the whole of it is again soon."""
        self.called(job)
        self._known[job].was_unreadable = True

    def called(self, job: str) -> None:
        """Note that a task was called for a job, so that none is called again for a while."""
        known = self._known[job]
        known.calls += 1
        pause_s = min(TURN_S * 2.0 ** min(known.calls - 1, 10), MOST_PAUSE_S)
        known.heartbeat, known.due_s = None, self._clock.now_s + pause_s
