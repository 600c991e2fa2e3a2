"""How a driver gets its logins: rules record a connection's name, the environment brings the rest.

A rule's option ``flinkstyle.connection`` is all that is recorded. The caller puts the settings behind the
names into one environment variable of the driver, and the agent sets them as options of Spark's connector.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.errors import LOGIN_MISSING
from airflow_flinkstyle.kafka.login.java_settings import java_settings, security_protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from airflow_flinkstyle.kafka.settings import KafkaCluster

CONNECTION = "flinkstyle.connection"
"""Option of an override: whose login the source or sink gets; empty for none."""
VARIABLE = "FLINKSTYLE_KAFKA_LOGINS"
"""JSON: connection -> option of Spark's connector -> value."""
_LONGEST_BYTES = 120 * 1024
"""Linux takes no single variable of 128 KiB or more."""
_SECRETS = ("sasl.jaas.config", "ssl.keystore.key", "ssl.keystore.password", "ssl.key.password")
_OF_A_SECRET = re.compile(r"(password|passphrase|secret|keystore\.key)$", re.IGNORECASE)
_HOLDS_A_SECRET = re.compile(r"\b\w*(password|secret)\s*=", re.IGNORECASE)
"""In a login for Java, whose values need no quotes."""
_IN_JAAS = re.compile(r'(?:password|clientSecret)="((?:[^"\\]|\\.)*)"')
_ONE_LOGIN = frozenset(
    f"kafka.{name}"
    for name in (
        *("sasl.jaas.config", "sasl.login.class", "sasl.login.callback.handler.class"),
        *("sasl.client.callback.handler.class", "sasl.oauthbearer.token.endpoint.url"),
        *("ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.certificates"),
        *("ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.certificate.chain"),
        *("ssl.keystore.key", "ssl.key.password", "ssl.engine.factory.class"),
    )
)
"""Settings that make one login together; all are unset by default."""


def moved_options(cluster: KafkaCluster, more: Mapping[str, str]) -> dict[str, str]:
    """Return the options that point a source to this cluster; they are recorded, and hold no secret.

    Args:
        cluster: Where to.
        more: Options somebody gave besides. With ``flinkstyle.connection`` among them the driver logs in as
            that connection says, or, if it is empty, as the other options do.

    Raises:
        BadInputError: If Spark's driver cannot log in as the connection does, or a secret would be recorded.
    """
    require_no_secrets(more)
    if CONNECTION in more:
        return {"kafka.bootstrap.servers": cluster.bootstrap_servers, **more}
    secured = security_protocol(cluster) != "PLAINTEXT"
    java_settings(cluster)  # so that what it refuses is refused before anything is stopped
    return {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "kafka.security.protocol": security_protocol(cluster),
        CONNECTION: cluster.name if secured else "",
        **more,
    }


def require_no_secrets(options: Mapping[str, str]) -> None:
    """Refuse passwords and keys among options, which are recorded.

    Raises:
        BadInputError: Naming the option, and not its value.
    """
    for name, value in options.items():
        if _OF_A_SECRET.search(name) or _HOLDS_A_SECRET.search(str(value)):
            raise BadInputError(
                f"Option {name} holds a secret, but options are recorded.",
                state_after="Nothing was started.",
                remedy=f"Put the login into a Kafka connection, and name it with the option {CONNECTION}.",
            )


def named_connections(options: Iterable[Mapping[str, str]]) -> frozenset[str]:
    """Return the connections whose logins these overrides need."""
    return frozenset(name for rule in options if (name := rule.get(CONNECTION)))


def to_environment(clusters: Collection[KafkaCluster]) -> dict[str, str]:
    """Return the variable that brings a driver the logins of these clusters; nothing for none."""
    if not clusters:
        return {}
    logins = {
        cluster.name: {f"kafka.{name}": value for name, value in java_settings(cluster).items()}
        for cluster in clusters
    }
    text = json.dumps(logins, sort_keys=True)
    if len(text.encode()) > _LONGEST_BYTES:
        raise BadInputError(
            f"The logins of {', '.join(sorted(logins))} were expected to take at most {_LONGEST_BYTES} bytes "
            f"of the driver's environment, found {len(text.encode())}.",
            state_after="Nothing was started.",
            remedy="Let ssl.ca.location name the cluster's own CA only, or leave it out and add the CA to "
            "what the driver's Java trusts.",
        )
    return {VARIABLE: text}


def require_logins(names: Collection[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variable as this environment has it, if it brings all the logins.

    Raises:
        FlinkstyleError: ``LOGIN_MISSING`` naming the connections that it lacks.
    """
    if not names:
        return {}
    for name in sorted(names):
        login_of(name, environment)
    return {VARIABLE: environment[VARIABLE]}


def login_of(name: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return a connection's options of Spark's connector.

    Raises:
        FlinkstyleError: ``LOGIN_MISSING`` if the environment does not bring them.
    """
    found = _logins(environment).get(name)
    if found is None:
        raise LOGIN_MISSING.error(connection=name, variable=VARIABLE)
    return dict(found)


def set_for(
    options: Mapping[str, str], given: Collection[str], environment: Mapping[str, str]
) -> dict[str, str | None]:
    """Return an override's options with the login it names; what the script gave for another one is unset.

    Args:
        options: Of the override.
        given: Options that the script has set, in lower case.
        environment: The driver's.
    """
    name = options.get(CONNECTION)
    if not name:
        return dict(options)
    login = login_of(name, environment)
    unset: dict[str, str | None] = dict.fromkeys(sorted(_ONE_LOGIN.intersection(given)))
    return {**unset, **options, **login}


def scrub(text: str, environment: Mapping[str, str]) -> str:
    """Return the text without the secrets that the environment brought."""
    for secret in sorted(_secrets(environment), key=len, reverse=True):
        text = text.replace(secret, "********")
    return text


def _secrets(environment: Mapping[str, str]) -> set[str]:
    found: set[str] = set()
    for login in _logins(environment).values():
        secret = [login[f"kafka.{name}"] for name in _SECRETS if login.get(f"kafka.{name}")]
        quoted = [match for value in secret for match in _IN_JAAS.findall(value)]
        found.update(secret, quoted, (re.sub(r"\\(.)", r"\1", match) for match in quoted))
    found |= {repr(secret)[1:-1] for secret in found}  # as a dictionary in a message shows it
    return found - {""}


def _logins(environment: Mapping[str, str]) -> Mapping[str, Mapping[str, str]]:
    found: Mapping[str, Mapping[str, str]] = json.loads(environment.get(VARIABLE) or "{}")
    return found
