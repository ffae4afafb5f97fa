"""One replica: its roles, its followers, its ISR and its watermarks."""

from __future__ import annotations

from typing import Any

import pytest

from broker.replication.isr import Follower
from broker.replication.partition import Partition, append_as_fetched
from core_log.appending.replicated_run import UnexpectedAppendOffset
from core_log.appending.validator import ValidBatch
from core_log.config import LogConfig
from core_log.log_manager import LogManager
from core_log.memory_directory import MemoryDirectory
from protocol.errors import ApiError, ErrorCode
from protocol.messages.leader_and_isr import LeaderAndIsrRequestPartitionState
from protocol.records.batch import read_header
from protocol.special_values import UNKNOWN_OFFSET
from protocol.topic_partition import TopicPartition
from tests.broker.replication.checked_partition import CheckedPartition
from tests.broker.replication.replicas import NOW_MS, batch
from zk.znodes import PartitionState

T0 = TopicPartition("t", 0)


def replica(config: LogConfig | None = None, **values: Any) -> Partition:
    """Make the replica of broker 0, of brokers 0 and 1, and give it its first state."""
    logs = LogManager([MemoryDirectory("logs")], LogConfig(), lambda: NOW_MS)
    logs.load()
    partition = CheckedPartition(T0, 0, logs.get_or_create(T0, config or LogConfig()))
    partition.take_state(state(**values), NOW_MS)
    return partition


def state(
    leader: int = 0,
    epoch: int = 3,
    isr: tuple[int, ...] = (0, 1),
    replicas: tuple[int, ...] = (0, 1),
    zk_version: int = 8,
) -> LeaderAndIsrRequestPartitionState:
    return LeaderAndIsrRequestPartitionState(
        partition_index=0,
        controller_epoch=2,
        leader=leader,
        leader_epoch=epoch,
        isr=isr,
        partition_epoch=zk_version,
        replicas=replicas,
    )


def append(partition: Partition, *values: bytes, all_in_sync: bool = False) -> int:
    data = batch(*values)
    header = read_header(data)
    valid = ValidBatch(data, header, header.max_timestamp)
    return partition.append(valid, all_in_sync=all_in_sync, now_ms=NOW_MS).last_offset


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


# ---- followers


LAG_MS = 10_000


def led(config: LogConfig | None = None, records: int = 0, **values: Any) -> Partition:
    """Make a replica that leads in epoch 3, with records that no follower has."""
    partition = replica(config, **values)
    for _ in range(records):
        append(partition, b"x")
    return partition


def fetch(partition: Partition, offset: int, after_ms: int = 0, replica: int = 1) -> bool:
    """Fetch as a follower; return whether the high watermark moved."""
    partition.note_follower_fetch(replica, offset, 0, NOW_MS + after_ms)
    return partition.advance_high_watermark(NOW_MS + after_ms)


def test_the_watermark_is_where_the_slowest_in_sync_is() -> None:
    partition = led(records=3, isr=(0, 1, 2), replicas=(0, 1, 2))
    assert not fetch(partition, 3)
    assert fetch(partition, 2, replica=2)
    assert partition.high_watermark == 2


def test_a_follower_that_asks_for_less_than_before_takes_no_watermark_back() -> None:
    partition = led(records=3)
    fetch(partition, 3)
    assert not fetch(partition, 1)
    assert partition.high_watermark == 3


def test_who_is_caught_up_holds_the_watermark_before_it_is_in_sync() -> None:
    partition = led(records=1, isr=(0,))
    fetch(partition, 1)
    append(partition, b"y")
    partition.advance_high_watermark(NOW_MS + LAG_MS)
    assert partition.high_watermark == 1
    partition.advance_high_watermark(NOW_MS + LAG_MS + 1)
    assert partition.high_watermark == 2


def test_who_is_neither_assigned_nor_in_sync_is_not_known() -> None:
    partition = led(records=1, isr=(0,))
    fetch(partition, 1, replica=9)
    assert 9 not in partition.followers
    assert partition.isr_with(9) is None


def test_a_follower_beyond_the_logs_end_is_not_believed() -> None:
    partition = led(records=2)
    fetch(partition, 5)
    assert (partition.high_watermark, partition.followers[1].end_offset) == (0, -1)


