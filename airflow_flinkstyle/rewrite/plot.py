"""A plan as a plot of partitions by verdict: bars for terminals, one cell per partition as SVG. Pure."""

from __future__ import annotations

from collections import Counter
from html import escape
from itertools import cycle, groupby
from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.verdict import Exact
from airflow_flinkstyle.rewrite.render import (
    ALL_LISTED,
    KINDS,
    by_topic,
    in_words,
    kind_of,
    kinds_of,
    topic_of,
    total,
    worst_first,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan
    from airflow_flinkstyle.rewrite.rows import PartitionMove

_BAR = 40
_CELL, _PER_ROW, _LEFT, _TOP = 9, 100, 12, 60
_BOUNDED = ("#ad1457", "#d84315", "#ef6c00", "#f9a825", "#fdd835", "#9e9d24", "#827717")
_COLOURS = dict(zip(KINDS[1:-2], cycle(_BOUNDED), strict=False))
_COLOURS.update(refused="#c62828", chosen="#1565c0", exact="#2e7d32")
_LETTERS = {kind: "X" if kind == "refused" else "~" for kind in KINDS} | {"chosen": "c", "exact": "#"}


def text_plot(plan: OffsetRewritePlan) -> str:
    """Return one bar per topic: refused X, bounded ~, chosen c, exact #; a kind that occurs is seen."""
    sums = worst_first(by_topic(plan.moves))
    shown, hidden = sums[:ALL_LISTED], sums[ALL_LISTED:]
    names = [f"{one.query}/{one.source} {one.topic}" for one in shown]
    width = max(map(len, names), default=0)
    lines = [f"{total(plan.moves)}  (X refused, ~ bounded, c chosen, # exact)"]
    lines += [
        f"{name:<{width}} |{_bar(one.kinds)}| {one.partitions:,}: {in_words(one.kinds)}"
        for name, one in zip(names, shown, strict=True)
    ]
    if hidden:
        rest: Counter[str] = Counter()
        for one in hidden:
            rest.update(one.kinds)
        lines.append(f"and {len(hidden):,} topics more with {rest.total():,} partitions: {in_words(rest)}")
    return "\n".join(lines)


def svg_plot(plan: OffsetRewritePlan) -> str:
    """Return an SVG with one cell per partition; what is not exact says why when pointed at."""
    body: list[str] = []
    y = _TOP
    for label, moves in _groups(plan.moves):
        body.append(_text(y, f"{label}: {in_words(kinds_of(moves))}"))
        y += 6
        for begin in range(0, len(moves), _PER_ROW):
            body += _cells_of_row(moves[begin : begin + _PER_ROW], y)
            y += _CELL
        y += 18
    title = f"Savepoint {plan.savepoint_id} of job {plan.job} to cluster {plan.target_cluster_id}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * _LEFT + _CELL * _PER_ROW}" height="{y}" '
        'font-family="sans-serif" font-size="11">\n<rect width="100%" height="100%" fill="white"/>\n'
        f"{_text(18, title)}\n{_legend(kinds_of(plan.moves))}\n" + "\n".join(body) + "\n</svg>\n"
    )


def _groups(moves: Sequence[PartitionMove]) -> list[tuple[str, list[PartitionMove]]]:
    """Return the partitions topic by topic, the worst first; of very many topics the last ones together."""
    found: dict[tuple[str, str, str], list[PartitionMove]] = {}
    for move in moves:
        found.setdefault((move.query, move.source, topic_of(move)), []).append(move)
    order = [(one.query, one.source, one.topic) for one in worst_first(by_topic(moves))]
    groups = [(f"{query}/{source} {topic}", found[query, source, topic]) for query, source, topic in order]
    hidden = groups[ALL_LISTED:]
    if hidden:
        rest = [move for _, group in hidden for move in group]
        groups[ALL_LISTED:] = [(f"{len(hidden):,} topics more", rest)]
    return groups


def _cells_of_row(moves: Sequence[PartitionMove], y: int) -> Iterator[str]:
    """Draw neighbours that are exact as one rectangle: nobody points at them, and there are many."""
    x = _LEFT
    for exact, group in groupby(moves, key=lambda move: isinstance(move.after, Exact)):
        run = list(group)
        for part in [run] if exact else [[move] for move in run]:
            wide = _CELL * len(part)
            colour = _COLOURS[kind_of(part[0].after)]
            shape = f'<rect x="{x}" y="{y}" width="{wide - 1}" height="{_CELL - 1}" fill="{colour}"'
            yield f"{shape}/>" if exact else f"{shape}><title>{escape(part[0].describe())}</title></rect>"
            x += wide


def _legend(kinds: Mapping[str, int]) -> str:
    parts, x = [], _LEFT
    for kind, count in kinds.items():
        label = f"{count:,} {kind}"
        parts.append(
            f'<rect x="{x}" y="28" width="9" height="9" fill="{_COLOURS[kind]}"/>'
            f'<text x="{x + 13}" y="36">{label}</text>'
        )
        x += 30 + 6 * len(label)
    return "\n".join(parts)


def _text(y: int, text: str) -> str:
    return f'<text x="{_LEFT}" y="{y}">{escape(text)}</text>'


def _bar(kinds: Mapping[str, int]) -> str:
    """Return a bar of fixed width in which every kind that occurs has at least one letter."""
    everything = sum(kinds.values())
    letters = [_LETTERS[kind] * max(1, round(count * _BAR / everything)) for kind, count in kinds.items()]
    return "".join(letters)[:_BAR].ljust(_BAR, letters[-1][-1])
