"""Which verdicts are good enough: per class of records allow, allow up to a number, or refuse. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.verdict import Bounded, Chosen, Exact, ExtraClass, Refused, Verdict
from airflow_flinkstyle.python_versions import assert_never

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CLASSES: tuple[ExtraClass, ...] = get_args(ExtraClass)
_LOSES: frozenset[ExtraClass] = frozenset(("tombstone", "passed_over"))
"""Classes with records that are never read: ``bounded`` does not include them."""


@dataclass(frozen=True, slots=True)
class Allow:
    """Any number of records of the class."""


@dataclass(frozen=True, slots=True)
class AllowUpTo:
    """At most so many records of the class in one partition."""

    records: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """No record of the class."""


Policy = Allow | AllowUpTo | Refuse


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """What a plan's verdicts may be; ``Exact`` always, and by default nothing else."""

    classes: Mapping[ExtraClass, Policy] = field(default_factory=dict)
    """By class of ``Bounded``; one that is left out is refused."""
    chosen: bool = False
    """Whether positions that a person picked are allowed."""

    def judge(self, verdict: Verdict) -> Refused | None:
        """Return why a verdict is not good enough, or None."""
        match verdict:
            case Exact():
                return None
            case Bounded():
                wrong = [
                    f"{count} {name} ({_limit(policy)})"
                    for name, count in verdict.counts.items()
                    if not _within(count, policy := self.classes.get(name, Refuse()))
                ]
                return Refused(f"not allowed: {', '.join(wrong)}", None) if wrong else None
            case Chosen():
                return None if self.chosen else Refused("not allowed: a position chosen by hand", None)
            case Refused():
                return verdict
            case _:
                assert_never(verdict)

    def describe(self) -> str:
        """Return the text that ``parse_policies`` reads."""
        parts = [f"{name}{_sign(policy)}" for name, policy in self.classes.items()]
        return ",".join(["exact", *parts, *(["chosen"] if self.chosen else [])])


EXACT_ONLY = Policies()


def parse_policies(value: str | Sequence[str]) -> Policies:
    """Read policies from ``exact,duplicate<=100,superseded,tombstone=refuse`` or a list of such parts.

    A class alone allows any number; ``bounded`` allows every class of which nothing is lost; ``chosen``
    allows positions picked by hand. A later part overrides an earlier one.

    Raises:
        BadInputError: If a part cannot be understood, or there is none.
    """
    parts = [part.strip() for part in (value.split(",") if isinstance(value, str) else value)]
    if not parts:
        raise _unreadable(parts)
    classes: dict[ExtraClass, Policy] = {}
    chosen = False
    for part in parts:
        if part == "chosen":
            chosen = True
        elif part == "bounded":
            classes.update({name: Allow() for name in _CLASSES if name not in _LOSES})
        elif part != "exact":
            name, policy = _parse_class(part)
            classes[name] = policy
    return Policies(classes=classes, chosen=chosen)


def _parse_class(part: str) -> tuple[ExtraClass, Policy]:
    text, sign, limit = part.partition("<=")
    if not sign:
        text, sign, limit = part.partition("=")
    limit = limit.strip()
    name = next((known for known in _CLASSES if known == text.strip()), None)
    if name is not None:
        if sign == "<=" and limit.isascii() and limit.isdigit():
            return name, AllowUpTo(int(limit))
        if sign != "<=" and limit in ("", "allow", "refuse") and bool(sign) == bool(limit):
            return name, Refuse() if limit == "refuse" else Allow()
    raise _unreadable(part)


def _within(count: int, policy: Policy) -> bool:
    match policy:
        case Allow():
            return True
        case AllowUpTo(records):
            return count <= records
        case Refuse():
            return count == 0
        case _:
            assert_never(policy)


def _sign(policy: Policy) -> str:
    match policy:
        case Allow():
            return ""
        case AllowUpTo(records):
            return f"<={records}"
        case Refuse():
            return "=refuse"
        case _:
            assert_never(policy)


def _limit(policy: Policy) -> str:
    return f"at most {policy.records} allowed" if isinstance(policy, AllowUpTo) else "none allowed"


def _unreadable(found: object) -> BadInputError:
    return BadInputError(
        "Allowed verdicts should be some of exact, bounded, chosen and CLASS, CLASS<=NUMBER or CLASS=refuse "
        f"(classes: {', '.join(_CLASSES)}), but there is {found!r}.",
        state_after="Nothing was changed.",
        remedy="Correct the operator's argument, the DAG's form or the command's option.",
    )
