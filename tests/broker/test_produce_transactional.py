"""Produce by transactional producers, and what readers of committed data see of it."""

from __future__ import annotations

from typing import Any

import pytest

from broker.handlers import list_offsets, produce
from broker.network.dispatch import Close
from broker.network.purgatory import Wait
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)
from protocol.messages.produce import ProduceRequest
from protocol.records.batch import encode_batch
from protocol.records.batch_header import CONTROL
from protocol.special_values import LATEST_TIME, READ_COMMITTED
from tests.broker.fetch_requests import T0, handle, parts, request, values
from tests.broker.produce_requests import codes
from tests.broker.replication.replicas import NOW_MS, Replicas, context, follower_at
from tests.broker.transactions import (
    P,
    in_transaction,
    marker,
    marker_codes,
    produce_request,
    write_markers,
)
from tests.stage.clock import run_in_virtual_time
from tests.stage.coordinator import coordinator_of_nothing

NOBODY = coordinator_of_nothing()


def send(replicas: Replicas, produce_request: ProduceRequest, version: int = 7) -> Any:
    return produce.handle(
        replicas.manager, replicas.cache, replicas.deferred, produce_request, context(version)
    )


def sent(replicas: Replicas, *values: bytes, sequence: int = 0, producer_id: int = P) -> None:
    records = in_transaction(*values, sequence=sequence, producer_id=producer_id)
    assert codes(send(replicas, produce_request(records, acks=1))) == [ErrorCode.NONE]


def ended(replicas: Replicas, *, commits: bool, producer_id: int = P) -> None:
    end = marker(T0, commits=commits, producer_id=producer_id)
    assert marker_codes(write_markers(replicas, NOBODY, end)) == [ErrorCode.NONE]


def read(replicas: Replicas, offset: int = 0) -> Any:
    """What a reader of committed data gets."""
    (part,) = parts(handle(replicas, request((T0, offset), isolation=READ_COMMITTED)))
    return part


def latest(replicas: Replicas, timestamp: int = LATEST_TIME) -> int:
    part = ListOffsetsRequestPartition(partition_index=0, timestamp=timestamp)
    asked: Any = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=READ_COMMITTED,
        topics=[ListOffsetsRequestTopic(name="t", partitions=[part])],
    )
    response: Any = list_offsets.handle(
        replicas.manager, replicas.cache, replicas.deferred, 1000, asked, context(5)
    )
    return int(response.topics[0].partitions[0].offset)


@pytest.mark.parametrize("version", [3, 7, 9])
def test_committed_data_are_read_when_the_marker_is_there(version: int) -> None:
    replicas = Replicas().lead("t")
    response = send(replicas, produce_request(in_transaction(b"a", b"b")), version)
    assert codes(response) == [ErrorCode.NONE]
    part = read(replicas)
    assert (values(part), part.last_stable_offset, part.high_watermark) == ([], 0, 2)
    assert part.aborted_transactions == []
    assert (latest(replicas), latest(replicas, NOW_MS)) == (0, -1)

    ended(replicas, commits=True)
    part = read(replicas)
    assert (values(part), part.last_stable_offset) == ([b"a", b"b"], 3)
    assert part.aborted_transactions == []
    assert (latest(replicas), latest(replicas, NOW_MS)) == (3, 0)


def test_aborted_data_are_named_with_what_is_read() -> None:
    replicas = Replicas().lead("t")
    sent(replicas, b"a")
    ended(replicas, commits=False)
    sent(replicas, b"c", sequence=1)
    ended(replicas, commits=True)
    part = read(replicas)
    assert [(t.producer_id, t.first_offset) for t in part.aborted_transactions] == [(P, 0)]
    assert read(replicas, 2).aborted_transactions == []


def test_a_parked_reader_is_woken_by_the_marker() -> None:
    replicas = Replicas().lead("t")
    sent(replicas, b"a")
    waiting = request((T0, 0), max_wait_ms=500, isolation=READ_COMMITTED)
    wait = handle(replicas, waiting)
    assert isinstance(wait, Wait)
    responses: list[Any] = []

    async def play() -> None:
        replicas.purgatory.park(wait, responses.append)
        sent(replicas, b"b", sequence=1)
        assert responses == []
        ended(replicas, commits=True)

    run_in_virtual_time(play())
    (part,) = parts(responses[0])
    assert values(part) == [b"a", b"b"]


def test_a_transaction_is_read_once_its_marker_is_replicated() -> None:
    replicas = Replicas().lead("t", isr=(0, 1), replicas=(0, 1))
    sent(replicas, b"a")
    end = write_markers(replicas, NOBODY, marker(T0))
    assert isinstance(end, Wait)
    follower_at(replicas, T0, 1)
    part = read(replicas)
    assert (part.high_watermark, part.last_stable_offset, values(part)) == (1, 0, [])
    assert end.try_complete(False) is None

    follower_at(replicas, T0, 2)
    assert marker_codes(end.try_complete(False)) == [ErrorCode.NONE]
    part = read(replicas)
    assert (part.last_stable_offset, values(part)) == (2, [b"a"])


FENCED = ErrorCode.INVALID_PRODUCER_EPOCH
NO_ID = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_transactional_batch_needs_a_transactional_id() -> None:
    replicas = Replicas().lead("t")
    without = produce_request(in_transaction(b"a"), transactional_id=None)
    assert codes(send(replicas, without)) == [NO_ID]
    unacknowledged = produce_request(in_transaction(b"a"), transactional_id=None, acks=0)
    assert isinstance(send(replicas, unacknowledged), Close)
    assert replicas.manager.log(T0).log_end_offset == 0


def test_a_plain_batch_may_come_with_a_transactional_id() -> None:
    replicas = Replicas().lead("t")
    assert codes(send(replicas, produce_request(encode_batch([(0, None, b"a", ())])))) == [
        ErrorCode.NONE
    ]


def test_a_producer_of_an_older_epoch_is_fenced_and_a_plain_batch_waits_for_the_end() -> None:
    replicas = Replicas().lead("t")
    records = in_transaction(b"a", epoch=1)
    assert codes(send(replicas, produce_request(records))) == [ErrorCode.NONE]
    assert codes(send(replicas, produce_request(in_transaction(b"z")))) == [FENCED]
    plain = encode_batch([(0, None, b"b", ())], producer_id=P, producer_epoch=1, base_sequence=1)
    assert codes(send(replicas, produce_request(plain))) == [ErrorCode.INVALID_TXN_STATE]


@pytest.mark.parametrize(
    "records",
    [
        in_transaction(b"a", flags=CONTROL),
        in_transaction(b"a", sequence=-1),
    ],
    ids=["marker", "unnumbered"],
)
def test_a_client_writes_no_markers(records: bytes) -> None:
    replicas = Replicas().lead("t")
    assert codes(send(replicas, produce_request(records))) == [ErrorCode.INVALID_RECORD]


def test_records_deleted_below_an_open_transaction_hold_nobody() -> None:
    replicas = Replicas().lead("t")
    sent(replicas, b"a")
    sent(replicas, b"b", producer_id=P + 1)
    ended(replicas, commits=True, producer_id=P + 1)
    replicas.manager.log(T0).increment_log_start_offset(2)
    assert replicas.manager.partition(T0).last_stable_offset == 2
    ended(replicas, commits=False)
    part = read(replicas, 2)
    assert part.last_stable_offset == 4
    assert [(t.producer_id, t.first_offset) for t in part.aborted_transactions] == [(P, 0)]
