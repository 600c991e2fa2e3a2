"""A broker with an authorizer that clients reach by SCRAM and TLS, by certificate, or by token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from testbed.certificates import CertificateAuthority
from testbed.kafka import Broker
from testbed.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta
    from pathlib import Path

    from testbed.tokens import TokenServer

MigrationStrategy = Literal["scram", "mtls", "oauth"]
_WAYS: Mapping[MigrationStrategy, str] = {"scram": "SASL_SSL", "mtls": "SSL", "oauth": "SASL_SSL"}
_LOGIN = "org.apache.kafka.common.security"
_SUPER = "User:ANONYMOUS"
"""Who comes by the plain listener: the broker itself and the test bed."""


class SecuredBroker(Broker):
    """One broker with a listener per way to log in; only who was allowed may read or write."""

    def __init__(self, name: str, folder: Path, tokens: TokenServer, *, heap_mb: int = 384) -> None:
        self.authority = CertificateAuthority()
        self.tokens = tokens
        self.ports: dict[MigrationStrategy, int] = {way: free_port() for way in _WAYS}
        folder.mkdir(parents=True, exist_ok=True)
        own = self.authority.issue("broker")
        files = {
            "server.pem": own.key + own.certificate,
            "ca.pem": self.authority.pem,
            "jwks.json": tokens.jwks(),
        }
        for file, text in files.items():
            (folder / file).write_text(text)
        keys = (folder / "jwks.json").as_uri()
        super().__init__(
            name,
            folder,
            heap_mb=heap_mb,
            settings=_settings(folder, keys),
            listeners={way.upper(): (_WAYS[way], port) for way, port in self.ports.items()},
            java_options=(f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}",),
        )

    def address(self, way: MigrationStrategy) -> str:
        """Return ``host:port`` of a listener."""
        return f"127.0.0.1:{self.ports[way]}"

    def connection(self, way: MigrationStrategy, **changes: str) -> dict[str, str]:
        """Return the settings of a client that logs in this way, in librdkafka's names."""
        return {
            "bootstrap.servers": self.address(way),
            "security.protocol": _WAYS[way],
            "ssl.ca.pem": self.authority.pem,
            **changes,
        }

    def add_scram_user(self, user: str, password: str) -> dict[str, str]:
        """Let somebody in by password, and return the settings for it."""
        from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

        mechanism = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(user, mechanism, password.encode())
        self.admin().alter_user_scram_credentials([change])[user].result(30)
        login = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": user, "sasl.password": password}
        return self.connection("scram", **login)

    def certificate_login(self, name: str, valid_for: timedelta | None = None) -> dict[str, str]:
        """Return the settings of ``User:CN=name``."""
        issued = self.authority.issue(name, **({} if valid_for is None else {"valid_for": valid_for}))
        return self.connection(
            "mtls", **{"ssl.certificate.pem": issued.certificate, "ssl.key.pem": issued.key}
        )

    def token_login(self, client: str, secret: str) -> dict[str, str]:
        """Return the settings of a client that the token endpoint knows."""
        login = {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": client,
            "sasl.oauthbearer.client.secret": secret,
            "sasl.oauthbearer.scope": "kafka",
            "sasl.oauthbearer.token.endpoint.url": self.tokens.url,
        }
        return self.connection("oauth", **login)

    def allow(self, principal: str, kind: str, name: str, *operations: str) -> None:
        """Allow a principal (``User:...``) operations on a resource."""
        from confluent_kafka.admin import (
            AclBinding,
            AclOperation,
            AclPermissionType,
            ResourcePatternType,
            ResourceType,
        )

        def rule(operation: str) -> Any:  # noqa: ANN401  # the client has no types
            what = (ResourceType[kind], name, ResourcePatternType.LITERAL, principal, "*")
            return AclBinding(*what, AclOperation[operation], AclPermissionType.ALLOW)

        for future in self.admin().create_acls([rule(operation) for operation in operations]).values():
            future.result(30)


def _settings(folder: Path, keys: str) -> dict[str, str]:
    scram, oauth = "listener.name.scram", "listener.name.oauth"
    return {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": _SUPER,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.mtls.ssl.client.auth": "required",
        f"{scram}.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        f"{scram}.scram-sha-512.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
        f"{oauth}.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{oauth}.oauthbearer.sasl.jaas.config": f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule required;",
        f"{oauth}.oauthbearer.sasl.server.callback.handler.class": (
            f"{_LOGIN}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        f"{oauth}.sasl.oauthbearer.jwks.endpoint.url": keys,
        "sasl.oauthbearer.jwks.endpoint.url": keys,
    }
