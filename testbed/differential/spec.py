"""What a script of the differential run is made of: a pure value, drawn from a seed, that can be shrunk."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

Source = Literal["files", "kafka", "delta", "rate"]
Work = Literal["project", "count", "windows", "dedup", "join", "pandas-state", "transform"]
Sink = Literal[
    "json",
    "parquet",
    "kafka",
    "delta",
    "memory",
    "batch-append",
    "batch-file",
    "batch-upsert",
    "batch-remember",
    "batch-txn",
    "batch-merge",
    "transactional",
]
Mode = Literal["append", "update", "complete"]
Trigger = Literal["default", "interval", "once", "available-now"]
Checkpoint = Literal["option", "conf", "none"]
Shape = Literal["straight", "loop", "sequence", "staggered", "threads", "restart", "conditional"]
Provider = Literal["default", "rocksdb", "changelog"]
T = TypeVar("T")

ROWS_MODES: Mapping[Work, tuple[Mode, ...]] = {
    "project": ("append",),
    "count": ("update", "complete"),
    "windows": ("append", "append", "update"),
    "dedup": ("append",),
    "join": ("append",),
    "pandas-state": ("update",),
    "transform": ("update",),
}
"""Modes in which a query's result does not depend on where its batches are cut, or its last rows do not."""
SINK_MODES: Mapping[Sink, tuple[Mode, ...]] = {
    "json": ("append",),
    "parquet": ("append",),
    "kafka": ("append", "update"),
    "delta": ("append", "complete"),
    "memory": ("complete",),
    "batch-append": ("append",),
    "batch-file": ("append",),
    "batch-upsert": ("update", "complete"),
    "batch-remember": ("append",),
    "batch-txn": ("append",),
    "batch-merge": ("update",),
    "transactional": ("append",),
}
STATEFUL: frozenset[Work] = frozenset(["count", "windows", "dedup", "join", "pandas-state", "transform"])
IN_FOREACH_BATCH: frozenset[Sink] = frozenset(
    [
        "batch-append",
        "batch-file",
        "batch-upsert",
        "batch-remember",
        "batch-txn",
        "batch-merge",
        "transactional",
    ]
)
BOUNDED: frozenset[Trigger] = frozenset(["once", "available-now"])


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySpec:
    """One query of a script."""

    name: str | None
    source: Source
    work: Work
    mode: Mode
    sink: Sink
    cap: int | None
    """Of a batch: files of a file or Delta source, records of Kafka; None: all there is."""

    @property
    def is_keyed(self) -> bool:
        """Whether only the last row of each key counts: the others depend on where batches are cut."""
        return self.mode == "update"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSpec:
    """One script."""

    queries: tuple[QuerySpec, ...]
    shape: Shape
    trigger: Trigger
    checkpoint: Checkpoint
    provider: Provider = "default"
    fails_once: bool = False
    """The first query fails once in its second batch; the script starts it again."""

    @property
    def is_bounded(self) -> bool:
        """Whether the script ends by itself once its input is read."""
        return self.trigger in BOUNDED

    def to_json(self) -> str:
        """Render."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> ScriptSpec:
        """Read what ``to_json`` wrote."""
        found = json.loads(text)
        return ScriptSpec(**{**found, "queries": tuple(QuerySpec(**query) for query in found["queries"])})

    def complaint(self) -> str | None:
        """Say why nobody would write this, or plain Spark promises nothing about it; None if it is fine."""
        for query in self.queries:
            if wrong := _complaint(query, self):
                return wrong
        names = [query.name for query in self.queries if query.name is not None]
        if self.shape == "sequence" and not self.is_bounded:
            return "the first query never ends"
        if self.checkpoint == "conf" and len(set(names)) < len(names):
            return "queries of one name would share a checkpoint plainly, too"
        if self.shape == "restart" and self.checkpoint != "option":
            return "plain Spark starts it from nothing"
        if self.fails_once and (self.shape != "restart" or self.queries[0].sink not in IN_FOREACH_BATCH):
            return "nothing would fail, or start again"
        return None


def _complaint(query: QuerySpec, script: ScriptSpec) -> str | None:
    if query.mode not in ROWS_MODES[query.work] or query.mode not in SINK_MODES[query.sink]:
        return f"{query.work} in mode {query.mode} into {query.sink}"
    if script.checkpoint == "none" and query.sink not in IN_FOREACH_BATCH | {"memory"}:
        return "Spark demands a checkpoint"
    if query.sink == "memory" and query.name is None:
        return "Spark demands a name"
    if query.work == "transform" and script.provider == "default":
        return "Spark demands RocksDB"
    if script.trigger == "once" and query.mode == "append" and query.work in ("windows", "join"):
        return "what it writes depends on where its one batch is cut"
    if query.source == "rate":
        return _complaint_on_rate(query, script)
    return None


def _complaint_on_rate(query: QuerySpec, script: ScriptSpec) -> str | None:
    if query.work != "project" or script.is_bounded or script.fails_once:
        return "a rate source has no end, and its rows no keys"
    if query.sink not in ("json", "parquet", "batch-append", "batch-file", "batch-remember"):
        return "its rows are judged where each stands once"
    return None


def draw(random: random.Random) -> ScriptSpec:
    """Return a random script that somebody could have written."""
    while True:
        spec = _draw(random)
        if spec.complaint() is None:
            return spec


def _draw(random: random.Random) -> ScriptSpec:
    count = _one(random, {1: 10, 2: 7, 3: 3, 4: 1, 5: 1})
    shapes: Mapping[Shape, int] = {
        "straight": 4, "loop": 3, "sequence": 5, "staggered": 5, "threads": 2, "restart": 3, "conditional": 2,
    }  # fmt: skip
    triggers: Mapping[Trigger, int] = {"available-now": 9, "once": 3, "default": 4, "interval": 4}
    checkpoints: Mapping[Checkpoint, int] = {"option": 7, "conf": 2, "none": 2}
    names: Mapping[str, int] = {"all": 8, "none": 4, "some": 1, "same": 1}
    providers: Mapping[Provider, int] = {"default": 2, "rocksdb": 1, "changelog": 1}
    naming = _one(random, names)
    alike = random.random() < 0.3  # the same query several times, as in a loop over tables
    first = _draw_query(random)
    queries = [first if alike else _draw_query(random) for _ in range(count)]
    return ScriptSpec(
        queries=tuple(
            replace(query, name=_name(random, naming, place)) for place, query in enumerate(queries)
        ),
        shape=_one(random, shapes),
        trigger=_one(random, triggers),
        checkpoint=_one(random, checkpoints),
        provider=_one(random, providers),
        fails_once=random.random() < 0.3,
    )


def _draw_query(random: random.Random) -> QuerySpec:
    sources: Mapping[Source, int] = {"files": 30, "kafka": 12, "delta": 3, "rate": 6}
    works: Mapping[Work, int] = {
        "project": 6, "count": 6, "windows": 3, "dedup": 3, "join": 2, "pandas-state": 1, "transform": 1,
    }  # fmt: skip
    sinks: Mapping[Sink, int] = {
        "json": 20, "parquet": 6, "kafka": 14, "delta": 3, "memory": 4, "batch-file": 8, "batch-upsert": 24,
        "batch-remember": 12, "batch-append": 14, "batch-txn": 3, "batch-merge": 2, "transactional": 3,
    }  # fmt: skip
    source = _one(random, sources)
    if source == "rate":
        works = {"project": 1}
    while True:
        work, sink = _one(random, works), _one(random, sinks)
        modes = [mode for mode in ROWS_MODES[work] if mode in SINK_MODES[sink]]
        if modes:
            break
    return QuerySpec(
        name=None,
        source=source,
        work=work,
        mode=random.choice(modes),
        sink=sink,
        cap=random.choice([None, None, None, 1, 2, 2]),
    )


def _name(random: random.Random, naming: str, place: int) -> str | None:
    match naming:
        case "all":
            return f"q{place}"
        case "same":
            return "q"
        case "some":
            return random.choice([None, f"q{place}"])
        case _:
            return None


def _one(random: random.Random, weights: Mapping[T, int]) -> T:
    return random.choices(list(weights), list(weights.values()))[0]


def smaller(spec: ScriptSpec) -> Sequence[ScriptSpec]:
    """Return the scripts that are one step simpler, simplest first."""
    found = [
        replace(spec, queries=spec.queries[:place] + spec.queries[place + 1 :])
        for place in range(len(spec.queries))
        if len(spec.queries) > 1
    ]
    if spec.fails_once:
        found.append(replace(spec, fails_once=False))
    if spec.shape != "straight":
        found.append(replace(spec, shape="straight"))
    if spec.trigger != "available-now":
        found.append(replace(spec, trigger="available-now"))
    if spec.checkpoint != "option":
        found.append(replace(spec, checkpoint="option"))
    if spec.provider != "default":
        found.append(replace(spec, provider="default"))
    for place, query in enumerate(spec.queries):
        found += [
            replace(spec, queries=(*spec.queries[:place], simpler, *spec.queries[place + 1 :]))
            for simpler in _smaller_queries(query)
        ]
    return [each for each in found if each.complaint() is None]


def _smaller_queries(query: QuerySpec) -> Sequence[QuerySpec]:
    found = []
    if query.source != "files":
        found.append(replace(query, source="files"))
    if (query.work, query.mode) != ("project", "append"):
        found.append(replace(query, work="project", mode="append"))
        found.append(replace(query, work="count", mode="update")) if query.work != "count" else None
    if query.sink not in ("json", "batch-append"):
        found += [replace(query, sink=sink) for sink in ("json", "batch-append")]
    if query.cap is not None:
        found.append(replace(query, cap=None))
    return found
