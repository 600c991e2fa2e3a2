"""The proof over one world: what ``compare`` does with brokers, done with a world."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.fingerprints import Fingerprints
from airflow_flinkstyle.kafka.reading import Identity
from airflow_flinkstyle.kafka.translation.alignment import Rules, Widen
from airflow_flinkstyle.kafka.translation.pairs import Pair
from airflow_flinkstyle.kafka.translation.proof import Proof, aborted_among, needs_aborted, prove_position
from airflow_flinkstyle.kafka.verdict import Refused, offset_of
from airflow_flinkstyle.types import NextOffset
from testbed.worlds.world import GONE, Log

if TYPE_CHECKING:
    from airflow_flinkstyle.kafka.translation.alignment import Side
    from airflow_flinkstyle.kafka.verdict import Verdict
    from testbed.worlds.world import World

_TP = ("t", 0)
_IDENTITIES = {dated: Identity(dated=dated) for dated in (True, False)}


@dataclass(frozen=True, slots=True)
class Answer:
    """A verdict and the ranges it was found in."""

    verdict: Verdict
    source: Fingerprints
    target: Fingerprints


class Deleted(Exception):
    """A log's start moved beyond what was to be read."""


class _Reader:
    """Both logs as brokers show them: their starts move while they are read."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.starts: dict[Side, int] = {"source": world.source_start, "target": world.target_start}
        self._logs: dict[Side, Log] = {
            "source": Log.of(world.source, dated=world.dated),
            "target": Log.of(world.target, dated=world.dated),
        }
        self._reads = 0

    def fill(self, side: Side, fingerprints: Fingerprints) -> None:
        for at, deleted, start in self.world.deletions:
            if at == self._reads:
                self.starts[deleted] = max(start, self.starts[deleted])
        self._reads += 1
        if fingerprints.low < min(self.starts[side], fingerprints.high):
            raise Deleted
        self._logs[side].fill(fingerprints)

    def finish(self) -> None:
        for _, deleted, start in self.world.deletions:
            self.starts[deleted] = max(start, self.starts[deleted])

    def first_since(self, oldest_ms: int) -> int | None:
        """Answer as a broker does: also with a transaction's marker."""
        start = self.starts["target"]
        for at, entry in enumerate(self.world.target[start:], start):
            if entry[2] >= oldest_ms and entry[0] != GONE:
                return at
        return None

    def oldest_equal(self, newest_ms: int) -> int | None:
        start = self.starts["source"]
        for at, entry in enumerate(self.world.source[start:], start):
            if entry[2] >= newest_ms and entry[0] != GONE:
                return at
        return None


def prove(world: World) -> Answer:
    """Translate the position, and look once more at what is deleted by then."""
    reader = _Reader(world)
    pair = _a_pair(world)
    try:
        outcome = _settle(reader, pair)
    except Deleted:
        return Answer(Refused("deleted while it was compared", None), pair.source, pair.target)
    reader.finish()
    verdict = outcome.verdict
    offset = offset_of(verdict)
    if offset is not None and offset < reader.starts["target"]:
        verdict = Refused("deleted by now", None)
    return Answer(verdict, pair.source, pair.target)


def _a_pair(world: World) -> Pair:
    end, target_end, keyed = len(world.source), len(world.target), world.versioned
    low = max(world.source_start, world.position - world.context)
    target_low = target_end - (end - world.position) - 2 * world.context
    target_low = min(max(world.target_start, target_low), target_end)
    return Pair(
        tp=_TP,
        target_tp=_TP,
        position=NextOffset(world.position),
        identity=_IDENTITIES[world.dated],
        source=Fingerprints(low=low, high=end, log_start=world.source_start, keyed=keyed),
        target=Fingerprints(low=target_low, high=target_end, log_start=world.target_start, keyed=keyed),
        longest=world.longest,
    )


def _settle(reader: _Reader, pair: Pair) -> Proof:
    reader.fill("source", pair.source)
    reader.fill("target", pair.target)
    while True:
        rules = _rules(reader, pair)
        outcome = prove_position(pair.source, pair.target, pair.position, rules)
        if isinstance(outcome, Proof):
            break
        older = pair.older(outcome.side)
        reader.fill(outcome.side, older)
        if outcome.side == "source":
            pair.source = older.followed_by(pair.source)
        else:
            pair.target = older.followed_by(pair.target)
    if not needs_aborted(outcome, pair.source, rules):
        return outcome
    everything = Fingerprints(low=pair.source.low, high=pair.source.high, log_start=pair.source.log_start)
    Log.of(reader.world.source, dated=reader.world.dated, aborted=True).fill(everything)
    final = replace(
        rules, aborted=aborted_among(everything, pair.source), exhausted=frozenset(("source", "target"))
    )
    named = prove_position(pair.source, pair.target, pair.position, final)
    if isinstance(named, Widen):
        raise TypeError(named)
    return named


def _rules(reader: _Reader, pair: Pair) -> Rules:
    world = reader.world
    oldest_copy: int | None = 0
    if not world.sole_writer and not pair.target.whole_log:
        known = world.dated and pair.source.oldest_ms >= 0 and len(pair.source)
        since = reader.first_since(pair.source.oldest_ms) if known else pair.target.log_start
        oldest_copy = pair.oldest_copy(since, world.share)
    oldest_equal = None
    if not world.in_sync and world.dated:
        known = pair.source.newest_ms >= 0
        oldest_equal = reader.oldest_equal(pair.source.newest_ms) if known else pair.source.log_start
    return Rules(
        compacted=world.compacted,
        source_compacted=world.source_compacted,
        caught_up=world.in_sync,
        sole_writer=world.sole_writer,
        dated=world.dated,
        oldest_equal=oldest_equal,
        oldest_copy=oldest_copy,
        most_context=world.most_context,
        exhausted=pair.exhausted,
    )
