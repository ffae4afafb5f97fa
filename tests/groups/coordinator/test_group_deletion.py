"""DeleteGroups and OffsetDelete: what may be deleted, the tombstones, and the responses."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from groups.coordinator.decide import decide
from groups.coordinator.events import CommitOffsets, DeleteGroup, DeleteOffsets, DeletionEnded
from groups.coordinator.group_deletion import DELETED_AT_ONCE
from groups.coordinator.responses import Done
from groups.coordinator.shard import GroupShard
from groups.coordinator.tombstones import APPEND_BYTES
from groups.runtime.effects import Append, Effect, Reply
from groups.runtime.journal import MAX_WAITING_BYTES
from groups.runtime.memory_partition_log import MemoryPartitionLog
from groups.runtime.runtime import SWEEP_PAUSE_S, Pending
from offsets.committed import CommittedOffsets
from offsets.records import (
    CommittedOffset,
    GroupKey,
    GroupMember,
    GroupMetadata,
    Key,
    OffsetKey,
    Record,
    encode_key,
)
from offsets.topic import partition_for
from protocol.errors import ErrorCode
from protocol.records.batch import decode_records
from protocol.topic_partition import TopicPartition
from tests.groups.coordinator.bench import (
    NOW_MS,
    NUM_PARTITIONS,
    OWN,
    Bench,
    batch_of,
    error_of,
    record,
)
from tests.stage.replay import replay

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
GROUP = GroupKey("g")
SUBSCRIBED_TO_T = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"


def offset(topic_partition: TopicPartition) -> Record:
    return OffsetKey("g", *topic_partition), CommittedOffset(42, -1, "", NOW_MS)


def metadata(
    *subscriptions: bytes, protocol_type: str = "consumer", protocol: str | None = "range"
) -> GroupMetadata:
    """A group with a member for each subscription."""
    return GroupMetadata(
        protocol_type=protocol_type,
        generation_id=3,
        protocol=protocol,
        leader=None,
        members=tuple(
            GroupMember(
                member_id=f"m{number}",
                client_id="c",
                client_host="/h",
                rebalance_timeout_ms=60_000,
                session_timeout_ms=10_000,
                subscription=subscription,
                assignment=b"",
            )
            for number, subscription in enumerate(subscriptions)
        ),
    )


def reply(error: ErrorCode, refused: dict[TopicPartition, ErrorCode] | None = None) -> list[Reply]:
    return [Reply(1, Done(error, refused or {}))]


def shard_of(*records: Record) -> GroupShard:
    shard = GroupShard()
    replay(shard, *records)
    return shard


def removed_keys(effects: list[Effect]) -> list[Key]:
    appends = [effect for effect in effects if isinstance(effect, Append)]
    assert len(appends) == len(effects)
    assert all(value is None for entry in appends for _, value in entry.records)
    return [key for entry in appends for key, _ in entry.records]


# ---- which groups may be deleted, and what goes


def test_group_without_members_goes_with_all_its_offsets_and_its_own_record_last() -> None:
    shard = shard_of((GROUP, metadata()), offset(T1), offset(U0), offset(T0))
    effects = decide(shard, DeleteGroup(1, "g"), NOW_MS)
    assert removed_keys(effects) == [
        *(offset(topic_partition)[0] for topic_partition in (T0, T1, U0)),
        GROUP,
    ]


def test_group_that_only_commits_has_no_record_of_its_own_to_remove() -> None:
    assert removed_keys(decide(shard_of(offset(T0)), DeleteGroup(1, "g"), NOW_MS)) == [
        offset(T0)[0]
    ]


def test_group_without_offsets_goes_too() -> None:
    effects = decide(shard_of((GROUP, metadata())), DeleteGroup(1, "g"), NOW_MS)
    assert removed_keys(effects) == [GROUP]


def test_group_of_which_nothing_is_kept_is_not_found() -> None:
    shard = shard_of((OffsetKey("other", *T0), CommittedOffset(1)))
    not_found = reply(ErrorCode.GROUP_ID_NOT_FOUND)
    assert decide(shard, DeleteGroup(1, "g"), NOW_MS) == not_found
    assert decide(shard, DeleteOffsets(1, "g", [T0]), NOW_MS) == not_found


def test_group_with_members_is_not_deleted() -> None:
    shard = shard_of((GROUP, metadata(SUBSCRIBED_TO_T)), offset(T0))
    assert decide(shard, DeleteGroup(1, "g"), NOW_MS) == reply(ErrorCode.NON_EMPTY_GROUP)


def test_what_is_being_committed_goes_too() -> None:
    shard = shard_of(offset(T1))
    shard.begin_write([offset(T0)])
    effects = decide(shard, DeleteGroup(1, "g"), NOW_MS)
    assert removed_keys(effects) == [offset(T0)[0], offset(T1)[0]]


# ---- which offsets


def test_offsets_named_go_and_others_stay() -> None:
    shard = shard_of(offset(T0), offset(T1), offset(U0))
    assert removed_keys(decide(shard, DeleteOffsets(1, "g", [U0, T1]), NOW_MS)) == [
        offset(T1)[0],
        offset(U0)[0],
    ]


@pytest.mark.fault("outside-O12")
def test_group_without_members_goes_with_its_last_offset() -> None:
    shard = shard_of((GROUP, metadata()), offset(T0), offset(T1))
    first = decide(shard, DeleteOffsets(1, "g", [T0]), NOW_MS)
    assert removed_keys(first) == [offset(T0)[0]]
    both = decide(shard, DeleteOffsets(1, "g", [T0, T1, U0]), NOW_MS)
    assert removed_keys(both) == [offset(T0)[0], offset(T1)[0], GROUP]

    # Nothing to delete, and nothing left.
    nothing = decide(shard_of((GROUP, metadata())), DeleteOffsets(1, "g", [T0]), NOW_MS)
    assert removed_keys(nothing) == [GROUP]


@pytest.mark.fault("strangers-148")
def test_few_of_many_offsets_are_deleted_without_going_through_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    partitions = [TopicPartition("t", number) for number in range(1_000)]
    shard = shard_of((GROUP, metadata()), *map(offset, partitions))
    gone_through: list[OffsetKey] = []
    keys_of = CommittedOffsets.keys_of

    def note(offsets: CommittedOffsets, group_id: str) -> Iterator[OffsetKey]:
        for key in keys_of(offsets, group_id):
            gone_through.append(key)
            yield key

    monkeypatch.setattr(CommittedOffsets, "keys_of", note)
    effects = decide(shard, DeleteOffsets(1, "g", partitions[:10]), NOW_MS)
    assert len(removed_keys(effects)) == 10
    assert 10 < len(gone_through) < 20


def test_group_with_members_stays_without_an_offset() -> None:
    shard = shard_of((GROUP, metadata(SUBSCRIBED_TO_T)), offset(U0))
    effects = decide(shard, DeleteOffsets(1, "g", [U0]), NOW_MS)
    assert removed_keys(effects) == [offset(U0)[0]]


def test_offset_that_is_not_there_is_deleted_without_a_record() -> None:
    shard = shard_of(offset(T0))
    assert decide(shard, DeleteOffsets(1, "g", [T1]), NOW_MS) == reply(ErrorCode.NONE)
    assert decide(shard, DeleteOffsets(1, "g", []), NOW_MS) == reply(ErrorCode.NONE)


def test_group_that_has_no_record_yet_has_no_offset_to_delete() -> None:
    shard = GroupShard()
    shard.begin_group("g")
    assert decide(shard, DeleteOffsets(1, "g", [T0]), NOW_MS) == reply(ErrorCode.NONE)


def test_offsets_of_topics_that_members_subscribe_to_stay() -> None:
    shard = shard_of((GROUP, metadata(SUBSCRIBED_TO_T)), offset(T0), offset(U0))
    refused = {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    assert decide(shard, DeleteOffsets(1, "g", [T0, U0]), NOW_MS) == [
        Append([(offset(U0)[0], None)], DeletionEnded(1, "g", is_last=True, refused=refused))
    ]
    assert decide(shard, DeleteOffsets(1, "g", [T0]), NOW_MS) == [
        Reply(1, Done(ErrorCode.NONE, refused))
    ]


@pytest.mark.parametrize(
    "group",
    [metadata(b"", protocol=None), metadata(b"not a subscription")],
    ids=["without an assignor", "unreadable"],
)
def test_offsets_stay_where_nobody_knows_what_members_subscribe_to(group: GroupMetadata) -> None:
    shard = shard_of((GROUP, group), offset(T0))
    refused = {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    assert decide(shard, DeleteOffsets(1, "g", [T0]), NOW_MS) == [
        Reply(1, Done(ErrorCode.NONE, refused))
    ]


def test_offsets_of_members_that_are_no_consumers_stay() -> None:
    shard = shard_of((GROUP, metadata(b"", protocol_type="connect")), offset(T0))
    assert decide(shard, DeleteOffsets(1, "g", [T0]), NOW_MS) == [
        Reply(1, Done(ErrorCode.NON_EMPTY_GROUP))
    ]


# ---- appends


def test_large_group_goes_in_several_appends_of_which_the_last_answers() -> None:
    shard = shard_of(*(offset(TopicPartition("t", number)) for number in range(1000)))
    effects = decide(shard, DeleteGroup(1, "g"), NOW_MS)
    assert len(removed_keys(effects)) == 1000
    appends = [effect for effect in effects if isinstance(effect, Append)]
    assert all(
        sum(len(encode_key(key)) for key, _ in entry.records) < APPEND_BYTES for entry in appends
    )
    effects = [decide(shard, entry.then, NOW_MS) for entry in appends]
    assert len(effects) > 1
    assert effects == [[]] * (len(effects) - 1) + [reply(ErrorCode.NONE)]


@pytest.mark.parametrize("is_last", [False, True])
def test_append_that_failed_is_answered_whichever_it_is(is_last: bool) -> None:
    event = DeletionEnded(1, "g", is_last, error=ErrorCode.NOT_ENOUGH_REPLICAS)
    assert decide(GroupShard(), event, NOW_MS) == [
        Reply(1, Done(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    ]


# ---- the coordinator: written, replicated, replayed


@pytest.fixture
def replicated() -> Bench:
    """Several replicas, and a group that has committed."""
    log = MemoryPartitionLog()
    log.append(0, batch_of(record(42)), NOW_MS)
    bench = Bench(log).lead(0).run()
    log.replicas = 3
    return bench


def deletions(bench: Bench) -> list[Pending]:
    """Return the tombstones of the group and of its one offset."""
    return [bench.coordinator.delete_group(OWN), bench.coordinator.delete_offsets(OWN, [T0])]


def tombstones(bench: Bench) -> list[bytes | None]:
    batches = [data for _, data in bench.log.partition(0).batches]
    return [entry.key for data in batches for entry in decode_records(data) if entry.value is None]


def test_deletion_that_waits_for_nobody_is_answered_at_once(bench: Bench) -> None:
    bench.commit(42)
    assert error_of(bench.coordinator.delete_group(OWN)) is ErrorCode.NONE
    assert bench.committed() is None
    assert bench.coordinator.describe(OWN).state == "Dead"
    assert error_of(bench.coordinator.delete_group(OWN)) is ErrorCode.GROUP_ID_NOT_FOUND


def test_group_is_there_until_its_deletion_is_replicated(replicated: Bench) -> None:
    pending = replicated.coordinator.delete_group(OWN)
    assert error_of(pending) is None
    assert replicated.committed() == 42
    replicated.log.replicate(0)
    assert error_of(pending) is ErrorCode.NONE
    assert replicated.committed() is None


def test_deletions_that_overlap_are_all_answered(replicated: Bench) -> None:
    pending = deletions(replicated)
    replicated.log.replicate(0)
    replicated.log.replicate(0)
    assert [error_of(entry) for entry in pending] == [ErrorCode.NONE] * 2
    assert replicated.committed() is None


def test_commit_that_is_pending_is_answered_and_deleted_behind(replicated: Bench) -> None:
    commit = replicated.commit(43, partition=0)
    deletion = replicated.coordinator.delete_group(OWN)
    replicated.log.replicate(0)
    assert (error_of(commit), error_of(deletion)) == (ErrorCode.NONE, None)
    assert replicated.committed() == 43
    replicated.log.replicate(0)
    assert error_of(deletion) is ErrorCode.NONE
    assert replicated.committed() is None


def test_first_commit_of_a_group_that_is_pending_is_deleted_too() -> None:
    bench = Bench(MemoryPartitionLog(replicas=3)).lead(0).run()
    bench.commit(1)
    pending = deletions(bench)
    for _ in range(2):
        bench.log.replicate(0)
    assert [error_of(entry) for entry in pending] == [ErrorCode.NONE] * 2
    assert bench.committed() is None


def test_commit_that_arrives_behind_the_deletion_stays(replicated: Bench) -> None:
    deletion = replicated.coordinator.delete_group(OWN)
    commit = replicated.commit(7)
    for _ in range(2):
        replicated.log.replicate(0)
    assert (error_of(deletion), error_of(commit)) == (ErrorCode.NONE, ErrorCode.NONE)
    assert replicated.committed() == 7
    replicated.coordinator.on_leadership(set(), {0})
    assert Bench(replicated.log).lead(0).run().committed() == 7


def test_after_an_append_that_failed_nothing_is_forgotten(bench: Bench) -> None:
    bench.commit(42)
    bench.log.fail(0, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert [error_of(entry) for entry in deletions(bench)] == [
        ErrorCode.COORDINATOR_NOT_AVAILABLE
    ] * 2
    assert bench.committed() == 42
    bench.log.fail(0, None)
    assert Bench(bench.log).lead(0).run().committed() == 42
    assert error_of(bench.coordinator.delete_group(OWN)) is ErrorCode.NONE
    assert bench.committed() is None


def test_deletion_of_which_one_append_fails_is_refused_and_finds_the_rest_again() -> None:
    log = MemoryPartitionLog(batch_bytes=2 * APPEND_BYTES)
    for first in range(0, 1000, 100):
        rows = [(OffsetKey(OWN, "t", first + n), record(1)[1]) for n in range(100)]
        log.append(0, batch_of(*rows), NOW_MS)
    bench = Bench(log).lead(0).run()
    log.replicas = 3
    pending = bench.coordinator.delete_group(OWN)
    log.fail(0, ErrorCode.KAFKA_STORAGE_ERROR)
    log.replicate(0)
    assert error_of(pending) is ErrorCode.NOT_COORDINATOR
    assert 0 < bench.coordinator.shard(OWN).offsets.count_of(OWN) < 1000
    log.fail(0, None)
    again = bench.coordinator.delete_group(OWN)
    while error_of(again) is None:
        log.replicate(0)
    assert error_of(again) is ErrorCode.NONE
    assert bench.coordinator.shard(OWN).offsets.count() == 0


def test_deletion_on_a_coordinator_that_moves_is_told_so(replicated: Bench) -> None:
    pending = deletions(replicated)
    replicated.coordinator.on_leadership(set(), {0})
    assert [error_of(entry) for entry in pending] == [ErrorCode.NOT_COORDINATOR] * 2


def test_next_coordinator_shows_what_was_written_of_a_deletion(replicated: Bench) -> None:
    replicated.coordinator.delete_group(OWN)
    replicated.coordinator.on_leadership(set(), {0})
    replicated.log.replicate(0)
    assert Bench(replicated.log).lead(0).run().committed() is None


def test_group_is_gone_after_a_restart_and_without_the_records_that_were_compacted(
    bench: Bench,
) -> None:
    bench.commit(42)
    bench.commit(43)
    bench.coordinator.delete_group(OWN)
    assert tombstones(bench) == [encode_key(record(0)[0])]
    compacted = MemoryPartitionLog()
    compacted.append(0, bench.log.partition(0).batches[-1][1], NOW_MS)
    for log in (bench.log, compacted):
        again = Bench(log).lead(0).run()
        assert again.committed() is None
        assert again.coordinator.describe(OWN).state == "Dead"


def test_deletion_is_refused_when_too_much_waits_already(replicated: Bench) -> None:
    large: Record = (OffsetKey(OWN, "t", 1), CommittedOffset(1, -1, "m" * 30_000))
    records = [large] * (MAX_WAITING_BYTES // 30_000 + 1)
    replicated.commit(1)
    replicated.coordinator.submit(
        CommitOffsets(replicated.coordinator.next_request_id(), OWN, -1, "", None, records)
    )
    assert [error_of(entry) for entry in deletions(replicated)] == [
        ErrorCode.COORDINATOR_NOT_AVAILABLE
    ] * 2


def test_deletion_is_logged_with_its_group(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.commit(42)
    caplog.set_level("INFO")
    bench.coordinator.delete_group(OWN)
    assert [r.getMessage() for r in caplog.records] == [
        f"__consumer_offsets-0: removing 1 records, of group {OWN}, which is deleted"
    ]


def test_other_groups_of_the_partition_keep_theirs_and_what_they_commit(replicated: Bench) -> None:
    neighbour = next(g for n in range(99) if partition_for(g := f"g{n}", NUM_PARTITIONS) == 0)
    for offset in (1, 2):
        replicated.commit(offset, neighbour)
    replicated.coordinator.delete_group(OWN)
    for _ in range(2):
        replicated.log.replicate(0)
    assert (replicated.committed(OWN), replicated.committed(neighbour)) == (None, 2)


# ---- groups with very many offsets, which are deleted a slice at a time

MANY = 2 * DELETED_AT_ONCE + 1


def many(*, replicas: int = 1, has_record: bool = False) -> Bench:
    """A group with many offsets of one topic, and a record of itself or not."""
    log = MemoryPartitionLog()
    if has_record:
        log.append(0, batch_of((GroupKey(OWN), metadata())), NOW_MS)
    for first in range(0, MANY, 500):
        rows = [
            (OffsetKey(OWN, "t", partition), CommittedOffset(42, -1, "", NOW_MS))
            for partition in range(first, min(first + 500, MANY))
        ]
        log.append(0, batch_of(*rows), NOW_MS)
    bench = Bench(log).lead(0).run()
    log.replicas = replicas
    return bench


def begin(bench: Bench, is_whole: bool) -> Pending:
    if is_whole:
        return bench.coordinator.delete_group(OWN)
    partitions = [TopicPartition("t", partition) for partition in range(MANY)]
    return bench.coordinator.delete_offsets(OWN, partitions)


def count(bench: Bench) -> int:
    return bench.coordinator.shard(OWN).offsets.count_of(OWN)


@pytest.mark.fault("groups-8")
@pytest.mark.parametrize("is_whole", [True, False])
def test_many_offsets_are_deleted_a_slice_in_each_turn(is_whole: bool) -> None:
    bench = many()
    pending = begin(bench, is_whole)
    counts = [count(bench)]
    while pending.response is None:
        bench.run(SWEEP_PAUSE_S / 4)
        counts.append(count(bench))
    assert error_of(pending) is ErrorCode.NONE
    assert counts[-1] == 0
    steps = [before - after for before, after in pairwise(counts)]
    assert max(steps) <= DELETED_AT_ONCE
    assert bench.coordinator.shard(OWN).deletions == {}
    assert bench.coordinator.describe(OWN).state == "Dead"


@pytest.mark.fault("groups-8")
@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("partition", [0, MANY - 1], ids=["deleted already", "not deleted yet"])
def test_commit_in_the_middle_of_a_deletion_stays(is_whole: bool, partition: int) -> None:
    bench = many()
    pending = begin(bench, is_whole)
    bench.run()
    assert 0 < count(bench) < MANY
    key = OffsetKey(OWN, "t", partition)
    value = CommittedOffset(7, -1, "", NOW_MS)
    event = CommitOffsets(bench.coordinator.next_request_id(), OWN, -1, "", None, [(key, value)])
    assert error_of(bench.coordinator.submit(event)) is ErrorCode.NONE
    bench.run(1)
    assert error_of(pending) is ErrorCode.NONE
    kept = bench.coordinator.shard(OWN).offsets.of_group(OWN)
    assert {(t, p): at.offset for t, of in kept.items() for p, at in of.items()} == {
        ("t", partition): 7
    }


@pytest.mark.fault("outside-O12", needs_no_remedy="it is the one of few offsets")
def test_group_without_members_goes_with_the_last_of_many_offsets() -> None:
    bench = many(has_record=True)
    pending = begin(bench, is_whole=False)
    bench.run(1)
    assert error_of(pending) is ErrorCode.NONE
    assert not bench.coordinator.shard(OWN).knows(OWN)


def test_group_that_commits_meanwhile_stays_with_its_record() -> None:
    bench = many(has_record=True)
    pending = begin(bench, is_whole=False)
    bench.run()
    row = (OffsetKey(OWN, "t", 0), CommittedOffset(7, -1, "", NOW_MS))
    event = CommitOffsets(bench.coordinator.next_request_id(), OWN, -1, "", None, [row])
    assert error_of(bench.coordinator.submit(event)) is ErrorCode.NONE
    bench.run(1)
    assert error_of(pending) is ErrorCode.NONE
    assert OWN in bench.coordinator.shard(OWN).groups


@pytest.mark.parametrize("is_whole", [True, False])
def test_deletion_of_many_offsets_ends_with_its_coordinator(is_whole: bool) -> None:
    bench = many()
    pending = begin(bench, is_whole)
    bench.run()
    bench.coordinator.on_leadership(set(), {0})
    assert error_of(pending) is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("is_whole", [True, False])
def test_deletion_of_many_offsets_is_answered_when_the_last_is_replicated(is_whole: bool) -> None:
    bench = many(replicas=3)
    pending = begin(bench, is_whole)
    for _ in range(40):
        bench.run(SWEEP_PAUSE_S)
    assert error_of(pending) is None
    bench.log.replicas = 1
    bench.log.replicate(0)
    bench.run(1)
    assert (error_of(pending), count(bench)) == (ErrorCode.NONE, 0)


def test_deletion_of_many_offsets_that_cannot_be_written_says_so() -> None:
    bench = many()
    bench.log.fail(0, ErrorCode.NOT_ENOUGH_REPLICAS)
    pending = begin(bench, is_whole=True)
    bench.run(1)
    assert error_of(pending) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert count(bench) == MANY
    assert bench.coordinator.shard(OWN).deletions == {}


def test_group_that_gets_members_in_the_middle_of_its_deletion_is_kept_then() -> None:
    bench = many()
    pending = begin(bench, is_whole=True)
    bench.run()
    left = count(bench)
    assert 0 < left < MANY
    shard = bench.coordinator.shard(OWN)
    replay(shard, (GroupKey(OWN), metadata(SUBSCRIBED_TO_T)))
    bench.run(1)
    assert error_of(pending) is ErrorCode.NON_EMPTY_GROUP
    assert count(bench) == left
