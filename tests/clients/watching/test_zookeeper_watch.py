"""What two looks at groups in ZooKeeper show of their commits."""

import pytest

from clients.admin import Admin
from clients.command_line.sessions import Sessions
from clients.groups.recorded_groups import RecordedGroup, RecordedOffset
from clients.watching.zookeeper_watch import ZooKeeperWatch
from protocol.topic_partition import TopicPartition
from zk.memory import MemoryZooKeeper
from zk.znodes import ConsumerGroup, ConsumerOffset, PartitionOwner

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def test_an_offset_that_changed_between_two_looks_is_a_commit() -> None:
    zk = MemoryZooKeeper().session()
    await zk.start()
    for partition in (P0, P1):
        path = ConsumerOffset.path("g", *partition)
        await zk.create(path, b"5", make_parents=True)
    await zk.create(PartitionOwner.path("g", *P0), b"g_host-1-12345678-0", make_parents=True)
    await zk.create(ConsumerGroup.ids_path("g"), b"")
    in_kafka = {"g": RecordedGroup({P1: RecordedOffset(9, -1, "", 1, None, 0)})}

    async with Admin("localhost:1") as admin:
        watch = ZooKeeperWatch(Sessions(admin, zk))
        first, failures = await watch.look(in_kafka, 1000, 200)
        # Both stores have P1: the larger offset counts, which is no commit in ZooKeeper.
        assert ([(c.topic_partition, c.offset) for c in first], failures) == ([(P0, 5)], [])
        known = watch.groups["g"]
        assert {p: o.offset for p, o in known.group.offsets.items()} == {P0: 5, P1: 9}
        assert known.owners[P0].host == "host"
        assert known.facts.coordination == "zookeeper"

        assert await watch.look(in_kafka, 2000, 200) == ([], [])
        await zk.set(ConsumerOffset.path("g", *P0), b"6")
        await zk.set(ConsumerOffset.path("g", *P0), b"8")
        (second,), _ = await watch.look(in_kafka, 3000, 200)
        assert (second.topic_partition, second.offset) == (P0, 8)

        # Kafka's offset counts now: nothing was deleted.
        in_kafka["g"].offsets[P0] = RecordedOffset(20, -1, "", 2, None, 0)
        assert await watch.look(in_kafka, 3500, 200) == ([], [])
        del in_kafka["g"].offsets[P0]
        await watch.look(in_kafka, 3600, 200)

        await zk.delete(ConsumerOffset.path("g", *P0))
        (third,), _ = await watch.look(in_kafka, 4000, 200)
        assert (third.topic_partition, third.offset, third.at_ms) == (P0, None, 4000)


@pytest.mark.fault("strangers-124")
async def test_an_offset_deleted_and_committed_again_between_two_looks_began_again() -> None:
    """Its group was deleted, and its next member has gone back to nothing that was its own."""
    now_ms = 1000
    zk = MemoryZooKeeper(lambda: now_ms).session()
    await zk.start()
    path = ConsumerOffset.path("g", *P0)
    await zk.create(path, b"700", make_parents=True)

    async with Admin("localhost:1") as admin:
        watch = ZooKeeperWatch(Sessions(admin, zk))
        await watch.look({}, now_ms, 200)
        now_ms = 2000
        await zk.delete(path)
        await zk.create(path, b"0")
        now_ms = 2500
        await zk.set(path, b"9")
        commits, _ = await watch.look({}, 3000, 200)
        assert [(c.at_ms, c.offset) for c in commits] == [(1999, None), (2500, 9)]
        assert await watch.look({}, 4000, 200) == ([], [])
