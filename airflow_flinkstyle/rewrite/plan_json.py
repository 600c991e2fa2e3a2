"""A plan as text, so that what was approved is what is applied. Pure."""

from __future__ import annotations

import json

from airflow_flinkstyle.rewrite.errors import PLAN_FORMAT
from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan
from airflow_flinkstyle.typed_json import MismatchError, decode, encode

FORMAT_VERSION = 1


def to_json(plan: OffsetRewritePlan) -> str:
    """Render the plan; equal plans give equal text."""
    return json.dumps({"format_version": FORMAT_VERSION, **encode(plan)}, sort_keys=True)


def from_json(text: str) -> OffsetRewritePlan:
    """Parse a plan.

    Raises:
        FlinkstyleError: ``PLAN_FORMAT`` if it is malformed, has names that are none, or is of another
            format.
    """
    try:
        fields = json.loads(text)
        version = fields.pop("format_version")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise PLAN_FORMAT.error(expected="a JSON object with format_version", found=text) from error
    if version != FORMAT_VERSION:
        raise PLAN_FORMAT.error(expected=f"format_version {FORMAT_VERSION}", found=version)
    try:
        return decode(OffsetRewritePlan, fields)
    except MismatchError as error:
        raise PLAN_FORMAT.error(expected=f"{error.where}: {error.expected}", found=error.found) from error
