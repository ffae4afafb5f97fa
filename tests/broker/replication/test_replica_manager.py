"""The replicas of a broker: control requests, appends, reads and their progress."""

from __future__ import annotations

from typing import Any

import pytest

from core_log.config import LogConfig
from core_log.memory_directory import MemoryDirectory
from protocol.errors import ApiError
from protocol.messages.fetch import FetchRequestPartition
from protocol.records.batch import decode_records
from protocol.topic_partition import TopicPartition
from tests.broker.replication.control_requests import (
    NotedWaits,
    append,
    lead_or_follow,
    stop,
)
from tests.broker.replication.replicas import NOW_MS, Replicas, batch, follower_at

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
U0 = TopicPartition("u", 0)


def test_an_append_moves_the_watermark_and_tells_who_listens() -> None:
    replicas, heard = Replicas().lead("t"), list[int]()
    manager = replicas.manager
    manager.on_high_watermark(T0, lambda: heard.append(manager.high_watermark(T0)))
    append(replicas, T0, b"a", b"b")
    append(replicas, T0, b"c")
    assert heard == [2, 3]


def test_a_batch_of_the_brokers_own_is_appended_as_it_is() -> None:
    replicas = Replicas().lead("t")
    appended = replicas.manager.append_local(T0, batch(b"a", b"b"), 5)
    assert (appended.base_offset, appended.last_offset) == (0, 1)
    stored = replicas.manager.read(T0, 0, 1000, min_one=True).range
    assert stored is not None
    assert [r.value for r in decode_records(stored.read())] == [b"a", b"b"]


def test_a_batch_of_the_brokers_own_needs_the_replicas_in_sync_too() -> None:
    replicas = Replicas(config=LogConfig(min_insync_replicas=2)).lead("t")
    with pytest.raises(ApiError, match="NOT_ENOUGH_REPLICAS"):
        replicas.manager.append_local(T0, batch(b"a"), 5)


def test_a_partition_that_is_not_here_is_led_elsewhere_as_far_as_clients_know() -> None:
    with pytest.raises(ApiError, match="NOT_LEADER_OR_FOLLOWER"):
        Replicas().manager.high_watermark(T0)


def test_the_checkpointed_watermark_is_where_a_restarted_broker_begins() -> None:
    disk = MemoryDirectory("logs")
    before = Replicas(directory=disk).lead("t", isr=(0, 1), replicas=(0, 1))
    append(before, T0, b"a", b"b", b"c")
    follower_at(before, T0, 2)
    before.manager.logs.checkpoint_high_watermarks(before.manager.high_watermarks())
    before.manager.logs.close()
    again = Replicas(directory=disk).lead("t", isr=(0, 1), replicas=(0, 1), epoch=1)
    assert (again.manager.high_watermark(T0), again.manager.log(T0).log_end_offset) == (2, 3)


def checkpoint(replicas: Replicas) -> dict[TopicPartition, int]:
    """Write the watermarks down; what is in the file then."""
    logs = replicas.manager.logs
    logs.checkpoint_high_watermarks(replicas.manager.watermarks_to_checkpoint())
    return logs.read_high_watermarks()


def test_watermarks_of_logs_that_are_not_served_yet_stay_in_the_checkpoint() -> None:
    disk = MemoryDirectory("logs")
    before = Replicas(directory=disk).lead("t").lead("u")
    append(before, T0, b"a", b"b")
    append(before, U0, b"a")
    assert checkpoint(before) == {T0: 2, U0: 1}
    before.manager.logs.close()

    again = Replicas(directory=disk).lead("t", epoch=1)
    append(again, T0, b"c")
    assert checkpoint(again) == {T0: 3, U0: 1}


