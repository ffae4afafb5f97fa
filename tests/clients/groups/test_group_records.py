"""Reading `__consumer_offsets` of real brokers, ours and stock."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from clients.admin import Admin, NewTopic
from clients.groups.group_records import read_group_records
from clients.groups.recorded_groups import RecordedGroups
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.cluster import DevCluster
from tests.stage.stock_kafka import stock_broker


async def commit(admin: Admin, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    await admin.commit_group_offsets(
        group, {partition: OffsetAndMetadata(n, f"at {n}") for partition, n in offsets.items()}
    )


def offsets_of(records: RecordedGroups, group: str) -> dict[TopicPartition, tuple[int, str]]:
    return {
        partition: (recorded.offset, recorded.metadata)
        for partition, recorded in records.of(group).offsets.items()
    }


async def check_commits_are_read_with_their_times(bootstrap: str) -> None:
    names = [f"g-{uuid4().hex[:8]}" for _ in range(5)]
    topic = f"t-{uuid4().hex[:8]}"
    t0, t1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
    before_ms = time.time_ns() // 1_000_000
    async with Admin(bootstrap) as admin:
        assert await admin.create_topics([NewTopic(topic, 2, 1)]) == {topic: None}
        for number, name in enumerate(names):
            await commit(admin, name, {t0: number, t1: 10})
        await commit(admin, names[1], {t0: 7})

        asked = names[:3]
        records = await read_group_records(admin, asked)
        assert (records.errors, records.groups.keys()) == ({}, set(asked))
        assert offsets_of(records, names[1]) == {t0: (7, "at 7"), t1: (10, "at 10")}
        recorded = records.of(names[2]).offsets[t0]
        now_ms = time.time_ns() // 1_000_000
        assert before_ms <= recorded.committed_at_ms <= now_ms

        # It goes on from where it stopped, and sees deletions.
        await commit(admin, names[0], {t1: 11})
        await admin.delete_groups([names[1]])
        again = await read_group_records(admin, asked, so_far=records)
        assert again is records
        assert offsets_of(again, names[0])[t1] == (11, "at 11")
        assert names[1] not in again.groups

        everything = await read_group_records(admin, None)
        assert set(everything.groups) >= {names[0], *names[2:]}


async def test_commits_are_read_with_their_times(dev_cluster: DevCluster) -> None:
    await check_commits_are_read_with_their_times(dev_cluster.address("bootstrap"))


async def test_commits_at_a_stock_broker_are_read_with_their_times(
    zk_chroot: str, tmp_path: Path
) -> None:
    settings = {"offsets.topic.num.partitions": "4"}
    with stock_broker(zk_chroot, tmp_path, settings) as bootstrap:
        await check_commits_are_read_with_their_times(bootstrap)


def test_a_cluster_without_the_topic_has_no_groups_in_it(tmp_path: Path) -> None:
    async def read(bootstrap: str) -> None:
        async with Admin(bootstrap) as admin:
            assert OFFSETS_TOPIC not in await admin.list_topics(internal=True)
            records = await read_group_records(admin, ["g"])
            assert (records.groups, records.errors) == ({}, {})

    with DevCluster(tmp_path) as cluster:
        asyncio.run(read(cluster.address("bootstrap")))
