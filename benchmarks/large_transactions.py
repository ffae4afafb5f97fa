"""Measure what transactions cost where much is written and read: the same with and without them.

A figure is the rate with transactions over the rate without, of one broker in one turn. Both
producers number their batches. The transactional one does what a client does: it adds the
partition, keeps a few requests in flight, ends the transaction when all have a response, and is
told to ask again while its last transaction is completed.
"""

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import mean
from typing import Any

import attrs
from crc32c import crc32c

from benchmarks.brokers import Broker
from benchmarks.fetch import FETCH_BYTES, encode_fetch
from benchmarks.load import LoadError, connect, receive_exactly
from benchmarks.played_members import PATIENCE_S, VERSIONS, encode
from benchmarks.played_producers import AGAIN, AGAIN_S, TIMEOUT_MS, error_codes
from benchmarks.produce import EQUAL, make_batch
from benchmarks.rounds import Rounds, alternate
from benchmarks.table import Row, Wanted
from benchmarks.transactions import create_transactions_topic
from protocol.api import key_of
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.header import read_response
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from protocol.records.batch_header import CRC_AT, CRC_COVERS_FROM, TRANSACTIONAL, read_header
from protocol.special_values import READ_COMMITTED

BATCHES = 100
BATCH_BYTES = 64 * 1024
OUTSTANDING = 2
WRITTEN_BYTES = 64 * 1024 * 1024
SMALL_BATCH_BYTES = 16 * 1024
SMALL_BATCHES = 4
"""Batches of a transaction that is read: as large as one of `BATCH_BYTES`."""
ABORTED_EVERY = 100
TURN_S = 0.25
"""Length of a turn of reading, so that a disturbance of the machine hits both."""

_ALL = 0
"""The isolation level of readers of all data."""

_CRC = struct.Struct(">I")
_ATTRIBUTES_AT = 21
_PRODUCER = struct.Struct(">qhi")
_PRODUCER_AT = 43
_SIZE_BYTES = 4


def measure(brokers: Sequence[Broker], rounds: Rounds, size: int = WRITTEN_BYTES) -> Iterator[Row]:
    """Yield a row for writing and one for reading."""
    for broker in brokers:
        create_transactions_topic(broker)
    with contextlib.ExitStack() as topics:
        writing = [
            partial(_produce, broker, topics.enter_context(broker.create_topic()))
            for broker in brokers
        ]
        (written,) = alternate(writing, rounds)
    question = f"produce 64 KB, 1 × {OUTSTANDING}, in transactions of {BATCHES} batches · without"
    yield Row(question, "with/without", Wanted("≥", 0.9, "of without"), written)

    with contextlib.ExitStack() as topics:
        reading = []
        for broker in brokers:
            topic = topics.enter_context(broker.create_topic())
            offsets = _fill(broker, topic, size)
            reading.append(partial(_fetch, broker, topic, offsets))
        (read,) = alternate(reading, rounds)
    question = f"fetch 1 MB, 1 × 1, committed data, 1 of {ABORTED_EVERY} transactions aborted · all"
    yield Row(question, "committed/all", Wanted("≥", 0.9, "of all"), read)


# ---- writing


