"""AlterConfigs and IncrementalAlterConfigs on a running broker: stored and effective settings."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from broker.settings.config_alteration import AlterOperation
from clients.errors import ConnectionFailed
from clients.transport.connection import Connection
from core_log.config import LogConfig
from protocol.errors import ErrorCode
from protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsRequestConfig,
    AlterConfigsRequestResource,
)
from protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestAssignment,
    CreateTopicsRequestTopic,
)
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
)
from protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from protocol.settings import declared_settings
from tests.broker.replication.replicas import batch
from tests.stage.broker import Site, connected
from tests.stage.waiting import until
from zk.znodes import ConfigChange, EntityConfig, PartitionState

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = AlterOperation
Settings = Mapping[str, str | None]
Verdict = tuple[ErrorCode, str | None]
OK: Verdict = (ErrorCode.NONE, None)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def create_topic(connection: Connection, topic: str) -> None:
    """Create the topic by asking for it, and wait until it has a leader."""

    async def is_led() -> bool:
        response = await connection.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
        (entry,) = response.topics
        return not entry.error_code and not any(p.error_code for p in entry.partitions)

    await until(is_led, f"{topic} has a leader")


async def alter(
    connection: Connection, *resources: tuple[int, str, Settings], validate_only: bool = False
) -> list[Verdict]:
    """Replace the settings of each resource."""
    request = AlterConfigsRequest(
        resources=[
            AlterConfigsRequestResource(
                resource_type=kind,
                resource_name=name,
                configs=[AlterConfigsRequestConfig(name=n, value=v) for n, v in settings.items()],
            )
            for kind, name, settings in resources
        ],
        validate_only=validate_only,
    )
    response = await connection.call(request)
    assert [(r.resource_type, r.resource_name) for r in response.responses] == [
        (kind, name) for kind, name, _ in resources
    ]
    return [(ErrorCode.of(r.error_code), r.error_message) for r in response.responses]


async def change(
    connection: Connection, kind: int, name: str, setting: str, operation: int, value: str | None
) -> ErrorCode:
    """Change one setting."""
    config = IncrementalAlterConfigsRequestConfig(
        name=setting, config_operation=operation, value=value
    )
    resource = IncrementalAlterConfigsRequestResource(
        resource_type=kind, resource_name=name, configs=[config]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    (response,) = (await connection.call(request)).responses
    return ErrorCode.of(response.error_code)


async def described(connection: Connection, kind: int, name: str, setting: str) -> tuple[str, int]:
    """The value in force, and where it comes from."""
    resource = DescribeConfigsRequestResource(
        resource_type=kind, resource_name=name, configuration_keys=[setting]
    )
    response = await connection.call(DescribeConfigsRequest(resources=[resource]))
    (entry,) = response.results[0].configs
    return entry.value, entry.config_source


def read_config(site: Site, kind: str, name: str) -> Any:
    node = site.zookeeper.tree.get(EntityConfig.path(kind, name))
    return node and json.loads(node.data or b"")


def notifications(site: Site) -> list[str]:
    directory = ConfigChange.directory() + "/"
    return [
        ConfigChange.decode(node.data).entity_path
        for path, node in sorted(site.zookeeper.tree.items())
        if path.startswith(directory)
    ]


async def produced(connection: Connection, topic: str, value: bytes = b"a") -> ErrorCode:
    """Produce with acks=all and return the error."""
    part = ProduceRequestPartition(index=0, records=batch(value))
    data = [ProduceRequestTopic(name=topic, partition_data=[part])]
    response = await connection.call(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=data))
    return ErrorCode.of(response.responses[0].partition_responses[0].error_code)


async def test_a_topics_settings_are_written_notified_and_in_force_when_it_is_answered(
    site: Site,
) -> None:
    async with site.running() as broker, connected(broker) as connection:
        await create_topic(connection, "t")
        assert await produced(connection, "t") == ErrorCode.NONE
        settings = {"min.insync.replicas": "2", "retention.ms": "5"}
        assert await alter(connection, (TOPIC, "t", settings)) == [(ErrorCode.NONE, None)]
        assert read_config(site, "topics", "t") == {"version": 1, "config": settings}
        assert notifications(site) == ["topics/t"]
        assert await produced(connection, "t") == ErrorCode.NOT_ENOUGH_REPLICAS
        assert await described(connection, TOPIC, "t", "retention.ms") == ("5", 1)


async def test_what_is_not_named_goes_back_to_its_default(site: Site) -> None:
    async with site.running() as broker, connected(broker) as connection:
        await create_topic(connection, "t")
        await alter(connection, (TOPIC, "t", {"min.insync.replicas": "2"}))
        await alter(connection, (TOPIC, "t", {"retention.ms": "5"}))
        assert await produced(connection, "t") == ErrorCode.NONE
        assert read_config(site, "topics", "t")["config"] == {"retention.ms": "5"}


@pytest.mark.fault("strangers-26")
@pytest.mark.parametrize("name", [32_760 * "x", 16_380 * "\u00e4"])
async def test_what_is_altered_is_told_though_a_refusal_quotes_a_long_name(
    site: Site, name: str
) -> None:
    async with site.running() as broker, connected(broker) as connection:
        await create_topic(connection, "t")
        good, bad = (TOPIC, "t", {"retention.ms": "5"}), (TOPIC, name, {"retention.ms": "5"})
        done, refused = await alter(connection, good, bad)
        assert done == OK
        assert refused[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await change(connection, TOPIC, "t", name, SET, "5") == ErrorCode.INVALID_CONFIG


async def test_single_settings_change_and_the_others_stay(site: Site) -> None:
    async with site.running() as broker, connected(broker) as connection:
        await create_topic(connection, "t")
        for name, operation, value in (
            ("retention.ms", SET, "5"),
            ("segment.ms", SET, "6"),
            ("cleanup.policy", APPEND, "compact"),
            ("retention.ms", DELETE, None),
        ):
            assert await change(connection, TOPIC, "t", name, operation, value) == ErrorCode.NONE
        assert read_config(site, "topics", "t")["config"] == {
            "segment.ms": "6",
            "cleanup.policy": "delete,compact",
        }


async def test_only_validated_nothing_is_written(site: Site) -> None:
    async with site.running() as broker, connected(broker) as connection:
        await create_topic(connection, "t")
        before = read_config(site, "topics", "t")
        good, bad = {"retention.ms": "5"}, {"retention.ms": "x"}
        (accepted,) = await alter(connection, (TOPIC, "t", good), validate_only=True)
        (refused,) = await alter(connection, (TOPIC, "t", bad), validate_only=True)
        assert (accepted[0], refused[0]) == (ErrorCode.NONE, ErrorCode.INVALID_REQUEST)
        assert (read_config(site, "topics", "t"), notifications(site)) == (before, [])


async def test_each_resource_stands_or_falls_for_itself(site: Site) -> None:
    async with site.running() as broker, connected(broker) as connection:
        await create_topic(connection, "t")
        good: Settings = {"retention.ms": "5"}
        verdicts = await alter(
            connection,
            (TOPIC, "u", good),
            (TOPIC, "t", good),
            (TOPIC, "", good),
            (BROKER, "2", {}),
            (BROKER, "x", {}),
            (3, "group", {}),
        )
        assert [code for code, _ in verdicts] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            *[ErrorCode.INVALID_REQUEST] * 3,
        ]
        assert [message for _, message in verdicts] == [
            "The topic 'u' does not exist.",
            None,
            "The topic '' does not exist.",
            "Unexpected broker id, expected 1, but received 2",
            "Broker id must be an integer, but it is: x",
            "Unexpected resource type UNKNOWN",
        ]
        assert read_config(site, "topics", "u") is None
        twice = await alter(connection, (TOPIC, "t", good), (TOPIC, "t", {}))
        assert [code for code, _ in twice] == [ErrorCode.INVALID_REQUEST] * 2


@pytest.mark.parametrize(("entity", "source"), [("1", 2), ("", 3)])
async def test_a_brokers_settings_take_effect_without_a_restart(
    site: Site, entity: str, source: int
) -> None:
    async with site.running() as broker, connected(broker) as connection:
        await create_topic(connection, "t")
        settings = {"message.max.bytes": "100"}
        assert await alter(connection, (BROKER, entity, settings)) == [(ErrorCode.NONE, None)]
        assert notifications(site) == [f"brokers/{entity or '<default>'}"]
        assert await produced(connection, "t", b"a" * 200) == ErrorCode.MESSAGE_TOO_LARGE
        assert await described(connection, BROKER, "1", "message.max.bytes") == ("100", source)
        assert await described(connection, TOPIC, "t", "max.message.bytes") == ("100", source)
        assert await alter(connection, (BROKER, entity, {})) == [(ErrorCode.NONE, None)]
        assert await produced(connection, "t", b"a" * 200) == ErrorCode.NONE


async def test_what_is_stored_for_a_broker_is_in_force_when_it_starts(site: Site) -> None:
    async with site.running() as broker, connected(broker) as connection:
        await alter(connection, (BROKER, "", {"message.max.bytes": "100"}))
    async with site.running() as broker, connected(broker) as connection:
        await create_topic(connection, "t")
        assert await produced(connection, "t", b"a" * 200) == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    ("setting", "code", "reason"),
    [
        (
            "num.partitions",
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: Set(num.partitions)",
        ),
        ("nonsense", ErrorCode.INVALID_CONFIG, "Unknown Dynamic Configuration: nonsense"),
    ],
)
async def test_a_broker_refuses_by_name_what_it_cannot_change(
    site: Site, setting: str, code: ErrorCode, reason: str
) -> None:
    async with site.running() as broker, connected(broker) as connection:
        ((entry, message),) = await alter(connection, (BROKER, "1", {setting: "1"}))
        assert entry == code
        assert reason in (message or "")
        assert read_config(site, "brokers", "1") is None


@pytest.mark.parametrize("name", ["1", ""])
async def test_settings_of_a_broker_that_exclude_each_other_are_refused_together(
    site: Site, name: str
) -> None:
    threads, buffer = "log.cleaner.threads", "log.cleaner.dedupe.buffer.size"
    async with site.running(1) as broker, connected(broker) as connection:
        pair: Settings = {threads: "2", buffer: str(2**21)}
        ((code, message),) = await alter(connection, (BROKER, name, pair))
        assert code == ErrorCode.INVALID_REQUEST
        assert str(message).endswith("for each of log.cleaner.threads, 2")

        assert await alter(connection, (BROKER, name, {threads: "2"})) == [(ErrorCode.NONE, None)]
        assert await change(connection, BROKER, name, buffer, SET, str(2**21)) == (
            ErrorCode.INVALID_REQUEST
        )


async def test_another_broker_hears_of_a_change_and_tells_it_at_once_when_asked(
    site: Site,
) -> None:
    async with (
        site.running(1) as first,
        site.running(2) as second,
        connected(first) as first_connection,
        connected(second) as second_connection,
    ):
        await create_topic(first_connection, "t")
        await create_topic(second_connection, "t")
        await alter(
            first_connection,
            (TOPIC, "t", {"retention.ms": "5"}),
            (BROKER, "", {"log.roll.ms": "6"}),
        )
        assert await described(second_connection, TOPIC, "t", "retention.ms") == ("5", 1)

        async def heard() -> bool:
            return await described(second_connection, BROKER, "2", "log.roll.ms") == ("6", 3)

        await until(heard, "broker 2 has the settings of all brokers")


async def test_changes_by_two_brokers_at_once_are_both_kept(site: Site) -> None:
    async with (
        site.running(1) as first,
        site.running(2) as second,
        connected(first) as first_connection,
        connected(second) as second_connection,
    ):
        await create_topic(first_connection, "t")
        names = [s.name for s in declared_settings(LogConfig).values() if s.name.endswith("ms")]
        changes = [
            change(connection, TOPIC, "t", name, SET, "77")
            for name, connection in zip(
                names, itertools.cycle((first_connection, second_connection)), strict=False
            )
        ]
        assert set(await asyncio.gather(*changes)) == {ErrorCode.NONE}
        assert read_config(site, "topics", "t")["config"] == dict.fromkeys(names, "77")


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "t"), (BROKER, ""), (BROKER, "1")])
async def test_a_partition_without_a_leader_gets_one_when_unclean_election_is_allowed(
    site: Site, kind: int, name: str
) -> None:
    assignment = [CreateTopicsRequestAssignment(partition_index=0, broker_ids=[2, 1])]
    topic = CreateTopicsRequestTopic(
        name="t", num_partitions=-1, replication_factor=-1, assignments=assignment, configs=()
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    async with site.running(2) as broker, connected(broker) as connection:

        async def is_made() -> bool:
            code = (await connection.call(request)).topics[0].error_code
            return code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

        await until(is_made, "the topic is made")
    async with site.running(1) as broker, connected(broker) as connection:
        state_path = PartitionState.path("t", 0)

        async def is_settled() -> bool:
            response = await connection.call(
                MetadataRequest(topics=[MetadataRequestTopic(name="t")])
            )
            state = PartitionState.decode(site.zookeeper.tree[state_path].data)
            return response.topics[0].error_code == ErrorCode.NONE and state.leader == -1

        await until(is_settled, "broker 1 knows the topic, and that nobody leads it")
        await alter(connection, (kind, name, {"unclean.leader.election.enable": "true"}))
        await create_topic(connection, "t")
        assert PartitionState.decode(site.zookeeper.tree[state_path].data).isr == (1,)


async def test_limits_of_connections_change_while_the_broker_runs(site: Site) -> None:
    own = "listener.name.plaintext.max.connections"
    async with site.running() as broker, connected(broker) as connection:
        host, _, port = broker.bootstrap.rpartition(":")
        everybody, here = (BROKER, ""), (BROKER, "1")

        async def is_served() -> bool:
            """Connect, and return whether the connection is served in some time."""
            try:
                async with asyncio.timeout(0.2):
                    other = await Connection.open(host, int(port))
            except (TimeoutError, ConnectionFailed):
                return False
            await other.close()
            return True

        # Without a place a client waits: it is not refused.
        assert await is_served()
        assert await alter(connection, (*everybody, {"max.connections": "1"})) == [OK]
        assert not await is_served()
        assert await alter(connection, (*everybody, {"max.connections": "9", own: "1"})) == [OK]
        assert await described(connection, BROKER, "1", own) == ("1", 3)
        assert not await is_served()

        # The broker's own setting comes first.
        assert await alter(connection, (*here, {own: "9"})) == [OK]
        assert await described(connection, BROKER, "1", own) == ("9", 2)
        assert await is_served()
        assert await alter(connection, (*here, {own: "9", "max.connections.per.ip": "1"})) == [OK]
        assert not await is_served()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"listener.name.plaintext.max.connections": "0"}, "Value must be at least 1"),
        ({"max.connections.per.ip": "0"}, "can be set to zero only if"),
        ({"max.connections.per.ip.overrides": "localhost"}, "is not host:number"),
    ],
)
async def test_limits_of_connections_that_cannot_be_are_refused(
    site: Site, settings: Settings, reason: str
) -> None:
    async with site.running() as broker, connected(broker) as connection:
        ((code, message),) = await alter(connection, (BROKER, "1", settings))
        assert code is ErrorCode.INVALID_REQUEST
        assert reason in str(message)
