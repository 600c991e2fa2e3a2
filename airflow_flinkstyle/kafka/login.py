"""How a driver gets its logins: rules record a connection's name, the environment holds its settings.

A rule's option ``flinkstyle.connection`` is all that is recorded. The caller puts the settings of the
connections into one environment variable of the driver; the agent sets them as options of Spark's connector.

They have the names of Java's client, which Spark's connector uses; here librdkafka is used. Certificates and
keys are passed by content (PEM), so that no file has to be where driver and executors run. No cluster is
reached; how Python's clients log in belongs in ``settings``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.errors import LOGIN_MISSING, NOTHING_CHANGED

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
        more: Options given besides. With ``flinkstyle.connection`` among them the driver logs in by that
            connection or, if it is empty, by the other options.

    Raises:
        BadInputError: If Spark's driver cannot log in as the connection does, or a secret would be recorded.
    """
    require_no_secrets(more)
    if CONNECTION in more:
        return {"kafka.bootstrap.servers": cluster.bootstrap_servers, **more}
    secured = security_protocol(cluster) != "PLAINTEXT"
    java_settings(cluster)  # refuses an unusable connection before anything is stopped
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
    """Return an override's options with the login it names; the script's settings of another login are unset.

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


# --- under Java's names ---------------------------------------------------------------------------

_SECURITY = "org.apache.kafka.common.security"
_MODULES = {
    "PLAIN": f"{_SECURITY}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_SECURITY}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_SECURITY}.scram.ScramLoginModule",
}
_OAUTH_MODULE = f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule"
_OAUTH_HANDLER = f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler"
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_NOT_IN_JAVA = ("ssl.crl.location", "ssl.engine.location", "ssl.providers")
"""Dropping one of these would check less than the connection asks for, or log in as another principal."""


def security_protocol(cluster: KafkaCluster) -> str:
    """Return the cluster's security protocol in capitals, as both clients know it."""
    protocol = str(cluster.config.get("security.protocol", "PLAINTEXT")).upper()
    if protocol not in _PROTOCOLS:
        raise _refused(cluster, f"security.protocol among {', '.join(_PROTOCOLS)}", f"{protocol!r}")
    return protocol


def java_settings(cluster: KafkaCluster) -> dict[str, str]:
    """Return the settings with which a Java client logs in as this cluster's clients do.

    Raises:
        BadInputError: Naming the connection and the setting that Java has no counterpart for.
    """
    protocol = security_protocol(cluster)
    settings = {"security.protocol": protocol}
    if protocol.startswith("SASL"):
        settings |= _sasl(cluster)
    if protocol.endswith("SSL"):
        settings |= _tls(cluster)
    return settings


def _sasl(cluster: KafkaCluster) -> dict[str, str]:
    config = cluster.config
    mechanism = str(config.get("sasl.mechanisms") or config.get("sasl.mechanism") or "GSSAPI").upper()
    if mechanism == "OAUTHBEARER":
        return {"sasl.mechanism": mechanism, **_oauth(cluster)}
    if mechanism not in _MODULES:
        raise _refused(cluster, f"sasl.mechanism among {', '.join((*_MODULES, 'OAUTHBEARER'))}", mechanism)
    login = {"username": _need(cluster, "sasl.username"), "password": _need(cluster, "sasl.password")}
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": _jaas(_MODULES[mechanism], login)}


def _oauth(cluster: KafkaCluster) -> dict[str, str]:
    """Translate librdkafka's ``oidc``; a Python callback stays on this side."""
    config = cluster.config
    method = str(config.get("sasl.oauthbearer.method", "default"))
    grant = str(config.get("sasl.oauthbearer.grant.type", "client_credentials"))
    if method != "oidc" or grant != "client_credentials":
        found = "a Python callback (oauth_cb)" if "oauth_cb" in config else f"{method} with {grant}"
        raise _refused(cluster, "sasl.oauthbearer.method=oidc with a client's id and secret", found)
    options = {
        "clientId": _need(cluster, "sasl.oauthbearer.client.id"),
        "clientSecret": _need(cluster, "sasl.oauthbearer.client.secret"),
    }
    if scope := config.get("sasl.oauthbearer.scope"):
        options["scope"] = scope
    for pair in filter(None, str(config.get("sasl.oauthbearer.extensions", "")).split(",")):
        name, _, value = pair.partition("=")
        options[f"extension_{name.strip()}"] = value.strip()
    return {
        "sasl.jaas.config": _jaas(_OAUTH_MODULE, options),
        "sasl.login.callback.handler.class": _OAUTH_HANDLER,
        "sasl.oauthbearer.token.endpoint.url": _need(cluster, "sasl.oauthbearer.token.endpoint.url"),
    }


