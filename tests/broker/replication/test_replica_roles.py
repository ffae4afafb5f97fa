"""The roles of a broker's replicas: control requests, and logs that are missing or damaged."""

from __future__ import annotations

from typing import Any

import pytest

from core_log.config import LogConfig
from core_log.memory_directory import MemoryDirectory
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import TopicPartition
from tests.broker.replication.control_requests import (
    NotedWaits,
    append,
    codes,
    lead_or_follow,
    stop,
)
from tests.broker.replication.replicas import NOW_MS, Replicas, batch

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_broker_leads_what_it_is_told_to() -> None:
    replicas = Replicas()
    assert codes(lead_or_follow(replicas, "t", 2)) == [ErrorCode.NONE] * 3
    assert all(p.is_leader for p in replicas.manager.partitions.values())
    assert replicas.directory.children() == ["t-0", "t-1"]


def test_an_empty_request_is_answered() -> None:
    """A Kafka controller sends an empty request to every broker that starts."""
    assert codes(lead_or_follow(Replicas(), "t", 0)) == [ErrorCode.NONE]


@pytest.mark.parametrize("epoch", [2, 3])
def test_a_leader_epoch_that_is_not_newer_changes_nothing(epoch: int) -> None:
    replicas = Replicas().lead("t", epoch=3)
    answer = lead_or_follow(replicas, "t", leader=1, replicas=(0, 1), epoch=epoch)
    assert codes(answer) == [ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH]
    assert replicas.manager.partition(T0).is_leader


def test_a_broker_that_is_no_replica_refuses_and_makes_no_log() -> None:
    replicas = Replicas()
    answer = lead_or_follow(replicas, "t", leader=1, isr=(1,), replicas=(1, 2))
    assert codes(answer) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert replicas.directory.children() == []


def test_a_log_that_cannot_be_begun_is_begun_when_asked_again_and_the_others_go_on() -> None:
    replicas = Replicas().lead("t")
    replicas.manager.topic_config = lambda _: LogConfig(preallocate=True)
    replicas.directory.disk.free_bytes = 1000
    assert codes(lead_or_follow(replicas, "u")) == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
    append(replicas, T0, b"a")
    replicas.directory.disk.free_bytes = None
    assert codes(lead_or_follow(replicas, "u")) == [ErrorCode.NONE, ErrorCode.NONE]
    append(replicas, TopicPartition("u", 0), b"a")


def test_leadership_is_told_once_per_request_leaders_apart_from_followers() -> None:
    replicas, heard = Replicas(), list[Any]()
    replicas.manager.leadership.subscribe(
        lambda leaders, followers: heard.append((leaders, followers))
    )
    lead_or_follow(replicas, "t", 2)
    lead_or_follow(replicas, "t", 1, leader=1, replicas=(0, 1), epoch=1)
    assert heard == [([T0, T1], []), ([], [T0])]


def test_who_waits_for_a_partition_is_woken_when_its_leader_moves() -> None:
    replicas = Replicas().lead("t")
    waits = replicas.manager.waits = NotedWaits()
    lead_or_follow(replicas, "t", leader=1, replicas=(0, 1), epoch=1)
    assert waits.woken == [("all", T0)]


def test_a_stopped_replica_is_not_served_and_keeps_its_log() -> None:
    replicas = Replicas().lead("t")
    append(replicas, T0, b"a")
    assert codes(stop(replicas, T0)) == [ErrorCode.NONE] * 2
    with pytest.raises(ApiError, match="NOT_LEADER_OR_FOLLOWER"):
        replicas.manager.read(T0, 0, 100, min_one=True)
    lead_or_follow(replicas, "t", epoch=1)
    assert replicas.manager.log(T0).log_end_offset == 1


def test_a_deleted_replica_leaves_an_empty_place() -> None:
    replicas = Replicas().lead("t")
    append(replicas, T0, b"a")
    assert codes(stop(replicas, T0, delete=True)) == [ErrorCode.NONE] * 2
    (left,) = replicas.directory.children()
    assert left.startswith("t-0.")
    assert left.endswith("-delete")
    lead_or_follow(replicas, "t", epoch=0)
    assert replicas.manager.log(T0).log_end_offset == 0


