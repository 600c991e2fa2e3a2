"""What a connection becomes for Spark's driver, and that nothing of it is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.agent.core.stream_options import StreamOptions
from airflow_flinkstyle.agent.spark.wrapping import overrides_for
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.errors import LOGIN_MISSING
from airflow_flinkstyle.kafka.login import (
    CONNECTION,
    VARIABLE,
    java_settings,
    login_of,
    moved_options,
    named_connections,
    require_logins,
    require_no_secrets,
    scrub,
    to_environment,
)
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.protocol.records import KafkaOverride
from testbed.certificates import CertificateAuthority
from testbed.refusals import refuses

if TYPE_CHECKING:
    from pathlib import Path

PASSWORD = 'p"a\\ss word'  # noqa: S105
KEY = "-----BEGIN PRIVATE KEY-----\nMIG\n-----END PRIVATE KEY-----\n"
SCRAM = {
    "security.protocol": "sasl_ssl",
    "sasl.mechanisms": "SCRAM-SHA-512",
    "sasl.username": "reader",
    "sasl.password": PASSWORD,
    "ssl.ca.pem": "CA",
}
OIDC = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": "s3cret",
    "sasl.oauthbearer.scope": "kafka",
    "sasl.oauthbearer.extensions": "cluster=lkc-1,pool=p",
    "sasl.oauthbearer.token.endpoint.url": "https://id/token",
}


def a_cluster(name: str = "kafka_new", **config: object) -> KafkaCluster:
    return KafkaCluster(name=name, config={"bootstrap.servers": "new:9093", **config})


def test_password_login_is_one_jaas_line_that_java_reads_back():
    java = java_settings(a_cluster(**SCRAM))
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    assert java == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{module} required username="reader" password="p\\"a\\\\ss word";',
        "ssl.endpoint.identification.algorithm": "https",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "CA",
    }


def test_certificates_go_by_their_contents(tmp_path: Path):
    for name, text in (("ca", "CA"), ("cert", "CERT"), ("key", KEY)):
        (tmp_path / name).write_text(text)
    config = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(tmp_path / "ca"),
        "ssl.certificate.location": str(tmp_path / "cert"),
        "ssl.key.location": str(tmp_path / "key"),
        "ssl.endpoint.identification.algorithm": "none",
    }
    assert java_settings(a_cluster(**config)) == {
        "security.protocol": "SSL",
        "ssl.endpoint.identification.algorithm": "",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "CA",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "CERT",
        "ssl.keystore.key": KEY,
    }


@pytest.mark.airflow
@pytest.mark.parametrize(
    ("kind", "password"), [("PKCS8", "pw"), ("TraditionalOpenSSL", "pw"), ("TraditionalOpenSSL", None)]
)
def test_key_is_opened_for_java_whatever_its_format(kind: str, password: str | None):
    from cryptography.hazmat.primitives import serialization as form

    plain = CertificateAuthority().issue("reader").key
    lock = form.BestAvailableEncryption(password.encode()) if password else form.NoEncryption()
    loaded = form.load_pem_private_key(plain.encode(), None)
    locked = loaded.private_bytes(form.Encoding.PEM, getattr(form.PrivateFormat, kind), lock).decode()
    config = {"security.protocol": "SSL", "ssl.certificate.pem": "C", "ssl.key.pem": locked}
    if password:
        config["ssl.key.password"] = password
    assert locked != plain
    assert java_settings(a_cluster(**config))["ssl.keystore.key"] == plain


def test_without_a_ca_both_clients_trust_what_their_machines_do():
    for config in ({}, {"ssl.ca.location": "probe"}):
        java = java_settings(a_cluster(**{"security.protocol": "SSL", **config}))
        assert not any("truststore" in name for name in java)


def test_keystore_keeps_its_place_and_password():
    config = {"security.protocol": "ssl", "ssl.keystore.location": "/k.p12", "ssl.keystore.password": "pw"}
    java = java_settings(a_cluster(**config))
    assert (java["ssl.keystore.type"], java["ssl.keystore.location"]) == ("PKCS12", "/k.p12")
    assert java["ssl.keystore.password"] == java["ssl.key.password"] == "pw"


def test_token_login_asks_the_same_endpoint_as_the_same_client():
    java = java_settings(a_cluster(**OIDC))
    assert java["sasl.oauthbearer.token.endpoint.url"] == "https://id/token"
    assert java["sasl.login.callback.handler.class"].endswith("OAuthBearerLoginCallbackHandler")
    login = java["sasl.jaas.config"]
    for part in ('clientId="me"', 'clientSecret="s3cret"', 'scope="kafka"', 'extension_cluster="lkc-1"'):
        assert part in login


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"security.protocol": "TLS"}, r"security\.protocol among .* found 'TLS'"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism among .* found GSSAPI"),
        ({**SCRAM, "sasl.password": ""}, "needs sasl.password; found none"),
        ({**SCRAM, "sasl.mechanisms": "OAUTHBEARER", "oauth_cb": print}, r"oidc.* Python callback"),
        ({**OIDC, "sasl.oauthbearer.grant.type": "jwt-bearer"}, "oidc with jwt-bearer"),
        ({**SCRAM, "enable.ssl.certificate.verification": "false"}, "which Java cannot do"),
        ({**SCRAM, "ssl.crl.location": "/crl"}, r"found ssl\.crl\.location"),
        (
            {**SCRAM, "ssl.ca.pem": "", "ssl.ca.location": "/nowhere.pem"},
            r"ssl\.ca\.location; found /nowhere",
        ),
        ({"security.protocol": "ssl", "ssl.certificate.pem": "C"}, "one without the other"),
        (
            {
                "security.protocol": "ssl",
                "ssl.certificate.pem": "C",
                "ssl.key.pem": "-BEGIN RSA PRIVATE KEY-",
            },
            r"ssl\.key\.password opens; found ValueError",
        ),
        (
            {
                "security.protocol": "ssl",
                "ssl.certificate.pem": "C",
                "ssl.key.location": f"-----BEGIN PRIVATE KEY-----\n{PASSWORD}\n",
            },
            r"a path in ssl\.key\.location; found a PEM",
        ),
    ],
)
def test_what_java_cannot_do_is_refused_naming_connection_and_setting(config: dict[str, str], words: str):
    with pytest.raises(BadInputError, match=words) as refused:
        moved_options(a_cluster(**config), {})
    assert "kafka_new" in refused.value.problem
    assert PASSWORD not in str(refused.value)


def test_login_too_long_for_an_environment_is_refused():
    with pytest.raises(BadInputError, match="at most 122880 bytes"):
        to_environment([a_cluster(**{**SCRAM, "ssl.ca.pem": "x" * 130_000})])


def test_what_is_recorded_names_the_connection_and_holds_no_secret():
    recorded = moved_options(a_cluster(**SCRAM), {"subscribe": "t"})
    assert recorded == {
        "kafka.bootstrap.servers": "new:9093",
        "kafka.security.protocol": "SASL_SSL",
        CONNECTION: "kafka_new",
        "subscribe": "t",
    }
    assert named_connections([recorded, moved_options(a_cluster(), {})]) == {"kafka_new"}


def test_driver_may_log_in_as_another_connection_or_by_options_of_its_own():
    theirs = a_cluster(**{**SCRAM, "sasl.mechanisms": "GSSAPI"})  # which a driver could not do
    assert moved_options(theirs, {CONNECTION: "for_drivers"})[CONNECTION] == "for_drivers"
    own = {CONNECTION: "", "kafka.sasl.mechanism": "GSSAPI"}
    assert moved_options(theirs, own) == {"kafka.bootstrap.servers": "new:9093", **own}


@pytest.mark.parametrize(
    "option",
    [
        {"kafka.ssl.keyStore.password": "x"},
        {"kafka.ssl.keystore.key": '"x"'},
        {"kafka.sasl.jaas.config": 'M required password="x";'},
        {"kafka.sasl.jaas.config": 'M required password = "x";'},
        {"kafka.sasl.jaas.config": "M required clientSecret=x;"},
    ],
)
def test_secret_among_recorded_options_is_refused_without_showing_it(option: dict[str, str]):
    with pytest.raises(BadInputError, match=next(iter(option))) as refused:
        moved_options(a_cluster(), option)
    assert '"x"' not in str(refused.value)
    assert "=x" not in str(refused.value)
    require_no_secrets({"kafka.sasl.jaas.config": 'M required useKeyTab=true keyTab="/k";'})


def test_driver_gets_the_login_and_loses_what_the_script_set_for_another_one():
    environment = to_environment([a_cluster(**SCRAM)])
    seen = StreamOptions()
    seen.format = "kafka"
    seen.set_options(
        {
            "kafka.bootstrap.servers": "old:9092",
            "kafka.ssl.trustStore.location": "/old.jks",
            "kafka.ssl.keystore.location": "/old.p12",
            "kafka.max.poll.records": "10",
        }
    )
    options = moved_options(a_cluster(**SCRAM), {})
    rule = KafkaOverride(role="source", servers="old:9092", options=options)
    found = overrides_for([rule], "source", seen, environment=environment)
    login = {f"kafka.{name}": value for name, value in java_settings(a_cluster(**SCRAM)).items()}
    unset = {"kafka.ssl.truststore.location": None, "kafka.ssl.keystore.location": None}
    assert found == {**options, **login, **unset}


def test_login_that_nobody_brought_is_refused_by_the_connections_name():
    with refuses(LOGIN_MISSING, match="kafka_new"):
        login_of("kafka_new", {})
    environment = to_environment([a_cluster("kafka_old", **SCRAM)])
    with refuses(LOGIN_MISSING, match="kafka_new"):
        require_logins({"kafka_old", "kafka_new"}, environment)
    assert require_logins({"kafka_old"}, {**environment, "X": "1"}) == environment
    assert require_logins((), {}) == {}


def test_secrets_are_taken_out_of_what_is_shown():
    own = {"security.protocol": "SSL", "ssl.key.pem": KEY, "ssl.certificate.pem": "C"}
    clusters = [a_cluster(**SCRAM), a_cluster("certificate", **own), a_cluster("token", **OIDC)]
    environment = to_environment(clusters)
    jaas = login_of("kafka_new", environment)["kafka.sasl.jaas.config"]
    shown = scrub(f"Map(a -> {jaas}, b -> {KEY}) {PASSWORD} s3cret and CA", environment)
    assert shown == "Map(a -> ********, b -> ********) ******** ******** and CA"
    assert scrub("nothing", {}) == "nothing"
    assert VARIABLE in environment
