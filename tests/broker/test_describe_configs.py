"""DescribeConfigs: every setting, its effective value and the source of that."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest

from broker.cluster.metadata_cache import MetadataCache
from broker.handlers import describe_configs
from broker.network.purgatory import Wait
from broker.settings.broker_configs import BrokerConfigs
from broker.settings.config import load_broker_config
from broker.settings.config_resources import BROKER, BROKER_LOGGER, TOPIC
from broker.settings.described_settings import text
from broker.settings.topic_configs import TopicConfigs
from core_log.config import LogConfig
from protocol.errors import ErrorCode
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
    DescribeConfigsResponseConfig,
    DescribeConfigsResponseResult,
)
from protocol.settings import declared_settings
from tests.broker.replication.replicas import context, update_metadata
from tests.broker.spawning import Spawned
from zk.memory import MemoryZooKeeper
from zk.znodes import DEFAULT_ENTITY, EntityConfig

FROM_TOPIC, FROM_STATIC, FROM_DEFAULT = 1, 4, 5


@attrs.define(eq=False)
class ConfigStage:
    """Broker 5 of a cluster with the topic t, which has a setting of its own."""

    properties: dict[str, str] = attrs.field(factory=dict)
    own: dict[str, str] = attrs.field(factory=dict)  # of the broker, in ZooKeeper
    cluster: dict[str, str] = attrs.field(factory=dict)
    is_late: bool = False

    async def describe(
        self,
        kind: int,
        name: str,
        *,
        keys: Sequence[str] | None = None,
        synonyms: bool = False,
        documentation: bool = False,
    ) -> tuple[ErrorCode, dict[str, DescribeConfigsResponseConfig]]:
        result = await self.result(kind, name, keys, synonyms, documentation)
        return ErrorCode.of(result.error_code), {c.name: c for c in result.configs}

    async def result(
        self,
        kind: int,
        name: str,
        keys: Sequence[str] | None = None,
        synonyms: bool = False,
        documentation: bool = False,
    ) -> DescribeConfigsResponseResult:
        config, _ = load_broker_config(
            {"zookeeper.connect": "zk:2181", "broker.id": "5"} | self.properties
        )
        cache = MetadataCache()
        cache.update(update_metadata("t"))
        now_ms = 0
        zookeeper = MemoryZooKeeper(lambda: now_ms)
        session = zookeeper.session()
        await session.start()
        own = EntityConfig(config={"retention.ms": "7", "cleanup.policy": "compact,delete"})
        path = EntityConfig.path("topics", "t")
        await session.create(path, own.encode(), make_parents=True)
        spawned = Spawned()
        for entity, settings in ((DEFAULT_ENTITY, self.cluster), ("5", self.own)):
            path = EntityConfig.path("brokers", entity)
            await session.create(path, EntityConfig(settings).encode(), make_parents=True)
        brokers = BrokerConfigs(session, config, spawned)
        await brokers.read()
        topics = TopicConfigs(session, brokers.now.log, spawned, lambda key: None)
        resource = DescribeConfigsRequestResource(
            resource_type=kind, resource_name=name, configuration_keys=keys
        )
        if self.is_late:
            zookeeper.suspend(session)
        request = DescribeConfigsRequest(
            resources=[resource], include_synonyms=synonyms, include_documentation=documentation
        )
        response = describe_configs.handle(cache, topics, brokers, request, context(4))
        if isinstance(response, Wait) and self.is_late:
            now_ms = response.timeout_ms
            response = response.try_complete(True)
            zookeeper.resume(session)
            await spawned.ended()
        elif isinstance(response, Wait):
            await spawned.ended()
            response = response.try_complete(False)
        assert isinstance(response, DescribeConfigsResponse)
        (result,) = response.results
        return result


async def test_a_topic_has_every_setting_there_is_for_topics() -> None:
    code, configs = await ConfigStage().describe(TOPIC, "t")
    assert code == ErrorCode.NONE
    assert sorted(configs) == sorted(s.name for s in declared_settings(LogConfig).values())


async def test_topic_whose_settings_are_not_known_in_time_is_not_said_to_have_the_brokers() -> None:
    code, configs = await ConfigStage(is_late=True).describe(TOPIC, "t")
    assert (code, configs) == (ErrorCode.REQUEST_TIMED_OUT, {})


async def test_a_topics_own_setting_is_in_force_before_the_brokers() -> None:
    _, configs = await ConfigStage({"log.retention.ms": "9"}).describe(TOPIC, "t")
    own = configs["retention.ms"]
    assert (own.value, own.config_source, own.is_default, own.read_only) == (
        "7",
        FROM_TOPIC,
        False,
        False,
    )


async def test_a_setting_the_broker_was_given_comes_from_its_file() -> None:
    _, configs = await ConfigStage({"log.segment.bytes": "1000"}).describe(TOPIC, "t")
    assert (configs["segment.bytes"].value, configs["segment.bytes"].config_source) == (
        "1000",
        FROM_STATIC,
    )


async def test_what_nobody_set_is_a_default() -> None:
    _, configs = await ConfigStage().describe(TOPIC, "t")
    assert (configs["segment.bytes"].value, configs["segment.bytes"].is_default) == (
        "1073741824",
        True,
    )


async def test_synonyms_are_all_the_values_the_one_in_force_first() -> None:
    given = {"log.retention.ms": "9", "log.retention.hours": "1"}
    _, configs = await ConfigStage(given).describe(TOPIC, "t", synonyms=True)
    assert [(s.name, s.value, s.source) for s in configs["retention.ms"].synonyms] == [
        ("retention.ms", "7", FROM_TOPIC),
        ("log.retention.ms", "9", FROM_STATIC),
        ("log.retention.hours", "1", FROM_STATIC),
        ("log.retention.hours", "168", FROM_DEFAULT),
    ]


async def test_hours_of_the_file_are_described_as_hours() -> None:
    """As Kafka does: what counts for a topic then has no source but the default."""
    stage = ConfigStage({"log.roll.hours": "1"})
    _, of_broker = await stage.describe(BROKER, "5", synonyms=True)
    hours = of_broker["log.roll.hours"]
    assert (hours.value, hours.config_source) == ("1", FROM_STATIC)
    assert (of_broker["log.roll.ms"].value, of_broker["log.roll.ms"].synonyms) == (None, [])
    _, of_topic = await stage.describe(TOPIC, "t", synonyms=True)
    segment = of_topic["segment.ms"]
    assert (segment.value, segment.config_source, segment.synonyms) == ("3600000", FROM_DEFAULT, [])


@pytest.mark.fault("outside-O14")
async def test_settings_without_effect_are_described_with_type_and_default() -> None:
    _, configs = await ConfigStage({"queued.max.requests": "7"}).describe(BROKER, "5")
    queued, threads = configs["queued.max.requests"], configs["background.threads"]
    assert (queued.value, queued.config_source, queued.config_type) == ("7", FROM_STATIC, 3)
    assert (threads.value, threads.config_source, threads.read_only) == ("10", FROM_DEFAULT, False)
    assert configs["transactional.id.expiration.ms"].value == "604800000"


async def test_setting_of_a_listener_has_the_one_without_its_prefix_as_a_synonym() -> None:
    given = {
        "listeners": "SSL://localhost:9092",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "listener.name.ssl.ssl.keystore.type": "PKCS12",
    }
    _, configs = await ConfigStage(given).describe(BROKER, "5", synonyms=True)
    of_listener = configs["listener.name.ssl.ssl.keystore.type"]
    assert [(s.name, s.value, s.source) for s in of_listener.synonyms] == [
        ("listener.name.ssl.ssl.keystore.type", "PKCS12", FROM_STATIC),
        ("ssl.keystore.type", "PEM", FROM_STATIC),
        ("ssl.keystore.type", "JKS", FROM_DEFAULT),
    ]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.5, "0.5"),
        (0.0, "0.0"),
        (0.001, "0.001"),
        (0.00025, "2.5E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-12345678.5, "-1.23456785E7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_number_is_written_as_java_writes_it(value: float, written: str) -> None:
    assert text(value) == written


async def test_synonyms_are_told_only_when_asked_for() -> None:
    _, configs = await ConfigStage().describe(TOPIC, "t")
    assert list(configs["retention.ms"].synonyms) == []


async def test_only_the_keys_asked_for_are_told() -> None:
    _, configs = await ConfigStage().describe(TOPIC, "t", keys=["retention.ms", "nope"])
    assert list(configs) == ["retention.ms"]


async def test_no_keys_ask_for_all_settings() -> None:
    stage = ConfigStage()
    assert await stage.describe(TOPIC, "t", keys=[]) == await stage.describe(TOPIC, "t")


async def test_a_setting_has_its_type() -> None:
    _, of_topic = await ConfigStage().describe(TOPIC, "t")
    given = {"ssl.keystore.password": "xyzzy", "metric.reporters": "none"}
    _, of_broker = await ConfigStage(given, cluster={"log.retention.ms": "7"}).describe(BROKER, "5")
    types = {name: config.config_type for name, config in (of_topic | of_broker).items()}
    assert {
        name: types[name]
        for name in (
            "unclean.leader.election.enable",
            "compression.type",
            "segment.bytes",
            "offsets.topic.replication.factor",
            "retention.ms",
            "min.cleanable.dirty.ratio",
            "cleanup.policy",
            "log.dirs",
            "log.retention.ms",
            "ssl.keystore.password",
            "metric.reporters",
        )
    } == {
        "unclean.leader.election.enable": 1,
        "compression.type": 2,
        "segment.bytes": 3,
        "offsets.topic.replication.factor": 4,
        "retention.ms": 5,
        "min.cleanable.dirty.ratio": 6,
        "cleanup.policy": 7,
        "log.dirs": 2,
        "log.retention.ms": 5,
        "ssl.keystore.password": 9,
        "metric.reporters": 7,
    }


async def test_documentation_comes_when_it_is_asked_for() -> None:
    _, configs = await ConfigStage().describe(BROKER, "5", documentation=True)
    assert "leaves the ISR" in (configs["replica.lag.time.max.ms"].documentation or "")
    _, configs = await ConfigStage().describe(BROKER, "5")
    assert configs["replica.lag.time.max.ms"].documentation is None


async def test_an_unknown_topic_is_said_to_be_unknown() -> None:
    result = await ConfigStage().result(TOPIC, "u")
    assert (result.error_code, result.configs) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (TOPIC, "u", ""),  # what the code says is all there is to say
        (TOPIC, "..", 'Topic name cannot be "." or ".."'),
        (BROKER, "7", "Unexpected broker id, expected 5 or empty string, but received 7"),
        (BROKER, "x", "Broker id must be an integer, but it is: x"),
        (BROKER_LOGGER, "5", "Unsupported resource type: BROKER_LOGGER"),
        (3, "g", ErrorCode.INVALID_REQUEST.meaning),
    ],
)
async def test_refusal_has_the_words_of_kafka(kind: int, name: str, message: str) -> None:
    assert (await ConfigStage().result(kind, name)).error_message == message


async def test_a_broker_tells_its_own_settings_which_only_its_file_can_change() -> None:
    _, configs = await ConfigStage({"num_partitions": "3"}).describe(BROKER, "5")
    given, default = configs["num.partitions"], configs["auto.create.topics.enable"]
    assert (given.value, given.config_source, given.read_only) == ("3", FROM_STATIC, True)
    assert (default.value, default.config_source) == ("true", FROM_DEFAULT)


async def test_a_broker_tells_the_settings_of_its_parts_too() -> None:
    _, configs = await ConfigStage({"log.segment.bytes": "99"}).describe(BROKER, "5")
    assert configs["log.segment.bytes"].value == "99"
    assert configs["offsets.topic.num.partitions"].value == "50"


async def test_a_setting_without_a_value_is_null() -> None:
    _, configs = await ConfigStage().describe(BROKER, "5")
    assert configs["advertised.listeners"].value is None


async def test_the_empty_broker_name_asks_for_what_all_brokers_share() -> None:
    assert await ConfigStage().describe(BROKER, "") == (ErrorCode.NONE, {})
    stage = ConfigStage(
        {"log.retention.ms": "9"}, {"log.retention.ms": "8"}, {"log.retention.ms": "7"}
    )
    _, configs = await stage.describe(BROKER, "", synonyms=True)
    (shared,) = configs.values()
    assert (shared.value, shared.config_source, shared.read_only) == ("7", 3, False)


async def test_a_broker_tells_what_was_changed_while_it_runs_before_all_else() -> None:
    rate = "leader.replication.throttled.rate"
    stage = ConfigStage(
        {"log.retention.ms": "9"},
        own={"log.retention.ms": "7", rate: "5"},
        cluster={"log.retention.ms": "8", "log.segment.bytes": "99"},
    )
    _, configs = await stage.describe(BROKER, "5", synonyms=True)
    retention = configs["log.retention.ms"]
    assert (retention.value, retention.config_source, retention.read_only) == ("7", 2, False)
    assert [(s.value, s.source) for s in retention.synonyms] == [
        ("7", 2),
        ("8", 3),
        ("9", FROM_STATIC),
        ("168", FROM_DEFAULT),
    ]
    assert (configs["log.segment.bytes"].value, configs["log.segment.bytes"].config_source) == (
        "99",
        3,
    )
    assert (configs[rate].value, configs[rate].read_only) == ("5", False)


async def test_what_a_topic_has_of_its_broker_is_told_with_where_that_comes_from() -> None:
    stage = ConfigStage(
        {"log.retention.ms": "9"},
        own={"log.retention.ms": "8"},
        cluster={"log.retention.ms": "6", "log.segment.bytes": "99"},
    )
    _, configs = await stage.describe(TOPIC, "t", synonyms=True)
    assert [(s.name, s.value, s.source) for s in configs["retention.ms"].synonyms] == [
        ("retention.ms", "7", FROM_TOPIC),
        ("log.retention.ms", "8", 2),
        ("log.retention.ms", "6", 3),
        ("log.retention.ms", "9", FROM_STATIC),
        ("log.retention.hours", "168", FROM_DEFAULT),
    ]
    segment = configs["segment.bytes"]
    assert (segment.value, segment.config_source, segment.is_default) == ("99", 3, False)


async def test_a_secret_is_told_to_nobody() -> None:
    stage = ConfigStage({"ssl.keystore.password": "xyzzy", "sasl.jaas.config": "xyzzy"})
    _, configs = await stage.describe(BROKER, "5", synonyms=True)
    for name in stage.properties:
        secret = configs[name]
        assert (secret.value, secret.is_sensitive) == (None, True)
    assert "xyzzy" not in str(configs)
    assert configs["ssl.keystore.password"].synonyms[0].value is None


@pytest.mark.parametrize(("kind", "name"), [(BROKER, "6"), (BROKER, "x"), (3, "t"), (8, "5")])
async def test_another_broker_or_another_kind_of_thing_is_refused(kind: int, name: str) -> None:
    assert await ConfigStage().describe(kind, name) == (ErrorCode.INVALID_REQUEST, {})
