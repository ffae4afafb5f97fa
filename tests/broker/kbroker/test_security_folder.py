"""What secures `kbroker dev --secure` is made once, and used again."""

from __future__ import annotations

import ssl
import sys
from pathlib import Path

import pytest

from broker.kbroker.security_folder import SecurityFolder, SecurityUnavailable
from broker.settings.config import load_broker_config
from broker.settings.sasl_config import own_mechanism
from clients.config import ClusterConfig
from clients.security import login_of, tls_of
from protocol.settings import load, parse_properties
from protocol.tls.config import ServerTlsConfig
from protocol.tls.context import make_server_context, try_handshake
from protocol.tls.stores import load_stores


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "secure"


def contents(path: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in path.iterdir()}


def test_a_later_start_uses_all_of_it_again_and_makes_what_more_brokers_need(path: Path) -> None:
    first = SecurityFolder.open(path, 1)
    before = contents(path)
    assert SecurityFolder.open(path, 2).passwords == first.passwords
    after = contents(path)
    assert after.keys() - before.keys() == {"broker-1.pem"}
    assert before.items() <= after.items()


def test_nobody_but_the_owner_can_read_it(path: Path) -> None:
    SecurityFolder.open(path, 1).write_client_settings("h:1")
    assert path.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {0o600}


def test_a_password_that_was_changed_by_hand_counts(path: Path) -> None:
    SecurityFolder.open(path, 1)
    file = path / "passwords.properties"
    file.write_text("alice=open sesame\n")
    passwords = SecurityFolder.open(path, 1).passwords
    assert passwords["alice"] == "open sesame"
    assert set(parse_properties(file.read_text())) == {"admin", "alice", "broker", "kafka"}


def test_without_its_authority_all_certificates_are_made_again(path: Path) -> None:
    SecurityFolder.open(path, 1)
    before = contents(path)
    (path / "ca.pem").unlink()
    SecurityFolder.open(path, 1)
    after = contents(path)
    assert {name for name in before if before[name] == after[name]} == {"passwords.properties"}


def test_brokers_and_clients_take_its_settings(path: Path) -> None:
    security = SecurityFolder.open(path, 1)
    address = {"broker.id": "0", "zookeeper.connect": "zk:1", "listeners": "SASL_SSL://127.0.0.1:1"}
    config, notes = load_broker_config(address | security.broker_settings(0))
    assert notes == []
    assert own_mechanism(config, "SASL_SSL") is not None

    security.write_client_settings("127.0.0.1:1")
    server = make_server_context(config.tls_of("SASL_SSL"), load_stores(config.tls_of("SASL_SSL")))
    for file in (security.settings_file("alice"), security.librdkafka_file("alice")):
        client, notes = load(ClusterConfig, parse_properties(file.read_text()))
        assert notes == []
        assert login_of(client) is not None
        context = tls_of(client)
        assert context is not None
        context.check_hostname = False  # there is no name to connect to
        try_handshake(server, context)


def test_the_certificate_of_clients_is_one_that_brokers_trust(path: Path) -> None:
    security = SecurityFolder.open(path, 1)
    config = ServerTlsConfig(
        ssl_client_auth="required",
        ssl_keystore_location=str(path / "broker-0.pem"),
        ssl_truststore_location=str(path / "ca.pem"),
    )
    server = make_server_context(config, load_stores(config))
    client = security.client_tls()
    client.check_hostname = False
    try_handshake(server, client)

    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stranger.check_hostname = False
    with pytest.raises(ssl.SSLError):
        try_handshake(server, stranger)


def test_passwords_are_in_no_repr(path: Path) -> None:
    security = SecurityFolder.open(path, 1)
    assert not any(password in repr(security) for password in security.passwords.values())


def test_a_missing_package_is_named_with_what_to_install(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(SecurityUnavailable) as missing:
        SecurityFolder.open(path, 1)
    assert str(missing.value) == (
        "kbroker dev --secure needs cryptography: pip install 'kgroup[security]'"
    )
    assert not path.exists()
