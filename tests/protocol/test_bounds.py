"""All readers of a log can read what a leader accepts; anything larger is refused at once."""

from __future__ import annotations

import tracemalloc

import pytest

from broker.kbroker.log.entries import read_entries
from broker.kbroker.log.records import read_records
from broker.settings.config import BrokerConfig
from clients.high_level.config import ConsumerConfig
from core_log.appending.message_validator import validate_set
from core_log.appending.validator import ValidBatch, check_size, validate
from core_log.config import LogConfig
from core_log.log_manager import LogManager
from core_log.memory_directory import MemoryDirectory
from protocol.api_key import ApiKey
from protocol.bounds import (
    MAX_ARRAY_BYTES,
    MAX_BATCH_BYTES,
    MAX_DECOMPRESSED_BYTES,
    MAX_FRAME_BYTES,
    MAX_PRODUCED_BYTES,
)
from protocol.encoding import decode
from protocol.errors import ApiError, ErrorCode
from protocol.header import encode_request, read_request, read_request_header
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.primitives import WireError
from protocol.records.batch import HEADER_BYTES, Codec, decode_records, encode_batch, read_header
from protocol.records.compression import compress, decompress
from protocol.records.convert import down_convert
from protocol.records.corrupt_record import CorruptRecord, RecordsTooLarge
from protocol.records.legacy import encode_messages, entry_size
from protocol.records.record_walk import SMALLEST_RECORD
from protocol.records.room import Room
from protocol.topic_partition import TopicPartition
from tests.compaction.partition import Partition

T0 = TopicPartition("t", 0)
NOW_MS = 1_400_000_000_000
ROOMY = LogConfig(max_message_bytes=MAX_ARRAY_BYTES)
PACKING = LogConfig(max_message_bytes=MAX_ARRAY_BYTES, compression_type="lz4")

Record = tuple[int, bytes | None, bytes | None, tuple[()]]


def record(value: bytes) -> Record:
    return NOW_MS, b"k", value, ()


def packed(body_bytes: int) -> bytes:
    """A small batch in lz4, whose only record comes to so many bytes, a few million at least."""
    some = bytes(2**21)
    around = len(encode_batch([record(some)])) - HEADER_BYTES - len(some)
    return encode_batch([record(bytes(body_bytes - around))], codec=Codec.LZ4)


def checked(batch: bytes, config: LogConfig = ROOMY) -> ValidBatch:
    return validate(T0, batch, config, zstd_allowed=True, now_ms=NOW_MS)


@pytest.fixture(scope="module")
def largest() -> bytes:
    """The largest batch that a leader accepts, seen from outside."""
    return bytes(checked(packed(MAX_PRODUCED_BYTES)).data)


# --- readers ----------------------------------------------------------------------------------


def test_readers_allow_no_less_than_writers_write() -> None:
    growth = entry_size(1, None, None) / SMALLEST_RECORD  # where records become old messages
    assert MAX_PRODUCED_BYTES * growth <= MAX_DECOMPRESSED_BYTES
    assert MAX_BATCH_BYTES < MAX_FRAME_BYTES <= MAX_DECOMPRESSED_BYTES <= MAX_ARRAY_BYTES


def test_responses_of_brokers_with_default_settings_fit_in_a_frame() -> None:
    broker, consumer = (
        BrokerConfig(zookeeper_connect="localhost"),
        ConsumerConfig(zookeeper_connect="localhost", group_id="g"),
    )
    assert broker.socket_request_max_bytes <= MAX_PRODUCED_BYTES
    for asked_for in (
        broker.fetch_max_bytes,
        broker.replica_fetch_response_max_bytes,
        consumer.fetch_max_bytes,
    ):
        assert asked_for <= MAX_BATCH_BYTES


def test_largest_batch_is_read_by_a_consumer(largest: bytes) -> None:
    (read,) = decode_records(largest)
    assert read.key == b"k"


@pytest.mark.parametrize("magic", [0, 1])
def test_largest_batch_is_converted_for_an_old_reader(largest: bytes, magic: int) -> None:
    ((end, messages),) = down_convert(largest, magic)
    assert end == len(largest)
    (read,) = decode_records(messages)
    assert read.key == b"k"


def test_largest_batch_is_read_where_a_time_is_looked_up(largest: bytes) -> None:
    logs = LogManager([MemoryDirectory("data")], ROOMY, lambda: NOW_MS)
    logs.load()
    log = logs.get_or_create(T0, ROOMY)
    log.append(largest, read_header(largest), leader_epoch=0, now_ms=NOW_MS, max_timestamp=NOW_MS)
    found = log.offset_for_timestamp(NOW_MS - 1)
    assert found is not None
    assert found.offset == 0