@pytest.mark.fault("core-L5")
def test_watermark_of_a_replica_that_is_stopped_stays_and_goes_with_its_log() -> None:
    replicas = Replicas().lead("t").lead("u")
    append(replicas, T0, b"a", b"b")
    append(replicas, U0, b"a")
    replicas.roles.stop([T0], delete=False)
    replicas.roles.stop([U0], delete=True)
    assert checkpoint(replicas) == {T0: 2}
    # Not in memory either.
    assert replicas.manager.watermarks_to_checkpoint() == {T0: 2}


def test_a_checkpointed_watermark_beyond_the_log_is_cut_to_it() -> None:
    disk = MemoryDirectory("logs")
    before = Replicas(directory=disk).lead("t")
    append(before, T0, b"a")
    before.manager.logs.checkpoint_high_watermarks({T0: 99})
    before.manager.logs.close()
    again = Replicas(directory=disk).lead("t", isr=(0, 1), replicas=(0, 1), epoch=1)
    assert again.manager.high_watermark(T0) == 1


def test_new_settings_reach_the_logs_of_their_topic_alone() -> None:
    replicas = Replicas().lead("t").lead("u")
    replicas.manager.update_config("t", LogConfig(retention_ms=5))
    logs = replicas.manager.logs.logs
    assert {tp.topic: log.config.retention_ms for tp, log in logs.items()} == {
        "t": 5,
        "u": LogConfig().retention_ms,
    }


def test_a_flush_is_begun_when_an_append_makes_it_due() -> None:
    replicas = Replicas(config=LogConfig(flush_messages=2)).lead("t")
    append(replicas, T0, b"a")
    assert replicas.flushes == []
    append(replicas, T0, b"b")
    assert replicas.flushes == [replicas.manager.partition(T0)]


# ---- with followers


LAG_MS = 10_000


def with_follower(*, isr: tuple[int, ...] = (0, 1), **made: Any) -> Replicas:
    """Make broker 0 the leader of t-0 in epoch 0; broker 1 follows."""
    return Replicas(**made).lead("t", isr=isr, replicas=(0, 1))


def fetch(replicas: Replicas, offset: int, *, epoch: int = -1, start: int = 0) -> None:
    """Broker 1 asks for t-0."""
    asked = FetchRequestPartition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        log_start_offset=start,
        partition_max_bytes=1,
    )
    replicas.manager.follower_progress.note_follower_fetch(1, [(T0, asked)], NOW_MS)


def proposed(replicas: Replicas) -> list[tuple[int, ...]]:
    return [change.state.isr for change in replicas.proposals]


def test_a_follower_that_has_caught_up_is_proposed_and_counts_once_it_is_written() -> None:
    replicas = with_follower(isr=(0,))
    fetch(replicas, 0)
    fetch(replicas, 0)
    assert proposed(replicas) == [(0, 1)]
    assert replicas.manager.partition(T0).isr == (0,)
    replicas.manager.follower_progress.confirm_isr(replicas.proposals[0], (0, 1), 5, NOW_MS)
    assert (replicas.manager.partition(T0).isr, replicas.manager.partition(T0).zk_version) == (
        (0, 1),
        5,
    )


def test_who_has_fallen_behind_is_proposed_out_and_the_watermark_moves_when_it_is_written() -> None:
    replicas = with_follower()
    append(replicas, T0, b"a")
    replicas.manager.follower_progress.shrink_isrs(NOW_MS + LAG_MS)
    replicas.manager.follower_progress.shrink_isrs(NOW_MS + LAG_MS + 1)
    assert (proposed(replicas), replicas.manager.high_watermark(T0)) == ([(0,)], 0)
    waits = replicas.manager.waits = NotedWaits()
    replicas.manager.follower_progress.confirm_isr(
        replicas.proposals[0], (0,), 1, NOW_MS + LAG_MS + 1
    )
    assert (replicas.manager.high_watermark(T0), waits.woken) == (1, [("all", T0)])


