"""Changes of settings whose time is up: each resource is told what is known of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.handlers import alter_configs, incremental_alter_configs
from broker.network.deferred import Deferred
from broker.network.purgatory import Purgatory
from broker.settings.config_resources import TOPIC, ConfigResources
from broker.settings.topic_configs import TopicConfigs
from core_log.config import LogConfig
from protocol.errors import ErrorCode
from protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsRequestResource
from protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestResource,
)
from tests.broker.replication.replicas import AtOnce, context
from tests.broker.spawning import Spawned
from zk.memory import MemoryZooKeeper
from zk.znodes import EntityConfig, TopicAssignment

NO_TYPE = 99


def request_of(api: Any, *resources: tuple[int, str]) -> Any:
    if api is alter_configs:
        return AlterConfigsRequest(
            resources=[
                AlterConfigsRequestResource(resource_type=kind, resource_name=name, configs=[])
                for kind, name in resources
            ],
            validate_only=True,
        )
    return IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequestResource(
                resource_type=kind, resource_name=name, configs=[]
            )
            for kind, name in resources
        ],
        validate_only=True,
    )


@pytest.mark.fault("scale-S4")
@pytest.mark.parametrize("api", [alter_configs, incremental_alter_configs])
async def test_a_change_that_is_done_is_no_failure_because_another_is_late(api: Any) -> None:
    zookeeper = MemoryZooKeeper()
    session = zookeeper.session()
    await session.start()
    for name in ("t", "u"):
        await session.ensure_path(TopicAssignment.path(name).rpartition("/")[0])
        await session.create(TopicAssignment.path(name), TopicAssignment({0: (0,)}).encode())
    await session.ensure_path(EntityConfig.path("topics", "t").rpartition("/")[0])
    topics = TopicConfigs(session, LogConfig(), asyncio.ensure_future, lambda key: None)
    # Neither brokers nor TLS have a part in changes of topics.
    nobody: Any = None
    resources = ConfigResources(session, topics, nobody, nobody)
    spawned = Spawned()
    deferred = Deferred(spawned, Purgatory().touch, AtOnce())

    async def said(*names: tuple[int, str]) -> list[int]:
        wait = api.handle(resources, deferred, 100, request_of(api, *names), context())
        for _ in range(20):
            await asyncio.sleep(0)
        return [entry.error_code for entry in wait.try_complete(True).responses]

    assert await said((TOPIC, "t"), (TOPIC, "u")) == [ErrorCode.NONE, ErrorCode.NONE]

    # Those behind the first one that needs ZooKeeper wait with it.
    zookeeper.suspend(session)
    late = ErrorCode.REQUEST_TIMED_OUT
    assert await said((NO_TYPE, "x"), (TOPIC, "t"), (TOPIC, "u")) == [
        ErrorCode.INVALID_REQUEST,
        late,
        late,
    ]
    for task in spawned.tasks:
        task.cancel()