@attrs.define(eq=False)
class _Writer:
    """An idempotent producer of partition 0, with a transactional id or without."""

    connection: socket.socket
    topic: str
    transactional_id: str | None
    producer_id: int = -1
    epoch: int = -1
    sequence: int = 0

    def init(self) -> None:
        response = self.ask(
            InitProducerIdRequest(
                transactional_id=self.transactional_id, transaction_timeout_ms=TIMEOUT_MS
            )
        )
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch

    def begin(self) -> None:
        topic = AddPartitionsToTxnTopic(name=self.topic, partitions=[0])
        self.ask(AddPartitionsToTxnRequest(**self._self(), topics=[topic]))

    def end(self, *, is_commit: bool = True) -> None:
        self.ask(EndTxnRequest(**self._self(), committed=is_commit))

    def write(self, batch: bytes, count: int) -> None:
        """Write a batch so often, with OUTSTANDING requests in flight."""
        records = read_header(batch).count
        for number in range(count + OUTSTANDING):
            if number >= OUTSTANDING:
                self._take(ApiKey.PRODUCE)
            if number < count:
                self.connection.sendall(self._encode(batch))
                self.sequence += records

    def _self(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def _encode(self, batch: bytes) -> bytes:
        own = bytearray(batch)
        if self.transactional_id is not None:
            own[_ATTRIBUTES_AT + 1] |= TRANSACTIONAL
        _PRODUCER.pack_into(own, _PRODUCER_AT, self.producer_id, self.epoch, self.sequence)
        _CRC.pack_into(own, CRC_AT, crc32c(memoryview(own)[CRC_COVERS_FROM:]))
        partition = ProduceRequestPartition(index=0, records=bytes(own))
        return encode(
            ProduceRequest(
                transactional_id=self.transactional_id,
                acks=-1,
                timeout_ms=TIMEOUT_MS,
                topic_data=[ProduceRequestTopic(name=self.topic, partition_data=[partition])],
            )
        )

    def ask(self, request: Any) -> Any:
        """Return the response, when it is no longer that the producer is to ask again."""
        ends = time.monotonic() + PATIENCE_S
        while time.monotonic() < ends:
            self.connection.sendall(encode(request))
            response = self._receive(key_of(request))
            errors = set(error_codes(response)) - {ErrorCode.NONE}
            if not errors:
                return response
            if not errors <= set(AGAIN):
                raise LoadError(f"{type(request).__name__} of {self.transactional_id}: {errors}")
            time.sleep(AGAIN_S)
        raise LoadError(f"{type(request).__name__} of {self.transactional_id}: {errors}")

    def _take(self, key: ApiKey) -> None:
        errors = set(error_codes(self._receive(key))) - {ErrorCode.NONE}
        if errors:
            raise LoadError(f"{key.name} of {self.transactional_id}: {errors}")

    def _receive(self, key: ApiKey) -> Any:
        size = int.from_bytes(receive_exactly(self.connection, _SIZE_BYTES), "big")
        return read_response(key, VERSIONS[key], receive_exactly(self.connection, size))[1]


@contextlib.contextmanager
def _writer(broker: Broker, topic: str, transactional_id: str | None) -> Iterator[_Writer]:
    with connect(broker.address) as connection:
        writer = _Writer(connection, topic, transactional_id)
        writer.init()
        yield writer


def _produce(broker: Broker, topic: str, seconds: float) -> tuple[float]:
    """Return the rate in transactions over the rate without: the two take turns."""
    batch, _ = make_batch(BATCH_BYTES, EQUAL)
    with (
        _writer(broker, topic, None) as plain,
        _writer(broker, topic, f"{topic}-writer") as transactional,
    ):

        def transact() -> None:
            transactional.begin()
            transactional.write(batch, BATCHES)
            transactional.end()

        # Short turns, so that a disturbance of the machine hits both.
        transacting_s = writing_s = 0.0
        while transacting_s + writing_s < seconds:
            transacting_s += _time(transact)
            writing_s += _time(lambda: plain.write(batch, BATCHES))
        return (writing_s / transacting_s,)


def _time(work: Callable[[], None]) -> float:
    """Return how many seconds some work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


# ---- reading


def _fill(broker: Broker, topic: str, size: int) -> Sequence[int]:
    """Write transactions of which every ABORTED_EVERYth is aborted.

    Returns offsets of about FETCH_BYTES apart, without those near the end.
    """
    batch, _ = make_batch(SMALL_BATCH_BYTES, EQUAL)
    with _writer(broker, topic, f"{topic}-writer") as writer:
        for number in range(size // (SMALL_BATCHES * SMALL_BATCH_BYTES)):
            writer.begin()
            writer.write(batch, SMALL_BATCHES)
            writer.end(is_commit=number % ABORTED_EVERY != ABORTED_EVERY // 2)
        # The next one begins when the last one has its marker.
        writer.begin()
        writer.end()
    end = broker.read_end_offset(topic)
    step = end * FETCH_BYTES // size
    return range(0, end - 2 * step, step)


def _fetch(broker: Broker, topic: str, offsets: Sequence[int], seconds: float) -> tuple[float]:
    """Return the rate of committed data over that of all data: the two take turns."""
    plans = [
        [encode_fetch(topic, offset, isolation=isolation) for offset in offsets]
        for isolation in (READ_COMMITTED, _ALL)
    ]
    rates: list[list[float]] = [[], []]
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        for plan, of_plan in zip(plans, rates, strict=True):
            driven, _ = broker.drive([plan], 1, TURN_S)
            if driven.bytes_received < driven.responses * FETCH_BYTES * 0.9:
                raise LoadError(f"{broker.name} responds with less than the limit allows")
            of_plan.append(driven.bytes_received / driven.seconds)
    committed, everything = map(mean, rates)
    return (committed / everything,)
