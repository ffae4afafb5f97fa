"""ApiVersions: exactly the APIs and versions that are served."""

from __future__ import annotations

import pytest

from broker.handlers import api_versions
from protocol.api_key import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.registry import API
from tests.broker.replication.replicas import context

SERVED = api_versions.ServedVersions.of(
    [ApiKey.METADATA, ApiKey.JOIN_GROUP, ApiKey.PRODUCE, ApiKey.API_VERSIONS]
)


def request(name: str = "", version: str = "") -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=name, client_software_version=version)


def rows(response: ApiVersionsResponse) -> list[tuple[int, int, int]]:
    return [(k.api_key, k.min_version, k.max_version) for k in response.api_keys]


def test_a_client_that_asks_one_broker_for_all_gets_what_stock_brokers_serve_too() -> None:
    response = api_versions.handle(SERVED, request("kafka-python", "3.0.12"), context(3))
    last = {key: last for key, _, last in rows(response)}
    assert last == {key: last for key, _, last in rows(SERVED.all)} | {ApiKey.JOIN_GROUP: 7}


def test_only_what_has_a_handler_is_named_with_the_versions_we_speak() -> None:
    assert rows(SERVED.all) == [
        (key, API[key].served.first, API[key].served.last)
        for key in (ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.JOIN_GROUP, ApiKey.API_VERSIONS)
    ]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_clients_before_version_three_have_no_name(version: int) -> None:
    assert api_versions.handle(SERVED, request(), context(version)) is SERVED.all


@pytest.mark.parametrize("name", ["a", "librdkafka", "apache-kafka-java", "x.y-z9"])
def test_a_client_names_itself(name: str) -> None:
    assert api_versions.handle(SERVED, request(name, "1.0"), context(3)) is SERVED.all


@pytest.mark.parametrize(
    ("name", "version"),
    [("", "1"), ("a", ""), ("-a", "1"), ("a-", "1"), ("a b", "1"), ("a", "1\n"), ("é", "1")],
)
def test_a_client_that_misnames_itself_is_refused(name: str, version: str) -> None:
    with pytest.raises(ApiError) as refused:
        api_versions.handle(SERVED, request(name, version), context(3))
    assert refused.value.code == ErrorCode.INVALID_REQUEST
