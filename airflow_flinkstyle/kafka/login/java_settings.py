"""A cluster's login under Java's names: Spark's connector reads what librdkafka reads here.

Certificates and keys go by their contents (PEM), so that no file has to be where driver and executors run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.errors import NOTHING_CHANGED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.kafka.settings import KafkaCluster

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
"""Dropping one of these would check less than the connection asks for, or log in as somebody else."""


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
        remedy="Change the Kafka connection; docs/security.md tells what its settings become for the driver.",
    )
