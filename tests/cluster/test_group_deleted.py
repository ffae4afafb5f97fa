"""A group that was deleted, when the log of its offsets has been compacted and is read again."""

import asyncio
from pathlib import Path

from clients.admin import Admin, NewTopic
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.cluster.restartable_cluster import POLL_S, RestartableCluster, play
from tests.stage.waiting import DEADLINE_S

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": "2000",
    "log.cleaner.backoff.ms": "50",
}
"""So that the segment with the group's records is soon one that may be cleaned."""
EAGER = ("min.cleanable.dirty.ratio=0.001", "delete.retention.ms=1", "file.delete.delay.ms=0")
DELETED, KEPT = "deleted-group", "kept-group"
AT = TopicPartition("t", 0)


def test_group_that_was_deleted_is_gone_after_compaction_and_a_crash(tmp_path: Path) -> None:
    with RestartableCluster.running(tmp_path / "dev", 1, SETTINGS) as cluster:
        play(scenario(cluster))


async def scenario(cluster: RestartableCluster) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic(AT.topic, 1, 1)])
        for offset in range(5):
            await admin.commit_group_offsets(DELETED, {AT: OffsetAndMetadata(offset)})
        assert in_log(cluster, DELETED)
        await asyncio.to_thread(clean_eagerly, cluster)
        assert await admin.delete_groups([DELETED]) == {DELETED: None}
        last = await kept_until_cleaned(cluster, admin)
        await cluster.stop(0)
        assert in_log(cluster, KEPT)
        assert not in_log(cluster, DELETED)
        await cluster.start(0)
        assert await admin.group_offsets(DELETED) == {}
        assert (await admin.describe_groups([DELETED]))[DELETED].group.group_state == "Dead"
        assert await admin.group_offsets(KEPT) == {AT: OffsetAndMetadata(last)}


def clean_eagerly(cluster: RestartableCluster) -> None:
    words = [word for change in EAGER for word in ("--add", change)]
    done = cluster.dev.run("kbroker", "configs", "alter", "--topic", OFFSETS_TOPIC, *words)
    assert done.returncode == 0, done.stderr


async def kept_until_cleaned(cluster: RestartableCluster, admin: Admin) -> int:
    """Commit for another group, which rolls segments, until nothing of the deleted one is left."""
    offset = 0
    async with asyncio.timeout(DEADLINE_S):
        while in_log(cluster, DELETED):
            offset += 1
            await admin.commit_group_offsets(KEPT, {AT: OffsetAndMetadata(offset)})
            await asyncio.sleep(POLL_S)
    return offset


def in_log(cluster: RestartableCluster, group: str) -> bool:
    """Whether any record of the offsets topic, in place of which no other stands, names it.

    A cleaned segment is a `.swap` until the originals are gone.
    """
    directory = cluster.dev.directory / "broker-0" / f"{OFFSETS_TOPIC}-0"

    def segments() -> list[Path]:
        return sorted([*directory.glob("*.log"), *directory.glob("*.log.swap")])

    files, texts = segments(), []
    for file in files:
        try:
            texts.append(file.read_bytes())
        except FileNotFoundError:  # the cleaner was faster
            return True
    is_settled = files == segments()  # none had another name meanwhile
    return not is_settled or any(group.encode() in text for text in texts)
