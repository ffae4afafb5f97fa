"""Groups on the ZooKeepers that Kafka was shipped with: 3.4 up to Kafka 2.3, then 3.5."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from clients.high_level.connector import ConsumerConnector
from tests.stage.waiting import until_equal
from tests.stage.zookeeper import OLD_VERSIONS, ZooKeepers, zookeeper_session
from zk.api import SessionState
from zk.session import KazooSession
from zk.znodes import PartitionOwner, TopicAssignment

MEMBERS = 10
PATIENT = 50
"""Attempts to rebalance, for members on a busy machine."""


@contextlib.asynccontextmanager
async def joined(hosts: str, name: str, states: list[SessionState]) -> AsyncIterator[None]:
    """Yield a member that stays until the end of the block; `states` are its session's."""
    session = KazooSession(hosts, session_timeout_ms=20_000)
    session.add_state_listener(states.append)
    await session.start()
    settings = {
        "zookeeper.connect": hosts,
        "bootstrap.servers": "127.0.0.1:1",  # nothing is consumed
        "group.id": "g",
        "consumer.id": name,
        "rebalance.backoff.ms": 200,
        "rebalance.max.retries": PATIENT,
    }

    connector = ConsumerConnector(settings, zk=session)

    try:
        await connector.create_message_streams({"t": 1})
        yield
    finally:
        await connector.shutdown()
        await session.close()


@pytest.mark.parametrize("version", OLD_VERSIONS)
def test_ten_members_join_one_after_another_and_no_session_is_suspended(
    zookeepers: ZooKeepers, version: str
) -> None:
    hosts = zookeepers.chroot(version)
    states: list[SessionState] = []

    async def scenario() -> None:
        async with contextlib.AsyncExitStack() as stack:
            observer = await stack.enter_async_context(zookeeper_session(hosts))
            await observer.ensure_path("/brokers/ids")
            topic = TopicAssignment(dict.fromkeys(range(MEMBERS), (0,))).encode()
            await observer.create(TopicAssignment.path("t"), topic, make_parents=True)
            for number in range(MEMBERS):
                await stack.enter_async_context(joined(hosts, f"m{number}", states))

            async def owners() -> list[str | None]:
                paths = [PartitionOwner.path("g", "t", p) for p in range(MEMBERS)]
                nodes = await observer.get_many(paths)
                return [node[0].decode() if node and node[0] else None for node in nodes]

            await until_equal(owners, [f"g_m{n}-0" for n in range(MEMBERS)])
            assert states == [SessionState.CONNECTED] * MEMBERS

    asyncio.run(scenario())
