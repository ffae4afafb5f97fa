"""PLAIN: the texts are Kafka's, and tell nobody which users there are."""

from __future__ import annotations

import pytest

from protocol.sasl.exchange import LoggedIn, LoginRefused, ServerRefused
from protocol.sasl.plain import PlainClient, PlainServer

SERVER = PlainServer({"alice": "secret", "bob": "höher", "empty": ""})


@pytest.mark.parametrize("token", [b"\0alice\0secret", b"alice\0alice\0secret"])
def test_a_user_logs_in_with_its_password(token: bytes) -> None:
    assert SERVER.receive(token) == LoggedIn("alice", b"")


def test_our_client_logs_in_without_an_authorization_id() -> None:
    client = PlainClient("bob", "höher")
    assert client.begin() == b"\0bob\0" + "höher".encode()
    assert SERVER.receive(client.begin()) == LoggedIn("bob")
    client.receive(b"")
    with pytest.raises(ServerRefused):
        client.receive(b"more")


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0secret", "Authentication failed: Invalid username or password"),
        (b"bob\0nobody\0secret", "Authentication failed: Invalid username or password"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0empty\0", "Authentication failed: password not specified"),
        (
            b"bob\0alice\0secret",
            "Authentication failed: Client requested an authorization id that is different from "
            "username",
        ),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"alice\0secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0secret\0x\0y", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\xff\xfe\0secret", None),
    ],
)
def test_a_login_is_refused_with_kafkas_text(token: bytes, message: str | None) -> None:
    with pytest.raises(LoginRefused) as refused:
        SERVER.receive(token)
    assert refused.value.message == message


def test_no_repr_shows_a_password() -> None:
    assert "secret" not in repr(SERVER) + repr(PlainClient("alice", "secret"))
