"""Where would a job go on? Our proof, MirrorMaker's checkpoints and two guesses, judged by a ledger."""

from __future__ import annotations

import contextlib
import random
import re
import statistics
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.groups import set_group_offsets
from airflow_flinkstyle.kafka.mirror.topics import read_checkpoints, read_offset_syncs
from airflow_flinkstyle.kafka.policies import parse_policies
from airflow_flinkstyle.kafka.translation.request import ProofRequest
from airflow_flinkstyle.kafka.translation.translator import translate_positions
from airflow_flinkstyle.kafka.verdict import Bounded, Exact, Refused, Verdict
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.types import NextOffset
from benchmarks.common import Report, Spread, Table, Target
from benchmarks.translation_ledger import NUMBER, SEED
from benchmarks.translation_methods import Answers, by_checkpoints, by_interpolation, by_timestamp
from benchmarks.translation_stage import KINDS, MIRRORS, Flow, Stage
from benchmarks.translation_truth import Judged, Truth, judge, missing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
    from airflow_flinkstyle.types import TopicPartition

RECORDS, QUICK_RECORDS = 3000, 600
GROUPS, QUICK_GROUPS = 44, 5
OURS, CHECKPOINTS = "proof", "MirrorMaker's checkpoints"
TIMESTAMPS, INTERPOLATED = "timestamp lookup", "interpolated offset syncs"
METHODS = (OURS, CHECKPOINTS, TIMESTAMPS, INTERPOLATED)
_QUIET_S, _MOST_S = 12.0, 90.0
"""How long no new checkpoint must come, and how long they are waited for."""

POLICIES = parse_policies("exact,bounded")
"""What an approver would let pass: nothing that is never read."""

