"""Measure how long partitions take no records when the broker that leads them all is killed.

The clock starts when ZooKeeper deletes the broker's registration (the session timeout is the same
on both sides). It stops when the new leader of each partition, its second replica, has responded to
a produce request with acks=all, so that both survivors have a record. The two survivors share the
partitions. The broker that is killed is not the controller.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.brokers import Side
from benchmarks.clusters import BROKERS, Cluster, await_znode, measure_in_succession
from benchmarks.rounds import Contestant, Rounds
from benchmarks.table import Row, at_most
from zk.znodes import BrokerId, Controller

PARTITIONS = (100, 1000)
AT_REST_S = 3.0


def measure(sides: Sequence[Side], directory: Path, rounds: Rounds) -> Iterator[Row]:
    """Yield a row for each number of partitions."""
    for count in PARTITIONS:
        (seconds,) = measure_in_succession(sides, directory, rounds, partial(_failing, count=count))
        yield Row(f"without leaders, {count:,} partitions", "s", at_most(0.5), seconds)


@contextlib.contextmanager
def _failing(cluster: Cluster, count: int) -> Iterator[Contestant]:
    def fail(_: float) -> tuple[float]:
        # The second replica leads next: each survivor gets half of the partitions.
        victim, *survivors = asyncio.run(_list_controller_last(cluster))
        orders = [(victim, *survivors), (victim, *reversed(survivors))]
        with cluster.create_topic([orders[index % 2] for index in range(count)]) as topic:
            return (asyncio.run(_fail(cluster, topic, count, victim, survivors)),)

    yield fail


async def _list_controller_last(cluster: Cluster) -> list[int]:
    """List all brokers, the controller last."""
    async with cluster.observe() as zk:
        data, _ = await zk.get(Controller.path())
    controller = Controller.decode(data).broker_id
    return sorted(BROKERS, key=lambda broker_id: broker_id == controller)


async def _fail(
    cluster: Cluster, topic: str, count: int, victim: int, survivors: Sequence[int]
) -> float:
    """Kill a leader; return the seconds until all partitions take records again."""
    await cluster.await_produced(victim, topic, range(count))
    await asyncio.sleep(AT_REST_S)

    async with cluster.observe() as zk:
        cluster.kill(victim)
        await await_znode(zk, BrokerId.path(victim), False)

        # The registration is gone: from now on there is no leader.
        began = asyncio.get_running_loop().time()
        await asyncio.gather(
            *(
                cluster.await_produced(survivor, topic, range(first, count, len(survivors)))
                for first, survivor in enumerate(survivors)
            )
        )
        took = asyncio.get_running_loop().time() - began

        # The next round needs it.
        cluster.start(victim)
        await await_znode(zk, BrokerId.path(victim), True)

    return took
