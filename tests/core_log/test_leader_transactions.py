"""Transactions as a leader writes them: batches of producers, markers of coordinators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core_log.appending.appended import LogAppendInfo
from core_log.appending.validator import validate
from core_log.config import LogConfig
from core_log.memory_directory import MemoryDirectory
from core_log.segments.transaction_index import AbortedTransaction, read_transaction_index
from core_log.storage import Directory
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch import decode_batch, encode_batch, read_header
from protocol.records.batch_header import TRANSACTIONAL
from protocol.records.control_record import ABORT, COMMIT, encode_marker
from tests.core_log.conftest import FLIGHTS_0, Writer
from tests.core_log.transactional_batches import expire

Open = Callable[..., Writer]
ALL_REPLICATED = 2**62


def send(writer: Writer, producer_id: int, sequence: int = 0, epoch: int = 0) -> LogAppendInfo:
    """Append one record of a producer's transaction."""
    return writer.append(
        b"%d" % writer.log.log_end_offset + b"." * 100,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        flags=TRANSACTIONAL,
    )


def end(
    writer: Writer, producer_id: int, kind: int, epoch: int = 0, coordinator_epoch: int = 0
) -> LogAppendInfo:
    """Append a marker."""
    marker = encode_marker(
        kind,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp_ms=writer.now_ms,
    )
    header = read_header(marker)
    return writer.log.append(
        marker,
        header,
        leader_epoch=0,
        now_ms=writer.now_ms,
        max_timestamp=header.max_timestamp,
    )


def aborted(directory: Directory) -> list[AbortedTransaction]:
    return [
        transaction
        for name in directory.files()
        if name.endswith(".txnindex")
        for transaction in read_transaction_index(directory, name)
    ]


def run(writer: Writer) -> list[AbortedTransaction]:
    """Write transactions that overlap; return those that are aborted."""
    send(writer, 1)  # 0
    send(writer, 2)  # 1
    end(writer, 1, ABORT)  # 2
    send(writer, 3)  # 3
    send(writer, 1, sequence=1)  # 4
    end(writer, 2, COMMIT)  # 5
    end(writer, 3, ABORT)  # 6
    end(writer, 1, ABORT)  # 7
    send(writer, 4)  # 8
    return [
        AbortedTransaction(1, 0, 2, 1),
        AbortedTransaction(3, 3, 6, 4),
        AbortedTransaction(1, 4, 7, 8),
    ]


@pytest.mark.parametrize("segment_bytes", [2**20, 300])
def test_a_leader_writes_down_what_its_markers_abort(
    directory: Directory, open_log: Open, segment_bytes: int
) -> None:
    writer = open_log(directory, segment_bytes=segment_bytes)
    expected = run(writer)
    assert aborted(directory) == expected
    assert writer.log.aborted_transactions(0, 9) == expected
    assert writer.log.producers.first_unstable_offset(ALL_REPLICATED) == 8


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("segment_bytes", [2**20, 300])
def test_transactions_are_the_same_after_a_restart(
    directory: Directory, open_log: Open, segment_bytes: int, clean: bool
) -> None:
    writer = open_log(directory, segment_bytes=segment_bytes)
    expected = run(writer)
    producers = {key: repr(value.epoch) for key, value in writer.log.producers.producers.items()}
    if clean:
        writer.log.close()

    again = open_log(directory, clean=clean, segment_bytes=segment_bytes)
    assert again.log.aborted_transactions(0, 9) == expected
    assert again.log.producers.first_unstable_offset(ALL_REPLICATED) == 8
    assert producers.keys() == again.log.producers.producers.keys()
    end(again, 4, ABORT)
    assert again.log.aborted_transactions(0, 10) == [*expected, AbortedTransaction(4, 8, 9, 10)]


def test_a_follower_of_ours_has_the_same_files(open_log: Open) -> None:
    disk = MemoryDirectory("logs")
    leader = open_log(disk.child("flights-0"))
    run(leader)
    fetched = leader.log.read(0, 10_000, leader.log.log_end_offset)
    assert fetched is not None
    follower = open_log(disk.child("flights-1"))
    follower.log.append_follower(fetched.read(), now_ms=leader.now_ms)
    leader.log.close()
    follower.log.close()
    for name in leader.log.directory.files():
        if name.endswith((".log", ".txnindex", ".snapshot")):
            assert follower.log.directory.read(name) == leader.log.directory.read(name), name
    assert aborted(follower.log.directory)


