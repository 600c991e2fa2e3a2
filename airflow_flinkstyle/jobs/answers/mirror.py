"""From what a DAG says about the mirror and the rewrite to the library's rules."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any, cast, get_args

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
from airflow_flinkstyle.kafka.settings import Isolation
from airflow_flinkstyle.kafka.translation.request import ProofRequest
from airflow_flinkstyle.rewrite import plan_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan

NO_ALIAS = "none"
"""What a form answers that must not stay empty, where MirrorMaker names no cluster."""
_FLAGS = {True: True, False: False, "True": True, "False": False, "true": True, "false": False}
"""Templates make text of a form's answer unless the DAG renders native objects, and any text is true."""
_CHOICES: Mapping[str, Mapping[Any, Any]] = {
    "sole_writer": _FLAGS,
    "keeps_offsets": _FLAGS,
    "replication_policy": {"identity": "identity", "default": "default"},
    "isolation": {name: name for name in get_args(Isolation)},
    "syncs_on": {"source": "source", "target": "target"},
}


def mirror_settings(answers: Mapping[str, Any]) -> MirrorSettings:
    """Read ``MirrorSettings`` from a mapping with its fields' names; empty answers take the defaults."""
    given = _given(answers)
    known = {item.name for item in fields(MirrorSettings)}
    if wrong := sorted(set(given) - known):
        raise _bad_rule("mirror settings", f"fields among {sorted(known)}", wrong)
    if given.get("keeps_offsets"):  # such a mirror has no aliases; they only name it
        given = {"source_alias": "source", "target_alias": "target", **given}
    missing = sorted({"source_alias", "target_alias"} - set(given))
    if missing:
        raise _bad_rule("mirror settings", "source_alias and target_alias", f"no {' and no '.join(missing)}")
    return MirrorSettings(**given)


def mirror_if_named(answers: Mapping[str, Any] | None) -> MirrorSettings | None:
    """Read ``MirrorSettings``; None if nothing names one, as forms have it where no mirror is needed."""
    given = _given(answers or {})
    named = any(given.get(name) for name in ("source_alias", "target_alias", "keeps_offsets"))
    return mirror_settings(given) if named else None


def _given(answers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answers that are not empty, as what they mean."""
    given = {name: value for name, value in answers.items() if value not in (None, "")}
    for alias in ("source_alias", "target_alias"):
        if given.get(alias) == NO_ALIAS:  # a form asks for one way or the other
            del given[alias]
    for name in given.keys() & _CHOICES.keys():
        value, choices = given[name], _CHOICES[name]
        if not isinstance(value, bool | str) or value not in choices:
            raise _bad_rule("mirror settings", f"{name} among {sorted(map(str, choices))}", repr(value))
        given[name] = choices[value]
    if "ignored_headers" in given:
        given["ignored_headers"] = names_of(given["ignored_headers"])
    return given


def proof_request(
    *,
    mirror: Mapping[str, Any] | None,
    rename: Mapping[str, str] | None,
    isolation: str,
    preview: bool = False,
) -> ProofRequest:
    """Return the rules of a translation; positions and ids come from the savepoint."""
    return ProofRequest(
        mirror=mirror_if_named(mirror),
        rename=dict(rename or {}),
        isolation=isolation_of(isolation),
        preview=preview,
    )


def isolation_of(text: str) -> Isolation:
    """Read a job's isolation level."""
    if text not in get_args(Isolation):
        raise _bad_rule("job", f"an isolation among {get_args(Isolation)}", repr(text))
    return cast("Isolation", text)


def plan_of(text: str | Mapping[str, Any]) -> OffsetRewritePlan:
    """Read a plan from XCom: as text, or as the mapping that native rendering makes of it."""
    return plan_json.from_json(text if isinstance(text, str) else json.dumps(text))


def names_of(text: Sequence[str] | str | None) -> tuple[str, ...]:
    """Read names from a list, or from text with semicolons or lines between them (names hold commas)."""
    parts = text.replace("\n", ";").split(";") if isinstance(text, str) else text or ()
    return tuple(part.strip() for part in parts if part.strip())


def _bad_rule(what: str, expected: str, found: object) -> BadInputError:
    return BadInputError(
        f"The {what} should have {expected}, but there is {found}.",
        state_after="Nothing was changed.",
        remedy="Correct the operator's argument, the DAG's form or the command's option.",
    )
