"""Compare the ids that a log holds with those that it should hold. Pure.

Each id is reduced to 64 bits, so 10 million records against 10 million expected ids take about 180 MB (8
bytes each, and what the arrays keep in reserve). Two different ids are taken for one with a probability of
about n**2 / 2**64: 5 in a million at 10 million ids. Only if something is wrong, the log is read again, to
name the ids.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from airflow_flinkstyle.kafka.fingerprints import key_print

if TYPE_CHECKING:
    from collections.abc import Collection

Place = tuple[int, int]
"""Partition and offset."""
OnId = Callable[[bytes | None, Place | None], None]
"""Called with each record's id, None if it has none, and its place, None if it has none."""

SHOWN = 10
"""Ids that a verdict names of each kind."""
_KEPT = 10_000
"""Wrong ids that are kept; the first of these by position are shown."""
_PARTS = 256
"""Parts that are compared one by one, so that only one of them is held as sets."""
_SHIFT = 56
"""A fingerprint shifted by so many bits is the number of its part."""
_LONGEST = 100
"""Characters of an id that are shown."""


class Ids(Protocol):
    """Ids that can be read more than once."""

    def each(self, on_id: OnId) -> None:
        """Hand out every id, the same ones every time."""


class LogIds(Ids, Protocol):
    """The ids of a topic's records, up to where it ended when the comparison began."""

    @property
    def topic(self) -> str:
        """Name of the topic."""

    @property
    def held_back(self) -> int:
        """Offsets behind the last stable one."""

    @property
    def deleted(self) -> int:
        """Offsets before the log's start."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of a range, as decimal text."""

    numbers: range

    def each(self, on_id: OnId) -> None:
        """Hand out every number; a range has no places."""
        for number in self.numbers:
            on_id(b"%d" % number, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundId:
    """An id that is missing, unexpected, or there more than once."""

    id: str
    """As text; bytes that are none are escaped."""
    at: tuple[Place, ...]
    """Partition and offset of its records; of a missing id, in the topic with the expected ids, if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """The ids with which something is wrong in one way."""

    count: int
    first: tuple[FoundId, ...]
    """The first ones by position."""

    def __str__(self) -> str:
        """Return the number, and what is named of it."""
        names = ", ".join(f"{one.id}{_places(one.at)}" for one in self.first)
        return f"{self.count:,} ({names}{', ...' if self.count > len(self.first) else ''})" if names else "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicVerdict:
    """What a topic holds, against what it should hold."""

    topic: str
    read: int
    """Records that ``read_committed`` readers see."""
    distinct: int
    """Ids among them."""
    expected: int
    """Ids that should be there."""
    missing: Wrong
    doubled: Wrong
    """Ids that more than one record has."""
    unexpected: Wrong
    """Ids that were not expected."""
    without_id: Wrong
    """Records in which there is no id."""
    held_back: int
    """Offsets behind the last stable one: an open transaction hides them for now."""
    deleted: int
    """Offsets before the log's start: what they held is gone."""
    hidden: int | None
    """Records of aborted transactions, which ``read_committed`` readers do not see; None: not counted."""

    @property
    def exactly_once(self) -> bool:
        """True if each expected id is there once, and nothing else is."""
        return not any(
            wrong.count for wrong in (self.missing, self.doubled, self.unexpected, self.without_id)
        )

    def __str__(self) -> str:
        """Return everything in one line."""
        parts = [
            f"{self.topic}: {self.read:,} records with {self.distinct:,} ids, {self.expected:,} expected",
            f"missing {self.missing}",
            f"doubled {self.doubled}",
        ]
        more = {"unexpected": self.unexpected, "without an id": self.without_id}
        parts += [f"{name} {wrong}" for name, wrong in more.items() if wrong.count]
        counts = {"held back": self.held_back, "deleted": self.deleted, "hidden": self.hidden}
        parts += [f"{name} {count:,}" for name, count in counts.items() if count]
        return "; ".join(parts)


def _places(at: Collection[Place]) -> str:
    return f" at {' and '.join(f'{number}@{offset}' for number, offset in at)}" if at else ""


def compare(found: LogIds, wanted: Ids) -> TopicVerdict:
    """Compare what a topic holds with what it should hold; hidden records are not counted."""
    actual, expected = _Prints(), _Prints()
    found.each(actual.add)
    wanted.each(expected.add)
    difference = _Difference(actual, expected)
    return TopicVerdict(
        topic=found.topic,
        read=actual.records,
        distinct=difference.distinct,
        expected=difference.expected,
        missing=_named(wanted, difference.missing),
        doubled=_named(found, difference.doubled),
        unexpected=_named(found, difference.unexpected),
        without_id=Wrong(count=actual.without, first=tuple(_shown(b"", [at]) for at in actual.without_at)),
        held_back=found.held_back,
        deleted=found.deleted,
        hidden=None,
    )


class _Prints:
    """64 bits of each id, in parts by the first 8 of them."""

    def __init__(self) -> None:
        self.parts = [array("Q") for _ in range(_PARTS)]
        self.records = self.without = 0
        self.without_at: list[Place] = []

    def add(self, ident: bytes | None, at: Place | None) -> None:
        self.records += 1
        if ident is not None:
            found = key_print(ident)
            self.parts[found >> _SHIFT].append(found)
            return
        self.without += 1
        if at is not None and len(self.without_at) < SHOWN:
            self.without_at.append(at)


class _WrongPrints:
    """Prints of ids with which something is wrong: all are counted, some are kept."""

    def __init__(self) -> None:
        self.count = 0
        self.prints: set[int] = set()

    def add(self, more: Collection[int]) -> None:
        self.count += len(more)
        self.prints.update(islice(more, _KEPT - len(self.prints)))


class _Difference:
    """How the ids of a topic differ from those that it should hold."""

    def __init__(self, actual: _Prints, expected: _Prints) -> None:
        self.distinct = self.expected = 0
        self.missing, self.doubled, self.unexpected = _WrongPrints(), _WrongPrints(), _WrongPrints()
        for part, wanted in zip(actual.parts, map(frozenset, expected.parts), strict=True):
            counts = Counter(part)
            self.distinct += len(counts)
            self.expected += len(wanted)
            self.missing.add(wanted - counts.keys())
            self.unexpected.add(counts.keys() - wanted)
            self.doubled.add([found for found, count in counts.items() if count > 1])


def _named(source: Ids, wrong: _WrongPrints) -> Wrong:
    """Read ids once more, for the names and places of those that are wrong."""
    places: dict[bytes, list[Place]] = {}

    def note(ident: bytes | None, at: Place | None) -> None:
        if ident is None or key_print(ident) not in wrong.prints:
            return
        known = places.setdefault(ident, [])
        if at is not None and len(known) < SHOWN:
            known.append(at)

    if wrong.count:
        source.each(note)
    first = sorted(((sorted(at), ident) for ident, at in places.items()), key=lambda found: found[0])
    return Wrong(count=wrong.count, first=tuple(_shown(ident, at) for at, ident in first[:SHOWN]))


def _shown(ident: bytes, at: Collection[Place]) -> FoundId:
    text = ident.decode(errors="backslashreplace")
    return FoundId(id=text[:_LONGEST] + "..." * (len(text) > _LONGEST), at=tuple(at))
