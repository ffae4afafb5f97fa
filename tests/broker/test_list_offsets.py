"""ListOffsets: earliest, latest and the first at a time, never above the committed records."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import pytest

from broker.handlers import list_offsets
from broker.network.purgatory import Wait
from core_log.log import WALKED_AT_ONCE
from core_log.segments.segment_list import SOON_READ_BYTES
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
)
from protocol.records.batch import encode_batch
from protocol.records.compression import Codec
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import Replicas, context, follower_at

T0 = TopicPartition("t", 0)
LATEST, EARLIEST = list_offsets.LATEST_TIME, list_offsets.EARLIEST_TIME
CONSUMER, FOLLOWER = -1, 1


def filled(*timestamps: int, **lead: Any) -> Replicas:
    """A topic with a batch of two records, 10 ms apart, at each of these times."""
    replicas = Replicas().lead("t", **lead)
    for time_ms in timestamps:
        data = encode_batch([(time_ms, None, b"a", ()), (time_ms + 10, None, b"b", ())])
        replicas.manager.append(T0, data, all_in_sync=False, zstd_allowed=True, now_ms=1)
    return replicas


def ask(
    replicas: Replicas,
    *times: int,
    topic: str = "t",
    index: int = 0,
    epoch: int = -1,
    replica_id: int = CONSUMER,
    version: int = 5,
) -> list[ListOffsetsResponsePartition]:
    """Ask one partition for each of the times, in a request of its own or together."""
    list_request = ListOffsetsRequest(
        replica_id=replica_id,
        topics=[
            ListOffsetsRequestTopic(
                name=topic,
                partitions=[
                    ListOffsetsRequestPartition(
                        partition_index=index, current_leader_epoch=epoch, timestamp=time_ms
                    )
                    for time_ms in times
                ],
            )
        ],
    )
    response = list_offsets.handle(
        replicas.manager, replicas.cache, replicas.deferred, 1000, list_request, context(version)
    )
    assert isinstance(response, ListOffsetsResponse)
    return [p for t in response.topics for p in t.partitions]


def result_of(part: ListOffsetsResponsePartition) -> tuple[ErrorCode, int, int]:
    return ErrorCode.of(part.error_code), part.timestamp, part.offset


@pytest.mark.parametrize(
    ("time_ms", "timestamp", "offset"),
    [
        (EARLIEST, -1, 0),
        (LATEST, -1, 4),
        (0, 100, 0),
        (100, 100, 0),
        (101, 110, 1),
        (111, 200, 2),
        (210, 210, 3),
        (211, -1, -1),
    ],
)
def test_the_offset_is_that_of_the_first_record_at_the_time_or_later(
    time_ms: int, timestamp: int, offset: int
) -> None:
    (part,) = ask(filled(100, 200), time_ms)
    assert result_of(part) == (ErrorCode.NONE, timestamp, offset)


@pytest.mark.parametrize("time_ms", [EARLIEST, LATEST])
def test_an_empty_log_begins_and_ends_at_nought(time_ms: int) -> None:
    (part,) = ask(filled(), time_ms)
    assert result_of(part) == (ErrorCode.NONE, -1, 0)


def test_earliest_is_where_the_log_starts_now() -> None:
    replicas = filled(100, 200)
    replicas.manager.log(T0).increment_log_start_offset(3)
    (part,) = ask(replicas, EARLIEST)
    assert part.offset == 3


def test_a_consumer_is_told_the_high_watermark_and_a_follower_the_logs_end() -> None:
    replicas = filled(100, isr=(0, 1), replicas=(0, 1))
    offsets = [ask(replicas, LATEST, replica_id=who)[0].offset for who in (CONSUMER, FOLLOWER)]
    assert offsets == [0, 2]


def test_a_record_that_is_not_committed_is_not_found() -> None:
    (part,) = ask(filled(100, isr=(0, 1), replicas=(0, 1)), 100)
    assert result_of(part) == (ErrorCode.NONE, -1, -1)


def test_the_epoch_told_is_the_one_the_offset_was_written_in() -> None:
    replicas = filled(100, epoch=3)
    replicas.lead("t", epoch=5)
    replicas.manager.append(
        T0,
        encode_batch([(200, None, b"c", ())]),
        all_in_sync=False,
        zstd_allowed=True,
        now_ms=1,
    )
    epochs = [ask(replicas, time_ms)[0].leader_epoch for time_ms in (EARLIEST, 110, 200, LATEST)]
    assert epochs == [3, 3, 5, 5]


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (2, ErrorCode.FENCED_LEADER_EPOCH),
        (3, ErrorCode.NONE),
        (4, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_a_leader_epoch_is_compared(epoch: int, code: ErrorCode) -> None:
    (part,) = ask(filled(epoch=3), LATEST, epoch=epoch)
    assert part.error_code == code


def test_a_partition_asked_twice_is_refused_each_time() -> None:
    codes = [part.error_code for part in ask(filled(100), EARLIEST, LATEST)]
    assert codes == [ErrorCode.INVALID_REQUEST] * 2


def test_nothing_is_looked_up_for_a_partition_asked_many_times() -> None:
    """In a thread each of them would decompress the batch. A Wait would be no response."""
    replicas = Replicas().lead("t")
    data = encode_batch([(100, None, LARGE, ())], codec=Codec.GZIP)
    replicas.manager.append(T0, data, all_in_sync=False, zstd_allowed=True, now_ms=1)
    codes = {part.error_code for part in ask(replicas, *range(1000))}
    assert codes == {ErrorCode.INVALID_REQUEST}


@pytest.mark.parametrize(("topic", "index"), [("nope", 0), ("t", 1)])
def test_what_the_cluster_does_not_know_is_unknown(topic: str, index: int) -> None:
    (part,) = ask(filled(100), LATEST, topic=topic, index=index)
    assert result_of(part) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


def test_only_the_leader_answers() -> None:
    (part,) = ask(filled(leader=1, isr=(0, 1), replicas=(0, 1)), LATEST)
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# ---- a leader that is new


def new_leader() -> Replicas:
    """Its two records may have been acknowledged by its predecessor; no follower has fetched."""
    return filled(100, isr=(0, 1), replicas=(0, 1)).lead("t", isr=(0, 1), replicas=(0, 1), epoch=2)


@pytest.mark.parametrize(
    ("version", "time_ms", "code"),
    [
        (5, LATEST, ErrorCode.OFFSET_NOT_AVAILABLE),
        (5, 100, ErrorCode.OFFSET_NOT_AVAILABLE),
        (4, LATEST, ErrorCode.LEADER_NOT_AVAILABLE),
        (1, 100, ErrorCode.LEADER_NOT_AVAILABLE),
        (0, LATEST, ErrorCode.LEADER_NOT_AVAILABLE),
    ],
)
def test_a_new_leader_does_not_tell_an_end_that_may_lie_before_what_was_told_already(
    version: int, time_ms: int, code: ErrorCode
) -> None:
    (part,) = ask(new_leader(), time_ms, version=version)
    assert (part.error_code, part.offset) == (code, -1)


def test_a_new_leader_tells_where_its_log_begins_and_a_follower_where_it_ends() -> None:
    replicas = new_leader()
    assert result_of(*ask(replicas, EARLIEST)) == (ErrorCode.NONE, -1, 0)
    assert result_of(*ask(replicas, LATEST, replica_id=FOLLOWER)) == (ErrorCode.NONE, -1, 2)


def test_once_the_followers_were_heard_a_new_leader_tells_all() -> None:
    replicas = new_leader()
    follower_at(replicas, T0, 2)
    assert result_of(*ask(replicas, LATEST)) == (ErrorCode.NONE, -1, 2)


def test_a_time_that_is_found_below_the_watermark_of_a_new_leader_is_told() -> None:
    replicas = new_leader()
    follower_at(replicas, T0, 1)
    assert result_of(*ask(replicas, 100)) == (ErrorCode.NONE, 100, 0)
    assert ask(replicas, 101)[0].error_code == ErrorCode.OFFSET_NOT_AVAILABLE


# ---- off the event loop


def ask_for_all(replicas: Replicas, *times: int) -> Wait:
    """Ask all partitions for a time each; the response must not come at once."""
    list_request = ListOffsetsRequest(
        replica_id=CONSUMER,
        topics=[
            ListOffsetsRequestTopic(
                name="t",
                partitions=[
                    ListOffsetsRequestPartition(partition_index=index, timestamp=time_ms)
                    for index, time_ms in enumerate(times)
                ],
            )
        ],
    )
    waiting = list_offsets.handle(
        replicas.manager, replicas.cache, replicas.deferred, 1000, list_request, context(5)
    )
    assert isinstance(waiting, Wait)
    return waiting


async def ask_apart(
    replicas: Replicas, *times: int, meanwhile: Callable[[], None] = lambda: None
) -> list[ListOffsetsResponsePartition]:
    """Ask all partitions for a time each, and wait for the response."""
    waiting = ask_for_all(replicas, *times)
    meanwhile()
    response = await replicas.ended(waiting)
    return [p for t in response.topics for p in t.partitions]


LARGE = b"v" * (2 * SOON_READ_BYTES)


@pytest.mark.parametrize(
    ("codec", "value"), [(Codec.GZIP, b"small"), (Codec.NONE, LARGE), (Codec.ZSTD, LARGE)]
)
async def test_batches_that_take_long_to_read_are_looked_into_off_the_loop(
    codec: Codec, value: bytes
) -> None:
    replicas = Replicas().lead("t", 4)
    records = [(time_ms, None, value, ()) for time_ms in (100, 110, 120)]
    for index in range(3):
        replicas.manager.append(
            TopicPartition("t", index),
            encode_batch(records, codec=codec),
            all_in_sync=False,
            zstd_allowed=True,
            now_ms=1,
        )
    first, second, latest, missing, unknown = await ask_apart(replicas, 105, 120, LATEST, 5, 5)
    assert result_of(first) == (ErrorCode.NONE, 110, 1)
    assert result_of(second) == (ErrorCode.NONE, 120, 2)
    assert result_of(latest) == (ErrorCode.NONE, -1, 3)
    assert result_of(missing) == (ErrorCode.NONE, -1, -1)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_many_times_are_looked_up_off_the_loop_however_small_the_batches_are() -> None:
    partitions = list_offsets.LOOKED_UP_AT_ONCE + 1
    replicas = Replicas().lead("t", partitions)
    for index in range(partitions):
        data = encode_batch([(index, None, b"v", ())])
        topic_partition = TopicPartition("t", index)
        replicas.manager.append(
            topic_partition, data, all_in_sync=False, zstd_allowed=True, now_ms=1
        )
    answers = await ask_apart(replicas, *[0] * partitions)
    assert [part.timestamp for part in answers] == list(range(partitions))


async def test_damage_found_in_a_thread_is_told_of_its_partition() -> None:
    replicas = Replicas().lead("t", 2)
    for index in range(2):
        replicas.manager.append(
            TopicPartition("t", index),
            encode_batch([(100, None, LARGE, ())]),
            all_in_sync=False,
            zstd_allowed=True,
            now_ms=1,
        )
    log = replicas.manager.log(T0)
    log.segments.active.log.write(log.size - 100, b"?")
    damaged, whole = await ask_apart(replicas, 0, 0)
    assert damaged.error_code == ErrorCode.CORRUPT_MESSAGE
    assert result_of(whole) == (ErrorCode.NONE, 100, 0)


def coarse(batches: int, *, leader: int = 0) -> Replicas:
    """A topic whose batches have one time, and the last one the next."""
    replicas = Replicas().lead("t")
    for time_ms in [100] * batches + [200]:
        data = encode_batch([(time_ms, None, b"v", ())])
        replicas.manager.append(T0, data, all_in_sync=False, zstd_allowed=True, now_ms=1)
    return replicas


@pytest.mark.fault("core-R3")
async def test_times_that_lie_behind_many_batches_are_looked_up_off_the_loop() -> None:
    replicas = coarse(2 * WALKED_AT_ONCE)
    (part,) = await ask_apart(replicas, 101)
    assert result_of(part) == (ErrorCode.NONE, 200, 2 * WALKED_AT_ONCE)


def test_times_that_lie_behind_few_batches_are_looked_up_at_once() -> None:
    (part,) = ask(coarse(WALKED_AT_ONCE // 2), 101)
    assert result_of(part) == (ErrorCode.NONE, 200, WALKED_AT_ONCE // 2)


@pytest.mark.fault("core-R3")
def test_a_followers_log_is_not_looked_into(caplog: pytest.LogCaptureFixture) -> None:
    replicas = coarse(3)
    log = replicas.manager.log(T0)
    replicas.lead("t", leader=1, isr=(0, 1), replicas=(0, 1), epoch=1)
    log.segments.active.log.write(16, b"?")  # a thread may be truncating it
    caplog.clear()
    (part,) = ask(replicas, 101)
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert caplog.records == []


@pytest.mark.fault("strangers-97")
async def test_what_was_found_in_time_is_told_and_the_rest_is_to_be_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each request gets on: with all or nothing no timeout helped a client."""
    replicas = Replicas().lead("t", 2)
    for index in range(2):
        data = encode_batch([(100, None, LARGE, ())])
        topic_partition = TopicPartition("t", index)
        replicas.manager.append(
            topic_partition, data, all_in_sync=False, zstd_allowed=True, now_ms=1
        )

    look_up = list_offsets._look_up

    async def hang_at_the_second(place: list_offsets.Place, *args: Any) -> Any:
        if place[0] is replicas.manager.log(TopicPartition("t", 1)):
            hangs.set()
            await asyncio.Event().wait()
        return await look_up(place, *args)

    hangs = asyncio.Event()
    monkeypatch.setattr(list_offsets, "_look_up", hang_at_the_second)
    waiting = ask_for_all(replicas, 50, 50)
    await hangs.wait()

    response = waiting.try_complete(True)
    assert isinstance(response, ListOffsetsResponse)
    first, second = response.topics[0].partitions
    assert result_of(first) == (ErrorCode.NONE, 100, 0)
    assert second.error_code == ErrorCode.REQUEST_TIMED_OUT


def lead_again(replicas: Replicas) -> None:
    """The partition has got a new leader epoch."""
    replicas.lead("t", 2, epoch=1)


def move_to_another_directory(replicas: Replicas) -> None:
    """Another log has taken the place of the one that was looked into."""
    partition = replicas.manager.partition(T0)
    partition.log = copy.copy(partition.log)


@pytest.mark.fault("strangers-95")
@pytest.mark.parametrize("move", [lead_again, move_to_another_directory])
async def test_what_moves_while_others_are_looked_up_has_no_unknown_record(
    move: Callable[[Replicas], None],
) -> None:
    """Clients ask again. They took it for a log without a record that late, and skipped it."""
    replicas = Replicas().lead("t", 2)
    for index, value in enumerate((b"small", LARGE)):
        data = encode_batch([(100, None, value, ())])
        topic_partition = TopicPartition("t", index)
        replicas.manager.append(
            topic_partition, data, all_in_sync=False, zstd_allowed=True, now_ms=1
        )

    moved, _ = await ask_apart(replicas, 50, 50, meanwhile=lambda: move(replicas))
    assert moved.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    found, _ = await ask_apart(replicas, 50, 50)
    assert result_of(found) == (ErrorCode.NONE, 100, 0)
