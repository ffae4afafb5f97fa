"""The settings name listeners."""

from __future__ import annotations

import pytest

from broker.settings.endpoints import (
    EACH_TO_ITSELF,
    parse_endpoints,
    parse_protocols,
    refuse_impossible_host,
    refuse_shared_ports,
)
from protocol.settings import SettingError
from zk.znodes import Endpoint

PROTOCOLS = "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,OUTSIDE:plaintext,SASL_SSL:SASL_SSL"


def parsed(text: str) -> tuple[Endpoint, ...]:
    return parse_endpoints("listeners", text, PROTOCOLS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PLAINTEXT://:9092", [Endpoint("PLAINTEXT", "", 9092)]),
        ("plaintext://host:0", [Endpoint("PLAINTEXT", "host", 0)]),
        ("PLAINTEXT://[::1]:9092", [Endpoint("PLAINTEXT", "::1", 9092)]),
        (
            " INSIDE://a:1 , OUTSIDE://b:2 ,",
            [Endpoint("INSIDE", "a", 1), Endpoint("OUTSIDE", "b", 2)],
        ),
        ("SASL_SSL://a:1", [Endpoint("SASL_SSL", "a", 1, "SASL_SSL")]),
        ("INSIDE://a:0,OUTSIDE://a:0", [Endpoint("INSIDE", "a", 0), Endpoint("OUTSIDE", "a", 0)]),
    ],
)
def test_a_listener_has_a_name_a_host_and_a_port(text: str, expected: list[Endpoint]) -> None:
    assert list(parsed(text)) == expected


@pytest.mark.fault("strangers-139", needs_no_remedy="the rule is that of the readers")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "names no listener"),
        ("host:9092", "not of the form"),
        ("PLAINTEXT://host", "not of the form"),
        ("PLAINTEXT://host:x", "not of the form"),
        ("PLAINTEXT://host:65536", "not of the form"),
        ("PLAINTEXT://host:-1", "not of the form"),
        ("PLAINTEXT://ho st:9092", "not of the form"),
        ("PLAINTEXT:// host:9092", "not of the form"),
        ("PLAINTEXT://ho/st:9092", "not of the form"),
        ("PLAINTEXT://hé:9092", "not of the form"),
        ("PLAINTEXT://a\x1bb:9092", "not of the form"),
        ("PLAINTEXT://a:1,PLAINTEXT://b:2", "twice"),
        ("STRANGE://a:1", "has no protocol in listener.security.protocol.map"),
    ],
)
def test_what_cannot_be_served_is_refused_by_the_name_of_the_setting(text: str, why: str) -> None:
    with pytest.raises(SettingError, match=why) as refused:
        parsed(text)
    assert "listeners" in str(refused.value)


@pytest.mark.fault("strangers-139", needs_no_remedy="the rule is that of the readers")
def test_a_host_of_an_older_setting_must_be_one_too() -> None:
    refuse_impossible_host("advertised.host.name", "broker-1.example.org")
    refuse_impossible_host("advertised.host.name", "::1")
    with pytest.raises(SettingError, match="'ho st' is not a host"):
        refuse_impossible_host("advertised.host.name", "ho st")


def test_a_name_that_is_no_protocol_is_mapped_to_one() -> None:
    assert parse_endpoints("listeners", "MINE://a:1", "MINE:PLAINTEXT")[0].listener == "MINE"


def test_two_listeners_cannot_bind_one_port_but_any_free_one() -> None:
    refuse_shared_ports("listeners", parsed("INSIDE://a:0,OUTSIDE://b:0,PLAINTEXT://c:1"))
    with pytest.raises(SettingError, match="listeners: 'INSIDE://a:1,OUTSIDE://b:1' has a port"):
        refuse_shared_ports("listeners", parsed("INSIDE://a:1,OUTSIDE://b:1"))


def test_by_default_each_protocol_is_a_listener() -> None:
    assert parse_protocols(EACH_TO_ITSELF) == {
        name: name for name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    }


@pytest.mark.parametrize("text", ["INSIDE", "INSIDE:TLS", "INSIDE:", "A:SSL,a:PLAINTEXT"])
def test_a_map_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(SettingError) as refused:
        parse_protocols(text)
    assert refused.value.name == "listener.security.protocol.map"
