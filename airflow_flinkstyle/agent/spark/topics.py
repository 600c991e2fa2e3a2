"""The topics that a Kafka source of an unmodified script is to read under other names. Pure."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.core.errors import UnsupportedModeError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_PATTERN = "subscribePattern"


def renamed_topics(options: Mapping[str, str], rename: Mapping[str, str]) -> dict[str, str]:
    """Return the option that names a source's topics as it must be now; nothing if it may stay.

    Args:
        options: What the script set, with names in lower case.
        rename: Every topic the script reads, as it writes it -> topic to read instead, or several with
            commas.

    Raises:
        UnsupportedModeError: If partitions are assigned by number in a topic that was split or merged.
    """
    if not rename:
        return {}
    found = {}
    if "subscribe" in options:
        found["subscribe"] = _subscribed(options["subscribe"], rename)
    if "assign" in options:
        found["assign"] = _assigned(options["assign"], rename)
    if _PATTERN.lower() in options:
        found[_PATTERN] = _pattern(options[_PATTERN.lower()], rename)
    return {name: value for name, value in found.items() if value != options[name.lower()]}


def _subscribed(text: str, rename: Mapping[str, str]) -> str:
    names = [new for topic in text.split(",") for new in _split(rename.get(topic.strip(), topic))]
    return ",".join(dict.fromkeys(names))


def _assigned(text: str, rename: Mapping[str, str]) -> str:
    given = json.loads(text)
    moved = {rename.get(topic, topic): numbers for topic, numbers in given.items()}
    if len(moved) < len(given) or any("," in topic for topic in moved):
        raise UnsupportedModeError.named(
            f"assigned partitions of topics that are split or merged ({text} as {dict(rename)})",
            "Let the script use subscribe, or set the option assign for the new cluster (kafka_options).",
        )
    return json.dumps(moved)


def _pattern(pattern: str, rename: Mapping[str, str]) -> str:
    """Return a pattern for the new names; where all of them got one prefix, also for topics to come."""
    matched = {topic: new for topic, new in rename.items() if re.fullmatch(pattern, topic)}
    prefix = _common_prefix(matched)
    if prefix is not None:
        return f"{re.escape(prefix)}(?:{pattern})" if prefix else pattern
    names = dict.fromkeys(name for new in matched.values() for name in _split(new))
    return "|".join(map(re.escape, names)) or pattern


def _common_prefix(rename: Mapping[str, str]) -> str | None:
    prefixes = {new.removesuffix(topic) if new.endswith(topic) else None for topic, new in rename.items()}
    return next(iter(prefixes)) if len(prefixes) == 1 else None


def _split(names: str) -> Collection[str]:
    return [name.strip() for name in names.split(",")]