Positions = dict["TopicPartition", NextOffset]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one method says about one position."""

    method: str
    tp: TopicPartition
    kind: str
    position: int
    offset: int | None
    """None: the method has no answer."""
    judged: Judged | None
    verdict: Verdict | None = None
    """Ours only."""
    refusal_is_true: bool = True

    @property
    def announced(self) -> int:
        """Repeated records that the answer says will come."""
        return self.verdict.replayed_records if isinstance(self.verdict, Bounded) else 0

    def __str__(self) -> str:
        """Return the answer and what it costs, for the list of all of them."""
        if self.judged is None:
            return f"{self.method}: none"
        return f"{self.method}: {self.offset} (lost {self.judged.lost}, repeated {self.judged.repeated})"


def run(*, quick: bool) -> Report:
    """Write, mirror and disturb; commit groups at random positions; ask every method about each."""
    records, groups = (QUICK_RECORDS, QUICK_GROUPS) if quick else (RECORDS, GROUPS)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-accuracy-")))
        stage = stack.enter_context(Stage(folder, records))
        with stage.mirrored():
            positions = pick(stage, groups)
            for group, offsets in positions.items():
                set_group_offsets(stage.old, group, Offsets(offsets))
            await_checkpoints(stage)
        stage.fall_behind()
        answers = [answer for flow in MIRRORS for answer in ask(stage, flow, positions)]
    return report(records, answers)


def pick(stage: Stage, groups: int) -> dict[str, Positions]:
    """Return a position per group and partition: a fifth at the end, two near it, two anywhere."""
    rng = random.Random(SEED)  # noqa: S311  (positions, not secrets)
    view = describe(stage.old, {topic for topic, _ in stage.truths})
    positions: dict[str, Positions] = {f"group-{number:02}": {} for number in range(groups)}
    for own in positions.values():
        for tp, truth in stage.truths.items():
            log_range = view.topics[tp[0]].partitions[tp[1]]
            start = 0 if truth.kind in ("head-deleted", "hole") else log_range.start
            near = max(start, log_range.end - 500)
            low = rng.choice((log_range.end, near, near, start, start))
            own[tp] = NextOffset(rng.randint(low, log_range.end))
    return positions


def await_checkpoints(stage: Stage) -> None:
    """Wait until MirrorMaker emits no more checkpoints that it did not emit before."""
    deadline, seen, quiet_since = time.monotonic() + _MOST_S, -1, time.monotonic()
    while time.monotonic() < deadline and time.monotonic() - quiet_since < _QUIET_S:
        found = sum(len(read_checkpoints(stage.new, mirror)) for mirror in MIRRORS.values())
        if found != seen or not found:
            seen, quiet_since = found, time.monotonic()
        time.sleep(1.0)


def ask(stage: Stage, flow: Flow, groups: Mapping[str, Positions]) -> Iterable[Answer]:
    """Yield what every method says about the positions on what one MirrorMaker copies."""
    mirror, mine = MIRRORS[flow], stage.partitions(flow)
    copies = {tp: (mirror.target_topic(tp[0]), tp[1]) for tp in mine}
    target = describe(stage.new, {topic for topic, _ in copies.values()})
    ends = {tp: target.topics[tp[0]].partitions[tp[1]].end for tp in copies.values()}
    syncs = read_offset_syncs(stage.old, stage.new, mirror)
    checkpoints = {(c.group, c.target_topic, c.partition): c for c in read_checkpoints(stage.new, mirror)}
    for group, all_positions in groups.items():
        positions = {tp: all_positions[tp] for tp in mine}
        verdicts = proved(stage, mirror, positions)
        yield from (ours(tp, stage.truths[tp], positions[tp], verdicts[tp]) for tp in mine)
        others = {
            CHECKPOINTS: by_checkpoints(checkpoints, group, positions, copies),
            TIMESTAMPS: by_timestamp(stage.new, stage.truths, positions, copies, ends),
            INTERPOLATED: by_interpolation(syncs, positions),
        }
        for method, answers in others.items():
            yield from theirs(method, stage.truths, positions, answers)


def proved(stage: Stage, mirror: MirrorSettings, positions: Positions) -> dict[TopicPartition, Verdict]:
    """Return our verdicts; only where it is so, the proof is told that nobody but the mirror writes."""
    verdicts: dict[TopicPartition, Verdict] = {}
    for sole_writer in (True, False):
        asked = {tp: at for tp, at in positions.items() if (stage.truths[tp].kind != "own") == sole_writer}
        if asked:
            request = ProofRequest(
                positions=Offsets(asked),
                mirror=replace(mirror, sole_writer=sole_writer),
                isolation="read_committed",
                ignored_headers=frozenset({NUMBER}),
            )
            found = translate_positions(stage.old, stage.new, request).verdicts
            verdicts.update({tp: POLICIES.judge(verdict) or verdict for tp, verdict in found.items()})
    return verdicts


def ours(tp: TopicPartition, truth: Truth, position: int, verdict: Verdict) -> Answer:
    """Judge a verdict: its offset, or the reason it refuses for."""
    offset = None if isinstance(verdict, Refused) else int(verdict.offset)
    return Answer(
        method=OURS,
        tp=tp,
        kind=truth.kind,
        position=position,
        offset=offset,
        judged=None if offset is None else judge(truth, position, offset),
        verdict=verdict,
        refusal_is_true=not isinstance(verdict, Refused) or is_true(verdict, truth, position),
    )


def theirs(
    method: str, truths: Mapping[TopicPartition, Truth], positions: Positions, answers: Answers
) -> Iterable[Answer]:
    """Judge the answers of another method."""
    for tp, offset in answers.items():
        truth, position = truths[tp], positions[tp]
        judged = None if offset is None else judge(truth, position, offset)
        yield Answer(method=method, tp=tp, kind=truth.kind, position=position, offset=offset, judged=judged)


def is_true(refusal: Refused, truth: Truth, position: int) -> bool:
    """Return whether the ledger bears out what a refusal says; a reason nobody knows here is not true."""
    reason, absent = refusal.reason, missing(truth, position)
    if "before the source's start" in reason:
        return position < truth.source_start
    if "records behind" in reason:
        unmirrored = [entry for entry in truth.source if entry.offset >= truth.mirrored_to]
        return absent == unmirrored and f" {len(absent)} records" in reason
    if "not allowed" in reason and "tombstone" in reason:
        return bool(absent) and all(entry.tombstone for entry in absent)
    if "not allowed" in reason and "passed_over" in reason:
        return bool(truth.own)
    if "unread records are not" in reason and refusal.source_range is not None:
        low, high = refusal.source_range
        return bool(absent) and all(low <= entry.offset < high for entry in absent)
    return False


def report(records: int, answers: Sequence[Answer]) -> Report:
    """Count and set the methods side by side."""
    by_method = {name: [answer for answer in answers if answer.method == name] for name in METHODS}
    mine = by_method[OURS]
    lost = sum(answer.judged.lost for answer in mine if answer.judged)
    silent = sum(max(0, answer.judged.repeated - answer.announced) for answer in mine if answer.judged)
    wrong = sum(isinstance(a.verdict, Exact) and not (a.judged and a.judged.exact) for a in mine)
    untrue = sum(not answer.refusal_is_true for answer in mine)
    promises = {
        "records lost at our positions": lost,
        "records repeated beyond what our verdict says": silent,
        "exact verdicts that the ledger does not bear out": wrong,
        "refusals for a reason that the ledger does not bear out": untrue,
    }
    return Report(
        about=about(records, len(mine)),
        tables=(by_methods(by_method), by_kinds(by_method), refusals(mine)),
        targets=tuple(
            Target(what=what, limit=0, found=Spread.of([count]), unit="") for what, count in promises.items()
        ),
        raw={"answers": [listed(of_one) for of_one in zip(*by_method.values(), strict=True)]},
    )


def about(records: int, positions: int) -> str:
    """Say what was measured."""
    partitions = sum(count for _, count, _ in KINDS.values())
    return (
        f"{positions:,} random positions of consumer groups on {partitions} partitions of {records:,} "
        "records and more, mirrored by two MirrorMakers 4.3: one exactly once, which renames topics, and one "
        "with the defaults, killed once. An answer is judged by the records that a read-committed reader "
        "gets from it on. *Exact*: precisely the unread records, in order; on compacted topics the newest of "
        "each key. The proof allows `exact,bounded`. A record that is not on the target counts as lost for "
        "every method."
    )


def by_methods(by_method: Mapping[str, Sequence[Answer]]) -> Table:
    """Return one line per method."""
    rows = []
    for name, answers in by_method.items():
        judged = [answer.judged for answer in answers if answer.judged is not None]
        losing = [one.lost for one in judged if one.lost]
        rows.append(
            (
                name,
                f"{sum(one.exact for one in judged) / len(answers):.1%}",
                f"{len(losing)}",
                f"{sum(losing):,}",
                f"{max(losing, default=0):,}",
                *repeats(judged),
                f"{len(answers) - len(judged)}",
            )
        )
    columns = ("", "exact", "losing positions", "records lost", "most at one")
    return Table(columns=(*columns, "repeated: mean", "most", "no answer"), rows=tuple(rows))


def repeats(judged: Sequence[Judged]) -> tuple[str, str]:
    """Return mean and maximum of the repeated records."""
    counts = [one.repeated for one in judged]
    return (f"{statistics.fmean(counts):.1f}", f"{max(counts):,}") if counts else ("", "")


def by_kinds(by_method: Mapping[str, Sequence[Answer]]) -> Table:
    """Return one line per kind of topic: our verdicts, and what MirrorMaker's checkpoints would do."""
    rows = []
    for kind, (_, _, what) in KINDS.items():
        mine = [answer.verdict for answer in by_method[OURS] if answer.kind == kind]
        theirs_there = [answer for answer in by_method[CHECKPOINTS] if answer.kind == kind]
        judged = [answer.judged for answer in theirs_there if answer.judged is not None]
        rows.append(
            (
                f"{kind}: {what}",
                *(str(sum(isinstance(one, of) for one in mine)) for of in (Exact, Bounded, Refused)),
                f"{sum(one.exact for one in judged) / len(theirs_there):.0%}",
                f"{sum(one.lost > 0 for one in judged)}",
            )
        )
    columns = ("topics", "proof: exact", "bounded", "refused", "checkpoints: exact", "losing")
    return Table(columns=columns, rows=tuple(rows), detail=True)


def refusals(mine: Sequence[Answer]) -> Table:
    """Return one line per reason, numbers left out."""
    found = [
        (answer.kind, re.sub(r"\d+", "N", answer.verdict.reason), answer.refusal_is_true)
        for answer in mine
        if isinstance(answer.verdict, Refused)
    ]
    rows = [
        (kind, reason, str(count), str(sum(true for *what, true in found if what == [kind, reason])))
        for (kind, reason), count in Counter(what[:2] for what in found).items()
    ]
    return Table(
        columns=("refused", "because", "positions", "true by the ledger"), rows=tuple(rows), detail=True
    )


def listed(of_one: Sequence[Answer]) -> str:
    """Return everything said about one position in one line."""
    first = of_one[0]
    return f"{first.tp[0]}-{first.tp[1]} {first.position}: " + "; ".join(map(str, of_one))
