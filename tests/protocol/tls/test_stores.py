"""Stores of every kind, as settings name them."""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from protocol.settings import SettingError, load
from protocol.tls.certificate import subject_of
from protocol.tls.config import ClientTlsConfig, ServerTlsConfig
from protocol.tls.stores import Stores, load_stores, store_files
from tests.stage.certificates import shared_ca, shared_leaf

DATA = Path(__file__).parent / "testdata"
ENCRYPTED = "-----BEGIN ENCRYPTED PRIVATE KEY-----"


def stores(**given: str) -> Stores:
    """Load the stores of these settings, named with underscores for dots."""
    dotted = {name.replace("_", "."): value for name, value in given.items()}
    return load_stores(load(ClientTlsConfig, dotted)[0])


def refusal(**given: str) -> str:
    with pytest.raises(SettingError) as refused:
        stores(**given)
    return str(refused.value)


def leaf() -> trustme.LeafCert:
    return shared_leaf("localhost", common_name="broker")


def key_text() -> str:
    return leaf().private_key_pem.bytes().decode()


def chain_text() -> str:
    return "".join(pem.bytes().decode() for pem in leaf().cert_chain_pems)


def subjects(certificates: tuple[bytes, ...]) -> list[str]:
    return [subject_of(certificate).split(",")[0] for certificate in certificates]


def encrypted_key(password: str) -> str:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    key = load_pem_private_key(key_text().encode(), None)
    encryption = BestAvailableEncryption(password.encode())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()


# ---- PEM


def test_a_pem_file_has_key_and_chain_in_any_order_with_text_around(tmp_path: Path) -> None:
    file = tmp_path / "store.pem"
    for parts in ((key_text(), chain_text()), (chain_text(), key_text())):
        file.write_text("made for a test\n" + "and text between\n".join(parts))
        key = stores(ssl_keystore_location=str(file)).key
        assert key is not None
        assert subjects(key.chain) == ["CN=broker"]


@pytest.mark.parametrize("line_end", ["\n", " ", "\r\n", "\n   "])
def test_a_setting_has_pem_on_one_line_too(line_end: str) -> None:
    loaded = stores(
        ssl_keystore_key=key_text().replace("\n", line_end),
        ssl_keystore_certificate_chain=chain_text().replace("\n", line_end),
        ssl_truststore_certificates=shared_ca().cert_pem.bytes().decode().replace("\n", line_end),
    )
    assert loaded.key is not None
    assert subjects(loaded.key.chain) == ["CN=broker"]
    assert loaded.trusted == (ssl.PEM_cert_to_DER_cert(shared_ca().cert_pem.bytes().decode()),)
    # OpenSSL's own reader wants lines.
    assert loaded.key.pem.splitlines()[0] == key_text().splitlines()[0]