def test_a_follower_at_the_watermark_and_the_start_of_the_epoch_grows_the_isr() -> None:
    partition = led(records=3, isr=(0,))
    partition.advance_high_watermark(NOW_MS)
    fetch(partition, 2)
    assert partition.isr_with(1) is None
    fetch(partition, 3)
    assert partition.isr_with(1) == (0, 1)


def test_a_new_leader_takes_nobody_in_who_lacks_what_was_before_its_epoch() -> None:
    """Its own watermark lags behind what its predecessor has acknowledged (KAFKA-7128)."""
    partition = led(records=3, isr=(0, 2), replicas=(0, 1, 2))
    partition.take_state(state(leader=2, epoch=4), NOW_MS)
    partition.take_state(state(epoch=5, isr=(0, 2), replicas=(0, 1, 2)), NOW_MS)
    assert partition.high_watermark == 0
    fetch(partition, 2)
    assert partition.isr_with(1) is None
    fetch(partition, 3)
    assert partition.isr_with(1) == (0, 2, 1)


def test_a_replica_that_is_being_taken_away_does_not_come_back_into_the_isr() -> None:
    partition = led(records=1, isr=(0, 1), replicas=(0,))
    partition.confirm_isr((0,), 9)
    fetch(partition, 1)
    assert partition.isr_with(1) is None


def test_who_is_behind_for_the_lag_time_leaves_the_isr() -> None:
    partition = led(records=1)
    assert partition.isr_without_lagging(NOW_MS + LAG_MS) is None
    assert partition.isr_without_lagging(NOW_MS + LAG_MS + 1) == (0,)


def test_a_burst_that_is_over_within_the_lag_time_writes_nothing() -> None:
    partition = led(records=1)
    fetch(partition, 1)
    for _ in range(100):
        append(partition, b"x")
    assert partition.isr_without_lagging(NOW_MS + LAG_MS) is None
    fetch(partition, 101, after_ms=LAG_MS)
    assert partition.isr_without_lagging(NOW_MS + 2 * LAG_MS) is None


# ---- changes of the ISR


def test_a_proposal_is_the_state_over_the_version_that_is_known() -> None:
    change = led().propose_isr((0,))
    assert (change.topic_partition, change.zk_version) == (T0, 8)
    assert change.state == PartitionState(0, 3, (0,), 2)


def test_while_a_proposal_is_under_way_there_is_no_other() -> None:
    partition = led(records=1, isr=(0, 1), replicas=(0, 1, 2))
    partition.advance_high_watermark(NOW_MS)
    partition.propose_isr((0,))
    fetch(partition, 1, replica=2)
    assert partition.isr_with(2) is None
    assert partition.isr_without_lagging(NOW_MS + 2 * LAG_MS) is None


def test_who_is_to_leave_holds_the_watermark_until_it_is_written() -> None:
    partition = led(records=1)
    partition.propose_isr((0,))
    assert not partition.advance_high_watermark(NOW_MS + 2 * LAG_MS)
    partition.confirm_isr((0,), 9)
    assert partition.advance_high_watermark(NOW_MS + 2 * LAG_MS)
    assert (partition.isr, partition.zk_version, partition.high_watermark) == ((0,), 9, 1)


def test_who_is_to_come_holds_the_watermark_before_it_is_written() -> None:
    """The controller may see it in the ISR first, and have it lead."""
    partition = led(isr=(0,))
    fetch(partition, 0)
    partition.propose_isr((0, 1))
    append(partition, b"x")
    assert not partition.advance_high_watermark(NOW_MS + 2 * LAG_MS)


def test_what_is_proposed_does_not_count_for_min_insync_replicas() -> None:
    partition = led(LogConfig(min_insync_replicas=2), isr=(0,))
    fetch(partition, 0)
    partition.propose_isr((0, 1))
    with pytest.raises(ApiError, match="NOT_ENOUGH_REPLICAS"):
        append(partition, b"x", all_in_sync=True)
    partition.confirm_isr((0, 1), 9)
    assert append(partition, b"x", all_in_sync=True) == 0


def test_a_new_state_ends_a_proposal() -> None:
    partition = led()
    partition.propose_isr((0,))
    partition.is_superseded = True
    partition.take_state(state(epoch=4, zk_version=20), NOW_MS)
    assert (partition.proposed_isr, partition.is_superseded, partition.zk_version) == (
        None,
        False,
        20,
    )