def _jaas(module: str, options: Mapping[str, str]) -> str:
    return f"{module} required {' '.join(f'{name}={_quoted(value)}' for name, value in options.items())};"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _tls(cluster: KafkaCluster) -> dict[str, str]:
    config = cluster.config
    if str(config.get("enable.ssl.certificate.verification", "true")).lower() != "true":
        raise _refused(cluster, "enable.ssl.certificate.verification=true", "false, which Java cannot do")
    if unknown := [name for name in _NOT_IN_JAVA if config.get(name)]:
        raise _refused(cluster, "settings that Java's client has too", unknown[0])
    check = str(config.get("ssl.endpoint.identification.algorithm", "https"))
    return {
        "ssl.endpoint.identification.algorithm": "" if check == "none" else check,
        **_trust(cluster),
        **_own_certificate(cluster),
    }


def _trust(cluster: KafkaCluster) -> dict[str, str]:
    """Return whom to trust; without a CA both clients trust what their machines do."""
    if cluster.config.get("ssl.ca.location") == "probe":
        return {}
    certificates = _pem(cluster, "ssl.ca.pem", "ssl.ca.location")
    return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": certificates} if certificates else {}


def _own_certificate(cluster: KafkaCluster) -> dict[str, str]:
    config = cluster.config
    if location := config.get("ssl.keystore.location"):
        password = config.get("ssl.keystore.password", "")
        return {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": location,
            "ssl.keystore.password": password,
            "ssl.key.password": password,
        }
    chain = _pem(cluster, "ssl.certificate.pem", "ssl.certificate.location")
    key = _pem(cluster, "ssl.key.pem", "ssl.key.location")
    if not chain and not key:
        return {}
    if not chain or not key:
        raise _refused(cluster, "a certificate and its key", "one without the other")
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": chain,
        "ssl.keystore.key": _plain_pkcs8(cluster, key),
    }


def _plain_pkcs8(cluster: KafkaCluster, key: str) -> str:
    """Return the key as Java reads it; Java 17 cannot open what OpenSSL encrypts today."""
    if "-----BEGIN PRIVATE KEY-----" in key:
        return key
    password = cluster.config.get("ssl.key.password")
    try:
        from cryptography.hazmat.primitives import serialization as form  # Airflow brings it

        opened = form.load_pem_private_key(key.encode(), password.encode() if password else None)
    except (ImportError, TypeError, ValueError) as error:
        raise _refused(cluster, "a key in PEM that ssl.key.password opens", type(error).__name__) from error
    return opened.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()).decode()


def _pem(cluster: KafkaCluster, inline: str, location: str) -> str:
    """Return the contents of a setting or of the file it names; nothing if neither is given."""
    if text := cluster.config.get(inline):
        return str(text)
    path = cluster.config.get(location)
    if not path:
        return ""
    if "-----BEGIN" in path:  # a message about a file would show it
        raise _refused(cluster, f"a path in {location}", f"a PEM, which belongs into {inline}")
    try:
        return Path(path).read_text()
    except (OSError, ValueError) as error:
        raise _refused(cluster, f"a PEM file in {location}", f"{path}: {error}") from error


def _need(cluster: KafkaCluster, name: str) -> str:
    if value := cluster.config.get(name):
        return str(value)
    raise _refused(cluster, name, "none")


def _refused(cluster: KafkaCluster, expected: str, found: str) -> BadInputError:
    return BadInputError(
        f"Spark's driver was expected to log in to Kafka cluster {cluster.name} as this connection does, "
        f"which needs {expected}; found {found}.",
        state_after=NOTHING_CHANGED,
        remedy="Change the Kafka connection; docs/security.md lists what its settings become for the driver.",
    )
