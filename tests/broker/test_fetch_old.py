"""Fetch 0-3: records in formats that old readers know, within the bytes that they ask for."""

from __future__ import annotations

from typing import Any

import pytest

from broker.handlers import fetch
from broker.network.down_conversion import (
    AT_ONCE_BYTES,
    PIECE_BYTES,
    ConvertedBytes,
    ConvertedRange,
)
from broker.network.purgatory import Wait
from core_log.config import LogConfig
from core_log.storage import FileRange
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchResponse, FetchResponsePartition
from protocol.records.batch import decode_records, encode_batch
from protocol.records.compression import Codec
from protocol.records.entry import read_entry
from protocol.records.legacy import SMALLEST_ENTRY, encode_messages
from protocol.topic_partition import TopicPartition
from tests.broker.fetch_requests import handle, parts, request
from tests.broker.replication.replicas import NOW_MS, Replicas, batch
from tests.protocol.damaged_batches import resealed

MARKER_BYTES = 78
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def kept(*batches: bytes, partitions: int = 1, **settings: Any) -> Replicas:
    """A topic with these in each partition, as they are: whatever the format."""
    replicas = Replicas(config=LogConfig(**settings)).lead("t", partitions)
    for index in range(partitions):
        for data in batches:
            put(replicas, TopicPartition("t", index), data)
    return replicas


def put(replicas: Replicas, topic_partition: TopicPartition, data: bytes) -> None:
    log = replicas.manager.log(topic_partition)
    header = read_entry(data, 0, len(data))
    assert header is not None
    if header.magic == 2:
        replicas.manager.append(
            topic_partition, data, all_in_sync=False, zstd_allowed=True, now_ms=0
        )
    else:
        log.append_follower(data, now_ms=0)
        replicas.manager.partition(topic_partition).advance_high_watermark(NOW_MS)


def old(first: int, *values: bytes, magic: int = 1, codec: Codec = Codec.NONE) -> bytes:
    rows = [(offset, 7, None, value, ()) for offset, value in enumerate(values, first)]
    return encode_messages(rows, magic, codec=codec)


async def ask(replicas: Replicas, version: int, *offsets: Any, **limits: int) -> FetchResponse:
    """The answer, after whatever there is to wait for."""
    response = await replicas.ended(start(replicas, version, *offsets, **limits))
    assert isinstance(response, FetchResponse)
    return response


def start(replicas: Replicas, version: int, *offsets: Any, **limits: int) -> Any:
    return handle(replicas, request(*(offsets or ((T0, 0),)), **limits), version=version)


def sent(part: FetchResponsePartition) -> bytes:
    """The bytes on the wire, as many as were announced."""
    records = part.records
    if isinstance(records, ConvertedRange):
        data = b"".join(records.pieces())
        assert len(data) == records.size
        return data
    return records.read() if isinstance(records, FileRange) else bytes(records)


async def only(replicas: Replicas, version: int, *offsets: Any, **limits: int) -> bytes:
    (part,) = parts(await ask(replicas, version, *offsets, **limits))
    assert part.error_code == ErrorCode.NONE
    return sent(part)


def magics(data: bytes) -> set[int]:
    results, pos = set(), 0
    while (header := read_entry(data, pos, len(data))) is not None:
        results.add(header.magic)
        pos += header.size
    return results


async def read_all(replicas: Replicas, version: int, **limits: int) -> list[tuple[int, bytes]]:
    """Read like a consumer that continues behind the last whole message."""
    results: list[tuple[int, bytes]] = []
    end = replicas.manager.high_watermark(T0)
    offset = 0
    while offset < end:
        data = await only(replicas, version, (T0, offset), **limits)
        records = decode_records(data, offset)
        assert records, f"no progress at {offset}"
        results += [(record.offset, record.value or b"") for record in records]
        offset = records[-1].offset + 1
    return results


# ---- formats


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1)])
async def test_each_version_gets_the_format_it_knows(version: int, magic: int) -> None:
    data = await only(kept(batch(b"a", b"b"), batch(b"c")), version)

    assert magics(data) == {magic}
    assert [(r.offset, r.value) for r in decode_records(data)] == [(0, b"a"), (1, b"b"), (2, b"c")]


