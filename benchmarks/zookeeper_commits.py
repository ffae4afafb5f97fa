"""Measure commits to ZooKeeper: 1,000 partitions in one call, beside a call for each.

Both use the store of the high-level consumer on one session, and every offset is a new one.
"""

import asyncio
import itertools
import time
from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks.rounds import Rounds, alternate
from benchmarks.table import Beside, Row, at_most
from offsets.store import Offsets
from offsets.zookeeper_store import ZooKeeperStore
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from zk.session import KazooSession

PARTITIONS = [TopicPartition("committed", number) for number in range(1000)]

_group_numbers = itertools.count()


def measure(zookeeper: str, rounds: Rounds) -> Iterator[Row]:
    """Yield a row of milliseconds; the second column has a call for each partition."""
    contestants = [partial(_commit, zookeeper, size) for size in (len(PARTITIONS), 1)]
    (figures,) = alternate(contestants, rounds)
    question = f"commit of {len(PARTITIONS):,} partitions to ZooKeeper · one by one"
    yield Row(question, "ms", at_most(1 / 10), figures, beside=Beside.OURSELVES)


def _commit(zookeeper: str, partitions_per_call: int, seconds: float) -> tuple[float]:
    async def commit() -> float:
        session = KazooSession(zookeeper)
        await session.start()
        store = ZooKeeperStore(session)
        group_id = f"commits-{next(_group_numbers)}"
        try:
            # The first commit creates the znodes.
            for call in _calls(0, len(PARTITIONS)):
                await store.commit(group_id, call)

            # Whole rounds of all partitions, as many as there is time for.
            begins = time.perf_counter()
            offsets = itertools.count(1)
            while (took_s := time.perf_counter() - begins) < seconds:
                offset = next(offsets)
                for call in _calls(offset, partitions_per_call):
                    await store.commit(group_id, call)
            return took_s / offset * 1000
        finally:
            await session.close()

    return (asyncio.run(commit()),)


def _calls(offset: int, partitions_per_call: int) -> Sequence[Offsets]:
    committed = OffsetAndMetadata(offset)
    return [
        dict.fromkeys(PARTITIONS[start : start + partitions_per_call], committed)
        for start in range(0, len(PARTITIONS), partitions_per_call)
    ]
