"""The line of a job: which generations led to the one that runs, and up to where each counts. Pure.

The takeover order of each generation names what it continues, its parent: a place in an earlier generation,
or nothing of this job. So the generations form a tree, and the one that took the job over last is its head.
The line of the head is the way from there to the beginning. Everything else was abandoned by a start that
went back, started from scratch, or came from elsewhere.

Most generations continue where the one before them ended. Only the others are turns of the line, and only
turns are recorded: a line of ten thousand generations is as short as the list of its rewinds.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from airflow_flinkstyle.protocol.errors import LINE
from airflow_flinkstyle.storage.keys import Name
from airflow_flinkstyle.typed_json import stored
from airflow_flinkstyle.types import Count, Generation, Rewind

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_TURNS: Final = 32
"""An order repeats so many of the newest turns of its line; older ones are in the order of the generation
that the oldest of these went back to."""


def batches_run(batches: Iterable[int]) -> int:
    """Return how many batches queries have run together, by the number of each query's newest one.

    Within one generation it only grows.
    """
    return sum(batch + 1 for batch in batches)


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """What a generation continues; recorded once, so that no reader has to search for it."""

    generation: Generation | None
    """The generation whose state it continues; None: state of no generation of this job."""
    batches_run: Count
    """How many batches that generation's queries had run together at that point, each from its beginning."""
    savepoint_id: Name | None
    """The savepoint that was restored; None: it continues in that generation's checkpoint, or nothing."""

    def __str__(self) -> str:
        """Name where the generation began, for messages."""
        if self.savepoint_id is not None:
            return f"savepoint {self.savepoint_id}" + (" from elsewhere" if self.generation is None else "")
        return "nothing" if self.generation is None else f"generation {self.generation}"


BEGINNING: Final = Parent(generation=None, batches_run=0, savepoint_id=None)
"""The parent of a generation that began with an empty checkpoint."""


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A generation that did not continue where the one before it ended."""

    generation: Generation
    parent: Parent
    """What the parent generation did beyond this is abandoned, and so is every generation in between."""
    rewind: Rewind = "continue"
    """How it treats the abandoned batches."""

    def __str__(self) -> str:
        """Describe the turn, for messages."""
        if self.parent == BEGINNING:
            return f"generation {self.generation} started from scratch"
        how = f" ({self.rewind})" if self.rewind != "continue" else ""
        return f"generation {self.generation} started from {self.parent}{how}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OnLine:
    """The job has passed this point, or is at it."""

    since: tuple[Turn, ...] = ()
    """The turns between it and the head, the oldest first."""

    @property
    def renumbered(self) -> Turn | None:
        """The newest start since that renumbered batches; None: numbers compare with the head's."""
        return next((turn for turn in reversed(self.since) if turn.rewind == "fork"), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    """The job continued from an earlier point, or from another state."""

    by: Turn

    def __str__(self) -> str:
        """Name the turn, for tables."""
        return f"abandoned: {self.by}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """No generation on this line is known to have been there."""

    why: str

    def __str__(self) -> str:
        """Return the reason, for tables."""
        return self.why


Where: TypeAlias = OnLine | Abandoned | Elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The line of one generation.

    Raises:
        FlinkstyleError: ``LINE`` if no sequence of starts can have made its turns: some record was changed,
            or is of another job.
    """

    head: Generation
    parent: Parent
    turns: tuple[Turn, ...]
    """The oldest first. If the oldest went back to a generation, older turns are not known here."""

    def __post_init__(self) -> None:
        """Refuse turns that no sequence of starts can have made, such as circles and equal numbers."""
        at = 0
        for turn in self.turns:
            parent = turn.parent.generation
            is_later = at == 0 if parent is None else at <= parent
            if not is_later or max(at, parent or 0) >= turn.generation:
                raise LINE.error(generation=self.head, found=f"{turn} behind generation {at}")
            at = turn.generation
        if at > self.head or (self.parent.generation or 0) >= self.head:
            found = f"generation {max(at, self.parent.generation or 0)} before it"
            raise LINE.error(generation=self.head, found=found)

    @property
    def origin(self) -> str | None:
        """The savepoint from elsewhere that the line began with; None if it began with nothing."""
        first = self.turns[0].parent if self.turns else BEGINNING
        return first.savepoint_id if first.generation is None else None

    @property
    def is_whole(self) -> bool:
        """Whether its beginning is known."""
        return not self.turns or self.turns[0].parent.generation is None

    def where(self, generation: Generation, run: int) -> Where:
        """Return whether a point lies on the line.

        Args:
            generation: The point's generation.
            run: How many batches its queries had run by then.
        """
        if generation > self.head:
            return Elsewhere(why=f"of generation {generation}, which has not taken the job over")
        place = bisect_right(self.turns, generation, key=lambda turn: turn.generation)
        if place == 0 and self.turns and self.turns[0].parent.generation is None:
            return Abandoned(by=self.turns[0])
        if place < len(self.turns):
            turn = self.turns[place]
            parent = turn.parent
            if parent.generation is None or (generation, run) > (parent.generation, parent.batches_run):
                return Abandoned(by=turn)
        if place == 0 and self.turns and not self._is_last_known(generation):
            return Elsewhere(why=f"of generation {generation}, whose line is not recorded any more")
        return OnLine(since=self.turns[place:])

    def _is_last_known(self, generation: Generation) -> bool:
        """Return whether it is the generation to which the oldest turn went back."""
        return generation == self.turns[0].parent.generation

    def turns_of_next(
        self, generation: Generation, parent: Parent, rewind: Rewind, line: Line
    ) -> tuple[Turn, ...]:
        """Return the turns of a generation that continues this line's head, or abandons it.

        Args:
            generation: The one that is started.
            parent: What it continues; a generation of this job.
            rewind: How it treats the abandoned batches.
            line: The parent generation's own.
        """
        if parent.generation == self.head and rewind == "continue":
            return self.turns
        return (*line.turns, Turn(generation=generation, parent=parent, rewind=rewind))[-MOST_TURNS:]
