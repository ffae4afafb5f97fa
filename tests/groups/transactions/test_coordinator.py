"""The transaction coordinator over a log in memory: where an id is kept, loading, and times."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count

import pytest

from groups.runtime.memory_partition_log import MemoryPartitionLog
from groups.transactions.config import TransactionsConfig
from groups.transactions.coordinator import SLICE, TransactionCoordinator
from groups.transactions.decide import RETRY_MS
from groups.transactions.events import (
    AddPartitions,
    EndTransaction,
    InitProducer,
    SendMarkers,
)
from groups.transactions.records import encode_transaction, encode_transaction_key
from groups.transactions.state import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    ONGOING,
    PREPARE_COMMIT,
    Transaction,
)
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch import encode_batch
from protocol.topic_partition import TopicPartition
from tests.stage.clock import VirtualTimeLoop

NOW_MS = 1_700_000_000_000
PARTITIONS = 50
# As Java's hash has it.
IN_10, IN_31 = "txn-1", "test-txn"
CONFIG = TransactionsConfig(max_timeout_ms=900_000, id_expiration_ms=86_400_000)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Stage:
    """A coordinator on a loop in virtual time."""

    def __init__(self, log: MemoryPartitionLog, loop: VirtualTimeLoop) -> None:
        self.log = log
        self.loop = loop
        self.sent: list[SendMarkers] = []
        self.producer_ids: Iterator[int | None] = count(4000)
        self.coordinator = TransactionCoordinator(
            log,
            CONFIG,
            num_partitions=lambda: PARTITIONS,
            take_producer_id=lambda: next(self.producer_ids),
            now_ms=lambda: NOW_MS + int(loop.time() * 1000),
            spawn=loop.create_task,
            on_decided=self.sent.append,
        )

    def lead(self, *partitions: int) -> Stage:
        self.coordinator.on_leadership(set(partitions), set())
        return self.run()

    def run(self, seconds: float = 0.001) -> Stage:
        self.loop.run_until_complete(asyncio.sleep(seconds))
        return self

    def init(self, name: str = IN_10, timeout_ms: int = 60_000) -> tuple[int, int]:
        request_id = self.coordinator.next_request_id()
        given = self.coordinator.init_producer(InitProducer(request_id, name, timeout_ms)).response
        assert given.error is ErrorCode.NONE
        return given.producer_id, given.epoch

    def begin(self, name: str = IN_10, timeout_ms: int = 60_000) -> tuple[int, int]:
        producer_id, epoch = self.init(name, timeout_ms)
        request_id = self.coordinator.next_request_id()
        event = AddPartitions(request_id, name, producer_id, epoch, frozenset({T0}))
        assert self.coordinator.submit(event).response.error is ErrorCode.NONE
        return producer_id, epoch

    def commit(self, producer_id: int, epoch: int, name: str = IN_10) -> None:
        request_id = self.coordinator.next_request_id()
        event = EndTransaction(request_id, name, producer_id, epoch, True)
        assert self.coordinator.submit(event).response.error is ErrorCode.NONE

    def state(self, name: str = IN_10) -> Transaction:
        return self.coordinator.describe(name)

    def refusal(self, name: str = IN_10) -> ErrorCode:
        try:
            self.coordinator.describe(name)
        except ApiError as error:
            return error.code
        return ErrorCode.NONE


@pytest.fixture
def loop() -> Iterator[VirtualTimeLoop]:
    loop = VirtualTimeLoop()
    yield loop
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


@pytest.fixture
def stage(loop: VirtualTimeLoop) -> Stage:
    return Stage(MemoryPartitionLog(), loop).lead(10, 31)


def with_records(loop: VirtualTimeLoop, partition: int, *records: tuple[str, Transaction]) -> Stage:
    log = MemoryPartitionLog()
    for name, transaction in records:
        row = (NOW_MS, encode_transaction_key(name), encode_transaction(transaction), ())
        log.append(partition, encode_batch([row]), NOW_MS)
    return Stage(log, loop)


# ---- where


def test_an_id_is_kept_where_kafka_keeps_it(loop: VirtualTimeLoop) -> None:
    stage = Stage(MemoryPartitionLog(), loop).lead(10)
    stage.init(IN_10)
    assert stage.refusal(IN_31) is ErrorCode.NOT_COORDINATOR
    assert stage.log.partition(10).batches


def test_it_is_refused_while_its_partition_is_loaded(loop: VirtualTimeLoop) -> None:
    stage = Stage(MemoryPartitionLog(), loop)
    stage.coordinator.on_leadership({10}, set())
    assert stage.refusal() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(ApiError, match="__transaction_state-10"):
        list(stage.coordinator.transactions())
    stage.run()
    assert stage.refusal() is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert list(stage.coordinator.transactions()) == []


@pytest.mark.parametrize(
    ("name", "timeout_ms", "error"),
    [
        ("", 1000, ErrorCode.INVALID_REQUEST),
        (IN_10, 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (IN_10, -1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (IN_10, CONFIG.max_timeout_ms + 1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("elsewhere", 1000, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_what_cannot_be_is_refused(
    stage: Stage, name: str, timeout_ms: int, error: ErrorCode
) -> None:
    with pytest.raises(ApiError) as refused:
        stage.init(name, timeout_ms)
    assert refused.value.code is error


def test_a_producer_asks_again_while_no_producer_id_is_at_hand(stage: Stage) -> None:
    stage.producer_ids = iter([None, 5000])
    with pytest.raises(ApiError) as refused:
        stage.init()
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert stage.init() == (5000, 0)


# ---- loading


def test_the_next_coordinator_has_what_the_last_one_acknowledged(stage: Stage) -> None:
    producer_id, epoch = stage.begin()
    other = Stage(stage.log, stage.loop).lead(10)
    assert other.state() == stage.state()
    other.commit(producer_id, epoch)
    assert other.state().state is PREPARE_COMMIT


def test_the_next_coordinator_sends_markers_of_what_is_decided(loop: VirtualTimeLoop) -> None:
    decided = Transaction(1, 0, 1000, PREPARE_COMMIT, frozenset({T0}), NOW_MS, NOW_MS)
    others = [(f"other-{number}", Transaction(2, 0, 1000)) for number in range(SLICE)]
    stage = with_records(loop, 10, *others, (IN_10, decided)).lead(10)
    assert [sent.marker.transactional_id for sent in stage.sent] == [IN_10]
    assert stage.coordinator.wants(stage.sent[0].marker)

    stage.coordinator.note_markers(stage.sent[0].marker, [T0])
    assert stage.state().state is COMPLETE_COMMIT
    assert not stage.coordinator.wants(stage.sent[0].marker)


def test_a_transaction_that_is_being_ended_is_described_with_what_has_no_marker_yet(
    loop: VirtualTimeLoop,
) -> None:
    partitions = frozenset({T0, T1})
    decided = Transaction(1, 0, 1000, PREPARE_COMMIT, partitions, NOW_MS, NOW_MS)
    stage = with_records(loop, 10, (IN_10, decided)).lead(10)
    assert stage.state().partitions == {T0, T1}
    stage.coordinator.note_markers(stage.sent[0].marker, [T0])
    assert stage.state().partitions == {T1}


def test_an_end_that_could_not_be_written_is_counted_until_it_is(stage: Stage) -> None:
    stage.commit(*stage.begin())
    stage.log.fail(10, ErrorCode.NOT_ENOUGH_REPLICAS)
    stage.loop.call_soon(stage.coordinator.note_markers, stage.sent[0].marker, [T0])
    stage.run()
    assert stage.coordinator.count_ends_to_write_again() == 1
    stage.log.fail(10, None)
    stage.run(RETRY_MS / 1000)
    assert stage.state().state is COMPLETE_COMMIT
    assert stage.coordinator.count_ends_to_write_again() == 0


def test_a_coordinator_that_was_replaced_wants_no_markers(stage: Stage) -> None:
    stage.commit(*stage.begin())
    marker = stage.sent[0].marker
    stage.coordinator.on_leadership(set(), {10})
    assert not stage.coordinator.wants(marker)
    stage.coordinator.note_markers(marker, [T0])
    assert stage.refusal() is ErrorCode.NOT_COORDINATOR


def test_a_request_ends_with_the_leadership(loop: VirtualTimeLoop) -> None:
    stage = Stage(MemoryPartitionLog(replicas=3), loop).lead(10)
    request_id = stage.coordinator.next_request_id()
    pending = stage.coordinator.init_producer(InitProducer(request_id, IN_10, 1000))
    assert pending.response is None
    stage.coordinator.on_leadership(set(), {10})
    assert pending.response.error is ErrorCode.NOT_COORDINATOR


def test_a_log_that_cannot_be_read_is_not_served(loop: VirtualTimeLoop) -> None:
    log = MemoryPartitionLog()
    row = (NOW_MS, encode_transaction_key(IN_10), b"\x00\x07what is this", ())
    log.append(10, encode_batch([row]), NOW_MS)
    stage = Stage(log, loop).lead(10)
    assert stage.refusal() is ErrorCode.COORDINATOR_NOT_AVAILABLE


# ---- times


def test_a_transaction_that_is_open_for_too_long_is_aborted(stage: Stage) -> None:
    producer_id, epoch = stage.begin(timeout_ms=2000)
    stage.begin(IN_31, timeout_ms=60_000)
    stage.run(1.9)
    stage.loop.run_until_complete(stage.coordinator.abort_timed_out())
    assert stage.state().state is ONGOING

    stage.run(0.2)
    stage.loop.run_until_complete(stage.coordinator.abort_timed_out())
    stage.coordinator.note_markers(stage.sent[0].marker, [T0])
    assert stage.state().state is COMPLETE_ABORT
    assert stage.state().epoch == epoch + 1
    assert stage.state(IN_31).state is ONGOING
    assert stage.init() == (producer_id, epoch + 2)


def test_a_transaction_that_a_stock_broker_began_a_year_ago_is_aborted(
    loop: VirtualTimeLoop,
) -> None:
    year_ago = NOW_MS - 365 * 86_400_000
    old = Transaction(1, 0, 60_000, ONGOING, frozenset({T0}), year_ago, year_ago)
    stage = with_records(loop, 10, (IN_10, old)).lead(10)
    loop.run_until_complete(stage.coordinator.abort_timed_out())
    assert not stage.sent[0].marker.is_commit


def test_ids_expire_by_the_setting(stage: Stage) -> None:
    stage.init(IN_10)
    stage.run(1)
    stage.init(IN_31)
    stage.run(CONFIG.id_expiration_ms / 1000 - 1)
    loop = stage.loop
    loop.run_until_complete(stage.coordinator.expire_ids())
    assert [name for name, _ in stage.coordinator.transactions()] == [IN_31]
