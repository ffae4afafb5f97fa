"""Measure fetches by old consumers: batches of 1 KB records are converted to format 1.

As in `fetch`, one connection fetches 1 MB at a time, but no byte is sent as it is in the file.
"""

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks.brokers import Broker
from benchmarks.fetch import FETCH_BYTES, TOPIC_BYTES, encode_fetch, fill
from benchmarks.load import LoadError
from benchmarks.rounds import Rounds, alternate
from benchmarks.table import Row, at_least

KILOBYTE = (1024, 1024)
FETCH_VERSION = 2
"""The newest version with hard limits that reads format 1."""


def measure(brokers: Sequence[Broker], rounds: Rounds) -> Iterator[Row]:
    """Yield a row of the rate of converted bytes."""
    with contextlib.ExitStack() as topics:
        contestants = []
        for broker in brokers:
            topic = topics.enter_context(broker.create_topic())
            end = fill(broker, topic, TOPIC_BYTES, KILOBYTE)

            # Offsets a megabyte apart; those near the end would get less than the limit.
            step = end * FETCH_BYTES // TOPIC_BYTES
            offsets = range(0, end - 2 * step, step)
            plan = [encode_fetch(topic, offset, FETCH_VERSION) for offset in offsets]
            contestants.append(partial(_fetch, broker, plan))
        rate, cores = alternate(contestants, rounds)
    yield Row("fetch 1 MB down-converted to v1, 1 × 1", "MB/s", at_least(0.3), rate, cores)


def _fetch(broker: Broker, plan: Sequence[bytes], seconds: float) -> tuple[float, float]:
    driven, cores = broker.drive([plan], 1, seconds)

    # A response must be about as large as the limit allows, or the rate says little.
    if driven.bytes_received < driven.responses * FETCH_BYTES * 0.9:
        raise LoadError(f"{broker.name} responds with less than the limit allows")
    return driven.bytes_received / 1e6 / driven.seconds, cores
