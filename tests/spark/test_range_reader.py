"""Reading a range from a scripted broker: holes, edges, and failures on the way."""

import asyncio
from collections.abc import Callable, Sequence
from struct import pack
from typing import Any

import pytest
from crc32c import crc32c

from clients.errors import DeadlineExceeded
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
)
from protocol.messages.list_offsets import (
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from protocol.records.batch import HEADER_BYTES, encode_batch
from protocol.special_values import EARLIEST_TIME
from protocol.topic_partition import TopicPartition
from spark_connector import range_reader
from spark_connector.damage import CorruptBatch
from spark_connector.log_offsets import DataLoss
from spark_connector.options import read_options
from spark_connector.range_reader import read_ranges
from spark_connector.split import OffsetRange
from spark_connector.worker_client import WorkerClients
from tests.clients.scripted_broker import HANG_UP, ScriptedBroker

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
Log = dict[int, bytes]
"""End offset of a batch (exclusive) -> the batch."""


def batch(base_offset: int, records: int) -> bytes:
    return encode_batch([(0, None, b"v", ())] * records, base_offset=base_offset)


def emptied(base_offset: int, records: int) -> bytes:
    """Return a batch that compaction has emptied: its header, which still has its last offset."""
    header = bytearray(batch(base_offset, records)[:HEADER_BYTES])
    header[8:12] = pack(">i", HEADER_BYTES - 12)
    header[57:61] = pack(">i", 0)
    header[17:21] = pack(">I", crc32c(bytes(header[21:])))
    return bytes(header)


def answer(error: ErrorCode = ErrorCode.NONE, records: bytes = b"") -> FetchResponse:
    partition = FetchResponsePartition(
        partition_index=0, error_code=error, high_watermark=1000, records=records
    )
    return FetchResponse(responses=[FetchResponseTopic(topic="t", partitions=[partition])])


def serve(log: Log, log_start: int = 0) -> Callable[[FetchRequest], FetchResponse]:
    """Serve one batch per fetch: the first that ends behind the fetch offset."""

    def fetch(request: FetchRequest) -> FetchResponse:
        offset = request.topics[0].partitions[0].fetch_offset
        if offset < log_start:
            return answer(ErrorCode.OFFSET_OUT_OF_RANGE)
        return answer(records=next((batch for end, batch in log.items() if end > offset), b""))

    return fetch


def once(first: Any, then: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Answer the first request in another way."""
    answers = [first]
    return lambda request: answers.pop() if answers else then(request)


def with_ends(log_start: int, log_end: int) -> Callable[[Any], ListOffsetsResponse]:
    """Return a broker whose log begins and ends there."""

    def list_offsets(request: Any) -> ListOffsetsResponse:
        asked = request.topics[0].partitions[0].timestamp
        offset = log_start if asked == EARLIEST_TIME else log_end
        partition = ListOffsetsResponsePartition(partition_index=0, error_code=0, offset=offset)
        topic = ListOffsetsResponseTopic(name="t", partitions=[partition])
        return ListOffsetsResponse(topics=[topic])

    return list_offsets


async def read_tasks(
    broker: ScriptedBroker, clients: WorkerClients, tasks: Sequence[Sequence[OffsetRange]]
) -> list[list[int]]:
    """Read tasks one after the other, as a worker does; return the offsets of each."""
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "t"}
    options = read_options(given, streaming=True)
    return [
        [
            offset
            for batch in await asyncio.to_thread(list, read_ranges(options, task, clients))
            for offset in batch["offset"].to_pylist()
        ]
        for task in tasks
    ]


def read(
    fetch: Callable[[FetchRequest], Any],
    start: int,
    end: int,
    log_start: int = 0,
    log_end: int = 1000,
    **options: str,
) -> tuple[list[int], ScriptedBroker]:
    """Read a range; return its offsets, and the broker."""

    async def run() -> tuple[list[int], ScriptedBroker]:
        clients = WorkerClients()
        async with ScriptedBroker({"t": 1}) as broker:
            broker.answers[ApiKey.FETCH] = fetch
            broker.answers[ApiKey.LIST_OFFSETS] = with_ends(log_start, log_end)
            given = {
                "kafka.bootstrap.servers": broker.bootstrap,
                "kafka.retry.backoff.ms": "1",
                "subscribe": "t",
                **options,
            }
            wanted = OffsetRange(T0, start, end)
            rows = read_ranges(read_options(given, streaming=True), [wanted], clients)
            try:
                batches = await asyncio.to_thread(list, rows)
            finally:
                await asyncio.to_thread(clients.close)
            return [n for batch in batches for n in batch["offset"].to_pylist()], broker

    return asyncio.run(asyncio.wait_for(run(), 30))


def read_in_turn(
    fetch: Callable[[FetchRequest], Any], *tasks: Sequence[OffsetRange]
) -> tuple[list[list[int]], ScriptedBroker]:
    """Read tasks one after the other in one worker; return their offsets, and the broker."""

    async def run() -> tuple[list[list[int]], ScriptedBroker]:
        clients = WorkerClients()
        async with ScriptedBroker({"t": 2}) as broker:
            broker.answers[ApiKey.FETCH] = fetch
            try:
                return await read_tasks(broker, clients, tasks), broker
            finally:
                await asyncio.to_thread(clients.close)

    return asyncio.run(asyncio.wait_for(run(), 30))


def test_a_range_that_begins_and_ends_inside_of_batches_has_only_its_own_offsets() -> None:
    offsets, _ = read(serve({10: batch(0, 10), 20: batch(10, 10)}), 7, 13)
    assert offsets == [7, 8, 9, 10, 11, 12]


def test_holes_are_passed_and_the_range_ends_by_position() -> None:
    log = {12: batch(10, 2), 40: emptied(30, 10), 52: batch(50, 2), 60: emptied(55, 5)}
    offsets, broker = read(serve(log), 10, 60)
    assert offsets == [10, 11, 50, 51]
    assert len(broker.asked(ApiKey.FETCH)) == 4


def test_a_range_whose_end_is_in_a_hole_ends_with_the_batch_behind_it() -> None:
    offsets, _ = read(serve({12: batch(10, 2), 52: batch(50, 2)}), 10, 30)
    assert offsets == [10, 11]


@pytest.mark.parametrize(
    "disturbance", [HANG_UP, answer(ErrorCode.NOT_LEADER_OR_FOLLOWER), answer()]
)
def test_a_disturbance_that_passes_is_not_seen(disturbance: Any) -> None:
    offsets, _ = read(once(disturbance, serve({12: batch(10, 2)})), 10, 12)
    assert offsets == [10, 11]


def test_a_range_that_never_comes_fails_the_task() -> None:
    soon = {"kafkaConsumer.pollTimeoutMs": "500"}
    with pytest.raises(DeadlineExceeded, match="t-0 has nothing at 12, and is to be read up to 15"):
        read(serve({12: batch(10, 2)}), 10, 15, 0, **soon)


@pytest.mark.fault("strangers-101")
@pytest.mark.parametrize("log_end", [12, 13])
def test_a_log_that_ends_within_the_range_has_lost_the_rest(
    log_end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made again, say, with fewer records. What is not committed yet is no loss."""
    monkeypatch.setattr(range_reader, "TRUNCATION_GRACE_S", 0.0)
    soon = {"kafkaConsumer.pollTimeoutMs": "500"}
    fetch = serve({12: batch(10, 2)})
    if log_end > 12:
        with pytest.raises(DeadlineExceeded, match="t-0 has nothing at 12"):
            read(fetch, 10, 15, 0, log_end, **soon)
        return

    with pytest.raises(DataLoss, match="t-0: offset 12 is behind the log's end"):
        read(fetch, 10, 15, 0, log_end, **soon)
    offsets, _ = read(fetch, 10, 15, 0, log_end, failOnDataLoss="false", **soon)
    assert offsets == [10, 11]


def test_records_deleted_before_they_were_read_fail_the_task() -> None:
    text = "t-0: offsets 3 to 9 have been deleted.* set failOnDataLoss to false"
    with pytest.raises(DataLoss, match=text):
        read(serve({12: batch(10, 2)}, log_start=10), 3, 12, log_start=10)


def test_records_deleted_before_they_were_read_are_left_out_if_told_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fetch = serve({12: batch(10, 2)}, log_start=10)
    offsets, _ = read(fetch, 3, 12, log_start=10, failOnDataLoss="false")
    assert offsets == [10, 11]
    assert "t-0: offsets 3 to 9 have been deleted" in caplog.text


def test_a_range_deleted_as_a_whole_leaves_nothing_to_read() -> None:
    fetch = serve({12: batch(10, 2)}, log_start=10)
    offsets, broker = read(fetch, 3, 7, log_start=10, failOnDataLoss="false")
    assert offsets == []
    assert len(broker.asked(ApiKey.FETCH)) == 1


def test_a_log_cut_before_the_range_was_read_fails_the_task() -> None:
    beyond = answer(ErrorCode.OFFSET_OUT_OF_RANGE)
    with pytest.raises(DataLoss, match="t-0: offset 3 is behind the log's end"):
        read(lambda request: beyond, 3, 12)


def test_nothing_is_left_of_a_log_made_anew_if_told_so() -> None:
    beyond = answer(ErrorCode.OFFSET_OUT_OF_RANGE)
    offsets, broker = read(lambda request: beyond, 3, 12, failOnDataLoss="false")
    assert offsets == []
    assert len(broker.asked(ApiKey.FETCH)) == 1


def test_tasks_of_a_worker_share_a_connection_and_a_metadata_look_up() -> None:
    log = {10: batch(0, 10), 20: batch(10, 10)}
    tasks = [[OffsetRange(T0, 0, 10)], [OffsetRange(T0, 10, 15)], [OffsetRange(T0, 15, 20)]]
    offsets, broker = read_in_turn(serve(log), *tasks)
    assert [n for task in offsets for n in task] == list(range(20))
    assert len(broker.asked(ApiKey.METADATA)) == 1
    # One to ask for metadata, and one to the leader that it names.
    assert broker.connections <= 2


def test_a_task_whose_connection_was_lost_since_the_last_one_opens_another() -> None:
    log = {10: batch(0, 10)}
    disturbances = iter([None, HANG_UP, None, None])

    def fetch(request: FetchRequest) -> Any:
        # The first task reads, then the broker hangs up on the second.
        return next(disturbances) or serve(log)(request)

    task = [OffsetRange(T0, 0, 10)]
    offsets, _ = read_in_turn(fetch, task, task, task)
    assert offsets == [list(range(10))] * 3


def test_a_task_may_have_many_ranges() -> None:
    def fetch(request: FetchRequest) -> FetchResponse:
        (topic,) = request.topics
        (wanted,) = topic.partitions
        partition = FetchResponsePartition(
            partition_index=wanted.partition,
            error_code=0,
            high_watermark=1000,
            records=batch(10 * wanted.partition, 5),
        )
        return FetchResponse(responses=[FetchResponseTopic(topic="t", partitions=[partition])])

    task = (OffsetRange(T0, 0, 5), OffsetRange(T1, 10, 13))
    (offsets,), broker = read_in_turn(fetch, task)
    assert offsets == [0, 1, 2, 3, 4, 10, 11, 12]
    assert len(broker.asked(ApiKey.FETCH)) == 2


def with_damage() -> Callable[[FetchRequest], FetchResponse]:
    """Serve a log of three batches, of which the one from 3 to 5 is damaged."""
    bad = bytearray(batch(3, 3))
    bad[-2] ^= 1
    log = {3: batch(0, 3), 6: bytes(bad), 9: batch(6, 3)}

    def fetch(request: FetchRequest) -> FetchResponse:
        offset = request.topics[0].partitions[0].fetch_offset
        return answer(records=b"".join(batch for end, batch in log.items() if end > offset))

    return fetch


def test_a_damaged_batch_fails_the_task_at_once_and_is_named() -> None:
    text = (
        r"t-0: the batch with offsets 3 to 5 cannot be read \(batch CRC is 0x.*kgroup.corrupt=skip"
    )
    with pytest.raises(CorruptBatch, match=text):
        read(with_damage(), 0, 9)


def test_a_damaged_batch_is_left_out_with_a_warning_if_told_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    offsets, _ = read(with_damage(), 0, 9, **{"kgroup.corrupt": "skip"})
    assert offsets == [0, 1, 2, 6, 7, 8]
    assert "t-0: the batch with offsets 3 to 5 cannot be read" in caplog.text


def test_a_range_ends_where_a_damaged_batch_was_left_out() -> None:
    offsets, _ = read(with_damage(), 1, 5, **{"kgroup.corrupt": "skip"})
    assert offsets == [1, 2]


def test_damage_that_the_broker_reports_fails_the_task_at_once() -> None:
    refusal = answer(ErrorCode.CORRUPT_MESSAGE)
    with pytest.raises(CorruptBatch, match=r"t-0: the batch at offset 3 .*its broker cannot read"):
        read(lambda request: refusal, 3, 9, **{"kgroup.corrupt": "skip"})
