"""The bytes that a broker sends, as a consumer gets them."""

import asyncio
import struct
import subprocess
import sys
import zlib
from collections.abc import Sequence
from typing import Any

import pytest

from clients.fetch_requests import Isolation
from clients.fetching import FetchedPartition, fetch_once
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    FetchResponseAbortedTransaction,
    FetchResponsePartition,
    FetchResponseTopic,
)
from protocol.records.batch import encode_batch
from protocol.records.batch_header import CONTROL, CRC_COVERS_FROM, TRANSACTIONAL
from protocol.records.compression import Codec, compress
from protocol.records.legacy import encode_messages
from protocol.topic_partition import TopicPartition

P0 = TopicPartition("t", 0)


class Answering:
    """A connection that gives one response."""

    request_timeout_ms = 1000

    def __init__(self, response: FetchResponse) -> None:
        self.response = response
        self.requests: list[FetchRequest] = []

    async def call(self, request: FetchRequest, *, timeout_ms: int) -> FetchResponse:
        self.requests.append(request)
        return self.response


def batch(base_offset: int, values: Sequence[bytes | None], **fields: Any) -> bytes:
    return encode_batch(
        [(0, None, value, ()) for value in values], base_offset=base_offset, **fields
    )


def of_producer(attributes: int, encoded: bytes) -> bytes:
    """Return the batch with more attribute bits, and the right CRC."""
    from crc32c import crc32c

    changed = bytearray(encoded)
    changed[CRC_COVERS_FROM + 1] |= attributes
    changed[17:21] = struct.pack(">I", crc32c(bytes(changed[CRC_COVERS_FROM:])))
    return bytes(changed)


def transactional(base_offset: int, producer_id: int, *values: bytes) -> bytes:
    return of_producer(TRANSACTIONAL, batch(base_offset, values, producer_id=producer_id))


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    record = (0, struct.pack(">hh", 0, commit), struct.pack(">hi", 0, 0), ())
    encoded = encode_batch([record], base_offset=offset, producer_id=producer_id)
    return of_producer(TRANSACTIONAL | CONTROL, encoded)


def fetched(
    records: bytes | None,
    offset: int = 0,
    error: ErrorCode = ErrorCode.NONE,
    aborted: Sequence[tuple[int, int]] = (),
) -> FetchedPartition:
    partition = FetchResponsePartition(
        partition_index=0,
        error_code=error,
        high_watermark=99,
        aborted_transactions=[
            FetchResponseAbortedTransaction(producer_id=producer_id, first_offset=first)
            for producer_id, first in aborted
        ],
        records=None if records is None else memoryview(records),
    )

    topic = FetchResponseTopic(topic="t", partitions=[partition])
    return run(FetchResponse(responses=[topic]), {P0: (offset, 1000)})[P0]


def run(
    response: FetchResponse, requests: dict[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, FetchedPartition]:
    connection: Any = Answering(response)
    return asyncio.run(fetch_once(connection, requests))


def offsets_and_values(partition: FetchedPartition) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in partition.records]


def test_records_of_all_batches_come_in_order() -> None:
    result = fetched(batch(5, [b"a", b"b"]) + batch(7, [b"c"]), offset=5)
    assert offsets_and_values(result) == [(5, b"a"), (6, b"b"), (7, b"c")]
    assert (result.next_offset, result.high_watermark) == (8, 99)


def test_records_below_the_offset_asked_for_are_left_out() -> None:
    result = fetched(batch(5, [b"a", b"b", b"c"]), offset=6)
    assert offsets_and_values(result) == [(6, b"b"), (7, b"c")]


def test_part_of_a_batch_at_the_end_is_left_for_the_next_fetch() -> None:
    whole, cut = batch(0, [b"a"]), batch(1, [b"b"])
    for length in (1, 60, 61, len(cut) - 1):
        result = fetched(whole + cut[:length])
        assert offsets_and_values(result) == [(0, b"a")]
        assert (result.next_offset, result.error) == (1, ErrorCode.NONE)


def test_nothing_fetched_leaves_the_position() -> None:
    for nothing in (None, b""):
        result = fetched(nothing, offset=7)
        assert (offsets_and_values(result), result.next_offset) == ([], 7)


def test_position_goes_over_what_compaction_removed_from_the_end_of_a_batch() -> None:
    compacted = bytearray(batch(0, [b"a"]))
    compacted[23:27] = struct.pack(">i", 9)  # last offset delta: nine more once stood here
    result = fetched(of_producer(0, bytes(compacted)))
    assert (offsets_and_values(result), result.next_offset) == ([(0, b"a")], 10)