def test_a_broker_that_was_itself_away_looks_again_before_it_drops_anybody() -> None:
    replicas = with_follower()
    append(replicas, T0, b"a")
    replicas.manager.follower_progress.shrink_isrs(NOW_MS)
    replicas.manager.follower_progress.shrink_isrs(NOW_MS + 2 * LAG_MS)
    assert proposed(replicas) == []
    fetch(replicas, 1)
    replicas.manager.follower_progress.shrink_isrs(NOW_MS + 2 * LAG_MS + 1)
    assert proposed(replicas) == []


def test_a_proposal_of_an_epoch_that_is_over_changes_nothing() -> None:
    replicas = with_follower(isr=(0,))
    fetch(replicas, 0)
    (stale,) = replicas.proposals
    lead_or_follow(replicas, "t", isr=(0,), replicas=(0, 1), epoch=1)
    replicas.manager.follower_progress.confirm_isr(stale, (0, 1), 5, NOW_MS)
    replicas.manager.follower_progress.give_up_isr(stale)
    partition = replicas.manager.partition(T0)
    assert (partition.isr, partition.is_superseded) == ((0,), False)


def test_a_proposal_is_of_no_account_to_who_does_not_lead_any_more() -> None:
    replicas = with_follower(isr=(0,))
    fetch(replicas, 0)
    stop(replicas, T0)
    replicas.manager.follower_progress.confirm_isr(replicas.proposals[0], (0, 1), 5, NOW_MS)
    assert replicas.manager.partition(T0).isr == (0,)


def test_who_was_superseded_proposes_nothing_until_the_controller_speaks() -> None:
    replicas = with_follower(isr=(0,))
    fetch(replicas, 0)
    replicas.manager.follower_progress.give_up_isr(replicas.proposals[0])
    fetch(replicas, 0)
    assert len(replicas.proposals) == 1
    lead_or_follow(replicas, "t", isr=(0,), replicas=(0, 1), epoch=1)
    fetch(replicas, 0)
    assert len(replicas.proposals) == 2


@pytest.mark.parametrize(("epoch", "reached"), [(-1, 1), (0, 1), (1, 0)])
def test_a_follower_of_another_epoch_moves_nothing(epoch: int, reached: int) -> None:
    replicas = with_follower()
    append(replicas, T0, b"a")
    fetch(replicas, 1, epoch=epoch)
    assert replicas.manager.high_watermark(T0) == reached


def test_who_waits_is_woken_when_a_follower_moves_the_watermark_or_its_own_start() -> None:
    replicas = with_follower()
    waits = replicas.manager.waits = NotedWaits()
    append(replicas, T0, b"a")
    fetch(replicas, 0)
    fetch(replicas, 0)
    assert waits.woken == [("end", T0), ("start", T0)]
    fetch(replicas, 1)
    assert waits.woken[2:] == [("watermark", T0, 1)]
    fetch(replicas, 1, start=1)
    assert waits.woken[3:] == [("start", T0)]


def test_a_follower_reads_to_the_end_and_a_consumer_to_the_watermark() -> None:
    replicas = with_follower()
    append(replicas, T0, b"a")

    def size(replica_id: int) -> int:
        found = replicas.manager.read(T0, 0, 1000, min_one=True, replica_id=replica_id).range
        return 0 if found is None else found.size

    assert [size(1) > 0, size(-1), size(9), size(-2)] == [True, 0, 0, 0]
    fetch(replicas, 1)
    assert [size(-1) > 0, size(9), size(-2) > 0] == [True, 0, True]


def test_a_follower_answers_nobody_but_who_debugs() -> None:
    replicas = with_follower()
    lead_or_follow(replicas, "t", leader=1, isr=(0, 1), replicas=(0, 1), epoch=1)
    replicas.manager.read(T0, 0, 1000, min_one=True, replica_id=-2)
    for replica_id in (-1, 1):
        with pytest.raises(ApiError, match="NOT_LEADER_OR_FOLLOWER"):
            replicas.manager.read(T0, 0, 1000, min_one=True, replica_id=replica_id)


