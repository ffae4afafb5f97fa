"""Measure how long a new controller takes over 2,000 partitions.

One transaction deletes the znode /controller and creates a topic, which only the new controller
sees. The clock stops when every broker reports the leaders of that topic: the new controller sends
them after all it has to send about the other partitions. All brokers stay up, so no leader moves.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.brokers import Side
from benchmarks.clusters import BROKERS, Cluster, measure_in_succession, spread_replicas
from benchmarks.rounds import Contestant, Rounds
from benchmarks.table import Row, at_most
from zk.api import Create, Delete, Op
from zk.znodes import Controller, TopicAssignment

PARTITIONS = 2000
AT_REST_S = 2.0
_POLL_S = 0.005

_probes = itertools.count()


def measure(sides: Sequence[Side], directory: Path, rounds: Rounds) -> Iterator[Row]:
    """Yield one row."""
    (seconds,) = measure_in_succession(sides, directory, rounds, _failing_over)
    yield Row(f"a new controller of {PARTITIONS:,} partitions", "s", at_most(1), seconds)


@contextlib.contextmanager
def _failing_over(cluster: Cluster) -> Iterator[Contestant]:
    with cluster.create_topic(spread_replicas(PARTITIONS)):
        yield lambda _: (asyncio.run(_depose(cluster)),)


async def _depose(cluster: Cluster) -> float:
    """Depose the controller; return the seconds until all brokers know the new topic."""
    await asyncio.sleep(AT_REST_S)

    # Each round has a topic of its own, which no broker knows.
    probe = f"probe-{next(_probes)}"
    node = TopicAssignment(dict(enumerate(spread_replicas(len(BROKERS)))))
    ops: list[Op] = [Delete(Controller.path()), Create(TopicAssignment.path(probe), node.encode())]
    async with cluster.observe() as zk:
        # In one transaction: the old controller never sees the topic.
        began = asyncio.get_running_loop().time()
        await zk.multi(ops)
        await cluster.await_leaders(probe, BROKERS, pause_s=_POLL_S)
        return asyncio.get_running_loop().time() - began
