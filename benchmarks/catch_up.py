"""Measure how fast a follower catches up that was down while 2 GB were written.

The clock starts when the broker has registered again, and stops when the partition's state in
ZooKeeper has it in the ISR. Its log is behind, not empty; nothing else is written meanwhile.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.brokers import Side
from benchmarks.clusters import BROKERS, Cluster, await_znode, measure_in_succession
from benchmarks.produce import EQUAL, make_batch
from benchmarks.rounds import Contestant, Rounds
from benchmarks.table import Row, at_least
from protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from zk.api import ZkSession
from zk.znodes import BrokerId, PartitionState

MISSED_BYTES = 2_000_000_000
BATCH_BYTES = 950 * 1024
_POLL_S = 0.01


def measure(sides: Sequence[Side], directory: Path, rounds: Rounds) -> Iterator[Row]:
    """Yield one row."""
    (rate,) = measure_in_succession(sides, directory, rounds, _catching_up)
    yield Row("a follower 2 GB behind", "MB/s", at_least(1), rate)


@contextlib.contextmanager
def _catching_up(cluster: Cluster) -> Iterator[Contestant]:
    leader, follower, _ = BROKERS

    def catch_up(_: float) -> tuple[float]:
        with cluster.create_topic([(leader, follower)]) as topic:
            return (asyncio.run(_catch_up(cluster, topic, leader, follower)),)

    yield catch_up


async def _catch_up(cluster: Cluster, topic: str, leader: int, follower: int) -> float:
    """Return megabytes a second."""
    loop = asyncio.get_running_loop()
    async with cluster.observe() as zk:
        # Both replicas get a record; then the follower stops, and leaves the ISR.
        await cluster.await_produced(leader, topic, [0])
        cluster.kill(follower, at_once=False)
        await await_znode(zk, BrokerId.path(follower), False)
        await _await_isr(zk, topic, [leader])

        # What it misses is written while it is down.
        written = await _write(cluster, leader, topic)
        cluster.start(follower)  # by this thread: a child ends with the thread that started it
        await await_znode(zk, BrokerId.path(follower), True)

        # From its registration to its return into the ISR.
        began = loop.time()
        await _await_isr(zk, topic, [leader, follower])
        return written / 1e6 / (loop.time() - began)


async def _write(cluster: Cluster, leader: int, topic: str) -> int:
    """Write whole batches, about MISSED_BYTES; return their bytes."""
    batch, _ = make_batch(BATCH_BYTES, EQUAL)
    partition = ProduceRequestPartition(index=0, records=batch)
    of_topic = ProduceRequestTopic(name=topic, partition_data=[partition])

    # acks=1: the leader is the only replica in sync.
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[of_topic])
    count = MISSED_BYTES // len(batch)
    async with cluster.connect(leader) as connection:
        for _ in range(count):
            response = await connection.call(request)
            assert response.responses[0].partition_responses[0].error_code == 0
    return count * len(batch)


async def _await_isr(zk: ZkSession, topic: str, replicas: Sequence[int]) -> None:
    """Wait until exactly these replicas are in sync, by the partition's state."""
    while True:
        data, _ = await zk.get(PartitionState.path(topic, 0))
        if sorted(PartitionState.decode(data).isr) == sorted(replicas):
            return
        await asyncio.sleep(_POLL_S)
