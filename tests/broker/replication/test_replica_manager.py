"""The replicas of a broker: control requests, appends, reads and their progress."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import attrs
import pytest

from core_log.config import LogConfig
from core_log.memory_directory import MemoryDirectory
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import FetchRequestPartition
from protocol.messages.leader_and_isr import LeaderAndIsrResponse
from protocol.messages.stop_replica import (
    StopReplicaRequest,
    StopReplicaRequestTopic,
    StopReplicaResponse,
)
from protocol.records.batch import decode_records
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import NOW_MS, Replicas, batch, follower_at, leader_and_isr

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
U0 = TopicPartition("u", 0)


def lead_or_follow(world: Replicas, *args: Any, **kwargs: Any) -> LeaderAndIsrResponse:
    request = leader_and_isr(*args, **kwargs)
    response = world.roles.become_leader_or_follower(request, NOW_MS)
    world.check()
    return response


def stop(
    replicas: Replicas,
    *partitions: TopicPartition,
    delete: bool = False,
) -> StopReplicaResponse:
    response = replicas.roles.stop_replicas(
        StopReplicaRequest(
            controller_id=0,
            controller_epoch=1,
            delete_partitions=delete,
            topics=[
                StopReplicaRequestTopic(name=tp.topic, partition_indexes=[tp.partition])
                for tp in partitions
            ],
        )
    )
    for tp in partitions:
        if tp in replicas.manager.partitions:
            replicas.manager.partition(tp).check()
    return response


def codes(response: LeaderAndIsrResponse | StopReplicaResponse) -> list[ErrorCode]:
    """Return the error of the whole response, then of each partition."""
    parts: Sequence[Any] = response.partition_errors
    return [ErrorCode.of(e.error_code) for e in (response, *parts)]


def append(replicas: Replicas, tp: TopicPartition, *values: bytes) -> None:
    replicas.write(tp, batch(*values), 1_000)


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


def test_watermark_of_a_replica_that_is_stopped_stays_and_goes_with_its_log() -> None:
    replicas = Replicas().lead("t").lead("u")
    append(replicas, T0, b"a", b"b")
    append(replicas, U0, b"a")
    replicas.roles.stop([T0], delete=False)
    replicas.roles.stop([U0], delete=True)
    assert checkpoint(replicas) == {T0: 2}


def test_a_checkpointed_watermark_beyond_the_log_is_cut_to_it() -> None:
    disk = MemoryDirectory("logs")
    before = Replicas(directory=disk).lead("t")
    append(before, T0, b"a")
    before.manager.logs.checkpoint_high_watermarks({T0: 99})
    before.manager.logs.close()
    again = Replicas(directory=disk).lead("t", isr=(0, 1), replicas=(0, 1), epoch=1)
    assert again.manager.high_watermark(T0) == 1


def test_until_the_controller_has_spoken_leadership_is_not_known() -> None:
    """The watermarks of before must not be overwritten then."""
    replicas = Replicas()
    assert not replicas.manager.is_leadership_known
    lead_or_follow(replicas, "t", 0)
    assert replicas.manager.is_leadership_known


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


@attrs.define(eq=False)
class NotedWaits:
    """Notes the waits that are woken."""

    woken: list[tuple[Any, ...]] = attrs.field(factory=list)

    def wake_at_end(self, tp: TopicPartition) -> None:
        self.woken.append(("end", tp))

    def wake_at_watermark(self, tp: TopicPartition, high_watermark: int) -> None:
        self.woken.append(("watermark", tp, high_watermark))

    def wake_at_durable_end(self, tp: TopicPartition, durable_end_offset: int) -> None:
        self.woken.append(("durable end", tp, durable_end_offset))

    def wake_at_start(self, tp: TopicPartition) -> None:
        self.woken.append(("start", tp))

    def wake_all(self, *partitions: TopicPartition) -> None:
        self.woken += [("all", tp) for tp in partitions]

    def wake_followers(self, replicas: Container[int]) -> None:
        self.woken.append(("followers", replicas))


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


@pytest.mark.parametrize("leader", [0, 1])
def test_a_replica_that_is_trusted_and_has_lost_its_log_does_not_begin_anew(leader: int) -> None:
    replicas = Replicas()
    answer = lead_or_follow(replicas, "t", leader=leader, **TRUSTED)
    assert codes(answer) == [ErrorCode.NONE, ErrorCode.LOG_DIR_NOT_FOUND]
    assert (replicas.directory.children(), replicas.manager.partitions) == ([], {})


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"isr": (1,), "leader": 1}, id="nobody trusts it"),
        pytest.param({"epoch": 0}, id="nobody has led yet"),
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


# ---- flushes


def test_a_leaders_flush_moves_the_watermark_and_a_followers_lets_it_fetch_on() -> None:
    replicas = Replicas(config=LogConfig(flush_messages=1)).lead("t")
    append(replicas, T0, b"a")
    assert replicas.manager.high_watermark(T0) == 0
    (partition,) = replicas.flushes
    flush = partition.log.begin_flush()
    flush.run()
    partition.log.end_flush(flush)
    replicas.manager.flushed(partition)
    assert replicas.manager.high_watermark(T0) == 1
    lead_or_follow(replicas, "t", leader=1, isr=(0, 1), replicas=(0, 1), epoch=1)
    replicas.manager.flushed(partition)
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