def test_librdkafka_has_a_file_for_the_key_and_one_for_the_certificates(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text(key_text())
    (tmp_path / "chain.pem").write_text(chain_text())
    (tmp_path / "ca.pem").write_bytes(shared_ca().cert_pem.bytes())
    loaded = stores(
        ssl_ca_location=str(tmp_path / "ca.pem"),
        ssl_certificate_location=str(tmp_path / "chain.pem"),
        ssl_key_location=str(tmp_path / "key.pem"),
    )
    assert loaded.key is not None
    assert loaded.trusted is not None


def test_an_encrypted_key_needs_its_password() -> None:
    given = {"ssl_keystore_key": encrypted_key("s"), "ssl_keystore_certificate_chain": chain_text()}
    assert refusal(**given) == "ssl.key.password: is missing: the private key is encrypted"
    key = stores(**given, ssl_key_password="s").key
    assert key is not None
    assert key.password == "s"
    assert key.pem.startswith(ENCRYPTED)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"ssl_keystore_key": "K"}, "ssl.keystore.certificate.chain: is missing"),
        ({"ssl_keystore_certificate_chain": "C"}, "ssl.keystore.key: is missing"),
        (
            {"ssl_keystore_key": "K", "ssl_keystore_certificate_chain": "C"},
            "ssl.keystore.key: has 0 private keys",
        ),
        (
            {
                "ssl_keystore_key": "K",
                "ssl_keystore_certificate_chain": "C",
                "ssl_keystore_location": "x",
            },
            "ssl.keystore.location: is given beside ssl.keystore.key",
        ),
        (
            {
                "ssl_keystore_key": "K",
                "ssl_keystore_certificate_chain": "C",
                "ssl_keystore_password": "p",
            },
            "ssl.keystore.password: PEM has no store password",
        ),
        ({"ssl_keystore_password": "p"}, "ssl.keystore.location: is missing"),
        ({"ssl_truststore_password": "p"}, "ssl.truststore.location: is missing"),
        (
            {"ssl_truststore_certificates": "C"},
            "ssl.truststore.certificates: has no certificate",
        ),
        (
            {"ssl_truststore_certificates": "C", "ssl_truststore_location": "x"},
            "ssl.truststore.location: is given beside ssl.truststore.certificates",
        ),
        (
            {"ssl_truststore_location": "/nowhere/x"},
            "ssl.truststore.location: /nowhere/x: cannot be read: No such file or directory",
        ),
        (
            {
                "ssl_truststore_certificates": "-----BEGIN CERTIFICATE----- %% "
                "-----END CERTIFICATE-----"
            },
            "ssl.truststore.certificates: CERTIFICATE: is not base64",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_settings_that_do_not_fit_are_named(given: dict[str, str], error: str) -> None:
    assert refusal(**given).startswith(error)


def test_two_keys_in_a_store_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "store.pem"
    file.write_text(key_text() * 2 + chain_text())
    assert "has 2 private keys in PEM, and must have one" in refusal(
        ssl_keystore_location=str(file)
    )


def test_a_key_is_in_no_repr() -> None:
    loaded = stores(ssl_keystore_key=key_text(), ssl_keystore_certificate_chain=chain_text())
    assert repr(loaded) == "Stores(key=PrivateKey())"
    config, _ = load(
        ServerTlsConfig, {"ssl.keystore.key": key_text(), "ssl.keystore.password": "hush"}
    )
    assert "hush" not in repr(config)
    assert "PRIVATE KEY" not in repr(config)


# ---- Java's stores, whatever they are called


@pytest.mark.parametrize("type_", ["JKS", "PKCS12", "pem"])
@pytest.mark.parametrize(
    ("file", "passwords"),
    [
        ("key.jks", {"ssl_keystore_password": "store-secret", "ssl_key_password": "key-secret"}),
        ("key.p12", {"ssl_keystore_password": "store-secret"}),
    ],
)
def test_a_key_store_says_itself_what_it_is(
    file: str, passwords: dict[str, str], type_: str
) -> None:
    location = str(DATA / file)
    key = stores(ssl_keystore_location=location, ssl_keystore_type=type_, **passwords).key
    assert key is not None
    assert key.pem.startswith("-----BEGIN PRIVATE KEY-----\n")
    assert subjects(key.chain) == ["CN=broker"]


@pytest.mark.parametrize("file", ["trust.jks", "trust.p12", "key.jks", "key.p12"])
def test_a_trust_store_may_be_a_key_store_too(file: str) -> None:
    loaded = stores(
        ssl_truststore_location=str(DATA / file), ssl_truststore_password="store-secret"
    )
    assert loaded.trusted is not None
    assert subjects(loaded.trusted) == ["CN=broker"]


@pytest.mark.parametrize(
    ("file", "passwords", "error"),
    [
        ("key.jks", {}, "ssl.keystore.password: is missing: {} is a JKS store"),
        ("key.p12", {}, "ssl.keystore.password: is missing: {} is a PKCS12 store"),
        ("key.jks", {"ssl_keystore_password": "x"}, "ssl.keystore.location: {}: its password is"),
        (
            "key.jks",
            {"ssl_keystore_password": "store-secret"},
            "ssl.keystore.location: {}: the password of its key 'broker' is wrong",
        ),
        ("key.p12", {"ssl_keystore_password": "x"}, "ssl.keystore.location: {}: cannot be opened"),
        ("trust.jks", {"ssl_keystore_password": "store-secret"}, "ssl.keystore.location: {}: has"),
        ("trust.p12", {"ssl_keystore_password": "store-secret"}, "ssl.keystore.location: {}: has"),
    ],
)
def test_a_store_that_does_not_open_is_named(
    file: str, passwords: dict[str, str], error: str
) -> None:
    location = str(DATA / file)
    assert refusal(ssl_keystore_location=location, **passwords).startswith(error.format(location))


def test_jceks_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    file = tmp_path / "old.jceks"
    file.write_bytes(bytes.fromhex("cececece00000002"))
    error = refusal(ssl_keystore_location=str(file), ssl_keystore_password="x")
    assert f"keytool -importkeystore -srckeystore {file} -srcstoretype JCEKS" in error
    assert f"-destkeystore {file}.p12 -deststoretype PKCS12" in error


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "notes"
    file.write_text("nothing")
    assert "is no store of PEM, PKCS12 or JKS" in refusal(ssl_truststore_location=str(file))


def test_pkcs12_without_cryptography_says_what_to_install() -> None:
    shown = subprocess.run(
        [sys.executable, "-P", "-c", _WITHOUT_CRYPTOGRAPHY.format(str(DATA / "key.p12"))],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "which needs the package cryptography: pip install 'kgroup[security]'" in shown


_WITHOUT_CRYPTOGRAPHY = """
import sys
sys.modules["cryptography"] = None
from protocol.settings import load
from protocol.tls.config import TlsConfig
from protocol.tls.stores import load_stores
given = {{"ssl.keystore.location": "{}", "ssl.keystore.password": "x"}}
try:
    load_stores(load(TlsConfig, given)[0])
except ValueError as error:
    print(error)
"""


def test_without_a_trust_store_the_systems_certificates_are_trusted() -> None:
    assert stores() == Stores(None, None)


def test_the_files_of_a_config_are_those_that_may_change() -> None:
    config, _ = load(
        ClientTlsConfig,
        {"ssl.keystore.location": "/k", "ssl.ca.location": "/t", "ssl.key.location": "/p"},
    )
    assert store_files(config) == ("/k", "/t", "/p")
