"""A certificate authority for one test run: server and client certificates as PEM."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_AGE = timedelta(days=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate and its key, as PEM."""

    certificate: str
    key: str = field(repr=False)
    """PKCS#8, not encrypted."""


class CertificateAuthority:
    """Signs for servers on this machine's loopback address, and for clients by their name."""

    def __init__(self, name: str = "testbed") -> None:
        self._key = _new_key()
        self._name = _named(f"{name} CA")
        self._own = self._sign(self._name, self._key, _AGE, is_ca=True)
        self.pem = _pem(self._own)
        """The certificate that clients and brokers trust."""

    def issue(self, name: str, *, valid_for: timedelta = _AGE) -> Certificate:
        """Return a certificate for ``CN=name``; one that is valid for less than nothing has expired."""
        from cryptography.hazmat.primitives import serialization as form

        key = _new_key()
        text = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
        signed = self._sign(_named(name), key, valid_for, is_ca=False)
        return Certificate(certificate=_pem(signed), key=text.decode())

    def server_context(self, folder: Path) -> ssl.SSLContext:
        """Return what a server of this process needs; its certificate and key are written to ``folder``."""
        import ssl

        issued, place = self.issue("server"), folder / "server.pem"
        place.write_text(issued.certificate + issued.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(place)
        return context

    def java_options(self, folder: Path) -> str:
        """Return the JVM options by which Java trusts this authority; the store is written to ``folder``."""
        from cryptography.hazmat.primitives.serialization import NoEncryption
        from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate as Trusted
        from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_java_truststore

        place = folder / "trusted.p12"
        place.write_bytes(serialize_java_truststore([Trusted(self._own, b"testbed")], NoEncryption()))
        return f"-Djavax.net.ssl.trustStore={place} -Djavax.net.ssl.trustStoreType=PKCS12"

    def _sign(
        self, subject: x509.Name, key: EllipticCurvePrivateKey, valid_for: timedelta, *, is_ca: bool
    ) -> x509.Certificate:
        from cryptography import x509
        from cryptography.hazmat.primitives.hashes import SHA256

        now = datetime.now(UTC)
        here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _AGE)
            .not_valid_after(now + valid_for)
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(here, critical=False)
            .sign(self._key, SHA256())
        )


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _named(name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()
