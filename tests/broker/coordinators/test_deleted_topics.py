"""Which topics exist no longer is read from ZooKeeper, where the metadata do not know them."""

import asyncio

import pytest

from broker.coordinators.deleted_topics import find_deleted
from zk.memory import MemoryZooKeeper
from zk.znodes import STARTUP_PATHS, DeleteTopic, TopicAssignment


@pytest.mark.fault("core-R4")
def test_deleted_is_what_has_no_node_or_is_marked_for_deletion_and_not_in_the_metadata() -> None:
    async def find() -> set[str]:
        session = MemoryZooKeeper().session()
        await session.start()
        for path in STARTUP_PATHS:
            await session.ensure_path(path)
        for name in ("known", "unheard", "marked"):
            await session.create(TopicAssignment.path(name), TopicAssignment({0: (1,)}).encode())
        await session.create(DeleteTopic.path("marked"), None)

        topics = {"known", "unheard", "marked", "gone", "new"}
        return set(await find_deleted(session, {"known", "new"}.__contains__, topics))

    assert asyncio.run(find()) == {"marked", "gone"}
