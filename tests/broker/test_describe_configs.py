"""DescribeConfigs: every setting, its value in force and where that comes from."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest

from broker.config import load_broker_config
from broker.handlers import describe_configs
from broker.metadata_cache import MetadataCache
from broker.purgatory import Wait
from broker.topic_configs import TopicConfigs
from core_log.config import LogConfig
from protocol.errors import ErrorCode
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
    DescribeConfigsResponseConfig,
)
from protocol.settings import declared
from tests.broker.replicas import context, update_metadata
from tests.broker.spawning import Spawned
from zk.memory import MemoryZooKeeper
from zk.znodes import EntityConfig

TOPIC, BROKER = describe_configs.TOPIC, describe_configs.BROKER
FROM_TOPIC, FROM_STATIC, FROM_DEFAULT = 1, 4, 5


@attrs.define(eq=False)
class World:
    """Broker 5 of a cluster with the topic t, which has a setting of its own."""

    properties: dict[str, str] = attrs.field(factory=dict)

    async def describe(
        self,
        kind: int,
        name: str,
        *,
        keys: Sequence[str] | None = None,
        synonyms: bool = False,
    ) -> tuple[ErrorCode, dict[str, DescribeConfigsResponseConfig]]:
        config, _ = load_broker_config(
            {"zookeeper.connect": "zk:2181", "broker.id": "5"} | self.properties
        )
        cache = MetadataCache()
        cache.update(update_metadata("t"))
        session = MemoryZooKeeper().session()
        await session.start()
        own = EntityConfig(config={"retention.ms": "7", "cleanup.policy": "compact,delete"})
        path = EntityConfig.path("topics", "t")
        await session.create(path, own.encode(), make_parents=True)
        spawned = Spawned()
        configs = TopicConfigs(session, config.log, spawned, lambda key: None)
        resource = DescribeConfigsRequestResource(
            resource_type=kind, resource_name=name, configuration_keys=keys
        )
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms)
        answer = describe_configs.handle(cache, config, configs, request, context(2))
        if isinstance(answer, Wait):
            await spawned.ended()
            answer = answer.try_complete(False)
        assert isinstance(answer, DescribeConfigsResponse)
        (result,) = answer.results
        return ErrorCode.of(result.error_code), {c.name: c for c in result.configs}


async def test_a_topic_has_every_setting_there_is_for_topics() -> None:
    code, found = await World().describe(TOPIC, "t")
    assert code == ErrorCode.NONE
    assert sorted(found) == sorted(s.name for s in declared(LogConfig).values())


async def test_a_topics_own_setting_is_in_force_before_the_brokers() -> None:
    _, found = await World({"log.retention.ms": "9"}).describe(TOPIC, "t")
    own = found["retention.ms"]
    assert (own.value, own.config_source, own.is_default, own.read_only) == (
        "7",
        FROM_TOPIC,
        False,
        False,
    )


async def test_a_setting_the_broker_was_given_comes_from_its_file() -> None:
    _, found = await World({"log.segment.bytes": "1000"}).describe(TOPIC, "t")
    assert (found["segment.bytes"].value, found["segment.bytes"].config_source) == (
        "1000",
        FROM_STATIC,
    )


async def test_what_nobody_set_is_a_default() -> None:
    _, found = await World().describe(TOPIC, "t")
    assert (found["segment.bytes"].value, found["segment.bytes"].is_default) == (
        "1073741824",
        True,
    )


async def test_synonyms_are_all_the_values_the_one_in_force_first() -> None:
    _, found = await World({"log.retention.hours": "1"}).describe(TOPIC, "t", synonyms=True)
    assert [(s.name, s.value, s.source) for s in found["retention.ms"].synonyms] == [
        ("retention.ms", "7", FROM_TOPIC),
        ("log.retention.ms", "3600000", FROM_STATIC),
        ("log.retention.ms", "604800000", FROM_DEFAULT),
    ]


async def test_synonyms_are_told_only_when_asked_for() -> None:
    _, found = await World().describe(TOPIC, "t")
    assert list(found["retention.ms"].synonyms) == []


async def test_only_the_keys_asked_for_are_told() -> None:
    _, found = await World().describe(TOPIC, "t", keys=["retention.ms", "nope"])
    assert list(found) == ["retention.ms"]


async def test_an_unknown_topic_is_said_to_be_unknown() -> None:
    assert await World().describe(TOPIC, "u") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, {})


async def test_a_broker_tells_its_own_settings_which_only_its_file_can_change() -> None:
    _, found = await World({"num_partitions": "3"}).describe(BROKER, "5")
    given, default = found["num.partitions"], found["auto.create.topics.enable"]
    assert (given.value, given.config_source, given.read_only) == ("3", FROM_STATIC, True)
    assert (default.value, default.config_source) == ("true", FROM_DEFAULT)


async def test_a_broker_tells_the_settings_of_its_parts_too() -> None:
    _, found = await World({"log.segment.bytes": "99"}).describe(BROKER, "5")
    assert found["log.segment.bytes"].value == "99"
    assert found["offsets.topic.num.partitions"].value == "50"


async def test_a_setting_without_a_value_is_null() -> None:
    _, found = await World().describe(BROKER, "5")
    assert found["advertised.listeners"].value is None


async def test_the_empty_broker_name_asks_for_what_all_brokers_share_which_is_nothing() -> None:
    assert await World().describe(BROKER, "") == (ErrorCode.NONE, {})


@pytest.mark.parametrize(("kind", "name"), [(BROKER, "6"), (BROKER, "x"), (3, "t"), (8, "5")])
async def test_another_broker_or_another_kind_of_thing_is_refused(kind: int, name: str) -> None:
    assert await World().describe(kind, name) == (ErrorCode.INVALID_REQUEST, {})
