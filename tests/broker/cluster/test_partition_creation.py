"""Partitions that are added while the session with ZooKeeper has its troubles."""

import asyncio

import pytest

from broker.cluster.partition_creation import add_partitions
from protocol.errors import ApiError, ErrorCode
from tests.stage.clock import run_in_virtual_time
from zk.memory import MemoryZooKeeper
from zk.znodes import TopicAssignment

PATH = TopicAssignment.path("t")


@pytest.mark.fault("outside-O17")
def test_partitions_asked_for_in_a_session_that_expires_are_refused_as_by_no_controller() -> None:
    async def add() -> ErrorCode:
        zookeeper = MemoryZooKeeper()
        session = zookeeper.session()
        await session.start()
        await session.create(PATH, TopicAssignment({0: (1,)}).encode(), make_parents=True)

        zookeeper.suspend(session)
        adding = asyncio.create_task(
            add_partitions(session, "t", lambda existing: {1: (1,)}, validate_only=False)
        )
        await asyncio.sleep(1)
        zookeeper.expire(session)
        zookeeper.resume(session)

        with pytest.raises(ApiError) as refused:
            await adding
        return refused.value.code

    assert run_in_virtual_time(add()) is ErrorCode.NOT_CONTROLLER