async def test_version_4_gets_the_file_as_it_is() -> None:
    (part,) = parts(await ask(kept(batch(b"a")), 4))
    assert isinstance(part.records, FileRange)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
async def test_codec_is_kept(codec: Codec) -> None:
    packed = encode_batch([(5, None, b"v%d" % n, ()) for n in range(5)], codec=codec)
    data = await only(kept(packed), 2)

    header = read_entry(data, 0, len(data))
    assert header is not None
    assert (header.magic, header.codec) == (1, codec)
    assert len(decode_records(data)) == 5


async def test_what_is_kept_in_the_readers_format_goes_as_a_range_of_the_file() -> None:
    replicas = kept(old(0, b"a", b"b"), message_format_version="0.10.2")
    for version in (2, 3):
        (part,) = parts(await ask(replicas, version))
        assert isinstance(part.records, FileRange)


async def test_older_messages_in_a_newer_topic_are_copied() -> None:
    messages = old(0, b"a", magic=0) + old(1, b"b", b"c")
    data = await only(kept(messages, batch(b"d")), 3)

    assert data.startswith(messages)
    assert [r.offset for r in decode_records(data)] == [0, 1, 2, 3]


async def test_newer_batches_in_a_topic_that_was_set_to_an_old_format_are_converted() -> None:
    replicas = kept(batch(b"a"))
    replicas.manager.update_config("t", LogConfig(message_format_version="0.9.0"))

    assert magics(await only(replicas, 1)) == {0}


async def test_headers_and_times_are_lost_where_there_is_no_place_for_them() -> None:
    replicas = kept(encode_batch([(777, b"k", b"v", [("h", b"x")])]))

    (oldest,) = decode_records(await only(replicas, 1))
    (newer,) = decode_records(await only(replicas, 2))

    assert (oldest.timestamp_ms, oldest.headers) == (-1, ())
    assert (newer.timestamp_ms, newer.headers) == (777, ())


# ---- limits


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_old_limits_are_hard_and_cut_a_message(version: int) -> None:
    replicas = kept(old(0, b"x" * 500, magic=0), message_format_version="0.8.2")

    data = await only(replicas, version, partition_max_bytes=100)

    assert data == old(0, b"x" * 500, magic=0)[:100]


async def test_hard_limit_cuts_what_was_converted_too() -> None:
    """A reader that asks for fewer bytes than a batch has gets the messages that fit."""
    replicas = kept(batch(*(b"%03d" % n for n in range(100))))

    assert await read_all(replicas, 0, partition_max_bytes=200) == [
        (n, b"%03d" % n) for n in range(100)
    ]
    assert len(await only(replicas, 0, partition_max_bytes=200)) == 200
    assert len(await only(replicas, 0, partition_max_bytes=10)) == 10
    assert await only(replicas, 0, partition_max_bytes=0) == b""


async def test_batch_within_the_limit_comes_whole_though_it_grows() -> None:
    values = [b"%d" % n for n in range(50)]
    packed = encode_batch([(5, None, value, ()) for value in values], codec=Codec.SNAPPY)
    replicas = kept(packed)

    data = await only(replicas, 0, partition_max_bytes=len(packed))

    assert len(data) > len(packed)
    assert len(decode_records(data)) == 50


async def test_version_3_gets_a_first_batch_whole_whatever_the_limits() -> None:
    replicas = kept(batch(*(b"x" * 100 for _ in range(20))), partitions=2)

    response = await ask(replicas, 3, (T0, 0), (T1, 0), partition_max_bytes=50, max_bytes=50)

    first, second = parts(response)
    assert len(decode_records(sent(first))) == 20
    assert sent(second) == b""


async def test_version_2_gives_every_partition_its_own_limit() -> None:
    replicas = kept(old(0, b"x" * 500), partitions=2, message_format_version="0.10.0")

    response = await ask(replicas, 2, (T0, 0), (T1, 0), partition_max_bytes=100)

    assert [len(sent(part)) for part in parts(response)] == [100, 100]


# ---- pieces