def test_messages_of_another_format_than_their_wrapper_have_their_offsets() -> None:
    """Old cleaners changed the wrapper's format, and not that of its messages (KAFKA-4298)."""
    inner = encode_messages([(n, -1, b"%d" % n, b"v%d" % n, ()) for n in range(3)], 0)
    wrapper = bytearray(encode_messages([(52, 7, None, compress(Codec.GZIP, inner), ())], 1))
    wrapper[17] |= Codec.GZIP
    wrapper[12:16] = zlib.crc32(wrapper[16:]).to_bytes(4, "big")
    result = fetched(bytes(wrapper), offset=51)
    assert (offsets_and_values(result), result.next_offset) == ([(51, b"v1"), (52, b"v2")], 53)


def test_transaction_markers_are_passed_over() -> None:
    result = fetched(transactional(0, 7, b"a") + marker(1, 7, commit=True))
    assert (offsets_and_values(result), result.next_offset) == ([(0, b"a")], 2)


def test_aborted_transaction_is_left_out_until_its_marker_and_others_are_not() -> None:
    log = (
        transactional(0, 7, b"aborted")
        + transactional(1, 8, b"committed")
        + batch(2, [b"plain"])
        + transactional(3, 7, b"aborted too")
        + marker(4, 7, commit=False)
        + marker(5, 8, commit=True)
        + transactional(6, 7, b"next transaction")
    )
    result = fetched(log, aborted=[(7, 0)])
    assert [value for _, value in offsets_and_values(result)] == [
        b"committed",
        b"plain",
        b"next transaction",
    ]
    assert result.next_offset == 7


def test_second_aborted_transaction_of_a_producer_begins_at_its_own_offset() -> None:
    log = (
        transactional(0, 7, b"aborted")
        + marker(1, 7, commit=False)
        + transactional(2, 7, b"good")
        + marker(3, 7, commit=True)
        + transactional(4, 7, b"aborted again")
    )
    assert offsets_and_values(fetched(log, aborted=[(7, 0), (7, 4)])) == [(2, b"good")]


def test_corrupt_batch_gives_what_stood_before_it_and_names_where_it_is() -> None:
    corrupt = bytearray(batch(1, [b"b"]))
    corrupt[-1] ^= 1
    result = fetched(batch(0, [b"a"]) + bytes(corrupt))
    assert (result.error, result.next_offset) == (ErrorCode.CORRUPT_MESSAGE, 1)
    assert result.detail.startswith("t-0 at offset 1: batch CRC")
    iterator = iter(result)
    assert next(iterator).value == b"a"
    with pytest.raises(ApiError, match="t-0 at offset 1"):
        next(iterator)


def test_batch_whose_codec_is_not_installed_is_an_error_that_says_what_to_install() -> None:
    program = """
import sys
from clients.errors import BrokerError
from tests.clients.test_fetching import Codec, batch, fetched
log = batch(0, [b"a"]) + batch(1, [b"b"], codec=Codec.SNAPPY)
sys.modules["cramjam"] = None
result = fetched(log)
print(len(result.rows), result.next_offset)
try:
    list(result)
except BrokerError as error:
    print(error)
"""

    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True)
    counted, error = done.stdout.splitlines()
    assert counted == "1 1"
    assert error.startswith("UNSUPPORTED_COMPRESSION_TYPE: t-0 at offset 1: ")
    assert "pip install" in error


def test_error_of_a_partition_is_its_result_and_raised_when_iterated() -> None:
    result = fetched(b"", offset=5, error=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert result.error is ErrorCode.OFFSET_OUT_OF_RANGE
    with pytest.raises(ApiError, match="OFFSET_OUT_OF_RANGE: t-0 at offset 5"):
        list(result)


def test_error_of_the_whole_fetch_is_raised() -> None:
    with pytest.raises(ApiError, match="UNKNOWN_SERVER_ERROR"):
        run(FetchResponse(error_code=-1, responses=[]), {P0: (0, 10)})


def test_partition_the_broker_left_out_is_an_error() -> None:
    result = run(FetchResponse(responses=[]), {P0: (0, 10)})
    assert result[P0].error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_request_asks_for_partitions_in_the_order_given() -> None:
    connection = Answering(FetchResponse(responses=[]))
    given = {TopicPartition("t", 2): (7, 100), TopicPartition("u", 0): (8, 200), P0: (9, 300)}
    as_connection: Any = connection
    asyncio.run(fetch_once(as_connection, given, max_wait_ms=3, isolation=Isolation.READ_COMMITTED))
    (request,) = connection.requests
    asked = [
        (topic.topic, p.partition, p.fetch_offset, p.partition_max_bytes)
        for topic in request.topics
        for p in topic.partitions
    ]
    assert asked == [("t", 2, 7, 100), ("u", 0, 8, 200), ("t", 0, 9, 300)]
    assert (request.isolation_level, request.max_wait_ms) == (1, 3)