def test_a_log_on_disk_that_was_never_served_is_deleted_too() -> None:
    disk = MemoryDirectory("logs")
    before = Replicas(directory=disk).lead("t")
    before.manager.logs.close()
    again = Replicas(directory=disk)
    assert codes(stop(again, T0, delete=True)) == [ErrorCode.NONE] * 2
    assert again.manager.logs.get(T0) is None


def test_stopping_what_is_not_there_is_done_already() -> None:
    assert codes(stop(Replicas(), T0, delete=True)) == [ErrorCode.NONE] * 2


def test_stopping_tells_the_followers_it_makes() -> None:
    replicas, heard = Replicas().lead("t"), list[Any]()
    replicas.manager.leadership.subscribe(
        lambda leaders, followers: heard.append((leaders, followers))
    )
    stop(replicas, T0)
    assert heard == [([], [T0])]


def test_until_the_controller_has_spoken_leadership_is_not_known() -> None:
    """The watermarks of before must not be overwritten then."""
    replicas = Replicas()
    assert not replicas.manager.is_leadership_known
    lead_or_follow(replicas, "t", 0)
    assert replicas.manager.is_leadership_known


def test_what_is_followed_is_fetched_from_the_leader_of_now() -> None:
    replicas = Replicas()
    lead_or_follow(replicas, "t", 2, leader=1, isr=(0, 1), replicas=(0, 1))
    assert replicas.fetchers.following == {T0: 1, T1: 1}
    lead_or_follow(replicas, "t", 1, leader=2, isr=(0, 2), replicas=(0, 1, 2), epoch=1)
    assert replicas.fetchers.following == {T0: 2, T1: 1}
    lead_or_follow(replicas, "t", 1, leader=0, isr=(0, 2), replicas=(0, 1, 2), epoch=2)
    assert replicas.fetchers.following == {T1: 1}
    lead_or_follow(replicas, "t", 2, leader=-1, isr=(0,), replicas=(0, 1, 2), epoch=3)
    assert replicas.fetchers.following == {}


def test_a_stopped_replica_is_fetched_no_more() -> None:
    replicas = Replicas()
    lead_or_follow(replicas, "t", 2, leader=1, isr=(0, 1), replicas=(0, 1))
    stop(replicas, T0)
    assert replicas.fetchers.following == {T1: 1}


def test_who_led_before_and_leads_again_after_others_hears_that_it_was_a_follower_between() -> None:
    replicas, heard = Replicas().lead("t", isr=(0, 1), replicas=(0, 1)), list[Any]()
    replicas.manager.leadership.subscribe(
        lambda leaders, followers: heard.append((leaders, followers))
    )
    lead_or_follow(replicas, "t", isr=(0, 1), replicas=(0, 1), epoch=1)
    lead_or_follow(replicas, "t", isr=(0, 1), replicas=(0, 1), epoch=3)
    assert heard == [([T0], []), ([T0], [T0])]


# ---- a replica whose log is not here


TRUSTED = {"isr": (0, 1), "replicas": (0, 1), "epoch": 5}


@pytest.mark.fault("stories-1")
@pytest.mark.parametrize("leader", [0, 1])
@pytest.mark.parametrize("epoch", [0, 5])
def test_a_replica_that_is_trusted_and_has_lost_its_log_does_not_begin_anew(
    leader: int, epoch: int
) -> None:
    replicas = Replicas()
    state = {**TRUSTED, "leader": leader, "epoch": epoch, "is_new": False}
    answer = lead_or_follow(replicas, "t", **state)
    assert codes(answer) == [ErrorCode.NONE, ErrorCode.LOG_DIR_NOT_FOUND]
    assert (replicas.directory.children(), replicas.manager.partitions) == ([], {})


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"isr": (1,), "leader": 1}, id="nobody trusts it"),
        pytest.param({"is_new": True}, id="it is new here"),
    ],
)
def test_a_replica_begins_anew_where_that_breaks_no_trust(changed: dict[str, Any]) -> None:
    replicas = Replicas()
    assert codes(lead_or_follow(replicas, "t", **{**TRUSTED, **changed})) == [ErrorCode.NONE] * 2
    assert replicas.directory.children() == ["t-0"]