def large(count: int = 40, codec: Codec = Codec.NONE, **record: Any) -> list[bytes]:
    """Encode batches of ten records of 1 KB each."""
    headers = record.get("headers", ())
    return [
        encode_batch([(5, None, b"%d" % n + b"." * 1000, headers) for n in range(10)], codec=codec)
        for _ in range(count)
    ]


def numbered(count: int) -> list[tuple[int, bytes]]:
    return [(n, b"%d" % (n % 10) + b"." * 1000) for n in range(count)]


async def test_little_is_converted_at_once_and_more_off_the_loop() -> None:
    assert isinstance(start(kept(batch(b"a")), 2), FetchResponse)
    assert isinstance(start(kept(*large(4)), 2, partition_max_bytes=AT_ONCE_BYTES * 2), Wait)
    packed = encode_batch([(5, None, b"a", ())], codec=Codec.GZIP)
    assert isinstance(start(kept(packed), 2), Wait)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
async def test_large_range_is_converted_piece_by_piece(version: int, codec: Codec) -> None:
    replicas = kept(*large(60, codec))

    if codec is Codec.NONE:
        (part,) = parts(await ask(replicas, version))
        assert isinstance(part.records, ConvertedRange)
        assert part.records.size == replicas.manager.log(T0).size
        assert max(map(len, part.records.pieces())) < 2 * PIECE_BYTES
    assert await read_all(replicas, version) == numbered(600)


async def test_what_is_missing_is_filled_with_a_message_that_is_not_whole() -> None:
    replicas = kept(*large(30, headers=[("lost", b"h" * 1000)]))
    (part,) = parts(await ask(replicas, 2))
    assert isinstance(part.records, ConvertedRange)

    data = sent(part)

    records = decode_records(data)
    assert [(r.offset, r.value) for r in records] == numbered(300)
    rest = data[len(encode_messages([tuple(r) for r in records], 1)) :]
    assert len(rest) > SMALLEST_ENTRY
    assert rest[:8] == b"\xff" * 8
    assert int.from_bytes(rest[8:12], "big") > len(rest)
    assert not any(rest[12:])


async def test_batch_larger_than_a_piece_is_converted_whole() -> None:
    values = [b"%d" % n + b"." * 1000 for n in range(300)]
    replicas = kept(batch(*values), batch(b"after"))

    results = await read_all(replicas, 2)

    assert results == [*enumerate(values), (300, b"after")]


async def test_range_that_ends_within_a_batch_loses_nothing() -> None:
    replicas = kept(*large(60))
    for limit in (15_000, 100_001, 250_003):
        assert await read_all(replicas, 3, partition_max_bytes=limit) == numbered(600)


# ---- waiting


async def test_reader_who_waits_is_answered_when_there_is_something_and_it_is_converted() -> None:
    replicas = kept()
    answers: list[Any] = []
    waiting = start(replicas, 2, max_wait_ms=60_000)
    assert isinstance(waiting, Wait)
    replicas.purgatory.park(waiting, answers.append)

    put(replicas, T0, encode_batch([(5, None, b"a", ())], codec=Codec.GZIP))

    (response,) = answers
    assert isinstance(response, Wait)
    (part,) = parts(await replicas.ended(response))
    assert [r.value for r in decode_records(sent(part))] == [b"a"]


async def test_nothing_there_is_nothing_to_convert() -> None:
    assert await only(kept(), 2, max_wait_ms=0) == b""


# ---- refusals


async def test_conversion_may_be_forbidden() -> None:
    replicas = kept(batch(b"a"), message_downconversion_enable=False)

    (part,) = parts(await ask(replicas, 3))

    assert (part.error_code, part.records) == (ErrorCode.UNSUPPORTED_VERSION, b"")
    assert parts(await ask(replicas, 4))[0].error_code == ErrorCode.NONE


async def test_what_needs_no_conversion_is_given_where_it_is_forbidden() -> None:
    replicas = kept(old(0, b"a"), message_downconversion_enable=False)

    assert await only(replicas, 3) == old(0, b"a")


async def test_newer_batches_behind_old_ones_are_refused_where_conversion_is_forbidden() -> None:
    replicas = kept(old(0, b"a"), batch(b"b"), message_downconversion_enable=False)

    (part,) = parts(await ask(replicas, 3))

    assert (part.error_code, part.records) == (ErrorCode.UNSUPPORTED_VERSION, b"")


