"""Whether a Spark can continue from a savepoint, decided before anything stops. Pure.

Spark itself does not refuse: it continues with the settings that the offset log pins and ignores the
session's, and an older version fails at the first file of a format it does not know.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.checkpoint.offset_log import SOURCE_EVOLUTION
from airflow_flinkstyle.checkpoint.stores_in_use import SHUFFLE_PARTITIONS
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.savepoint.errors import SPARK_INCOMPATIBLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot

_MINOR = re.compile(r"(\d+)\.(\d+)")
PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
REPARTITION: Final = "spark.flinkstyle.repartition"
"""Setting with the number of shuffle partitions that a savepoint's state is to be given before a start."""
STATE_PROVIDER: Final = "spark.flinkstyle.stateProvider"
"""Setting with the provider, ``rocksdb``, that a savepoint's state is to be moved to before a start."""
STATE_CHANGES: Final = "spark.flinkstyle.stateChanges"
"""Setting with the changes that versions of the job have brought: JSON of ``StateChanges``, in order."""
HANDED_OVER: Final = -1
"""``StateChanges.up_to`` for a savepoint that another job took, and that needs them."""
SOURCE_NAMES: Final = "spark.flinkstyle.sourceNames"
"""Setting with what sources are called from now on: JSON, query -> source in the savepoint -> name."""
ROCKSDB: Final = "rocksdb"
ROCKSDB_CLASS: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
HDFS_CLASS: Final = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
"""Spark's default."""
_REMEDIES: Final = {
    SHUFFLE_PARTITIONS: "The state is split into that many parts. State in RocksDB can be given another "
    "number with PySpark 4.2: upgrade with shuffle_partitions, or run `flinkstyle savepoint repartition`.",
    PROVIDER: "State in Spark's default provider can be moved to RocksDB with PySpark 4.2: upgrade with "
    "state_provider, or run `flinkstyle savepoint convert`. There is no way back.",
}
_KEPT: Final = "Spark would use the checkpoint's value and ignore yours."


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkRuntime:
    """The Spark that is to continue."""

    version: str
    """As Spark reports it; empty if unknown."""
    confs: Mapping[str, str]
    """Settings that were set explicitly; Spark's defaults are not among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incompatibility:
    """One thing that would have to change."""

    what: str
    """The setting, or ``Spark``."""
    saved: str
    found: str
    remedy: str

    def __str__(self) -> str:
        """Return it as a sentence or two for messages and logs."""
        return f"{self.what} is {self.saved} there and {self.found} here. {self.remedy}"


def check(manifest: Manifest, runtime: SparkRuntime) -> tuple[Incompatibility, ...]:
    """Return what keeps this Spark from continuing from the savepoint; empty if nothing does."""
    confs = (check_confs(query.name, query.pinned_confs, runtime.confs) for query in manifest.queries)
    found = [*check_version(manifest.spark_version, runtime.version), *(f for part in confs for f in part)]
    return tuple(found)


def check_version(saved: str, found: str) -> tuple[Incompatibility, ...]:
    """Compare minor versions: a newer Spark reads what an older one wrote, the reverse is not promised."""
    before, now = _minor(saved), _minor(found)
    if before is None or now is None or now >= before:
        return ()
    remedy = (
        f"Run the job on Spark {before[0]}.{before[1]} or newer, or take a savepoint made by Spark {found}."
    )
    return (Incompatibility(what="Spark", saved=saved, found=found, remedy=remedy),)


def check_confs(
    query: str, pinned: Mapping[str, str], confs: Mapping[str, str]
) -> tuple[Incompatibility, ...]:
    """Compare what a query's offset log pins with what was set for the session."""
    return tuple(
        Incompatibility(
            what=f"{name} of query {query}",
            saved=saved,
            found=confs[name],
            remedy=f"Set it to {saved}, or leave it out: {_REMEDIES.get(name, _KEPT)}",
        )
        for name, saved in sorted(pinned.items())
        if name in confs and _plain(confs[name]) != _plain(saved)
    )


def as_asked(pinned: Mapping[str, str], confs: Mapping[str, str]) -> dict[str, str]:
    """Return what a query pins once it has the requested partitions, provider and names."""
    found, partitions = dict(pinned), confs.get(REPARTITION)
    if partitions and SHUFFLE_PARTITIONS in pinned:
        found[SHUFFLE_PARTITIONS] = partitions
    if confs.get(STATE_PROVIDER) == ROCKSDB and is_in_default_provider(pinned):
        found[PROVIDER] = ROCKSDB_CLASS
    if SOURCE_NAMES in confs and SOURCE_EVOLUTION in found and SOURCE_EVOLUTION in confs:
        found[SOURCE_EVOLUTION] = confs[SOURCE_EVOLUTION]
    return found


def is_in_default_provider(pinned: Mapping[str, str]) -> bool:
    """Tell whether a query with these settings keeps its state in Spark's default provider."""
    return pinned.get(PROVIDER, HDFS_CLASS) == HDFS_CLASS


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanges:
    """State changes of an upgrade: applied once to each older savepoint, when a start restores it."""

    asked: str
    """Key of the request; a repeated request is the same upgrade."""
    up_to: int
    """The generation that ran before it: savepoints of later ones have the changes. ``HANDED_OVER``: so has
    every one that names a generation."""
    changes: str
    """``module:name``, or JSON of ready-made changes."""

    def mark(self, query: str) -> str:
        """Return the name of the evidence that a query's state has the changes."""
        return f"{query}/state changes of {self.asked}"


