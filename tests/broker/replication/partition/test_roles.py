"""A replica and its role: what it keeps, appends and refuses."""

from __future__ import annotations

import pytest

from broker.replication.partition import Partition
from core_log.config import LogConfig
from core_log.log_manager import LogManager
from core_log.memory_directory import MemoryDirectory
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch import read_header
from protocol.special_values import UNKNOWN_OFFSET
from tests.broker.replication.partition.replica import T0, append, replica, state
from tests.broker.replication.replicas import NOW_MS


def refusal(partition: Partition, current_leader_epoch: int = -1) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        partition.require_leader(current_leader_epoch)
    return refused.value.code


def test_before_the_controller_speaks_it_leads_nothing() -> None:
    logs = LogManager([MemoryDirectory("logs")], LogConfig(), lambda: NOW_MS)
    logs.load()
    silent = Partition(T0, 0, logs.get_or_create(T0, LogConfig()))
    assert refusal(silent) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_it_keeps_all_that_the_controller_says() -> None:
    partition = replica()
    assert partition.is_leader
    assert (partition.leader_epoch, partition.controller_epoch, partition.zk_version) == (3, 2, 8)
    assert (partition.replicas, partition.isr) == ((0, 1), (0, 1))


def test_a_follower_refuses_to_append() -> None:
    partition = replica(leader=1)
    with pytest.raises(ApiError, match="NOT_LEADER_OR_FOLLOWER"):
        append(partition, b"a")
    assert partition.log.log_end_offset == 0


@pytest.mark.parametrize(
    ("leader", "epoch", "code"),
    [
        (0, 2, ErrorCode.FENCED_LEADER_EPOCH),
        (0, 4, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (1, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (1, 3, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (1, 2, ErrorCode.FENCED_LEADER_EPOCH),
        (1, 4, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_what_a_client_believes_of_the_epoch_is_judged_before_who_leads(
    leader: int, epoch: int, code: ErrorCode
) -> None:
    assert refusal(replica(leader=leader), epoch) == code


@pytest.mark.parametrize("epoch", [-1, 3])
def test_a_client_with_the_right_epoch_or_none_is_answered(epoch: int) -> None:
    replica().require_leader(epoch)


def test_a_new_leader_notes_where_its_epoch_begins() -> None:
    partition = replica(isr=(0,))
    append(partition, b"a", b"b")
    partition.take_state(state(epoch=5), NOW_MS)
    assert partition.log.leader_epochs.entries == [(3, 0), (5, 2)]


def test_a_follower_notes_no_epoch() -> None:
    partition = replica(leader=1, epoch=9)
    assert partition.log.leader_epochs.entries == []


def test_a_leader_alone_in_sync_commits_what_its_log_held_already() -> None:
    partition = replica()
    append(partition, b"a")
    assert not partition.advance_high_watermark(NOW_MS)
    partition.take_state(state(isr=(0,), epoch=4), NOW_MS)
    assert partition.high_watermark == 1


@pytest.mark.parametrize("between", [[], [1]], ids=["same leader", "another one between"])
def test_what_followers_had_reached_is_forgotten_with_the_epoch(between: list[int]) -> None:
    """A follower that bounced may have lost records, and another leader may have truncated them."""
    partition = replica()
    append(partition, b"a", b"b")
    partition.note_follower_fetch(1, 1, 0, NOW_MS)
    for epoch, leader in enumerate([*between, 0], start=4):
        partition.take_state(state(epoch=epoch, leader=leader), NOW_MS)
    assert partition.followers[1].end_offset == UNKNOWN_OFFSET
    assert partition.high_watermark == 0


def test_with_too_few_in_sync_who_asks_for_all_is_refused_and_nothing_is_kept() -> None:
    partition = replica(LogConfig(min_insync_replicas=2), isr=(0,))
    with pytest.raises(ApiError, match=r"1 replicas in sync, min\.insync\.replicas is 2"):
        append(partition, b"a", all_in_sync=True)
    assert partition.log.log_end_offset == 0


def test_with_just_enough_in_sync_who_asks_for_all_is_served() -> None:
    assert append(replica(LogConfig(min_insync_replicas=2)), b"a", all_in_sync=True) == 0


def test_min_insync_replicas_does_not_count_for_who_asks_for_the_leader_alone() -> None:
    assert append(replica(LogConfig(min_insync_replicas=2), isr=(0,)), b"a") == 0


def test_records_carry_the_epoch_they_were_appended_in() -> None:
    partition = replica(isr=(0,))
    append(partition, b"a")
    stored = partition.log.read(0, 1000, 1)
    assert stored is not None
    assert read_header(stored.read()).partition_leader_epoch == 3