async def test_zstd_has_no_form_for_an_old_reader() -> None:
    replicas = kept(encode_batch([(5, None, b"a", ())], codec=Codec.ZSTD))

    (part,) = parts(await ask(replicas, 3))

    assert (part.error_code, part.records) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, b"")


async def test_what_is_before_a_batch_in_zstd_is_given() -> None:
    replicas = kept(batch(b"a"), encode_batch([(5, None, b"b", ())], codec=Codec.ZSTD))

    assert [r.value for r in decode_records(await only(replicas, 3))] == [b"a"]


async def test_damaged_batch_ends_the_answer_before_it_and_is_an_error_in_front() -> None:
    replicas = kept(batch(b"a"), batch(b"b"))
    file = replicas.manager.log(T0).segments.active.log
    file.write(file.size - 2, b"!")

    assert [r.value for r in decode_records(await only(replicas, 2))] == [b"a"]
    (part,) = parts(await ask(replicas, 2, (T0, 1)))
    assert (part.error_code, part.records) == (ErrorCode.CORRUPT_MESSAGE, b"")


async def test_damage_behind_the_first_piece_is_filled_over() -> None:
    replicas = kept(*large(40))
    file = replicas.manager.log(T0).segments.active.log
    file.write(300_000, b"!")

    (part,) = parts(await ask(replicas, 2))
    results = [r.offset for r in decode_records(sent(part))]

    assert results == list(range(len(results)))
    assert 250 < len(results) < 300


async def test_errors_of_other_partitions_stay() -> None:
    replicas = kept(*large(4), partitions=2)

    response = await ask(replicas, 2, (TopicPartition("none", 0), 0), (T0, 0), (T1, 99))

    assert [part.error_code for part in parts(response)] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    ]


def write_markers(replicas: Replicas, count: int, topic_partition: TopicPartition = T0) -> int:
    """Write so many markers of transactions; return the offset behind them."""
    log = replicas.manager.log(topic_partition)
    markers = b"".join(
        resealed(encode_batch([(5, bytes(4), bytes(6), ())], base_offset=n), 21, b"\0\x30")
        for n in range(log.log_end_offset, log.log_end_offset + count)
    )
    end = log.append_follower(markers, now_ms=0)
    replicas.manager.partition(topic_partition).advance_high_watermark(NOW_MS)
    return end


async def led(replicas: Replicas, version: int, offset: int = 0, **limits: int) -> bytes:
    """Ask until there is something, as a reader does; it gets on with each request."""
    for _ in range(500):
        outcome = start(replicas, version, (T0, offset), **limits)
        assert not (isinstance(outcome, Wait) and outcome.timeout_ms == limits.get("max_wait_ms"))
        (part,) = parts(await replicas.ended(outcome))
        assert part.error_code == ErrorCode.NONE
        if data := sent(part):
            return data
    raise AssertionError("it stands where it is")


@pytest.mark.fault("strangers-100")
@pytest.mark.parametrize("limit", [1, 300, 1_000_000])
@pytest.mark.parametrize("version", [0, 1, 2, 3])
async def test_segments_that_compaction_left_with_markers_alone_are_passed_over(
    version: int, limit: int
) -> None:
    """A range ends with its segment, and a reader knows no offset behind it."""
    replicas = kept()
    for _ in range(2):
        end = write_markers(replicas, 200)
        replicas.manager.log(T0).roll(1)
    data = batch(b"a")
    put(replicas, T0, data)

    part = await led(replicas, version, partition_max_bytes=max(limit, len(data)))
    assert [(record.offset, record.value) for record in decode_records(part)] == [(end, b"a")]
    # Not even the message has room, and some of it comes. So it does to one that begins between.
    assert await led(replicas, version, partition_max_bytes=limit)
    assert await led(replicas, version, 77, partition_max_bytes=limit)


