"""Commits in transactions: who may commit, and what is written for them and for their end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from groups.coordinator import transactional_commits
from groups.coordinator.commits import refused_beside
from groups.coordinator.decide import decide
from groups.coordinator.events import (
    CommitEnded,
    CommitInTransaction,
    DeleteGroup,
    DeleteOffsets,
    EndTransaction,
    PartitionsDeleted,
    RetentionCheck,
    TransactionEnded,
)
from groups.coordinator.responses import Done
from groups.coordinator.shard import GroupShard
from groups.runtime.effects import Append, Effect, Reply, Writer
from offsets.records import (
    CommittedOffset,
    GroupKey,
    GroupMetadata,
    Key,
    OffsetKey,
    Record,
    encode_key,
    encode_value,
)
from protocol.errors import ErrorCode
from protocol.records.control_record import ABORT, COMMIT
from protocol.topic_partition import TopicPartition
from tests.groups.coordinator.test_commits import NOW_MS, with_group, with_member, with_offset
from tests.stage.replay import replay

KEY = OffsetKey("g", "t", 0)
RECORD: Record = (KEY, CommittedOffset(42, -1, "", NOW_MS))
PRODUCER = 4000

NONE = ErrorCode.NONE
UNKNOWN, FENCED = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID
ILLEGAL = ErrorCode.ILLEGAL_GENERATION


def event(
    generation_id: int = -1, member_id: str = "", instance_id: str | None = None
) -> CommitInTransaction:
    return CommitInTransaction(1, "g", generation_id, member_id, instance_id, [RECORD], PRODUCER, 3)


@pytest.mark.parametrize(
    ("shard", "committer", "expected"),
    [
        # Without a member anyone may, whatever the group's state.
        (GroupShard(), (-1, ""), NONE),
        (with_offset(), (-1, ""), NONE),
        (with_group(()), (-1, ""), NONE),
        (with_member(), (-1, ""), NONE),
        # A member has to be one, and in the present generation.
        (with_member(), (5, "m"), NONE),
        (with_member(), (-1, "m"), NONE),
        (with_member(), (4, "m"), ILLEGAL),
        (with_member(), (6, ""), ILLEGAL),
        (with_member(), (5, "other"), UNKNOWN),
        (with_member(), (4, "other"), UNKNOWN),
        # A group without members has a generation, too.
        (GroupShard(), (0, ""), NONE),
        (GroupShard(), (1, ""), ILLEGAL),
        (GroupShard(), (1, "m"), UNKNOWN),
        (with_group(()), (5, ""), NONE),
        (with_group(()), (4, ""), ILLEGAL),
        (with_group(()), (5, "m"), UNKNOWN),
        # Static members.
        (with_member(instance="i"), (5, "m", "i"), NONE),
        (with_member(instance="i"), (5, "old", "i"), FENCED),
        (with_member(instance="i"), (5, "m", "j"), NONE),
    ],
)
def test_who_commits_must_be_who_it_says(
    shard: GroupShard, committer: tuple[int, str], expected: ErrorCode
) -> None:
    effects = decide(shard, event(*committer), NOW_MS)
    if expected:
        assert effects == [Reply(1, Done(expected))]
    else:
        ended = CommitEnded(1, "g", -1)
        assert effects == [Append([RECORD], then=ended, writer=Writer(PRODUCER, 3))]


@pytest.mark.fault("strangers-42")
def test_a_transaction_has_so_many_offsets_and_not_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional_commits, "MOST_STAGED", 3)
    records = [(OffsetKey("g", "t", number), RECORD[1]) for number in range(4)]
    shard = GroupShard()
    first = attrs.evolve(event(), records=records[:2])
    assert isinstance(decide(shard, first, NOW_MS)[0], Append)
    shard.replay([(encode_key(k), encode_value(v)) for k, v in records[:2]], PRODUCER)

    refused = [Reply(1, Done(ErrorCode.INVALID_COMMIT_OFFSET_SIZE))]
    assert decide(shard, attrs.evolve(first, records=records[2:]), NOW_MS) == refused
    third = attrs.evolve(first, records=records[2:3])
    assert isinstance(decide(shard, third, NOW_MS)[0], Append)
    # That of another producer is another one.
    other = attrs.evolve(first, records=records[:3], producer_id=PRODUCER + 1)
    assert isinstance(decide(shard, other, NOW_MS)[0], Append)


def test_a_commit_of_nothing_writes_nothing() -> None:
    nothing = CommitInTransaction(1, "g", -1, "", None, [], PRODUCER, 3)
    assert decide(GroupShard(), nothing, NOW_MS) == [Reply(1, Done())]


@pytest.mark.parametrize(("is_committed", "kind"), [(True, COMMIT), (False, ABORT)])
def test_the_end_of_a_transaction_is_a_marker(is_committed: bool, kind: int) -> None:
    end = EndTransaction(1, PRODUCER, 3, is_committed, 7)
    writer = Writer(PRODUCER, 3, ends=kind, coordinator_epoch=7)
    (append,) = decide(GroupShard(), end, NOW_MS)
    assert append == Append((), then=TransactionEnded(1, PRODUCER), writer=writer)


def test_the_error_of_a_marker_is_the_logs() -> None:
    ended = TransactionEnded(1, PRODUCER, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    expected = Reply(1, Done(ErrorCode.TRANSACTION_COORDINATOR_FENCED))
    assert decide(GroupShard(), ended, NOW_MS) == [expected]
    assert GroupShard().name(ended) == "producer 4000"


def test_the_error_of_a_fenced_commit_is_the_logs() -> None:
    ended = CommitEnded(1, "g", -1, ErrorCode.INVALID_PRODUCER_EPOCH)
    expected = [Reply(1, Done(ErrorCode.INVALID_PRODUCER_EPOCH))]
    assert decide(GroupShard(), ended, NOW_MS) == expected


def test_an_offset_is_unstable_while_any_transaction_has_it() -> None:
    shard = GroupShard()
    for producer_id in (1, 2):
        shard.replay(shard.encode([RECORD]), producer_id)
        shard.check([])
    shard.end_transaction(1, False)
    assert shard.is_unstable(KEY)
    shard.end_transaction(2, True)
    shard.check([])
    assert not shard.is_unstable(KEY)
    assert shard.offsets.fetch("g", "t", 0) == RECORD[1]


def test_a_plain_commit_ends_the_instability_of_what_it_outdates() -> None:
    shard = GroupShard()
    shard.replay(shard.encode([RECORD]), 1)
    replay(shard, (KEY, CommittedOffset(50, -1, "", NOW_MS)))
    shard.check([])
    assert not shard.is_unstable(KEY)
    shard.end_transaction(1, True)
    committed = shard.offsets.fetch("g", "t", 0)
    assert committed is not None
    assert committed.offset == 50


def test_a_deletion_outdates_what_is_staged_before_it_and_not_what_comes_after() -> None:
    shard = GroupShard()
    shard.replay(shard.encode([RECORD]), 1)
    replay(shard, (KEY, None))
    shard.check([])
    assert not shard.is_unstable(KEY)
    shard.replay(shard.encode([RECORD]), 2)
    shard.end_transaction(1, True)
    assert shard.offsets.fetch("g", "t", 0) is None
    shard.end_transaction(2, True)
    shard.check([])
    assert shard.offsets.fetch("g", "t", 0) == RECORD[1]


OLD: Record = (KEY, CommittedOffset(1, -1, "", 0))
OTHER = OffsetKey("g", "t", 1)


def staged() -> GroupShard:
    """A group with an offset of long ago, and an open transaction that is about to replace it."""
    shard = GroupShard()
    replay(shard, OLD)
    shard.replay(shard.encode([RECORD, (OTHER, RECORD[1])]), PRODUCER)
    return shard


def deleted(effects: Sequence[Effect]) -> list[Key]:
    appends = [effect for effect in effects if isinstance(effect, Append)]
    assert len(appends) == len(effects)
    return [key for append in appends for key, value in append.records if value is None]


def test_an_offset_in_an_open_transaction_does_not_expire() -> None:
    shard = staged()
    check = RetentionCheck(["g"], 1000)
    assert decide(shard, check, NOW_MS) == []
    shard.end_transaction(PRODUCER, False)
    assert deleted(decide(shard, check, NOW_MS)) == [KEY]


def test_a_group_with_an_open_transaction_does_not_expire() -> None:
    shard = GroupShard()
    metadata = GroupMetadata(
        protocol_type="consumer",
        generation_id=3,
        protocol=None,
        leader=None,
        state_timestamp_ms=0,
        members=(),
    )
    replay(shard, (GroupKey("g"), metadata))
    shard.replay(shard.encode([RECORD]), PRODUCER)
    check = RetentionCheck(["g"], 1000)
    assert decide(shard, check, NOW_MS) == []
    shard.end_transaction(PRODUCER, False)
    assert deleted(decide(shard, check, NOW_MS)) == [GroupKey("g")]


@pytest.mark.parametrize(
    "deletion",
    [
        DeleteGroup(1, "g"),
        DeleteOffsets(1, "g", [TopicPartition("t", 0), TopicPartition("t", 1)]),
        PartitionsDeleted(frozenset({TopicPartition("t", 0), TopicPartition("t", 1)})),
    ],
    ids=lambda deletion: type(deletion).__name__,
)
def test_what_is_deleted_does_not_come_back_with_the_marker(deletion: Any) -> None:
    shard = staged()
    keys = deleted(decide(shard, deletion, NOW_MS))
    assert OTHER in keys
    # A sweep of deleted partitions goes through the committed offsets in slices.
    replay(shard, *((key, None) for key in {*keys, KEY}))
    shard.end_transaction(PRODUCER, True)
    assert shard.offsets.count() == 0


@pytest.mark.fault("groups-9")
@pytest.mark.parametrize(("producer_id", "epoch"), [(PRODUCER, -1), (-1, -1), (-1, 0)])
def test_producer_whose_transaction_no_marker_can_end_is_refused(
    producer_id: int, epoch: int
) -> None:
    asked = attrs.evolve(event(), producer_id=producer_id, producer_epoch=epoch)
    assert decide(GroupShard(), asked, NOW_MS) == [Reply(1, Done(ErrorCode.INVALID_PRODUCER_EPOCH))]


@pytest.mark.fault("groups-9")
def test_a_member_that_was_replaced_hears_that_before_its_metadata_are_looked_at() -> None:
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    refused = {("t", 0): too_large, ("u", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    for error in (UNKNOWN, FENCED, ILLEGAL):
        assert refused_beside(refused, error) == {("u", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    for error in (NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE):
        assert refused_beside(refused, error) == refused