def test_who_was_superseded_proposes_no_more() -> None:
    partition = led(records=1)
    partition.is_superseded = True
    assert partition.isr_without_lagging(NOW_MS + 2 * LAG_MS) is None


# ---- how far records are kept


def test_a_leader_counts_itself_for_what_flush_messages_lets_it() -> None:
    partition = led(LogConfig(flush_messages=2), isr=(0,))
    append(partition, b"a")
    assert partition.advance_high_watermark(NOW_MS)
    append(partition, b"b")
    assert not partition.advance_high_watermark(NOW_MS)
    flush = partition.log.begin_flush()
    flush.run()
    partition.log.end_flush(flush)
    assert partition.advance_high_watermark(NOW_MS)
    assert partition.high_watermark == 2


def test_the_low_watermark_is_of_the_replicas_that_live() -> None:
    partition = led(records=3, isr=(0, 1, 2), replicas=(0, 1, 2))
    for offset, start in ((1, 1), (2, 3)):
        partition.note_follower_fetch(offset, 3, start, NOW_MS)
    partition.log.increment_log_start_offset(2)
    assert partition.low_watermark({0, 1, 2}) == 1
    assert partition.low_watermark({0, 2}) == 2


# ---- following


def follower(records: int = 0, watermark: int = 0) -> Partition:
    """Make a replica that follows broker 1 in epoch 4, with records of its own."""
    partition = led(records=records, isr=(0,))
    partition.take_state(state(leader=1, epoch=4), NOW_MS)
    partition.high_watermark = watermark
    return partition


def take_fetched(
    partition: Partition, records: memoryview, high_watermark: int, start: int, now_ms: int
) -> None:
    """Take a leader's response, as a fetcher does."""
    if records:
        append_as_fetched(partition.log, records, now_ms)
    partition.follow_watermarks(high_watermark, start)


def sent(base_offset: int, *values: bytes) -> memoryview:
    data = bytearray(batch(*values))
    data[0:8] = base_offset.to_bytes(8, "big")
    return memoryview(bytes(data))


NOTHING = memoryview(b"")


def test_the_watermark_of_a_follower_is_the_leaders_as_far_as_its_log_goes() -> None:
    partition = follower()
    take_fetched(partition, sent(0, b"a", b"b"), 1, 0, NOW_MS)
    assert partition.high_watermark == 1
    take_fetched(partition, sent(2, b"c"), 9, 0, NOW_MS)
    assert partition.high_watermark == 3


def test_a_leader_that_knows_less_takes_no_watermark_back() -> None:
    partition = follower(records=3, watermark=3)
    take_fetched(partition, NOTHING, 1, 0, NOW_MS)
    assert partition.high_watermark == 3


def test_a_truncation_takes_the_watermark_with_it() -> None:
    partition = follower(records=3, watermark=3)
    partition.log.truncate_to(1)
    partition.note_truncation()
    assert (partition.log.log_end_offset, partition.high_watermark) == (1, 1)


def test_a_log_begun_anew_is_committed_where_it_begins() -> None:
    partition = follower(records=3, watermark=3)
    partition.log.truncate_fully_and_start_at(50)
    partition.note_new_start()
    assert (partition.log.log_start_offset, partition.high_watermark) == (50, 50)


def test_a_truncation_to_the_end_forgets_an_epoch_in_which_nothing_was_written() -> None:
    partition = led(records=2, isr=(0,))
    partition.take_state(state(epoch=6), NOW_MS)
    assert partition.log.leader_epochs.entries == [(3, 0), (6, 2)]
    partition.take_state(state(leader=1, epoch=7), NOW_MS)
    partition.log.truncate_to(2)
    partition.note_truncation()
    assert partition.log.leader_epochs.entries == [(3, 0)]


def test_the_start_of_the_log_follows_the_leaders_and_never_passes_the_watermark() -> None:
    partition = follower(records=3, watermark=1)
    take_fetched(partition, NOTHING, 2, 3, NOW_MS)
    assert partition.log.log_start_offset == 2
    take_fetched(partition, NOTHING, 3, 1, NOW_MS)
    assert partition.log.log_start_offset == 2


