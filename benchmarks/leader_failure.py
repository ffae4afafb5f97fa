"""A broker is killed that leads all partitions: how long until all of them take records again.

The clock starts when ZooKeeper tells an observer that the broker's registration is gone (how long
a session outlives its broker is a setting, the same on both sides), and stops when the heir of each
partition, its second replica, has answered a produce request with acks=all, so that a record is on
both survivors. The heirs share the partitions. The broker killed is not the controller.
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
    """A row for each number of partitions."""
    for count in PARTITIONS:
        (seconds,) = measure_in_succession(sides, directory, rounds, partial(_failing, count=count))
        yield Row(f"without leaders, {count:,} partitions", "s", at_most(0.5), seconds)


@contextlib.contextmanager
def _failing(cluster: Cluster, count: int) -> Iterator[Contestant]:
    def fail(_: float) -> tuple[float]:
        victim, *heirs = asyncio.run(_controller_last(cluster))
        orders = [(victim, *heirs), (victim, *reversed(heirs))]
        with cluster.create_topic([orders[each % 2] for each in range(count)]) as topic:
            return (asyncio.run(_fail(cluster, topic, count, victim, heirs)),)

    yield fail


async def _controller_last(cluster: Cluster) -> list[int]:
    """All brokers."""
    async with cluster.observe() as zk:
        data, _ = await zk.get(Controller.path())
    controller = Controller.decode(data).broker_id
    return sorted(BROKERS, key=lambda each: each == controller)


async def _fail(
    cluster: Cluster, topic: str, count: int, victim: int, heirs: Sequence[int]
) -> float:
    """Seconds without a leader of some partition."""
    await cluster.await_produced(victim, topic, range(count))
    await asyncio.sleep(AT_REST_S)
    async with cluster.observe() as zk:
        cluster.kill(victim)
        await await_znode(zk, BrokerId.path(victim), False)
        began = asyncio.get_running_loop().time()
        await asyncio.gather(
            *(
                cluster.await_produced(heir, topic, range(first, count, len(heirs)))
                for first, heir in enumerate(heirs)
            )
        )
        took = asyncio.get_running_loop().time() - began
        cluster.start(victim)
        await await_znode(zk, BrokerId.path(victim), True)
    return took
