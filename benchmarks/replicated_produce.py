"""Measure produce to three replicas with acks=all, where two followers fetch each batch.

One broker leads the partition, and the load is that of `produce`. As many requests wait for the
followers as there are connections: a response leaves before the next request is read.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import attrs

from benchmarks.brokers import Side
from benchmarks.clusters import BROKERS, Cluster, start_cluster
from benchmarks.load import LoadError, drive
from benchmarks.produce import COMPILED_AFTER_S, EQUAL, encode_produce, make_batch
from benchmarks.rounds import Rounds, alternate
from benchmarks.table import Row, Wanted, at_least
from clients.admin import LATEST_TIME
from protocol.topic_partition import TopicPartition

CONNECTIONS, OUTSTANDING = 8, 5


@attrs.frozen
class Load:
    """A batch size, with the bound of its row."""

    question: str
    batch_bytes: int
    unit: str
    wanted: Wanted


_LARGE = at_least(4.3, changed="from 1 on 2026-11-27: a run had shown so much")
_SMALL = at_least(3.0, changed="from 0.6 on 2026-11-27: a run had shown so much")
_LOADS = (
    Load("produce 64 KB to 3 replicas, 8 × 5, acks=-1", 64 * 1024, "MB/s", _LARGE),
    Load("produce 1 KB to 3 replicas, 8 × 5, acks=-1", 1024, "requests/s", _SMALL),
)


def measure(sides: Sequence[Side], directory: Path, rounds: Rounds) -> Iterator[Row]:
    """Yield a row for each load."""
    with contextlib.ExitStack() as stack:
        clusters = [stack.enter_context(start_cluster(side, directory)) for side in sides]
        for cluster in clusters:
            # Until a JVM has compiled its code.
            _produce(cluster, _LOADS[-1], COMPILED_AFTER_S)
        for load in _LOADS:
            contestants = [partial(_produce, cluster, load) for cluster in clusters]
            rate, cores = alternate(contestants, rounds)
            yield Row(load.question, load.unit, load.wanted, rate, cores)


def _produce(cluster: Cluster, load: Load, seconds: float) -> tuple[float, float]:
    """Return responses or megabytes a second, and the cores that all three brokers used."""
    batch, records = make_batch(load.batch_bytes, EQUAL)
    with cluster.create_topic([BROKERS]) as topic:
        plans = [[encode_produce(topic, batch, acks=-1)]] * CONNECTIONS
        cpu_s = cluster.cpu_s

        # The first replica leads the only partition.
        address = cluster.members[BROKERS[0]].address
        driven = drive(address, plans, outstanding=OUTSTANDING, seconds=seconds)
        cores = (cluster.cpu_s - cpu_s) / driven.seconds
        end = asyncio.run(_end_offset(cluster, topic))

    # Each response must stand for a batch in the log.
    if end != driven.total_responses * records:
        raise LoadError(f"{cluster.name} took {driven.total_responses} batches, but ends at {end}")
    return driven.per_second * (len(batch) / 1e6 if load.unit == "MB/s" else 1), cores


async def _end_offset(cluster: Cluster, topic: str) -> int:
    partition = TopicPartition(topic, 0)
    async with cluster.admin() as admin:
        return (await admin.list_offsets({partition: LATEST_TIME}))[partition].offset