def test_a_follower_that_has_lost_what_was_committed_leaves_the_isr_at_once() -> None:
    replicas = Replicas().lead("t", isr=(0, 1), replicas=(0, 1))
    for _ in range(2):
        replicas.manager.append(T0, batch(b"x"), all_in_sync=True, zstd_allowed=True, now_ms=NOW_MS)
    for offset in (0, 1, 2, 2):
        follower_at(replicas, T0, offset)
    assert (replicas.manager.high_watermark(T0), replicas.proposals) == (2, [])

    follower_at(replicas, T0, 1)  # its log was cut at damage

    (proposal,) = replicas.proposals
    assert proposal.state.isr == (0,)
    replicas.manager.follower_progress.confirm_isr(proposal, (0,), 1, NOW_MS)
    follower_at(replicas, T0, 2)
    assert replicas.proposals[-1].state.isr == (0, 1)


# ---- flushes


def test_a_leaders_flush_moves_the_watermark_and_a_followers_lets_it_fetch_on() -> None:
    replicas = Replicas(config=LogConfig(flush_messages=1)).lead("t")
    append(replicas, T0, b"a")
    assert replicas.manager.high_watermark(T0) == 0
    (partition,) = replicas.flushes
    flush = partition.log.begin_flush()
    flush.run()
    partition.log.end_flush(flush)
    replicas.manager.note_flush(partition)
    assert replicas.manager.high_watermark(T0) == 1
    lead_or_follow(replicas, "t", leader=1, isr=(0, 1), replicas=(0, 1), epoch=1)
    replicas.manager.note_flush(partition)
    assert replicas.fetchers.flushes == [T0]


def test_what_a_follower_has_fetched_is_flushed_when_it_is_due() -> None:
    replicas = Replicas(config=LogConfig(flush_messages=1)).lead("t")
    append(replicas, T0, b"a")
    lead_or_follow(replicas, "t", leader=1, isr=(0, 1), replicas=(0, 1), epoch=1)
    replicas.flushes.clear()
    replicas.manager.replicated(replicas.manager.partition(T0))
    assert replicas.flushes == [replicas.manager.partition(T0)]


class Unwalked(dict[TopicPartition, Any]):
    """So many partitions that nothing may iterate over all of them."""

    def __iter__(self) -> Any:
        raise AssertionError("all partitions were gone through")

    keys = values = items = __iter__


def test_settings_of_a_topic_reach_its_logs_and_cost_nothing_of_the_others() -> None:
    replicas = Replicas().lead("t", 2).lead("u")
    manager = replicas.manager
    logs = [manager.log(tp) for tp in (T0, T1, TopicPartition("u", 0))]
    manager.partitions = Unwalked(manager.partitions)
    manager.update_config("t", LogConfig(retention_ms=5))
    assert [log.config.retention_ms for log in logs] == [5, 5, LogConfig().retention_ms]

    stop(replicas, T0, delete=True)
    manager.update_config("t", LogConfig(retention_ms=6))
    assert [log.config.retention_ms for log in logs] == [5, 6, LogConfig().retention_ms]


@pytest.mark.parametrize(
    ("config", "replicas", "is_at_once"),
    [
        (LogConfig(), (0,), True),
        (LogConfig(), (0, 1), False),
        (LogConfig(min_insync_replicas=2), (0,), False),
        (LogConfig(flush_messages=2), (0,), False),
    ],
    ids=["alone", "with a follower", "too few in sync", "flushed"],
)
def test_an_append_is_committed_at_once_where_nobody_is_waited_for(
    config: LogConfig, replicas: tuple[int, ...], is_at_once: bool
) -> None:
    led = Replicas(config=config).lead("t", isr=replicas, replicas=replicas)
    (partition,) = led.manager.partitions.values()
    assert partition.commits_at_once is is_at_once
