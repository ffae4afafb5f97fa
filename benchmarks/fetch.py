"""Measure fetches of 1 MB at a time, one and eight in flight, from the page cache.

The topic has batches of 16 KB, as of a producer with Kafka's defaults; the requests read it from
its start to its end, again and again.
"""

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks.brokers import Broker
from benchmarks.load import LoadError, ask, connect
from benchmarks.produce import EQUAL, encode_produce, make_batch
from benchmarks.rounds import Rounds, alternate
from benchmarks.table import Row, at_least, at_most
from protocol.api_key import ApiKey
from protocol.header import encode_request
from protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic

FETCH_VERSION = 4
FETCH_BYTES = 1024 * 1024
BATCH_BYTES = 16 * 1024
TOPIC_BYTES = 64 * 1024 * 1024


def measure(brokers: Sequence[Broker], rounds: Rounds) -> Iterator[Row]:
    """Yield rows of the rate and of the processor time for a gigabyte."""
    rate, cpu, cores = _measure(brokers, rounds, connections=1, outstanding=1)
    wanted = at_least(0.95, changed="from 1 on 2026-11-27: the ratio was 0.84, as it waits mostly")
    yield Row("fetch 1 MB, 1 × 1", "MB/s", wanted, rate, cores)
    yield Row("broker CPU of fetch 1 MB, 1 × 1", "s/GB", at_most(1.0), cpu)

    rate, cpu, cores = _measure(brokers, rounds, connections=4, outstanding=2)
    yield Row("fetch 1 MB, 4 × 2", "MB/s", at_least(0.44), rate, cores)
    yield Row("broker CPU of fetch 1 MB, 4 × 2", "s/GB", at_most(1.2), cpu)


def _measure(
    brokers: Sequence[Broker], rounds: Rounds, *, connections: int, outstanding: int
) -> list[tuple[tuple[float, ...], ...]]:
    """Return MB/s, processor seconds for a gigabyte, and cores, of each broker."""
    with contextlib.ExitStack() as topics:
        contestants = []
        for broker in brokers:
            topic = topics.enter_context(broker.create_topic())
            end = fill(broker, topic, TOPIC_BYTES)

            # Offsets a megabyte apart; those near the end would get less than the limit.
            step = end * FETCH_BYTES // TOPIC_BYTES
            plan = [encode_fetch(topic, offset) for offset in range(0, end - 2 * step, step)]
            contestants.append(partial(_fetch, broker, [plan] * connections, outstanding))
        return alternate(contestants, rounds)


def _fetch(
    broker: Broker, plans: Sequence[Sequence[bytes]], outstanding: int, seconds: float
) -> tuple[float, float, float]:
    driven, cores = broker.drive(plans, outstanding, seconds)

    # A response must be about as large as the limit allows, or the rate says little.
    if driven.bytes_received < driven.responses * FETCH_BYTES * 0.9:
        raise LoadError(f"{broker.name} responds with less than the limit allows")
    megabytes_per_s = driven.bytes_received / 1e6 / driven.seconds
    return megabytes_per_s, cores / (megabytes_per_s / 1000), cores


def fill(broker: Broker, topic: str, size: int, value_bytes: tuple[int, int] = EQUAL) -> int:
    """Write about `size` bytes of batches to partition 0; return its end offset."""
    batch, _ = make_batch(BATCH_BYTES, value_bytes)
    request = encode_produce(topic, batch, 1)
    with connect(broker.address) as connection:
        for _ in range(size // len(batch)):
            ask(connection, request)
    return broker.read_end_offset(topic)


def encode_fetch(
    topic: str, offset: int, version: int = FETCH_VERSION, *, isolation: int = 0
) -> bytes:
    """Encode a request for FETCH_BYTES of partition 0, which does not wait."""
    partition = FetchRequestPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
    )
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        isolation_level=isolation,
        topics=[FetchRequestTopic(topic=topic, partitions=[partition])],
    )
    return encode_request(ApiKey.FETCH, version, 0, "benchmarks", request)