def test_a_replica_whose_log_is_there_goes_on_with_it() -> None:
    disk = MemoryDirectory("logs")
    before = Replicas(directory=disk).lead("t")
    append(before, T0, b"a")
    before.manager.logs.close()
    again = Replicas(directory=disk)
    assert codes(lead_or_follow(again, "t", **TRUSTED)) == [ErrorCode.NONE] * 2
    assert again.manager.log(T0).log_end_offset == 1


# ---- a replica whose log is damaged


def damaged() -> Replicas:
    """Broker 0 again, of whose five records on disk the third cannot be read."""
    disk = MemoryDirectory("logs")
    before = Replicas(directory=disk, config=LogConfig(segment_bytes=200)).lead("t")
    for value in (b"a", b"b", b"c", b"d", b"e"):
        append(before, T0, value)
    before.manager.logs.close()
    third = disk.child("t-0").files()
    disk.child("t-0").remove(next(name for name in third if name.endswith("2.log")))
    return Replicas(directory=disk, config=LogConfig(segment_bytes=200))


def stored(replicas: Replicas) -> list[str]:
    return [n for n in replicas.directory.child("t-0").files() if n.endswith(".log")]


@pytest.mark.parametrize(
    ("state", "code"),
    [
        pytest.param({}, ErrorCode.CORRUPT_MESSAGE, id="leader, in sync with another"),
        pytest.param({"leader": 1}, ErrorCode.CORRUPT_MESSAGE, id="in sync with its leader"),
        pytest.param({"isr": (0,)}, ErrorCode.KAFKA_STORAGE_ERROR, id="alone in sync"),
        pytest.param({"isr": (0,), "leader": -1}, ErrorCode.KAFKA_STORAGE_ERROR, id="no leader"),
        pytest.param(
            {"isr": (1,), "leader": -1}, ErrorCode.KAFKA_STORAGE_ERROR, id="whom to follow?"
        ),
        pytest.param({"isr": (0,), "is_new": True}, ErrorCode.KAFKA_STORAGE_ERROR, id="new"),
    ],
)
def test_a_damaged_log_is_neither_led_nor_trusted_nor_cut(
    state: dict[str, Any], code: ErrorCode
) -> None:
    replicas = damaged()
    before = stored(replicas)
    assert codes(lead_or_follow(replicas, "t", **{**TRUSTED, **state})) == [ErrorCode.NONE, code]
    assert stored(replicas) == before
    with pytest.raises(ApiError, match="KAFKA_STORAGE_ERROR: t-0: it is damaged"):
        replicas.manager.partition(T0)


def test_a_damaged_log_out_of_the_isr_is_cut_and_follows() -> None:
    replicas = damaged()
    answer = lead_or_follow(replicas, "t", **{**TRUSTED, "isr": (1,), "leader": 1})
    assert codes(answer) == [ErrorCode.NONE] * 2
    assert replicas.manager.log(T0).log_end_offset == 2
    assert replicas.manager.high_watermark(T0) <= 2
    assert replicas.fetchers.following == {T0: 1}
    records = batch(b"c")
    replicas.manager.log(T0).append_follower(stamped(records, 2), now_ms=NOW_MS)
    assert replicas.manager.log(T0).log_end_offset == 3


def stamped(records: bytes, offset: int) -> bytes:
    """As a leader has them."""
    return offset.to_bytes(8, "big") + records[8:12] + (5).to_bytes(4, "big") + records[16:]


def test_a_log_that_cannot_be_opened_is_not_taken_for_one_that_is_lost() -> None:
    disk = MemoryDirectory("logs")
    before = Replicas(directory=disk).lead("t")
    append(before, T0, b"a")
    before.manager.logs.close()
    disk.child("t-0").write_atomic("x.log", b"")
    again = Replicas(directory=disk)
    for epoch, isr in ((1, (0,)), (2, (1,))):
        answer = lead_or_follow(again, "t", leader=1, isr=isr, replicas=(0, 1), epoch=epoch)
        assert codes(answer) == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]


@pytest.mark.parametrize("name", ["../outside", "sub/dir", "..", ""])
def test_name_that_leads_out_of_the_log_directory_is_refused(name: str) -> None:
    replicas = Replicas()
    assert codes(lead_or_follow(replicas, name)) == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert replicas.directory.children() == []
    answer = stop(replicas, TopicPartition(name, 0), delete=True)
    assert codes(answer) == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION]
