"""Contexts of servers and clients, which shake hands in memory."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from protocol.settings import SettingError, load
from protocol.tls.config import ClientTlsConfig, ServerTlsConfig
from protocol.tls.context import make_client_context, make_server_context, try_handshake
from protocol.tls.stores import load_stores
from tests.protocol.tls.test_stores import DATA, chain_text, encrypted_key, key_text
from tests.stage.certificates import Authority, shared_ca

CA = {"ssl.truststore.certificates": shared_ca().cert_pem.bytes().decode()}
KEY = {"ssl.keystore.key": key_text(), "ssl.keystore.certificate.chain": chain_text()}

ANY_NAME = {"ssl.endpoint.identification.algorithm": ""}


def server(**given: str) -> ssl.SSLContext:
    config, _ = load(ServerTlsConfig, KEY | CA | dotted(given))
    return make_server_context(config, load_stores(config))


def client(**given: str) -> ssl.SSLContext:
    """Make a client's context, which checks no names unless it is told to."""
    config, _ = load(ClientTlsConfig, CA | ANY_NAME | dotted(given))
    return make_client_context(config, load_stores(config))


def dotted(given: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in given.items()}


def refusal(**given: str) -> str:
    with pytest.raises(SettingError) as refused:
        server(**given)
    return str(refused.value)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_both_sides_agree_on_either_version(version: str) -> None:
    try_handshake(server(ssl_enabled_protocols=version), client())
    try_handshake(server(), client(ssl_enabled_protocols=version))


def test_sides_without_a_version_in_common_do_not_agree() -> None:
    with pytest.raises(ssl.SSLError, match=r"(?i)protocol"):
        try_handshake(server(ssl_protocol="TLSv1.2"), client(ssl_enabled_protocols="TLSv1.3"))


def test_sides_without_a_cipher_in_common_do_not_agree() -> None:
    ours = server(ssl_cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")
    with pytest.raises(ssl.SSLError):
        try_handshake(ours, client(ssl_cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"))
    try_handshake(ours, client(ssl_cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"))


@pytest.mark.parametrize(
    ("client_auth", "shows_one", "is_taken"),
    [
        ("none", False, True),
        ("none", True, True),
        ("requested", False, True),
        ("requested", True, True),
        ("required", False, False),
        ("required", True, True),
    ],
)
def test_a_listener_says_whether_clients_show_a_certificate(
    client_auth: str, shows_one: bool, is_taken: bool
) -> None:
    ours = server(ssl_client_auth=client_auth)
    theirs = client(**({name.replace(".", "_"): v for name, v in KEY.items()} if shows_one else {}))
    if is_taken:
        try_handshake(ours, theirs)
    else:
        with pytest.raises(ssl.SSLError, match=r"(?i)certificate"):
            try_handshake(ours, theirs)


@pytest.mark.parametrize("client_auth", ["requested", "required"])
def test_a_shown_certificate_must_be_trusted(client_auth: str, tmp_path: Path) -> None:
    stranger = Authority(tmp_path).issue("stranger.pem", common_name="stranger")
    with pytest.raises(ssl.SSLCertVerificationError):
        try_handshake(server(ssl_client_auth=client_auth), client(ssl_keystore_location=stranger))


def test_a_certificate_that_is_listed_itself_is_trusted_without_its_issuer() -> None:
    """OpenSSL alone wants the whole chain; Java does not."""
    try_handshake(server(), client(ssl_truststore_certificates=chain_text()))


def test_a_key_of_javas_store_works() -> None:
    config, _ = load(
        ServerTlsConfig,
        {
            "ssl.keystore.location": str(DATA / "key.jks"),
            "ssl.keystore.password": "store-secret",
            "ssl.key.password": "key-secret",
        },
    )
    ours = make_server_context(config, load_stores(config))

    trust_store = {
        "ssl.truststore.location": str(DATA / "trust.jks"),
        "ssl.truststore.password": "store-secret",
    }
    trusting, _ = load(ClientTlsConfig, ANY_NAME | trust_store)
    try_handshake(ours, make_client_context(trusting, load_stores(trusting)))


def test_a_context_never_renegotiates() -> None:
    assert server().options & ssl.OP_NO_RENEGOTIATION
    assert client().options & ssl.OP_NO_RENEGOTIATION


@pytest.mark.parametrize(("algorithm", "checks"), [("https", True), ("HTTPS", True), ("", False)])
def test_without_an_algorithm_names_are_not_checked_but_chains_are(
    algorithm: str, checks: bool
) -> None:
    context = client(ssl_endpoint_identification_algorithm=algorithm)
    assert context.check_hostname is checks
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_an_encrypted_key_is_opened_by_its_password() -> None:
    given = {"ssl_keystore_key": encrypted_key("right")}
    server(**given, ssl_key_password="right")
    assert refusal(**given, ssl_key_password="wrong").startswith("ssl.key.password: does not open")


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    other = Authority(tmp_path).ca.issue_cert("localhost").private_key_pem.bytes().decode()
    assert refusal(ssl_keystore_key=other) == (
        "ssl.keystore.location: the key is not that of the first certificate"
    )


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("ssl.protocol", "SSLv3", "must be one of: TLS, TLSv1.2, TLSv1.3"),
        ("ssl.enabled.protocols", "TLSv1,TLSv1.1", "needs TLSv1.2 or TLSv1.3"),
        ("ssl.enabled.protocols", "TLSv1.2,SSLv3", "versions are TLSv1.2 and TLSv1.3"),
        ("ssl.keystore.type", "BKS", "must be one of: JKS, PKCS12, PEM"),
        ("ssl.client.auth", "want", "must be one of: none, requested, required"),
        ("ssl.endpoint.identification.algorithm", "ldaps", "must be https, or empty"),
        ("ssl.engine.factory.class", "com.Own", "names a Java class"),
        ("ssl.provider", "SunJSSE", "names a Java class"),
    ],
)
def test_a_value_that_cannot_be_is_refused(name: str, value: str, why: str) -> None:
    with pytest.raises(SettingError, match=why) as refused:
        load(ServerTlsConfig, {name: value})
    assert refused.value.name == name


def test_outdated_versions_beside_newer_ones_are_left_out() -> None:
    """So says the file of many a 2.3 broker."""
    context = server(ssl_enabled_protocols="TLSv1.2,TLSv1.1,TLSv1")
    assert (context.minimum_version, context.maximum_version) == (
        ssl.TLSVersion.TLSv1_2,
        ssl.TLSVersion.TLSv1_2,
    )


def test_a_cipher_that_openssl_lacks_is_named() -> None:
    assert "does not have it" in refusal(
        ssl_cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,NO-SUCH-CIPHER"
    )


def test_versions_and_ciphers_that_exclude_each_other_are_refused() -> None:
    assert refusal(
        ssl_protocol="TLSv1.2",
        ssl_cipher_suites="TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,"
        "TLS_CHACHA20_POLY1305_SHA256",
    ).startswith("ssl.enabled.protocols: no version is left")


def test_a_listener_needs_a_key() -> None:
    config, _ = load(ServerTlsConfig, {})
    with pytest.raises(SettingError, match="a listener with TLS needs a key"):
        make_server_context(config, load_stores(config))