def test_below_its_start_a_log_takes_only_the_batch_in_which_it_begins_and_only_when_empty() -> (
    None
):
    partition = follower()
    partition.log.truncate_fully_and_start_at(5)
    partition.note_new_start()
    with pytest.raises(UnexpectedAppendOffset):
        take_fetched(partition, sent(3, b"d"), 5, 5, NOW_MS)
    take_fetched(partition, sent(4, b"e", b"f", b"g"), 7, 5, NOW_MS)
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (5, 7)
    take_fetched(partition, sent(7, b"h"), 8, 5, NOW_MS)
    for base_offset in (3, 7):
        with pytest.raises(UnexpectedAppendOffset):
            take_fetched(partition, sent(base_offset, b"d", b"e"), 8, 5, NOW_MS)
    take_fetched(partition, sent(8, b"i"), 9, 5, NOW_MS)
    assert (partition.log.log_end_offset, partition.high_watermark) == (9, 9)


# ---- invariants


def break_leader(partition: Partition, what: str) -> None:
    """Bring a leader into a state that must not be."""
    match what:
        case "a leader's high watermark went back":
            partition.high_watermark = 0
        case "the leader epoch went back":
            partition.leader_epoch -= 1
        case "the log starts above the watermark":
            partition.log.increment_log_start_offset(2)
        case "the watermark is above the log's end":
            partition.high_watermark = 3
        case "the log has an epoch that has not begun":
            partition.log.begin_epoch(9)
        case "the leader is not in the ISR":
            partition.isr = (1,)
        case "the leader follows itself":
            partition.followers[0] = partition.followers[1]
        case "an assigned replica has no follower entry":
            partition.replicas = (0, 1, 2)
        case "a replica in the ISR is neither assigned nor leaving":
            partition.isr = (0, 1, 2)
        case "a proposed replica is not assigned":
            partition.maximal_isr = (0, 1, 2)
        case "the maximal ISR lacks one of the ISR":
            partition.maximal_isr = (0,)
        case "the maximal ISR lacks a replica that is proposed":
            partition.isr = partition.maximal_isr = (0,)
            partition.proposed_isr = (0, 1)
        case "a leader's log was truncated":
            partition.epoch_start_offset = 3
        case "the log of a leader is lent to a thread":
            partition.log.is_lent = True


@pytest.mark.parametrize(
    "what",
    [
        "a leader's high watermark went back",
        "the leader epoch went back",
        "the log starts above the watermark",
        "the watermark is above the log's end",
        "the log has an epoch that has not begun",
        "the leader is not in the ISR",
        "the leader follows itself",
        "an assigned replica has no follower entry",
        "a replica in the ISR is neither assigned nor leaving",
        "a proposed replica is not assigned",
        "the maximal ISR lacks one of the ISR",
        "the maximal ISR lacks a replica that is proposed",
        "a leader's log was truncated",
        "the log of a leader is lent to a thread",
    ],
)
def test_check_names_what_a_leader_must_not_be(what: str) -> None:
    partition = led(records=2)
    fetch(partition, 1)
    partition.check()
    break_leader(partition, what)
    with pytest.raises(AssertionError, match=f"^{what}"):
        partition.check()


def test_check_refuses_followers_and_proposals_of_a_replica_that_follows() -> None:
    partition = follower(records=1)
    partition.followers[1] = Follower.at_epoch_start(True, 1, NOW_MS)
    with pytest.raises(AssertionError, match="has followers"):
        partition.check()
    partition.followers.clear()
    partition.proposed_isr = (0,)
    with pytest.raises(AssertionError, match="proposes an ISR"):
        partition.check()


def test_check_looks_at_no_offsets_of_a_log_that_is_lent() -> None:
    partition = follower(records=2, watermark=2)
    partition.log.is_lent = True
    partition.log.truncate_to(1)
    partition.check()
    partition.log.is_lent = False
    with pytest.raises(AssertionError, match="the watermark is above the log's end"):
        partition.check()


def test_stopped_replica_has_no_followers_and_no_proposal() -> None:
    partition = led(records=1)
    partition.propose_isr((0,))
    partition.stop()
    assert (partition.is_leader, partition.followers, partition.proposed_isr) == (False, {}, None)


def test_replica_that_lacks_the_start_of_the_epoch_must_not_be_proposed() -> None:
    partition = led(isr=(0,))
    append(partition, b"a")
    partition.take_state(state(epoch=4, isr=(0,)), NOW_MS)
    with pytest.raises(AssertionError, match="KAFKA-7128"):
        partition.propose_isr((0, 1))
