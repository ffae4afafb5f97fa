"""Measure how long a new leader of `__consumer_offsets` loads a million offsets.

The partition's log is made once, in Kafka's format, and copied to two brokers, which lead it in
turns. The clock starts when the new leader first responds that it is loading, and stops when it
responds to an OffsetFetch. The brokers go on between rounds, so that a JVM's code is warm. They
get no other requests meanwhile.

A commit is a batch of as many records as it has partitions. A commit of one partition costs the
most bytes and checksums for an offset.
"""

import asyncio
import contextlib
import itertools
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import attrs

from benchmarks.brokers import Side
from benchmarks.clusters import BROKERS, Cluster, await_whole, measure_in_succession
from benchmarks.rounds import Contestant, Rounds
from benchmarks.table import Row, at_most
from clients.admin import Admin, NewTopic
from clients.transport.connection import Connection
from offsets.config import OffsetsConfig
from offsets.records import CommittedOffset, OffsetKey, encode_key, encode_value
from offsets.requests import fetch_offsets_request
from offsets.topic import offsets_partition, topic_properties
from protocol.errors import ErrorCode
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.records.batch import encode_batch
from protocol.special_values import PREFERRED
from protocol.topic_partition import TopicPartition

OFFSETS = 1_000_000
GROUP_PARTITIONS = 50
TOPIC = "some-topic"
SEGMENT_BYTES = 100_000_000
NOW_MS = 1_700_000_000_000
FIRST, SECOND, _ = BROKERS
_HOME = TopicPartition(OFFSETS_TOPIC, 0)
_POLL_S = 0.002
_PATIENCE_S = 180.0


@attrs.frozen
class Load:
    """A number of partitions in each commit."""

    question: str
    partitions: int


_LOADS = (
    Load("load of 1,000,000 committed offsets, 50 a commit", 50),
    Load("load of 1,000,000 committed offsets, 1 a commit", 1),
)


def measure(sides: Sequence[Side], directory: Path, rounds: Rounds) -> Iterator[Row]:
    """Yield a row for each load."""
    for load in _LOADS:
        segments = directory / f"offsets-{load.partitions}"
        write_segments(segments, load.partitions)
        (seconds,) = measure_in_succession(
            sides, directory, rounds, partial(_loading, segments=segments)
        )
        shutil.rmtree(segments)
        yield Row(load.question, "s", at_most(1), seconds)


def write_segments(directory: Path, partitions: int) -> None:
    """Write a log of OFFSETS commits, each with another key, in batches of so many records."""
    directory.mkdir()
    for base_offset, batches in _segments(partitions):
        (directory / f"{base_offset:020d}.log").write_bytes(b"".join(batches))
    # A follower compares its leader epochs with the leader's.
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")


def _segments(partitions: int) -> Iterator[tuple[int, list[bytes]]]:
    batches: list[bytes] = []
    base_offset = size = 0
    for first in range(0, OFFSETS, partitions):
        batches.append(_commit(first, partitions))
        size += len(batches[-1])
        if size > SEGMENT_BYTES:
            yield base_offset, batches
            base_offset = first + partitions
            batches = []
            size = 0
    yield base_offset, batches


def _commit(first: int, partitions: int) -> bytes:
    value = encode_value(CommittedOffset(first, 0, "", NOW_MS + first))
    keys = (
        OffsetKey(_group(nth // GROUP_PARTITIONS), TOPIC, nth % GROUP_PARTITIONS)
        for nth in range(first, first + partitions)
    )
    rows = [(NOW_MS + first, encode_key(key), value, ()) for key in keys]
    return encode_batch(rows, base_offset=first, leader_epoch=0)


def _group(nth: int) -> str:
    return f"group-{nth:07d}"


@contextlib.contextmanager
def _loading(cluster: Cluster, segments: Path) -> Iterator[Contestant]:
    asyncio.run(_prepare(cluster, segments))

    # FIRST leads after the preparation.
    turns = itertools.cycle((SECOND, FIRST))

    def load(_: float) -> tuple[float]:
        return (asyncio.run(_load(cluster, next(turns))),)

    yield load


async def _prepare(cluster: Cluster, segments: Path) -> None:
    """Create the topic, stop its brokers, copy the log to them, and start them again."""
    async with cluster.admin() as admin:
        configs = topic_properties(OffsetsConfig())
        topic = NewTopic(OFFSETS_TOPIC, assignments={0: (FIRST, SECOND)}, configs=configs)
        refusal = (await admin.create_topics([topic]))[OFFSETS_TOPIC]
        if refusal:
            raise RuntimeError(f"{cluster.name} does not create the offsets topic: {refusal}")
    await cluster.await_leaders(OFFSETS_TOPIC, [FIRST])

    # The leader stops last and starts first, so that it leads again.
    for broker_id in (SECOND, FIRST):
        cluster.kill(broker_id, at_once=False)
        log = cluster.members[broker_id].log_directory / str(offsets_partition(0))
        shutil.rmtree(log)
        shutil.copytree(segments, log)
    for broker_id in (FIRST, SECOND):
        cluster.start(broker_id)
    await await_whole(cluster)
    await cluster.await_leaders(OFFSETS_TOPIC, [FIRST])
    await _await_loaded(cluster, FIRST)


async def _load(cluster: Cluster, leader: int) -> float:
    """Make the broker the leader; return the seconds that it loads."""
    loop = asyncio.get_running_loop()
    async with cluster.admin() as admin:
        # Ask before the election, or the begin of the load is missed.
        loaded = asyncio.create_task(_await_loaded(cluster, leader))
        await _elect(admin, leader)
        began = await loaded
    return loop.time() - began


async def _elect(admin: Admin, leader: int) -> None:
    # The preferred leader is the first replica.
    replicas = sorted((FIRST, SECOND), key=lambda broker_id: broker_id != leader)
    refusals = await admin.alter_partition_reassignments({_HOME: replicas})
    if refusals[_HOME]:
        raise RuntimeError(f"the order of the replicas cannot be changed: {refusals[_HOME]}")

    while True:
        # The controller may not have the new order so far.
        refusal = (await admin.elect_leaders(PREFERRED, [_HOME]))[_HOME]
        if refusal is None or refusal.code is ErrorCode.ELECTION_NOT_NEEDED:
            return
        await asyncio.sleep(_POLL_S)


async def _await_loaded(cluster: Cluster, leader: int) -> float:
    """Return when the broker has loaded its groups; the value is the time when it began to."""
    loop = asyncio.get_running_loop()
    began: float | None = None

    async with asyncio.timeout(_PATIENCE_S), cluster.connect(leader) as connection:
        while True:
            error = await _fetch(connection)

            # It leads the partition: it loads, or is done already.
            if error != ErrorCode.NOT_COORDINATOR and began is None:
                began = loop.time()
            if not error:
                assert began is not None
                return began
            await asyncio.sleep(_POLL_S)


async def _fetch(connection: Connection) -> int:
    """Fetch a group's offsets; return the error code. Without an error all must be there."""
    response = await connection.call(fetch_offsets_request(_group(0), None))
    if not response.error_code:
        count = sum(len(topic.partitions) for topic in response.topics)
        if count != GROUP_PARTITIONS:
            raise RuntimeError(f"a group has {count} offsets, not {GROUP_PARTITIONS}")
    error: int = response.error_code
    return error
