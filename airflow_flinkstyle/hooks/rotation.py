"""Which jobs the DAG ``rotate_savepoints`` looks after, and how much history each keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.hooks.failures import airflow_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

VARIABLE = "flinkstyle_rotation"
_DEFAULTS = {"max_count": None, "max_age_s": None, "level": "quick"}


def rotation(given: Sequence[Any] | None) -> list[dict[str, Any]]:
    """Return one mapping per job with ``job``, ``max_count``, ``max_age_s`` and ``level``.

    Args:
        given: The form's answer; None reads the Airflow variable ``flinkstyle_rotation``.
    """
    from airflow.sdk import Variable

    with airflow_errors():
        entries = Variable.get(VARIABLE, default=None, deserialize_json=True) if given is None else given
        if not isinstance(entries, list) or not entries:
            raise _bad("a list of jobs", entries)
        rows = [_row(entry) for entry in entries]
        names = [row["job"] for row in rows]
        if len(set(names)) < len(names):
            raise _bad("each job once", names)
        return rows


def _row(entry: object) -> dict[str, Any]:
    if not isinstance(entry, dict) or not isinstance(entry.get("job"), str) or not entry["job"]:
        raise _bad("objects with a job each", entry)
    if unknown := sorted(entry.keys() - _DEFAULTS.keys() - {"job"}):
        raise _bad(f"no other fields than job, {', '.join(_DEFAULTS)}", unknown)
    return {**_DEFAULTS, **entry}


def _bad(expected: str, found: object) -> BadInputError:
    return BadInputError(
        f"The rotation of savepoints: expected {expected}, found {found!r}.",
        state_after="No savepoint was taken or disposed of.",
        remedy=f'Set the Airflow variable {VARIABLE} to a list like [{{"job": "orders", "max_count": 24}}].',
    )
