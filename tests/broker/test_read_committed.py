"""Consumers of committed data, in logs with transactions that have ended and that are open."""

from __future__ import annotations

from typing import Any

import pytest

from broker.handlers import list_offsets
from broker.network.purgatory import Wait
from core_log.appending.batch_stamp import stamp
from protocol.messages.fetch import FetchResponsePartition
from protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from protocol.records.batch import encode_batch, read_header
from protocol.records.batch_header import CONTROL, TRANSACTIONAL
from tests.broker.fetch_requests import T0, handle, parts, request, values
from tests.broker.replication.replicas import NOW_MS, Replicas, context

COMMITTED = 1


def written(replicas: Replicas, producer_id: int, *, marker: bool = False) -> None:
    """One transactional record, or the marker that ends the transaction."""
    log = replicas.manager.log(T0)
    batch = encode_batch(
        [(5, b"\0\0\0\0", b"\0\0\0\0\0\0" if marker else b"%d" % log.log_end_offset, ())],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=-1 if marker else 0,
    )
    attributes = TRANSACTIONAL | (CONTROL if marker else 0)
    buffers = stamp(batch, read_header(batch), log.log_end_offset, 0, attributes, 5)
    log.append_follower(b"".join(buffers), now_ms=NOW_MS)
    replicas.manager.partition(T0).advance_high_watermark(NOW_MS)


def transactions(replicas: Replicas) -> Replicas:
    """Offset 0: of producer 7, aborted at 2; 1: of 8, aborted at 3; 4: of 9, which is open."""
    for producer_id, marker in ((7, False), (8, False), (7, True), (8, True), (9, False)):
        written(replicas, producer_id, marker=marker)
    return replicas


def fetched(replicas: Replicas, offset: int, isolation: int = COMMITTED) -> FetchResponsePartition:
    read_request = request((T0, offset), isolation=isolation)
    (part,) = parts(handle(replicas, read_request))
    assert not part.error_code
    return part


def named(part: FetchResponsePartition) -> list[tuple[int, int]] | None:
    aborted = part.aborted_transactions
    return (
        None
        if aborted is None
        else [(transaction.producer_id, transaction.first_offset) for transaction in aborted]
    )


def test_a_reader_of_committed_data_stops_before_what_is_open_and_hears_what_was_aborted() -> None:
    part = fetched(transactions(Replicas().lead("t")), 0)
    assert (part.high_watermark, part.last_stable_offset) == (5, 4)
    assert values(part) == [b"0", b"1"]
    assert named(part) == [(7, 0), (8, 1)]


def test_what_ended_before_the_offset_is_not_named() -> None:
    assert named(fetched(transactions(Replicas().lead("t")), 3)) == [(8, 1)]


def test_any_other_reader_gets_all_and_hears_of_no_transaction() -> None:
    part = fetched(transactions(Replicas().lead("t")), 0, isolation=0)
    assert values(part) == [b"0", b"1", b"4"]
    assert (part.last_stable_offset, named(part)) == (4, None)


def test_a_reader_at_an_open_transaction_waits_until_it_ends() -> None:
    replicas = transactions(Replicas().lead("t"))
    read_request = request((T0, 4), max_wait_ms=500, isolation=COMMITTED)
    wait = handle(replicas, read_request)
    assert isinstance(wait, Wait)
    assert wait.try_complete(False) is None
    written(replicas, 9, marker=True)
    (part,) = parts(wait.try_complete(False))
    assert (values(part), part.last_stable_offset) == ([b"4"], 6)


def test_an_open_transaction_below_the_logs_start_holds_nobody_back() -> None:
    replicas = Replicas().lead("t")
    written(replicas, 7)
    written(replicas, 8, marker=True)
    replicas.manager.log(T0).increment_log_start_offset(2)
    assert replicas.manager.partition(T0).last_stable_offset == 2


@pytest.mark.parametrize(("isolation", "latest"), [(0, 5), (COMMITTED, 4)])
def test_the_latest_offset_is_the_one_the_reader_may_reach(isolation: int, latest: int) -> None:
    replicas = transactions(Replicas().lead("t"))
    part = ListOffsetsRequestPartition(partition_index=0, timestamp=list_offsets.LATEST_TIME)
    read_request: Any = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsRequestTopic(name="t", partitions=[part])],
    )
    response = list_offsets.handle(
        replicas.manager, replicas.cache, replicas.deferred, 1000, read_request, context(5)
    )
    assert isinstance(response, ListOffsetsResponse)
    assert response.topics[0].partitions[0].offset == latest
