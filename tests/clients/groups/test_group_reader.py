"""The number of ZooKeeper requests for the facts about a group."""

from collections import Counter
from typing import Any

import pytest

from clients.admin import Admin
from clients.command_line.sessions import Sessions
from clients.groups.group_reader import GroupReader
from clients.groups.zookeeper_groups import ZooKeeperGroups
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
    offsets = (await ZooKeeperGroups(zk).offsets(["g"]))["g"]  # type: ignore[arg-type]
    assert offsets[TopicPartition("t", 7)].offset == 7
    assert len(offsets) == PARTITIONS
    assert zk.requests == {"children": 2, "get_many": 3}


async def test_offsets_of_many_groups_are_read_with_one_request() -> None:
    session = MemoryZooKeeper().session()
    await session.start()
    for n in range(30):
        offset = ConsumerOffset(n).encode()
        await session.create(ConsumerOffset.path(f"g{n}", "t", 0), offset, make_parents=True)

    zk = Counting(session)
    names = [f"g{n}" for n in range(31)]
    offsets_of = await ZooKeeperGroups(zk).offsets(names)  # type: ignore[arg-type]
    assert zk.requests["get_many"] == 1
    assert [[o.offset for o in offsets_of[name].values()] for name in names] == [
        *([n] for n in range(30)),
        [],
    ]


@pytest.mark.fault("strangers-1")
@pytest.mark.parametrize("name", ["null\0byte", "g/offsets", "..", "", "nl\nerror: forged"])
async def test_a_name_that_no_node_can_have_hides_no_other_group(name: str) -> None:
    groups = ZooKeeperGroups((await group_of_many()).session)
    odd, other = await groups.facts([name, "g"])
    assert odd.zookeeper is None
    assert other.zookeeper is not None
    assert await groups.owners(name) == {}
    assert (await groups.offsets([name, "g"])).keys() == {name, "g"}


async def test_a_group_of_many_partitions_takes_few_requests() -> None:
    zk = await group_of_many()
    async with Admin("localhost:1") as admin:
        reader = GroupReader(Sessions(admin, zk))  # type: ignore[arg-type]
        facts = await reader.group_in_zookeeper("g")
    assert facts.zookeeper is not None
    assert len(facts.zookeeper.owners) == PARTITIONS
    assert sum(zk.requests.values()) < 25


async def test_the_nodes_of_many_groups_are_read_together() -> None:
    session = MemoryZooKeeper().session()
    await session.start()
    names = [f"g{n}" for n in range(30)]
    for n, group in enumerate(names):
        topic = f"t{n}"
        assignment = TopicAssignment({0: (1,), 1: (1,)}).encode()
        await session.create(TopicAssignment.path(topic), assignment, make_parents=True)
        offset = ConsumerOffset(n).encode()
        await session.create(ConsumerOffset.path(group, topic, 0), offset, make_parents=True)
        owner = f"{group}_a-0".encode()
        await session.create(PartitionOwner.path(group, topic, 0), owner, make_parents=True)

    zk = Counting(session)
    async with Admin("localhost:1") as admin:
        reader = GroupReader(Sessions(admin, zk))  # type: ignore[arg-type]
        facts = await reader.groups_in_zookeeper([*names, "unknown"])

    # Owners, offsets, topics and migrations, once for all groups.
    assert zk.requests["get_many"] == 4
    assert [group.group for group in facts] == [*names, "unknown"]
    assert facts[-1].zookeeper is None
    for n, group in enumerate(facts[:-1]):
        p0, p1 = TopicPartition(f"t{n}", 0), TopicPartition(f"t{n}", 1)
        assert group.zookeeper is not None
        assert group.zookeeper.owners == {p0: f"g{n}_a"}
        assert {p: o.offset for p, o in group.zookeeper.offsets.items()} == {p0: n}
        assert group.zookeeper.partitions == {p0, p1}