def test_a_marker_without_a_transaction_aborts_nothing(
    directory: Directory, open_log: Open
) -> None:
    writer = open_log(directory)
    end(writer, 1, ABORT, epoch=3, coordinator_epoch=2)
    assert aborted(directory) == []
    assert writer.log.producers.producers[1].epoch == 3
    assert refusal(lambda: send(writer, 1, epoch=2)) == ErrorCode.INVALID_PRODUCER_EPOCH
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert refusal(lambda: end(writer, 1, ABORT, epoch=3, coordinator_epoch=1)) == fenced


def refusal(append: Callable[[], Any]) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        append()
    return refused.value.code


def test_a_zombie_is_refused_once_the_marker_of_its_time_out_is_there(
    directory: Directory, open_log: Open
) -> None:
    writer = open_log(directory)
    send(writer, 1)
    end(writer, 1, ABORT, epoch=1)
    assert refusal(lambda: send(writer, 1, sequence=1)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(lambda: end(writer, 1, COMMIT)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(writer, 1, epoch=1).base_offset == 2


def test_a_plain_batch_in_a_transaction_is_refused(directory: Directory, open_log: Open) -> None:
    writer = open_log(directory)
    send(writer, 1)

    def send_plain() -> None:
        writer.append(b"x", producer_id=1, producer_epoch=0, base_sequence=1)

    assert refusal(send_plain) == ErrorCode.INVALID_TXN_STATE
    end(writer, 1, COMMIT)
    send_plain()


def test_a_batch_sent_twice_stays_one_record_of_the_transaction(
    directory: Directory, open_log: Open
) -> None:
    writer = open_log(directory)
    assert [send(writer, 1).base_offset for _ in range(2)] == [0, 0]
    end(writer, 1, COMMIT)
    assert send(writer, 1).base_offset == 0
    assert writer.log.producers.first_unstable_offset(ALL_REPLICATED) is None


def test_a_topic_with_times_of_appends_gives_them_to_markers_too(
    directory: Directory, open_log: Open
) -> None:
    writer = open_log(directory, message_timestamp_type="LogAppendTime", now_ms=777)
    send(writer, 1)
    end(writer, 1, ABORT)
    fetched = writer.log.read(1, 10_000, 2)
    assert fetched is not None
    (marker,) = decode_batch(fetched.read())
    assert marker.timestamp_ms == 777
    assert writer.log.producers.producers[1].last_timestamp == 777


def test_a_truncated_marker_leaves_its_transaction_open(
    directory: Directory, open_log: Open
) -> None:
    writer = open_log(directory)
    send(writer, 1)
    end(writer, 1, ABORT)
    writer.log.truncate_to(1)
    assert aborted(directory) == []
    assert writer.log.producers.first_unstable_offset(ALL_REPLICATED) == 0
    end(writer, 1, COMMIT)
    assert aborted(directory) == []
    assert writer.log.producers.first_unstable_offset(ALL_REPLICATED) is None


def test_an_open_transaction_is_remembered_however_long_it_is_silent(
    directory: Directory, open_log: Open
) -> None:
    writer = open_log(directory)
    send(writer, 1)
    send(writer, 2)
    end(writer, 2, COMMIT)
    producers = writer.log.producers
    assert expire(producers, writer.now_ms + 10**12, 1000) == 1
    assert list(producers.producers) == [1]


@pytest.mark.parametrize("clean", [True, False])
def test_a_reader_hears_only_of_transactions_near_what_it_reads(
    memory: MemoryDirectory, open_log: Open, clean: bool
) -> None:
    directory = memory.child("flights-0")
    writer = open_log(directory, index_interval_bytes=0)
    for producer_id in range(100):
        send(writer, producer_id)
        end(writer, producer_id, ABORT)
    if clean:
        writer.log.close()
        writer = open_log(directory, index_interval_bytes=0)

    log = writer.log
    fetched = log.read(100, 400, log.log_end_offset)
    assert fetched is not None
    header = read_header(fetched.read())
    assert header.base_offset == 100
    near = log.aborted_transactions(100, log.log_end_offset, fetched)
    assert near[0].producer_id == 50
    assert len(near) < 5
    assert len(log.aborted_transactions(100, log.log_end_offset)) == 50


def test_a_batch_of_a_transaction_is_kept_as_one_when_a_topic_compresses() -> None:
    batch = encode_batch(
        [(0, None, b"x", ())],
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        flags=TRANSACTIONAL,
    )
    valid = validate(
        FLIGHTS_0, batch, LogConfig(compression_type="gzip"), zstd_allowed=True, now_ms=0
    )
    assert valid.header.is_transactional
    assert valid.header.attributes & 7
