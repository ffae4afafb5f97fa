"""Play transactional producers by raw requests, the same ones to either broker.

A producer has a connection with one request at a time, on which it asks for all: one broker leads
what it writes, and has its coordinator and its group's. It does what a client does, and is told to
ask again while its last transaction is completed.
"""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import attrs

from benchmarks.load import LoadError
from benchmarks.played_members import VERSIONS, Line, Lines
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
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
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.records.batch import encode_batch
from protocol.records.batch_header import TRANSACTIONAL

VERSIONS.update(
    {
        ApiKey.PRODUCE: 7,
        ApiKey.INIT_PRODUCER_ID: 1,
        ApiKey.ADD_PARTITIONS_TO_TXN: 1,
        ApiKey.ADD_OFFSETS_TO_TXN: 1,
        ApiKey.END_TXN: 1,
        ApiKey.TXN_OFFSET_COMMIT: 2,
    }
)
TIMEOUT_MS = 60_000
AGAIN_S = 0.001
"""Pause of a producer that is told to ask again."""
AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
TIME_MS = 1_700_000_000_000


@attrs.define(eq=False)
class PlayedProducer:
    """A producer of one transactional id, which writes to partitions of one topic."""

    name: str
    line: Line
    lines: Lines
    topic: str
    producer_id: int = -1
    epoch: int = -1
    transactions: int = 0
    commit_s: list[float] = attrs.field(factory=list)
    """Seconds from each EndTxn to its response."""
    is_stopped: bool = False
    is_idle: bool = False
    _sequences: dict[int, int] = attrs.field(factory=dict)

    # ---- requests

    def init(self, then: Callable[[], None]) -> None:
        """Ask for an id and an epoch."""

        def given(response: Any) -> None:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self._sequences.clear()
            then()

        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=TIMEOUT_MS
        )
        self._ask(request, given)

    def add(self, partitions: Sequence[int], then: Callable[[], None]) -> None:
        """Add partitions to the transaction."""
        topic = AddPartitionsToTxnTopic(name=self.topic, partitions=partitions)
        self._ask(AddPartitionsToTxnRequest(**self._self(), topics=[topic]), lambda _: then())

    def write(
        self, rows: dict[int, Sequence[bytes]], then: Callable[[], None], *, acks: int = -1
    ) -> None:
        """Write values to partitions, in one request."""
        request = ProduceRequest(
            transactional_id=self.name,
            acks=acks,
            timeout_ms=TIMEOUT_MS,
            topic_data=[
                ProduceRequestTopic(
                    name=self.topic,
                    partition_data=[
                        ProduceRequestPartition(
                            index=partition, records=self._batch(partition, values)
                        )
                        for partition, values in rows.items()
                    ],
                )
            ],
        )
        self._ask(request, lambda _: then())

    def commit_offset(self, group: str, offset: int, then: Callable[[], None]) -> None:
        """Commit an offset of partition 0 with the transaction."""
        partition = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        commit = TxnOffsetCommitRequest(
            **self._self(),
            group_id=group,
            topics=[TxnOffsetCommitRequestTopic(name=self.topic, partitions=[partition])],
        )
        add = AddOffsetsToTxnRequest(**self._self(), group_id=group)
        self._ask(add, lambda _: self._ask(commit, lambda _: then()))

    def end(self, then: Callable[[], None], *, is_commit: bool = True) -> None:
        """Commit, or abort."""
        began = time.perf_counter()

        def ended(_: Any) -> None:
            self.transactions += 1
            self.commit_s.append(time.perf_counter() - began)
            then()

        self._ask(EndTxnRequest(**self._self(), committed=is_commit), ended)

    def _self(self) -> dict[str, Any]:
        return {
            "transactional_id": self.name,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def _batch(self, partition: int, values: Sequence[bytes]) -> bytes:
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + len(values)
        return encode_batch(
            [(TIME_MS, None, value, ()) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            flags=TRANSACTIONAL,
        )

    def _ask(self, request: Any, then: Callable[[Any], None]) -> None:
        def take(response: Any) -> None:
            errors = set(error_codes(response)) - {ErrorCode.NONE}
            if not errors:
                then(response)
            elif errors <= set(AGAIN):
                again = partial(self._ask, request, then)
                self.lines.at(time.monotonic() + AGAIN_S, again)
            else:
                raise LoadError(f"{type(request).__name__} of {self.name}: {errors}")

        self.line.ask(request, take)


def error_codes(response: Any) -> Iterator[ErrorCode]:
    """Go through all error codes of a response."""
    if hasattr(response, "error_code"):
        yield ErrorCode.of(response.error_code)
    for field in attrs.fields(type(response)):
        value = getattr(response, field.name)
        for nested in value if isinstance(value, (list, tuple)) else ():
            if attrs.has(type(nested)):
                yield from error_codes(nested)


def new_producers(lines: Lines, topic: str, number: int) -> list[PlayedProducer]:
    """Return producers with an id each."""
    producers = [
        PlayedProducer(f"{topic}-{next(_numbers)}", lines.open(), lines, topic)
        for _ in range(number)
    ]
    ready: list[PlayedProducer] = []
    for producer in producers:
        producer.init(partial(ready.append, producer))
    lines.run(lambda: len(ready) == number)
    return producers


_numbers = itertools.count()
