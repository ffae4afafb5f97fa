"""Measure transactions: small ones of many producers, and large ones beside none at all.

The producers are played (`played_producers`), by the same program on both sides.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from functools import partial
from statistics import quantiles

import attrs

from benchmarks.brokers import Broker
from benchmarks.load import LoadError
from benchmarks.played_members import open_lines
from benchmarks.played_producers import PlayedProducer, new_producers
from benchmarks.rounds import Rounds, alternate
from benchmarks.table import Row, at_least, at_most
from clients.producer.producer import Producer

PRODUCERS = 8
PARTITIONS = 3
VALUES = {0: [b"x" * 100] * 4, 1: [b"x" * 100] * 3, 2: [b"x" * 100] * 3}
"""Partition -> what a small transaction writes to it: ten records in all."""


def measure(brokers: Sequence[Broker], rounds: Rounds) -> Iterator[Row]:
    """Yield the rate of small transactions, and the time of their commits."""
    for broker in brokers:
        create_transactions_topic(broker)
        broker.read_offsets("any")
    rate, slowest, cores = alternate([partial(_transact, broker) for broker in brokers], rounds)
    question = (
        f"transactions of 10 records in 3 partitions and an offset commit, {PRODUCERS} producers"
    )
    yield Row(question, "1/s", at_least(0.8), rate, cores)
    yield Row("p99 of a commit among them", "ms", at_most(1.2), slowest)


def create_transactions_topic(broker: Broker) -> None:
    """Have the topic of transactions created: looking for a coordinator does so."""

    async def take_an_id() -> None:
        async with Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "first"}):
            pass

    asyncio.run(take_an_id())


def _transact(broker: Broker, seconds: float) -> tuple[float, float, float]:
    with broker.create_topic(PARTITIONS) as topic, open_lines(broker.address) as lines:
        producers = new_producers(lines, topic, PRODUCERS)
        cpu_s = broker.process.cpu_s
        began = time.perf_counter()
        for producer in producers:
            _SmallTransactions(producer, began + seconds).begin()
        lines.run(lambda: all(producer.is_idle for producer in producers))

        took_s = time.perf_counter() - began
        cores = (broker.process.cpu_s - cpu_s) / took_s
        number = sum(producer.transactions for producer in producers)
        commits = [took for producer in producers for took in producer.commit_s]
        _check(broker, topic, number)
        return number / took_s, quantiles(commits, n=100)[-1] * 1000, cores


@attrs.define(eq=False)
class _SmallTransactions:
    """One producer's transactions, one after the other until its time is over."""

    producer: PlayedProducer
    ends: float

    def begin(self) -> None:
        if time.perf_counter() >= self.ends:
            self.producer.is_idle = True
        else:
            self.producer.add(list(VALUES), self._write)

    def _write(self) -> None:
        self.producer.write(VALUES, self._commit_offset)

    def _commit_offset(self) -> None:
        producer = self.producer
        producer.commit_offset(producer.name, producer.transactions, self._end)

    def _end(self) -> None:
        self.producer.end(self.begin)


def _check(broker: Broker, topic: str, number: int) -> None:
    """Each transaction must have left its records and a marker in partition 0."""
    deadline = time.monotonic() + 10
    wanted = number * (len(VALUES[0]) + 1)
    while (end := broker.read_end_offset(topic)) != wanted:
        if time.monotonic() > deadline:
            raise LoadError(f"{broker.name} ends at {end}, not {wanted}")
        time.sleep(0.1)