@pytest.mark.parametrize("version", [0, 3])
@pytest.mark.parametrize("markers", [3, 2 * PIECE_BYTES // 80])
async def test_a_reader_in_front_of_the_last_markers_waits_for_what_comes_behind_them(
    version: int, markers: int
) -> None:
    """Or it would ask again at once, and again."""
    replicas = kept()
    end = write_markers(replicas, markers)
    assert await only(replicas, version) == b""
    answers: list[Any] = []
    waiting = start(replicas, version, max_wait_ms=60_000)
    assert isinstance(waiting, Wait)
    assert waiting.timeout_ms == 60_000
    replicas.purgatory.park(waiting, answers.append)

    put(replicas, T0, batch(b"a"))

    (part,) = parts(await replicas.ended(answers.pop()))
    assert [(r.offset, r.value) for r in decode_records(sent(part))] == [(end, b"a")]


async def test_what_was_passed_over_and_is_other_records_by_now_is_read() -> None:
    """A leader that was deposed was truncated, and leads again."""
    replicas = kept()
    write_markers(replicas, 3)
    assert await only(replicas, 2) == b""

    log = replicas.manager.log(T0)
    log.truncate_to(1)
    replicas.manager.partition(T0).note_truncation()
    replicas.lead("t", 1, epoch=1)
    put(replicas, T0, batch(b"a"))
    replicas.manager.partition(T0).advance_high_watermark(NOW_MS)

    part = await led(replicas, 2)
    assert [(r.offset, r.value) for r in decode_records(part)] == [(1, b"a")]


@pytest.mark.parametrize("goes_on_leading", [True, False])
async def test_what_a_thread_found_before_the_leader_changed_is_not_remembered(
    goes_on_leading: bool,
) -> None:
    """The offsets may have other records by then."""
    replicas = kept()
    write_markers(replicas, 2 * PIECE_BYTES // 80)
    waiting = start(replicas, 2)
    assert isinstance(waiting, Wait)
    if not goes_on_leading:
        replicas.lead("t", 1, epoch=1)
    (part,) = parts(await replicas.ended(waiting))
    assert sent(part) == b""

    partition = replicas.manager.partition(T0)
    assert (partition.barren.behind(0) > 0) == goes_on_leading


async def test_what_is_before_the_logs_start_is_out_of_range_though_it_was_passed_over() -> None:
    replicas = kept()
    write_markers(replicas, 9)
    assert await only(replicas, 2) == b""
    replicas.manager.log(T0).increment_log_start_offset(5)

    (part,) = parts(await ask(replicas, 2, (T0, 3)))
    assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_markers_of_transactions_are_passed_over_however_many() -> None:
    replicas = kept()
    end = write_markers(replicas, 2 * PIECE_BYTES // 80)
    assert await only(replicas, 2) == b""

    put(replicas, T0, batch(b"a"))

    assert [(r.offset, r.value) for r in decode_records(await led(replicas, 2))] == [(end, b"a")]


# ---- many partitions


def partitions(count: int) -> list[tuple[TopicPartition, int]]:
    return [(TopicPartition("t", index), 0) for index in range(count)]


@pytest.mark.fault("strangers-109")
async def test_a_request_leads_over_no_more_markers_of_many_partitions_than_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch, "LED_BYTES", 100 * MARKER_BYTES)
    replicas = kept(partitions=3)
    for index in range(3):
        write_markers(replicas, 1000, TopicPartition("t", index))

    await ask(replicas, 3, *partitions(3), partition_max_bytes=200 * MARKER_BYTES)

    # What is in the ranges that were asked for, and a hundred more of all together.
    led = [replicas.manager.partition(tp).barren.behind(0) for tp, _ in partitions(3)]
    assert sorted(led) == [200, 200, 300]


@pytest.mark.fault("strangers-110")
async def test_when_the_time_is_up_the_other_partitions_are_for_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread that is busy for longer keeps producers waiting, and the answer would be late."""
    packed = encode_batch([(5, None, b"a", ())], codec=Codec.GZIP)
    replicas = kept(packed, partitions=3)
    monkeypatch.setattr(fetch, "CONVERSION_S", 0.0)
    response = await ask(replicas, 2, *partitions(3))
    assert sorted(len(decode_records(sent(part))) for part in parts(response)) == [0, 0, 1]
    assert {part.error_code for part in parts(response)} == {ErrorCode.NONE}


@pytest.mark.fault("strangers-118")
async def test_each_partition_has_its_turn_however_much_those_before_it_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reader of before KIP-74 asks in one order, and has all that it asks for from Kafka."""
    packed = encode_batch([(5, None, b"a", ())], codec=Codec.GZIP)
    replicas = kept(packed, partitions=20)
    monkeypatch.setattr(fetch, "CONVERSION_S", 0.0)
    given = set()
    for _ in range(40):
        response = await ask(replicas, 2, *partitions(20))
        given |= {part.partition_index for part in parts(response) if sent(part)}
    assert given == set(range(20))


@pytest.mark.fault("strangers-111")
@pytest.mark.parametrize("version", [0, 1, 2])
async def test_what_the_response_has_no_room_for_is_not_converted(version: int) -> None:
    replicas = kept(partitions=2, message_format_version="0.9.0")
    put(replicas, T0, old(0, b"a", magic=0))
    newer = encode_batch([(5, None, b"b", ())], codec=Codec.GZIP)
    replicas.manager.log(T1).append_follower(newer, now_ms=0)
    replicas.manager.partition(T1).advance_high_watermark(NOW_MS)
    room = replicas.manager.log(T0).size

    outcome = start(replicas, version, (T0, 0), (T1, 0), max_bytes=room)

    # Nobody waits for a thread.
    assert isinstance(outcome, FetchResponse)
    assert [sent(part) for part in parts(outcome)] == [old(0, b"a", magic=0), b""]
    assert isinstance(start(replicas, version, (T0, 0), (T1, 0), max_bytes=room + 1), Wait)


# ---- what conversions of all connections hold


LARGE = batch(*[b"%d" % n * 400 for n in range(300)])


async def held(replicas: Replicas) -> FetchResponse:
    response = await ask(
        replicas, 2, max_bytes=10 * len(LARGE), partition_max_bytes=10 * len(LARGE)
    )
    (part,) = parts(response)
    assert isinstance(part.records, ConvertedRange)
    return response


@pytest.mark.fault("scale-S2")
async def test_converted_records_that_nobody_takes_are_held_up_to_a_bound() -> None:
    replicas = kept(LARGE, LARGE)
    converted = replicas.deferred.converted
    converted.limit = 6 * len(LARGE)

    # Two are held. A third has nothing for now, and nothing of it is converted.
    first, second = await held(replicas), await held(replicas)
    held_bytes = converted.held
    assert converted.limit // 2 <= held_bytes <= converted.limit
    (nothing,) = parts(await ask(replicas, 2, partition_max_bytes=10 * len(LARGE)))
    assert (nothing.error_code, sent(nothing)) == (ErrorCode.NONE, b"")
    assert converted.held == held_bytes

    # One goes away: there is room for another.
    del first
    third = await held(replicas)
    assert converted.held == held_bytes
    del second, third
    assert converted.held == 0


@pytest.mark.fault("strangers-106")
def test_a_client_leaves_room_for_others() -> None:
    """It may take what it holds as slowly as it likes."""
    converted = ConvertedBytes(limit=100)
    held = [converted.hold(25, "stranger") for _ in range(4)]
    assert [hold is not None for hold in held] == [True, True, True, False]

    other = converted.hold(25, "consumer")
    assert other is not None
    assert converted.hold(1, "consumer") is None
    held.clear()
    assert converted.hold(75, "stranger") is not None
    # One that holds nothing may take more than a share.
    del other
    assert converted.held == 0
    assert converted.hold(100, "stranger") is not None


async def test_one_reader_may_hold_more_than_the_bound() -> None:
    replicas = kept(LARGE, LARGE)
    replicas.deferred.converted.limit = 1
    assert len(decode_records(sent(parts(await held(replicas))[0]))) > 500


async def test_small_conversions_hold_nothing() -> None:
    replicas = kept(batch(b"a", b"b"))
    replicas.deferred.converted.limit = 0
    assert [record.value for record in decode_records(await only(replicas, 2))] == [b"a", b"b"]
    assert replicas.deferred.converted.held == 0
