"""The number of ZooKeeper requests for the facts about a group."""

from collections import Counter
from typing import Any

from clients.admin import Admin
from clients.command_line.sessions import Sessions
from clients.groups.group_reader import GroupReader
from protocol.topic_partition import TopicPartition
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import ConsumerOffset, PartitionOwner, TopicAssignment

PARTITIONS = 2500


class Counting:
    """A session that counts requests; a `get_many` counts once per thousand paths."""

    def __init__(self, session: MemorySession) -> None:
        self.session = session
        self.requests: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.session, name)

        def call(*arguments: Any, **keywords: Any) -> Any:
            self.requests[name] += -(-len(arguments[0]) // 1000) if name == "get_many" else 1
            return method(*arguments, **keywords)

        return call


async def group_of_many() -> Counting:
    zk = MemoryZooKeeper().session()
    await zk.start()
    await zk.create(TopicAssignment.path("t"), TopicAssignment({}).encode(), make_parents=True)
    for n in range(PARTITIONS):
        offset = ConsumerOffset(n).encode()
        await zk.create(ConsumerOffset.path("g", "t", n), offset, make_parents=True)
        await zk.create(PartitionOwner.path("g", "t", n), b"g_a-0", make_parents=True)
    return Counting(zk)


async def test_offsets_are_read_a_thousand_in_a_request() -> None:
    zk = await group_of_many()
    async with Admin("localhost:1") as admin:
        reader = GroupReader(Sessions(admin, zk))  # type: ignore[arg-type]
        offsets = await reader.offsets(zk, "g")  # type: ignore[arg-type]
    assert offsets[TopicPartition("t", 7)].offset == 7
    assert len(offsets) == PARTITIONS
    assert zk.requests == {"children": 2, "get_many": 3}


async def test_a_group_of_many_partitions_takes_few_requests() -> None:
    zk = await group_of_many()
    async with Admin("localhost:1") as admin:
        reader = GroupReader(Sessions(admin, zk))  # type: ignore[arg-type]
        facts = await reader.group_in_zookeeper("g")
    assert facts.zookeeper is not None
    assert len(facts.zookeeper.owners) == PARTITIONS
    assert sum(zk.requests.values()) < 25
