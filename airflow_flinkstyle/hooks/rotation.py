"""Which jobs the DAG ``rotate_savepoints`` looks after, and how much history each keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.hooks.failures import airflow_errors
from airflow_flinkstyle.jobs.answers.values import number_or_none, one_of, seconds_or_none
from airflow_flinkstyle.savepoint.files.verify import LEVELS
from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

VARIABLE = "flinkstyle_rotation"
_EXAMPLE = 'It is a list like [{"job": "orders", "max_count": 24, "max_age": "7d"}].'
_FIELDS = ("max_count", "max_age", "max_age_s", "level")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """What is rotated, and what cannot be."""

    rows: list[dict[str, Any]]
    """One mapping per job with ``job``, ``max_count``, ``max_age_s`` and ``level``."""
    refused: list[str]
    """One sentence for each entry that cannot be used; the others are rotated all the same."""


def rotation(given: Sequence[Any] | None) -> Rotation:
    """Read which jobs to look after; an entry that cannot be used keeps no other job from its savepoint.

    Args:
        given: The form's answer; None reads the Airflow variable ``flinkstyle_rotation``.
    """
    from airflow.sdk import Variable

    with airflow_errors():
        entries = Variable.get(VARIABLE, default=None, deserialize_json=True) if given is None else given
        if not isinstance(entries, list) or not entries:
            raise _bad("a list of jobs", entries)
    rows: dict[str, dict[str, Any]] = {}
    refused = []
    for number, entry in enumerate(entries, start=1):
        try:
            row = _row(entry)
            if row["job"] in rows:
                raise _bad("each job once", row["job"])
            rows[row["job"]] = row
        except BadInputError as error:
            refused.append(f"Entry {number}, {entry!r}: {error.problem}")
    return Rotation(rows=list(rows.values()), refused=refused)


def require_all(refused: Sequence[str]) -> None:
    """Fail if an entry could not be used, and name each.

    Raises:
        AirflowFailException: Naming the entries; the jobs of the others are rotated.
    """
    with airflow_errors():
        if refused:
            raise BadInputError(
                f"{len(refused)} entries of the rotation cannot be used. {' '.join(refused)}",
                state_after="The jobs of the other entries are rotated; these have no new savepoint.",
                remedy=f"Correct them in the Airflow variable {VARIABLE} or in the form. {_EXAMPLE}",
            )


def _row(entry: object) -> dict[str, Any]:
    if not isinstance(entry, dict) or not isinstance(entry.get("job"), str) or not entry["job"]:
        raise _bad("an object with a job", entry)
    if unknown := sorted(entry.keys() - {"job", *_FIELDS}):
        raise _bad(f"no other fields than job, {', '.join(_FIELDS)}", ", ".join(unknown))
    if entry.get("max_age") is not None and entry.get("max_age_s") is not None:
        raise _bad("max_age or max_age_s", "both")
    limits = RetentionPolicy(
        max_count=number_or_none("max_count", entry.get("max_count"), int),
        max_age_s=seconds_or_none("max_age", entry.get("max_age", entry.get("max_age_s"))),
    )
    return {
        "job": entry["job"],
        "max_count": limits.max_count,
        "max_age_s": limits.max_age_s,
        "level": one_of("level", entry.get("level", "quick"), LEVELS),
    }


def _bad(expected: str, found: object) -> BadInputError:
    return BadInputError(
        f"The rotation of savepoints: expected {expected}, found {found!r}.",
        state_after="No savepoint was taken or disposed of.",
        remedy=f"Set the Airflow variable {VARIABLE}. {_EXAMPLE}",
    )