def test_largest_batch_is_opened_by_the_cleaner() -> None:
    partition = Partition()
    partition.append_bytes(packed(MAX_PRODUCED_BYTES), 0)
    partition.append((b"k", b"newer"))
    partition.roll()
    assert partition.clean().statistics.unopened_batches == 0
    assert partition.pairs() == [(b"k", b"newer")]


def test_largest_batch_is_shown_by_dump(largest: bytes) -> None:
    file = MemoryDirectory("data").open_segment("0.log")
    file.append([largest])
    (entry,) = read_entries(file)
    (read,) = read_records(entry)
    assert read.key == b"k"


# --- what would be too large ------------------------------------------------------------------


def test_batch_whose_records_come_to_more_is_too_large_not_corrupt() -> None:
    with pytest.raises(ApiError, match=f"than the {MAX_PRODUCED_BYTES} bytes") as refused:
        checked(packed(MAX_PRODUCED_BYTES + 1))
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_batch_that_no_frame_could_carry_is_refused_whatever_the_topic_allows() -> None:
    check_size(T0, MAX_BATCH_BYTES, ROOMY)
    with pytest.raises(ApiError, match=f"no more than {MAX_BATCH_BYTES}") as refused:
        check_size(T0, MAX_BATCH_BYTES + 1, ROOMY)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_nothing_is_compressed_that_nobody_would_decompress() -> None:
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        with pytest.raises(RecordsTooLarge, match=f"than the {MAX_DECOMPRESSED_BYTES} bytes"):
            compress(codec, bytes(MAX_DECOMPRESSED_BYTES + 1))


def test_plain_messages_that_the_broker_compresses_are_put_into_batches_that_can_be_read() -> None:
    third = bytes(MAX_PRODUCED_BYTES // 3)
    messages = encode_messages([(n, NOW_MS, b"k", third, ()) for n in range(4)], 1)
    batches = validate_set(
        T0, messages, PACKING, next_offset=0, now_ms=NOW_MS, room=Room(MAX_PRODUCED_BYTES)
    )
    assert len(batches) == 2
    assert all(isinstance(batch, ValidBatch) and checked(bytes(batch.data)) for batch in batches)


# --- room for what is decompressed ------------------------------------------------------------


def test_lz4_blocks_that_claim_to_be_large_take_no_more_room_than_they_can_fill() -> None:
    stored = (5 | 1 << 31).to_bytes(4, "little") + b"short"
    frame = bytes.fromhex("04224d18607073") + 31 * stored + bytes(4)

    tracemalloc.start()
    assert decompress(Codec.LZ4, frame) == 31 * b"short"
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak_bytes < 1000 * len(frame)

    # Nor do they count for more where they are damaged.
    damaged = (5).to_bytes(4, "little") + b"\xff" * 5
    room = Room(MAX_PRODUCED_BYTES)
    with pytest.raises(CorruptRecord):
        decompress(Codec.LZ4, frame[:-4] + damaged + bytes(4), room)
    assert MAX_PRODUCED_BYTES - room.left < 1000 * len(frame)


# ---- requests


def commit_of(*partitions: int) -> bytes:
    """A request to commit offsets of topics with so many partitions each."""
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=""
    )
    topics = [
        OffsetCommitRequestTopic(name="t", partitions=[partition] * count) for count in partitions
    ]
    request = OffsetCommitRequest(group_id="g", topics=topics)
    return encode_request(ApiKey.OFFSET_COMMIT, 2, 1, None, request)[4:]


@pytest.mark.parametrize(
    ("partitions", "elements"), [((998,), 998), ((400, 598), 1000), ((1,) * 499, 499)]
)
def test_arrays_of_a_request_share_a_bound(partitions: tuple[int, ...], elements: int) -> None:
    """Single elements are not counted."""
    frame = commit_of(*partitions)
    header, pos = read_request_header(frame)
    assert read_request(header, frame, pos, elements)
    with pytest.raises(WireError, match=f"more than {elements - 1} elements"):
        read_request(header, frame, pos, elements - 1)
    assert read_request(header, frame, pos, None)


def test_a_request_that_was_refused_leaves_no_bound_behind() -> None:
    frame = commit_of(2, 2)
    header, pos = read_request_header(frame)
    with pytest.raises(WireError):
        read_request(header, frame, pos, 3)
    assert decode(OffsetCommitRequest, 2, frame, pos)[1] == len(frame)


def test_bound_of_requests_is_more_than_a_cluster_has_partitions() -> None:
    frame = commit_of(200_000)
    header, pos = read_request_header(frame)
    assert read_request(header, frame, pos)
    frame = commit_of(200_000, 100_000)
    with pytest.raises(WireError, match="more than 250000 elements"):
        read_request(header, frame, pos)
