"""Refuse secrets in settings that a claim records or a command line shows. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REDACTED_BY_SPARK: Final = "(?i)secret|password|token|access[.]?key"
"""Default of ``spark.redaction.regex``: Spark hides what matches, by name or by value."""
REDACTED_TOO: Final = "(?i)sasl[.]jaas[.]config|ssl[.]keystore[.]key"
"""Logins to Kafka, which that default does not hide."""
_WORD: Final = (
    r"secret|passwo?r?d|passphrase|token|access[._-]?key|account[._-]?key|jaas[.]config|keystore[.]key"
)
_OF_A_SECRET: Final = re.compile(_WORD, re.IGNORECASE)
_ASSIGNS_A_SECRET: Final = re.compile(rf"[\w.-]*(?:{_WORD})[\w.-]*\s*=\s*[^\s;,&]", re.IGNORECASE)
"""In a value, like ``-Djavax.net.ssl.trustStorePassword=...``; the name of a jar may hold a word."""
_NAMES_A_SECRET: Final = re.compile(rf"{_WORD}|passcode|(?:^|[^a-z])key$|(?-i:[a-z]Key$)", re.IGNORECASE)
"""For a script's arguments: there a key is mostly a secret, among Spark's settings mostly a column."""
_ASSIGNMENT: Final = re.compile(
    rf"""(?P<name>[\w.-]*(?:{_WORD})[\w.-]*)(?P<is>["']?\s*[=:]\s*["']?)(?P<value>[^\s;,&"'}}]+)""",
    re.IGNORECASE,
)
"""Also a field of JSON."""
_HIDDEN: Final = "***"
_LOGIN_IN_AN_ADDRESS: Final = re.compile(r"://[^/\s:@]*:[^/\s@]+@")
_NOT_THE_SECRET: Final = re.compile(
    r"(?:^spark\.(?:\w+\.)*redaction\.|^spark\.kubernetes\.(?:driver|executor)\.secret(?:s|KeyRef)\."
    r"|(?:file|path|provider|class|factory|mechanism|regex|enabled?|name|type|interval|lifetime|lifespan)$)",
    re.IGNORECASE,
)
"""Names of settings that tell where a secret is or how it is used, and hold none."""
_OF_SETTINGS: Final = ("sparkConf", "hadoopConf", "envVars")
"""Fields of a ``SparkApplication`` that hold settings by name."""
_HARMLESS: Final = frozenset({"", "true", "false"})
_REMEDY: Final = (
    "Take it out, and give it to the driver in the environment of Airflow's worker, by a Hadoop credential "
    "provider (spark.hadoop.hadoop.security.credential.provider.path), or in a connection: the keys of the "
    "store in an amazon connection (aws_conn_id), logins to Kafka in an apache-kafka one."
)


def holds_secret(name: str, value: str) -> bool:
    """Return whether a setting, or an environment variable, holds what Spark would hide in its UI."""
    if value in _HARMLESS or _NOT_THE_SECRET.search(name):
        return False
    return any((
        _OF_A_SECRET.search(name), _ASSIGNS_A_SECRET.search(value), _LOGIN_IN_AN_ADDRESS.search(value),
    ))  # fmt: skip


def without_secrets(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return a script's arguments for people to read, with ``***`` for what looks like a secret.

    Hides the value of an argument with a secret's name (``--db-password X``, ``token=X``), of an assignment
    or a field of JSON within an argument, and a login in an address.
    """
    shown: list[str] = []
    awaited = False
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if awaited and not argument.startswith("--"):
            shown.append(_HIDDEN)
        elif equals and value and _names_a_secret(name):
            shown.append(f"{name}={_HIDDEN}")
        else:
            text = _LOGIN_IN_AN_ADDRESS.sub(f"://{_HIDDEN}@", argument)
            shown.append(_ASSIGNMENT.sub(_hide_value, text))
        awaited = argument.startswith("-") and not equals and _names_a_secret(argument)
    return tuple(shown)


def _names_a_secret(name: str) -> bool:
    if not re.fullmatch(r"[\w.-]+", name) or _NOT_THE_SECRET.search(name):
        return False
    return _NAMES_A_SECRET.search(name) is not None


def _hide_value(found: re.Match[str]) -> str:
    if found["value"] in _HARMLESS or _NOT_THE_SECRET.search(found["name"]):
        return found[0]
    return f"{found['name']}{found['is']}{_HIDDEN}"


def require_no_secrets(where: str, settings: Mapping[str, str]) -> None:
    """Refuse settings that hold secrets: they are recorded in the store and stand on a command line.

    Args:
        where: Where they are, for the message.
        settings: By name.

    Raises:
        BadInputError: Naming the settings, and not their values.
    """
    found = sorted(name for name, value in settings.items() if holds_secret(name, str(value)))
    if found:
        raise BadInputError(
            f"Settings without secrets were expected in {where}, because they are recorded in the store and "
            f"are on the driver's command line, found {', '.join(found)}.",
            state_after="Nothing was started.",
            remedy=_REMEDY,
        )


def settings_within(resource: object) -> dict[str, str]:
    """Return the settings and environment variables in a resource of Kubernetes."""
    found: dict[str, str] = {}
    if isinstance(resource, list):
        for one in resource:
            found |= settings_within(one)
    elif isinstance(resource, dict):
        if {"name", "value"} <= resource.keys():
            found[str(resource["name"])] = str(resource["value"])
        for name, value in resource.items():
            if name in _OF_SETTINGS and isinstance(value, dict):
                found |= {setting: str(text) for setting, text in value.items()}
            else:
                found |= settings_within(value)
    return found
