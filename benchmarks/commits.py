"""Measure OffsetCommit: many small requests at once, and one for a large topic.

The clients are no members (generation -1); each connection has its own group.
"""

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial

import attrs

from benchmarks.brokers import Broker
from benchmarks.load import LoadError
from benchmarks.rounds import Rounds, alternate
from benchmarks.table import Row, Wanted, at_least
from protocol.api_key import ApiKey
from protocol.header import encode_request
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

COMMIT_VERSION = 2
OFFSET = 42


@attrs.frozen
class Load:
    """One way of committing."""

    question: str
    partitions: int
    connections: int
    outstanding: int
    wanted: Wanted


_ONE = at_least(1.0, compiled=1.2, changed="from 0.6 on 2026-11-27: more was in reach")
_MANY = at_least(1.0, compiled=1.5, changed="from 0.3 on 2026-11-27: more was in reach")
_LOADS = (
    Load("OffsetCommit of 1 partition, 8 × 5", 1, 8, 5, _ONE),
    Load("OffsetCommit of 1,000 partitions, 1 × 1", 1000, 1, 1, _MANY),
)


def measure(brokers: Sequence[Broker], rounds: Rounds) -> Iterator[Row]:
    """Yield a row for each load."""
    for load in _LOADS:
        with contextlib.ExitStack() as topics:
            contestants = [
                partial(
                    _commit,
                    broker,
                    topics.enter_context(broker.create_topic(load.partitions)),
                    load,
                )
                for broker in brokers
            ]
            rate, cores = alternate(contestants, rounds)
        yield Row(load.question, "requests/s", load.wanted, rate, cores)


def _commit(broker: Broker, topic: str, load: Load, seconds: float) -> tuple[float, float]:
    groups = [f"{topic}-group-{i}" for i in range(load.connections)]

    # This creates the offsets topic, before the clock starts.
    broker.read_offsets(groups[0])
    plans = [[encode_commit(group, topic, load.partitions)] for group in groups]
    driven, cores = broker.drive(plans, load.outstanding, seconds)

    # Each response must stand for offsets that can be read.
    for group in groups:
        if list(broker.read_offsets(group).values()) != [OFFSET] * load.partitions:
            raise LoadError(f"{broker.name} has lost offsets that {group} committed")
    return driven.per_second, cores


def encode_commit(group: str, topic: str, partitions: int) -> bytes:
    """Encode a request that commits OFFSET for partitions 0, 1, …"""
    committed = [
        OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=OFFSET, committed_metadata=""
        )
        for partition in range(partitions)
    ]
    request = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=committed)]
    )
    return encode_request(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, 0, "benchmarks", request)