def state_changes_asked(confs: Mapping[str, str]) -> tuple[StateChanges, ...]:
    """Return the changes that are set, oldest first.

    Raises:
        ValueError: If the setting is none that ``with_state_changes`` wrote.
    """
    try:
        return tuple(StateChanges(**one) for one in json.loads(confs.get(STATE_CHANGES) or "[]"))
    except (TypeError, AttributeError) as error:
        raise ValueError(str(error)) from error


def with_state_changes(confs: Mapping[str, str], asked: StateChanges) -> dict[str, str]:
    """Return the settings with these changes added, unless they are there already."""
    known = state_changes_asked(confs)
    if any(one.asked == asked.asked for one in known):
        return dict(confs)
    return {**confs, STATE_CHANGES: json.dumps([asdict(one) for one in (*known, asked)])}


def state_changes_unknown(now: Mapping[str, str], to: Mapping[str, str]) -> list[StateChanges]:
    """Return what was done to the state of the version with settings ``now``, and that ``to`` does not know.

    A version that does not know them would go on with values that mean something else to it; and the next
    upgrade would apply them once more.
    """
    known = {one.asked for one in state_changes_asked(to)}
    return [one for one in state_changes_asked(now) if one.asked not in known]


def state_changes_due(manifest: Manifest, asked: Iterable[StateChanges]) -> list[StateChanges]:
    """Return the changes that are newer than a savepoint; of one that names no run, those it is to get."""
    taken = manifest.taken_from_generation
    if taken is None:
        return [one for one in asked if one.up_to == HANDED_OVER]
    return [one for one in asked if taken <= one.up_to]


def handed_over(confs: Mapping[str, str], manifest: Manifest) -> dict[str, str]:
    """Return the settings for a job that gets a savepoint of another one, whose generations it does not know.

    Args:
        confs: Of the version that is to run.
        manifest: The savepoint, as the job has it that took it.
    """
    due = [replace(one, up_to=HANDED_OVER) for one in state_changes_due(manifest, state_changes_asked(confs))]
    others = {name: value for name, value in confs.items() if name != STATE_CHANGES}
    return {**others, STATE_CHANGES: json.dumps([asdict(one) for one in due])} if due else others


def source_names_asked(confs: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the requested names of sources, by query.

    Raises:
        BadInputError: If the setting is no such JSON.
    """
    text = confs.get(SOURCE_NAMES) or "{}"
    try:
        return {
            query: {str(source): str(name) for source, name in names.items()}
            for query, names in json.loads(text).items()
        }
    except (ValueError, AttributeError) as error:
        raise BadInputError(
            f"{SOURCE_NAMES} was expected to be JSON, query -> source -> name, found {text!r}.",
            state_after="Nothing was started.",
            remedy='Write it like {"totals": {"0": "orders", "1": "returns"}}, or leave it out.',
        ) from error


def changed_id(savepoint_id: str, query: str, what: str) -> str:
    """Return the id of a savepoint with this change of a query's state."""
    text = f"{savepoint_id}\0{query}\0{what}"
    return f"sp-changed-{hashlib.sha256(text.encode()).hexdigest()[:20]}"


def converted_id(savepoint_id: str, query: str) -> str:
    """Return the id of a savepoint with a query's state in RocksDB."""
    return f"sp-rocksdb-{hashlib.sha256(f'{savepoint_id}{chr(0)}{query}'.encode()).hexdigest()[:20]}"


def repartitioned_id(savepoint_id: str, partitions: int) -> str:
    """Return the id of a savepoint with this number of partitions."""
    text = f"{savepoint_id}\0{partitions}"
    return f"sp-repartition-{hashlib.sha256(text.encode()).hexdigest()[:20]}"


def note_of_repartition(manifest: Manifest, queries: Iterable[str]) -> dict[str, str]:
    """Return the evidence that a repartition of these queries adds, which ``read_up_to`` reads."""
    wanted = [query for query in manifest.queries if query.name in set(queries)]
    return {_note(query): str(read_up_to(manifest, query)) for query in wanted}


def read_up_to(manifest: Manifest, query: QuerySnapshot) -> int:
    """Return the last batch of a query that read records: a repartition may have added an empty one after it.

    The job that the savepoint comes from may have run another batch of that number.
    """
    return int(manifest.evidence.get(_note(query), query.batch_id))


def _note(query: QuerySnapshot) -> str:
    return f"{query.name}/{query.query_id}/read up to batch"


def require_compatible(what: str, findings: Sequence[Incompatibility], *, state_after: str) -> None:
    """Raise ``SPARK_INCOMPATIBLE`` if anything was found; all of it is named."""
    if findings:
        raise SPARK_INCOMPATIBLE.error(
            what=what, findings=" ".join(map(str, findings)), state_after=state_after
        )


def _minor(version: str) -> tuple[int, int] | None:
    match = _MINOR.match(version)
    return (int(match[1]), int(match[2])) if match else None


def _plain(value: str) -> str:
    return value.strip().lower()
