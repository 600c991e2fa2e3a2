"""A form's answers about how a job is started, and what a new version changes of that."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.hooks.connections import plain
from airflow_flinkstyle.jobs.answers.values import is_true, text_or_none
from airflow_flinkstyle.jobs.comparison import compare_asked
from airflow_flinkstyle.jobs.upgrade.health import Bounds
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_flinkstyle.jobs.comparison import CompareAsked
    from airflow_flinkstyle.jobs.spec import JobSpec
    from airflow_flinkstyle.jobs.upgrade.context import Standby
    from airflow_flinkstyle.types import Rewind


_NO_ARGUMENTS: Final = "-"


def arguments(args: Sequence[Any] | str | None) -> tuple[str, ...]:
    """Return a script's arguments, given as a list or as one line as a shell would split it."""
    if isinstance(args, str) and text_or_none(args) is None:
        return ()
    try:
        return tuple(shlex.split(args) if isinstance(args, str) else map(str, args or ()))
    except ValueError as error:
        raise BadInputError(
            f"Arguments of the script were expected as a shell would split them, found {args!r}: {error}.",
            state_after="Nothing was started.",
            remedy="Close the quotation marks, or give the arguments as a list.",
        ) from error


def rewind(choice: str | None) -> Rewind:
    """Return how to treat batches after the savepoint; ``continue`` if nothing was chosen."""
    match choice or "continue":
        case "continue" | "fork" | "re-emit" as known:
            return known
        case _:
            raise BadInputError(
                f"A rewind should be 'continue', 'fork' or 're-emit', but is {choice!r}.",
                state_after="Nothing was started.",
                remedy="Choose one of these.",
            )


def standby(choice: str | None) -> Standby:
    """Return whether the next driver is up before the old one stops; ``warm`` if nothing was chosen."""
    match choice or "warm":
        case "warm" | "none" as known:
            return known
        case _:
            raise BadInputError(
                f"A standby should be 'warm' or 'none', but is {choice!r}.",
                state_after="Nothing was started or stopped.",
                remedy="Choose one of these.",
            )


def rehearse(
    batches: object, records: object, *, timeout_s: float, allow_untested: bool = False
) -> Rehearse | None:
    """Return what a new version tries before the old one stops; None for no batch."""
    try:
        asked = Rehearse(
            batches=int(str(batches)),
            records=int(str(records)),
            timeout_s=timeout_s,
            allow_untested=allow_untested,
        )
    except ValueError:
        asked = Rehearse(batches=-1)
    if asked.batches < 0 or asked.records < 1:
        raise BadInputError(
            "A rehearsal should have a number of batches, 0 for none, and of records, at least 1; found "
            f"{batches!r} and {records!r}.",
            state_after="Nothing was started or stopped.",
            remedy="Correct rehearse_batches and rehearse_records.",
        )
    return asked if asked.batches else None


def drilled(batches: object, records: object, *, timeout_s: float) -> Rehearse:
    """Return what a drill runs on a restored copy: one batch at least."""
    asked = rehearse(batches, records, timeout_s=timeout_s)
    if asked is None:
        raise BadInputError(
            f"A drill should run at least one batch, found {batches!r}.",
            state_after="Nothing was started.",
            remedy="Correct batches; to check a savepoint's files alone, use VerifySavepointOperator.",
        )
    return asked


def compared(task: Any) -> CompareAsked:  # noqa: ANN401  # an operator with these fields
    """Return a task's settings of a comparison; raises ``BadInputError`` without at least one batch."""
    asked = compare_asked(
        batches=task.batches,
        records=task.records,
        keys=task.keys,
        ignore=task.ignore,
        tolerance=task.tolerance,
        state=is_true("state", task.state),
        allow_writes=is_true("allow_writes", task.allow_writes),
        timeout_s=task.timeout_s,
    )
    if asked is None:
        raise BadInputError(
            f"A comparison should run at least one batch, found {task.batches!r}.",
            state_after="Nothing was started.",
            remedy="Correct batches.",
        )
    return asked


def bounds(observe_s: object, max_lag: object, min_rate: object) -> Bounds:
    """Return what a new version must keep once it has committed."""
    try:
        lag = None if max_lag in (None, "") else int(str(max_lag))
        rate = None if min_rate in (None, "") else float(str(min_rate))
        asked = Bounds(observe_s=float(str(observe_s)), max_lag=lag, min_rate=rate)
    except ValueError:
        asked = Bounds(observe_s=-1)
    if asked.observe_s < 0 or (asked.max_lag or 0) < 0 or not 0 <= (asked.min_rate or 0) <= 1:
        raise BadInputError(
            "A version should be observed for a number of seconds, 0 for none, with a number of records that "
            "it may be behind, or none, and a part of the rate before, from 0 to 1, or none; found "
            f"{observe_s!r}, {max_lag!r} and {min_rate!r}.",
            state_after="Nothing was started or stopped.",
            remedy="Correct observe_s, max_lag and min_rate.",
        )
    return asked


def number(name: str, value: object) -> int | None:
    """Return a number that was given as such or as text; None for none."""
    if value in (None, ""):
        return None
    try:
        return int(str(value))
    except ValueError as error:
        raise BadInputError(
            f"{name} was expected to be a number, found {value!r}.",
            state_after="Nothing was started or stopped.",
            remedy="Correct it, or leave it empty.",
        ) from error


def mapping(value: Mapping[str, Any] | str | None) -> Mapping[str, Any]:
    """Return settings given as a mapping or as JSON."""
    try:
        settings = json.loads(value) if isinstance(value, str) and value.strip() else value or {}
    except ValueError:
        settings = None
    if isinstance(settings, dict):
        return settings
    raise BadInputError(
        f"Spark settings were expected as a JSON object, found {value!r}.",
        state_after="Nothing was started.",
        remedy='Write them as {"spark.name": "value"}.',
    )


def next_version(
    spec: JobSpec,
    *,
    script: str | None,
    args: Sequence[Any] | str | None,
    conf: Mapping[str, Any] | None,
    leave_checkpoints: Sequence[str] | str | None = None,
) -> JobSpec:
    """Return the job with the given changes; a setting whose new value is None is removed.

    No arguments are the same as before, since templates and forms render none in many ways; ``-`` takes all
    away.
    """
    given = arguments(args)
    merged = {
        **spec.conf,
        **{name: plain(value) for name, value in (conf or {}).items() if value is not None},
    }
    removed = {name for name, value in (conf or {}).items() if value is None}
    return replace(
        spec,
        script=text_or_none(script) or spec.script,
        args=() if given == (_NO_ARGUMENTS,) else given or spec.args,
        conf={name: value for name, value in merged.items() if name not in removed},
        leave_checkpoints=arguments(leave_checkpoints),
    )
