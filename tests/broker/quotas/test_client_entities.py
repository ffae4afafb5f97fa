"""Entities of quotas: as requests name them, as ZooKeeper has them, and what may be set."""

from __future__ import annotations

import pytest

from broker.quotas.client_entities import (
    EntityFilter,
    Part,
    apply_change,
    parts_of,
    quota_keys,
    quotas_in,
    read_entity,
)
from protocol.errors import ApiError, ErrorCode
from protocol.messages.describe_client_quotas import MATCH_ANY, MATCH_DEFAULT, MATCH_EXACT
from zk.znodes import DEFAULT, ClientEntity, ZnodeError

ENTITIES = {
    "users/u": ClientEntity("u"),
    "users/<default>": ClientEntity(DEFAULT),
    "users/%3Cdefault%3E": ClientEntity("<default>"),
    "users/a%2Fb%7E%2A/clients/c%20d": ClientEntity("a/b~*", "c d"),
    "users/<default>/clients/<default>": ClientEntity(DEFAULT, DEFAULT),
    "clients/c": ClientEntity(client_id="c"),
    "ips/1.2.3.4": ClientEntity(ip="1.2.3.4"),
}


@pytest.mark.parametrize("path", ENTITIES)
def test_a_path_names_an_entity_and_an_entity_has_a_path(path: str) -> None:
    assert ClientEntity.parse(path) == ENTITIES[path]
    assert ENTITIES[path].entity_path() == path
    assert read_entity(parts_of(ENTITIES[path])) == ENTITIES[path]


@pytest.mark.parametrize("path", ["users", "topics/t", "users/u/clients", "users/u/c/d", ""])
def test_another_path_is_refused(path: str) -> None:
    with pytest.raises(ZnodeError):
        ClientEntity.parse(path)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([], "empty client quota entity"),
        ([("user", "")], "Empty user"),
        ([("user", "a"), ("user", "b")], "Duplicate user"),
        ([("group", "a")], "Unhandled client quota entity type: group"),
        ([("ip", "1.2.3.4"), ("user", "a")], "ip must not be combined"),
    ],
)
def test_entity_that_cannot_be_is_refused(parts: list[Part], reason: str) -> None:
    with pytest.raises(ApiError, match=reason) as refused:
        read_entity(parts)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def change(settings: dict[str, str], **set_to: float | None) -> dict[str, str]:
    return dict(apply_change(settings, quota_keys(ClientEntity("u")), set_to))


def test_change_leaves_other_settings_alone() -> None:
    scram = {"SCRAM-SHA-256": "salt=…"}
    assert change(scram, producer_byte_rate=1024.0) == {**scram, "producer_byte_rate": "1024"}
    assert change({**scram, "producer_byte_rate": "1"}, producer_byte_rate=None) == scram
    assert change({}, request_percentage=12.5) == {"request_percentage": "12.5"}


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("producer_byte_rate", 1.5, "must be a Long value"),
        ("producer_byte_rate", 0.0, "Invalid value"),
        ("request_percentage", float("nan"), "Invalid value"),
        ("connection_creation_rate", 1.0, "Invalid configuration key"),
        ("SCRAM-SHA-256", 1.0, "Invalid configuration key"),
    ],
)
def test_change_that_cannot_be_is_refused(key: str, value: float, reason: str) -> None:
    with pytest.raises(ApiError, match=reason):
        change({}, **{key: value})


def test_passwords_are_not_among_the_quotas() -> None:
    settings = {"SCRAM-SHA-256": "salt=…", "consumer_byte_rate": "10", "request_percentage": "x"}
    assert quotas_in(ClientEntity("u"), settings) == {"consumer_byte_rate": 10.0}


def matched(*components: tuple[str, int, str | None], is_strict: bool = False) -> set[str]:
    wanted = EntityFilter.of(components, is_strict=is_strict)
    return {path for path, entity in ENTITIES.items() if wanted.matches(entity)}


def test_filters_match_as_kafka_s() -> None:
    assert matched() == set(ENTITIES)
    assert matched(is_strict=True) == set()
    assert matched(("user", MATCH_EXACT, "u")) == {"users/u"}
    assert matched(("user", MATCH_DEFAULT, None)) == {
        "users/<default>",
        "users/<default>/clients/<default>",
    }
    assert matched(("user", MATCH_DEFAULT, None), is_strict=True) == {"users/<default>"}
    assert matched(("client-id", MATCH_ANY, None)) == {p for p in ENTITIES if "clients/" in p}
    assert matched(("user", MATCH_ANY, None), ("client-id", MATCH_EXACT, "c d")) == {
        "users/a%2Fb%7E%2A/clients/c%20d"
    }
    assert matched(("ip", MATCH_ANY, None)) == {"ips/1.2.3.4"}


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("user", MATCH_EXACT, "a"), ("user", MATCH_ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("", MATCH_ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 7, None)], ErrorCode.INVALID_REQUEST),
        ([("user", MATCH_EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("ip", MATCH_ANY, None), ("user", MATCH_ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("group", MATCH_ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_filter_that_cannot_be_is_refused(
    components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    with pytest.raises(ApiError) as refused:
        EntityFilter.of(components, is_strict=False)
    assert refused.value.code is code
