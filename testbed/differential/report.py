"""The table of a run: how often each feature was tried, and what became of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from testbed.differential.run import Result

_KINDS = ("equal", "refused", "both-fail", "failed")


def render(results: Sequence[Result]) -> str:
    """Return the table in Markdown, and a line about time above it."""
    table: dict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        for feature in sorted(set(_features(result))):
            table[feature][result.verdict.kind] += 1
    cpu_s = sum(result.verdict.cpu_s for result in results) / max(1, len(results))
    wall_s = sum(result.verdict.seconds for result in results) / max(1, len(results))
    states = sum(result.verdict.states for result in results)
    lines = [
        f"{len(results)} scripts, {states} states compared; on average {cpu_s:.1f} CPU seconds and "
        f"{wall_s:.1f} s for each script.",
        "",
        "| feature | equal | refused by name | fails alike plainly | failed |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {feature} | " + " | ".join(str(table[feature][kind]) for kind in _KINDS) + " |"
        for feature in sorted(table, key=lambda name: (name != "all", name))
    ]
    codes = Counter(code for result in results for code in result.verdict.codes)
    lines += ["", "| refusal | times |", "|---|---|"]
    lines += [f"| `{code}` | {count} |" for code, count in codes.most_common()]
    return "\n".join(lines) + "\n"


def _features(result: Result) -> Iterator[str]:
    spec = result.task.case.spec
    yield "all"
    yield f"queries: {len(spec.queries)}"
    yield f"shape: {spec.shape}"
    yield f"trigger: {spec.trigger}"
    yield f"checkpointLocation: {spec.checkpoint}"
    yield f"state store: {spec.provider}"
    yield "driver: spark-submit" if result.task.case.own_jvm else "driver: warm JVM"
    names = [query.name for query in spec.queries]
    if None in names:
        yield "names: " + ("absent" if not any(names) else "some absent")
    elif len(set(names)) < len(names):
        yield "names: the same"
    else:
        yield "names: own"
    if spec.fails_once:
        yield "fails once and is started again"
    for query in spec.queries:
        yield f"source: {query.source}"
        yield f"work: {query.work}"
        yield f"sink: {query.sink}"
    for action in result.verdict.done:
        yield f"action: {action}"


def line(result: Result) -> str:
    """Return one line about a result, and what is wrong below it."""
    verdict = result.verdict
    text = f"{result.task.label}: {verdict.kind}"
    if verdict.codes:
        text += f" ({', '.join(verdict.codes)})"
    text += (
        f", {verdict.seconds:.0f} s, {verdict.cpu_s:.1f} CPU s; did {', '.join(verdict.done) or 'nothing'}"
    )
    for problem in verdict.problems:
        text += f"\n    {problem.strip()[-1000:]}"
    return text
