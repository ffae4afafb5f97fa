"""Fetch: what is read, when a request waits, and the limits of both."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from broker.network.purgatory import Wait
from broker.replication.partition_waits import WATERMARK
from core_log.config import LogConfig
from protocol.errors import ErrorCode
from protocol.messages.fetch import NOT_DIVERGING, FetchRequestForgottenTopic
from protocol.topic_partition import TopicPartition
from tests.broker.fetch_requests import T0, T1, handle, parts, request, values
from tests.broker.replication.replicas import Replicas, batch, follower_at


def filled(*batches: bytes, partitions: int = 1, **lead: Any) -> Replicas:
    """A topic led here whose every partition holds `batches`."""
    replicas = Replicas().lead("t", partitions, **lead)
    for index in range(partitions):
        for data in batches:
            replicas.manager.append(
                TopicPartition("t", index), data, all_in_sync=False, zstd_allowed=True, now_ms=0
            )
    return replicas


def test_it_reads_from_the_batch_that_holds_the_offset() -> None:
    replicas = filled(batch(b"a", b"b"), batch(b"c"))
    (part,) = parts(handle(replicas, request((T0, 1))))
    assert values(part) == [b"a", b"b", b"c"]
    assert (part.high_watermark, part.last_stable_offset, part.log_start_offset) == (3, 3, 0)


def test_who_reads_by_a_bad_index_is_told_to_come_again_and_others_read_on() -> None:
    replicas = filled(batch(b"a"), partitions=2)
    log = replicas.manager.log(T0)
    log.segments.active.bad_index = "it does not fit"
    fetch_request = request((T0, 0), (T1, 0), max_wait_ms=500)

    bad, good = parts(handle(replicas, fetch_request))

    assert (bad.error_code, values(good)) == (ErrorCode.REPLICA_NOT_AVAILABLE, [b"a"])
    replicas.manager.start_flush(replicas.manager.partition(T0))
    replicas.flush()
    assert [values(part) for part in parts(handle(replicas, fetch_request))] == [[b"a"], [b"a"]]


def test_at_the_end_it_waits_and_an_append_ends_the_wait() -> None:
    replicas = filled(batch(b"a"))
    wait = handle(replicas, request((T0, 1), max_wait_ms=500))
    assert isinstance(wait, Wait)
    assert wait.keys == ((WATERMARK, T0),)
    assert wait.try_complete(False) is None
    replicas.manager.append(T0, batch(b"b"), all_in_sync=False, zstd_allowed=True, now_ms=0)
    (part,) = parts(wait.try_complete(False))
    assert values(part) == [b"b"]


def test_when_the_time_is_up_it_gives_what_there_is() -> None:
    wait = handle(filled(batch(b"a")), request((T0, 0), max_wait_ms=500, min_bytes=10_000))
    (part,) = parts(wait.try_complete(True))
    assert values(part) == [b"a"]


def test_what_is_not_replicated_is_not_shown_and_does_not_end_a_wait() -> None:
    replicas = filled(batch(b"a"), isr=(0, 1), replicas=(0, 1))
    wait = handle(replicas, request((T0, 0), max_wait_ms=500))
    assert wait.try_complete(False) is None
    (part,) = parts(wait.try_complete(True))
    assert (part.error_code, part.records, part.high_watermark) == (ErrorCode.NONE, b"", 0)


@pytest.mark.fault("security-14")
@pytest.mark.parametrize("replica", [0, 7])
@pytest.mark.parametrize("isr", [(0,), (0, 1)])
def test_who_claims_to_be_the_leader_or_a_stranger_gets_no_record_as_in_kafka(
    replica: int, isr: tuple[int, ...]
) -> None:
    replicas = filled(batch(b"a"), isr=isr, replicas=isr)
    before = replicas.manager.partition(T0).isr
    (part,) = parts(handle(replicas, request((T0, 0), replica=replica)))
    assert (part.error_code, part.records) == (ErrorCode.NONE, b"")
    assert replicas.manager.partition(T0).isr == before


@pytest.mark.parametrize("offset", [-1, 2])
def test_an_offset_out_of_range_is_said_at_once(offset: int) -> None:
    (part,) = parts(handle(filled(batch(b"a")), request((T0, offset), max_wait_ms=500)))
    assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (part.high_watermark, part.records) == (-1, b"")


def test_an_error_of_one_partition_leaves_the_others_their_data() -> None:
    unknown = TopicPartition("nope", 0)
    response = handle(filled(batch(b"a")), request((unknown, 0), (T0, 0), max_wait_ms=500))
    first, second = parts(response)
    assert first.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert values(second) == [b"a"]


@pytest.mark.fault("strangers-10")
@pytest.mark.parametrize("session", [(0, -1), (0, 0)])
@pytest.mark.parametrize("version", [4, 11, 12])
def test_what_is_named_again_counts_as_it_is_named_last_at_its_first_place(
    version: int, session: tuple[int, int]
) -> None:
    replicas = filled(batch(b"a"), batch(b"b"), partitions=2)
    again = request((T0, 0), (T1, 0), (T0, 1), (T1, 1), (T0, 1), session=session)

    first, second = parts(handle(replicas, again, version=version))

    assert (first.partition_index, values(first)) == (0, [b"b"])
    assert (second.partition_index, values(second)) == (1, [b"b"])


@pytest.mark.fault("strangers-10")
@pytest.mark.parametrize("version", [0, 2, 3])
def test_what_is_named_again_is_converted_once(version: int) -> None:
    again = request((T0, 0), (T0, 0), max_wait_ms=500)
    assert len(parts(handle(filled(batch(b"a")), again, version=version))) == 1


@pytest.mark.fault("strangers-10")
def test_what_is_named_again_is_waited_for_once() -> None:
    replicas = filled(batch(b"a"))
    wait = handle(replicas, request((T0, 0), (T0, 1), max_wait_ms=500))
    assert wait.keys == ((WATERMARK, T0),)
    replicas.write(T0, batch(b"b"))
    wait.note_moved(wait.keys[0])
    (part,) = parts(wait.try_complete(False))
    assert values(part) == [b"b"]


@pytest.mark.fault("strangers-44")
def test_a_request_waits_without_what_is_named_again_or_known_to_its_session() -> None:
    again = [(T0, 1), (T1, 1)] * 100
    wait = handle(filled(batch(b"a"), partitions=2), request(*again, max_wait_ms=500))
    (kept,) = wait.request.topics
    assert (kept.topic, [part.partition for part in kept.partitions]) == ("t", [0, 1])

    replicas = filled(batch(b"a"), partitions=2)
    first = handle(replicas, request(*again, session=(0, 0)))
    next_one = attrs.evolve(
        request(max_wait_ms=500, session=(first.session_id, 1)),
        forgotten_topics_data=[FetchRequestForgottenTopic(topic="t", partitions=range(2, 100))],
    )
    kept = handle(replicas, next_one).request
    assert (kept.topics, kept.forgotten_topics_data) == ([], ())


def test_only_the_leader_answers() -> None:
    replicas = Replicas().lead("t", leader=1, isr=(0, 1), replicas=(0, 1))
    (part,) = parts(handle(replicas, request((T0, 0))))
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (2, ErrorCode.FENCED_LEADER_EPOCH),
        (3, ErrorCode.NONE),
        (4, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_a_leader_epoch_is_compared(epoch: int, code: ErrorCode) -> None:
    (part,) = parts(handle(filled(batch(b"a"), epoch=3), request((T0, 0), epoch=epoch)))
    assert part.error_code == code


def test_the_first_batch_comes_whole_whatever_the_bounds_and_no_other() -> None:
    replicas = filled(batch(b"x" * 5000), batch(b"y" * 5000), partitions=2)
    first, second = parts(handle(replicas, request((T0, 0), (T1, 0), partition_max_bytes=100)))
    assert values(first) == [b"x" * 5000]
    assert (second.error_code, second.records) == (ErrorCode.NONE, b"")


def test_the_bytes_of_all_partitions_are_bounded_in_the_order_asked() -> None:
    replicas = filled(batch(b"x" * 1000), partitions=2)
    size = replicas.manager.log(T0).size
    first, second = parts(handle(replicas, request((T1, 0), (T0, 0), max_bytes=size)))
    assert (first.partition_index, values(first)) == (1, [b"x" * 1000])
    assert (second.partition_index, second.records) == (0, b"")


def test_the_brokers_own_bound_counts_too() -> None:
    replicas = filled(batch(b"x" * 1000), batch(b"y" * 1000))
    (part,) = parts(handle(replicas, request((T0, 0)), fetch_max_bytes=1100))
    assert values(part) == [b"x" * 1000]


def test_a_session_that_does_not_exist_is_refused_at_the_top() -> None:
    response = handle(filled(batch(b"a")), request((T0, 0), session=(5, 1)))
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert list(response.responses) == []


def test_closing_a_session_is_answered_as_a_full_fetch_without_one() -> None:
    response = handle(filled(batch(b"a")), request((T0, 0), session=(5, -1)))
    assert response.session_id == 0
    assert values(parts(response)[0]) == [b"a"]


@pytest.mark.parametrize(
    ("session", "code"),
    [
        ((0, 0), ErrorCode.NONE),
        ((5, 0), ErrorCode.NONE),
        ((0, 1), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    ],
)
def test_it_is_the_epoch_that_says_whether_a_session_is_gone_on_with(
    session: tuple[int, int], code: ErrorCode
) -> None:
    assert handle(filled(batch(b"a")), request((T0, 0), session=session)).error_code == code


@pytest.mark.parametrize(
    ("version", "code"), [(9, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (10, ErrorCode.NONE)]
)
def test_a_topic_kept_in_zstd_needs_version_ten(version: int, code: ErrorCode) -> None:
    replicas = Replicas(config=LogConfig(compression_type="zstd")).lead("t")
    replicas.manager.append(T0, batch(b"a"), all_in_sync=False, zstd_allowed=True, now_ms=0)
    response = handle(replicas, request((T0, 0)), version=version)
    assert parts(response)[0].error_code == code


# ---- a leader that is new


def new_leader() -> Replicas:
    """It has offsets 0 to 2, knows that 0 and 1 are committed, and its follower has not fetched."""
    replicas = filled(batch(b"a"), batch(b"b"), isr=(0, 1), replicas=(0, 1))
    follower_at(replicas, T0, 2)
    replicas.manager.append(T0, batch(b"c"), all_in_sync=False, zstd_allowed=True, now_ms=0)
    return replicas.lead("t", isr=(0, 1), replicas=(0, 1), epoch=2)


@pytest.mark.parametrize("isolation", [0, 1])
def test_a_new_leader_gives_what_is_below_its_watermark_and_tells_none(isolation: int) -> None:
    """Its predecessor may have shown a higher watermark."""
    replicas = new_leader()
    fetch_request = request((T0, 0), max_wait_ms=500, isolation=isolation)
    (part,) = parts(handle(replicas, fetch_request))
    assert (part.error_code, values(part)) == (ErrorCode.NONE, [b"a", b"b"])
    assert (part.high_watermark, part.last_stable_offset) == (-1, -1)
    follower_at(replicas, T0, 3)
    (part,) = parts(handle(replicas, fetch_request))
    assert (values(part), part.high_watermark) == ([b"a", b"b", b"c"], 3)
    assert part.last_stable_offset == 3


@pytest.mark.parametrize("offset", [2, 3])
def test_a_consumer_at_the_watermark_of_a_new_leader_waits_until_the_followers_were_heard(
    offset: int,
) -> None:
    replicas = new_leader()
    wait = handle(replicas, request((T0, offset), max_wait_ms=500))
    assert wait.try_complete(False) is None
    (part,) = parts(wait.try_complete(True))
    assert (part.error_code, part.records, part.high_watermark) == (ErrorCode.NONE, b"", -1)
    follower_at(replicas, T0, 3)
    if offset == 2:
        assert values(parts(wait.try_complete(False))[0]) == [b"c"]


def test_in_a_session_the_watermark_is_told_once_it_is_known() -> None:
    replicas = new_leader()
    opened = handle(replicas, request((T0, 3), session=(0, 0)))
    assert [part.high_watermark for part in parts(opened)] == [-1]
    follower_at(replicas, T0, 3)
    response = handle(replicas, request(session=(opened.session_id, 1)))
    assert [part.high_watermark for part in parts(response)] == [3]


# ---- followers


def test_what_a_follower_asks_for_is_what_it_has_and_the_answer_tells_the_watermark() -> None:
    replicas = filled(batch(b"a"), batch(b"b"), isr=(0, 1), replicas=(0, 1))
    fetch_request = request((T0, 1), replica=1)
    (part,) = parts(handle(replicas, fetch_request))
    assert (values(part), part.high_watermark) == ([b"b"], 1)


def test_a_follower_of_one_partition_alone_gets_that_one() -> None:
    replicas = filled(batch(b"a"), isr=(0, 1), replicas=(0, 1)).lead("u")
    other = TopicPartition("u", 0)
    replicas.manager.append(other, batch(b"x"), all_in_sync=False, zstd_allowed=True, now_ms=0)
    first, second = parts(handle(replicas, request((T0, 0), (other, 0), replica=1)))
    assert values(first) == [b"a"]
    assert (second.error_code, second.records) == (ErrorCode.NONE, b"")


def test_an_append_ends_the_wait_of_a_follower_and_its_fetch_that_of_a_consumer() -> None:
    replicas = filled(isr=(0, 1), replicas=(0, 1))
    follower = handle(replicas, request((T0, 0), max_wait_ms=500, replica=1))
    consumer = handle(replicas, request((T0, 0), max_wait_ms=500))
    replicas.manager.append(T0, batch(b"a"), all_in_sync=False, zstd_allowed=True, now_ms=0)
    assert values(parts(follower.try_complete(False))[0]) == [b"a"]
    assert consumer.try_complete(False) is None
    handle(replicas, request((T0, 1), replica=1))
    assert values(parts(consumer.try_complete(False))[0]) == [b"a"]


def test_who_becomes_a_follower_lets_nobody_wait() -> None:
    replicas = filled()
    wait = handle(replicas, request((T0, 0), max_wait_ms=500))
    replicas.lead("t", leader=1, isr=(0, 1), replicas=(0, 1), epoch=1)
    (part,) = parts(wait.try_complete(False))
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_session_goes_on_with_what_is_new_alone() -> None:
    replicas = filled(partitions=2)
    opened = handle(replicas, request((T0, 0), (T1, 0), session=(0, 0)))
    assert (opened.session_id > 0, len(parts(opened))) == (True, 2)
    replicas.manager.append(T1, batch(b"x"), all_in_sync=False, zstd_allowed=True, now_ms=0)
    (part,) = parts(handle(replicas, request(session=(opened.session_id, 1))))
    assert (part.partition_index, values(part)) == (1, [b"x"])


# ---- readers whose log has parted from the leader's (KIP-595)


def led_in_epochs(*epochs: int, isr: tuple[int, ...] = (0,)) -> Replicas:
    """Lead t in these epochs, and append two records in each."""
    replicas = Replicas()
    for epoch in epochs:
        replicas.lead("t", epoch=epoch, isr=isr, replicas=(0, 1))
        replicas.manager.append(
            T0, batch(b"a", b"b"), all_in_sync=False, zstd_allowed=True, now_ms=0
        )
    return replicas


@pytest.mark.parametrize(
    ("offset", "last_epoch", "parted"),
    [
        (4, 4, None),  # at the end of all epochs
        (2, 1, None),
        (1, 1, None),
        (2, 3, (1, 2)),  # the leader has no such epoch
        (3, 1, (1, 2)),  # the epoch ended before
        (6, 4, (4, 4)),  # the log ends before
    ],
)
def test_a_reader_learns_where_its_log_parts_from_the_leaders(
    offset: int, last_epoch: int, parted: tuple[int, int] | None
) -> None:
    replicas = led_in_epochs(1, 4)
    (part,) = parts(handle(replicas, request((T0, offset), last_epoch=last_epoch)))
    assert part.error_code == ErrorCode.NONE
    if parted is None:
        assert part.diverging_epoch is NOT_DIVERGING
    else:
        diverging = part.diverging_epoch
        assert (diverging.epoch, diverging.end_offset) == parted
        assert (part.records, part.high_watermark, part.log_start_offset) == (b"", 4, 0)


@pytest.mark.parametrize(("offset", "last_epoch"), [(0, 5), (-1, 1), (-1, 3)])
def test_an_epoch_or_offset_of_which_the_log_knows_nothing_is_out_of_range(
    offset: int, last_epoch: int
) -> None:
    replicas = led_in_epochs(1, 4)
    fetch_request = request((T0, offset), last_epoch=last_epoch, max_wait_ms=500)
    (part,) = parts(handle(replicas, fetch_request))
    assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_reader_that_must_truncate_does_not_wait() -> None:
    replicas = led_in_epochs(1, 4)
    (part,) = parts(handle(replicas, request((T0, 4), last_epoch=3, max_wait_ms=500)))
    assert part.diverging_epoch is not NOT_DIVERGING
    wait = handle(replicas, request((T0, 4), last_epoch=4, max_wait_ms=500))
    assert isinstance(wait, Wait)


def test_a_session_tells_each_time_that_a_reader_must_truncate_until_it_has() -> None:
    replicas = led_in_epochs(1, 4)
    opened = handle(replicas, request((T0, 4), session=(0, 0), last_epoch=3))
    session_id = opened.session_id
    for epoch in (1, 2):
        again = handle(replicas, request(session=(session_id, epoch), max_wait_ms=500))
        assert [p.diverging_epoch.end_offset for p in parts(again)] == [2]
    (part,) = parts(handle(replicas, request((T0, 2), session=(session_id, 3), last_epoch=1)))
    assert (part.diverging_epoch, values(part)) == (NOT_DIVERGING, [b"a", b"b"])


def test_a_follower_that_must_truncate_has_nothing_that_counts() -> None:
    replicas = led_in_epochs(1, 4, isr=(0, 1))
    (part,) = parts(handle(replicas, request((T0, 4), replica=1, last_epoch=3)))
    assert part.diverging_epoch is not NOT_DIVERGING
    assert replicas.manager.partition(T0).high_watermark == 0
    handle(replicas, request((T0, 4), replica=1, last_epoch=4))
    assert replicas.manager.partition(T0).high_watermark == 4
