"""The login of a query's Kafka source, which has Java's names, in those of this package's client. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from airflow_flinkstyle.sinks.errors import SINK_CONFIG

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.errors import FlinkstyleError

_RENAMED = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_TYPES = ("ssl.truststore.type", "ssl.keystore.type")
_LOGIN = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


def client_settings(java: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's settings for those of a Java client; names that both have, and librdkafka's, stay.

    Raises:
        FlinkstyleError: ``SINK_CONFIG`` naming a setting that has no counterpart.
    """
    settings = {_RENAMED.get(name, name): value for name, value in java.items() if name not in _TYPES}
    for name in ("truststore", "keystore"):
        kind = java.get(f"ssl.{name}.type", "JKS")
        if f"ssl.{name}.location" in java and (name, kind.upper()) != ("keystore", "PKCS12"):
            raise _refused(
                f"certificates in PEM (kafka.ssl.{name}.type=PEM)", f"a {name} file of type {kind}"
            )
    if jaas := settings.pop("sasl.jaas.config", None):
        settings |= _login(jaas)
    if settings.get("ssl.endpoint.identification.algorithm") == "":
        settings["ssl.endpoint.identification.algorithm"] = "none"
    return settings


def _login(jaas: str) -> dict[str, str]:
    found = {name: re.sub(r"\\(.)", r"\1", value) for name, value in _LOGIN.findall(jaas)}
    if found.keys() != {"username", "password"} or "LoginModule" not in jaas:
        raise _refused(
            "a user and a password in kafka.sasl.jaas.config (PLAIN or SCRAM)", "another kind of login"
        )
    return {"sasl.username": found["username"], "sasl.password": found["password"]}


def _refused(expected: str, found: str) -> FlinkstyleError:
    return SINK_CONFIG.with_text(
        f"commit_offsets expected the Kafka source to log in with {expected}, found {found}.",
        state_after="Nothing was written.",
        remedy="Leave out commit_offsets, and let the agent commit offsets instead; or give the source a "
        "login that has a counterpart in librdkafka.",
    )
