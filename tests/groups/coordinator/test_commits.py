"""Commits: who may commit, the records of a request, and the errors of a failed write."""

import pytest

from groups.coordinator.commits import Refused, records_of
from groups.coordinator.decide import decide
from groups.coordinator.events import CommitEnded, CommitOffsets
from groups.coordinator.membership.events import SessionExpired
from groups.coordinator.responses import Done
from groups.coordinator.shard import GroupShard
from groups.runtime.effects import Append, Reply, SetTimer
from offsets.records import (
    CommittedOffset,
    GroupKey,
    GroupMember,
    GroupMetadata,
    OffsetKey,
    Record,
    encode_value,
)
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.stage.replay import replay

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
RECORD: Record = (OffsetKey("g", "t", 0), CommittedOffset(42, -1, "", NOW_MS))


def event(
    generation_id: int = -1, member_id: str = "", group_instance_id: str | None = None
) -> CommitOffsets:
    return CommitOffsets(1, "g", generation_id, member_id, group_instance_id, [RECORD])


def with_member(generation_id: int = 5, instance: str | None = None) -> GroupShard:
    member = GroupMember(
        member_id="m",
        group_instance_id=instance,
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=60_000,
        session_timeout_ms=10_000,
        subscription=b"",
        assignment=b"",
    )
    return with_group((member,), generation_id)


def with_group(members: tuple[GroupMember, ...], generation_id: int = 5) -> GroupShard:
    shard = GroupShard()
    metadata = GroupMetadata(
        protocol_type="consumer",
        generation_id=generation_id,
        protocol="range",
        leader="m",
        members=members,
    )
    replay(shard, (GroupKey("g"), metadata))
    return shard


def with_offset() -> GroupShard:
    shard = GroupShard()
    replay(shard, RECORD)
    return shard


ACCEPTED = [Append([RECORD], then=CommitEnded(1, "g"))]


def refused_with(error: ErrorCode) -> list[Reply]:
    return [Reply(1, Done(error))]


@pytest.mark.parametrize("shard", [GroupShard(), with_offset(), with_group(())])
def test_ids_do_not_count_in_a_simple_commit(shard: GroupShard) -> None:
    assert decide(shard, event(-1, "m", "i"), NOW_MS) == ACCEPTED


@pytest.mark.parametrize("shard", [GroupShard(), with_offset(), with_group(())])
def test_anyone_may_commit_for_a_group_without_members(shard: GroupShard) -> None:
    assert decide(shard, event(), NOW_MS) == ACCEPTED


def test_generation_of_a_group_nobody_knows_is_illegal() -> None:
    assert decide(GroupShard(), event(1, "m"), NOW_MS) == refused_with(ErrorCode.ILLEGAL_GENERATION)


@pytest.mark.parametrize("shard", [with_offset(), with_group(())])
def test_group_without_members_knows_no_member(shard: GroupShard) -> None:
    assert decide(shard, event(1, "m"), NOW_MS) == refused_with(ErrorCode.UNKNOWN_MEMBER_ID)


def test_member_commits_in_its_generation_and_shows_that_it_is_alive() -> None:
    session = SetTimer(SessionExpired("g", "m"), 10_000)
    assert decide(with_member(), event(5, "m"), NOW_MS) == [session, *ACCEPTED]


def test_simple_commit_into_a_group_with_members_is_refused() -> None:
    assert decide(with_member(), event(), NOW_MS) == refused_with(ErrorCode.UNKNOWN_MEMBER_ID)


def test_member_of_an_older_generation_is_refused() -> None:
    assert decide(with_member(), event(4, "m"), NOW_MS) == refused_with(
        ErrorCode.ILLEGAL_GENERATION
    )


def test_static_member_whose_place_was_taken_is_fenced() -> None:
    effects = decide(with_member(instance="i"), event(5, "old", "i"), NOW_MS)
    assert effects == refused_with(ErrorCode.FENCED_INSTANCE_ID)


def test_deciding_changes_nothing_and_replaying_does() -> None:
    shard = GroupShard()
    decide(shard, event(), NOW_MS)
    assert not shard.knows("g")
    replay(shard, RECORD)
    assert shard.offsets.of_group("g") == {"t": {0: RECORD[1]}}


def test_tombstone_of_a_group_removes_it() -> None:
    shard = with_group(())
    replay(shard, (GroupKey("g"), None))
    assert not shard.knows("g")


def test_commit_of_nothing_is_answered_without_an_append() -> None:
    empty = CommitOffsets(1, "g", -1, "", None, [])
    assert decide(GroupShard(), empty, NOW_MS) == refused_with(ErrorCode.NONE)


@pytest.mark.parametrize(
    ("append_error", "answer"),
    [
        (ErrorCode.NONE, ErrorCode.NONE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.INVALID_FETCH_SIZE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_end_of_an_append_is_told_in_words_a_committer_knows(
    append_error: ErrorCode, answer: ErrorCode
) -> None:
    assert decide(GroupShard(), CommitEnded(1, "g", error=append_error), NOW_MS) == refused_with(
        answer
    )


# ---- from the request to records


def commit_request(
    *partitions: OffsetCommitRequestPartition, topic: str = "t", retention_time_ms: int = -1
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id="g",
        retention_time_ms=retention_time_ms,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)],
    )


def partition(
    index: int = 0, offset: int = 42, metadata: str | None = "", timestamp: int = -1
) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=offset,
        commit_timestamp=timestamp,
        committed_metadata=metadata,
    )


def records(
    request: OffsetCommitRequest, metadata_max_bytes: int = 4096
) -> tuple[list[Record], Refused]:
    partitions_of = {"t": {0, 1}}
    return records_of(
        request, lambda topic: partitions_of.get(topic, ()), (), metadata_max_bytes, NOW_MS
    )


def value(**fields: object) -> list[Record]:
    default = CommittedOffset(42, -1, "", NOW_MS)
    return [(OffsetKey("g", "t", 0), default._replace(**fields))]  # type: ignore[arg-type]


def test_commit_is_dated_now_and_kept_as_long_as_the_broker_likes() -> None:
    assert records(commit_request(partition())) == (value(), {})


def test_committers_own_time_is_kept_and_its_retention_counts_from_now() -> None:
    assert records(commit_request(partition(timestamp=5))) == (value(commit_timestamp_ms=5), {})
    expected = value(expire_timestamp_ms=NOW_MS + HOUR_MS)
    assert records(commit_request(partition(), retention_time_ms=HOUR_MS)) == (expected, {})


@pytest.mark.parametrize("keep_ms", [2**63 - 1, 2**63 - NOW_MS])
def test_what_is_to_be_kept_for_ever_is_kept_until_the_last_time_there_is(keep_ms: int) -> None:
    kept, refused = records(commit_request(partition(), retention_time_ms=keep_ms))
    assert (kept, refused) == (value(expire_timestamp_ms=2**63 - 1), {})
    assert encode_value(kept[0][1])


def test_null_metadata_is_kept_as_empty_and_a_negative_offset_as_it_is() -> None:
    assert records(commit_request(partition(metadata=None, offset=-1))) == (value(offset=-1), {})


def test_unknown_partition_is_refused_and_its_neighbour_is_not() -> None:
    kept, refused = records(commit_request(partition(0), partition(2)))
    assert kept == value()
    assert refused == {("t", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.fault("strangers-10")
def test_what_is_named_again_counts_as_it_is_named_last_at_its_first_place() -> None:
    again = commit_request(
        partition(0, offset=1), partition(1, offset=2), partition(0, offset=3), partition(0)
    )
    kept, refused = records(again)
    assert [(key.partition, value.offset) for key, value in kept] == [(0, 42), (1, 2)]
    assert refused == {}


@pytest.mark.fault("strangers-10")
@pytest.mark.parametrize("last", ["ok", "too large"])
def test_metadata_named_last_are_those_that_are_measured(last: str) -> None:
    before = {"ok": "too large", "too large": "ok"}[last]
    kept, refused = records(
        commit_request(partition(metadata=before), partition(metadata=last)), metadata_max_bytes=8
    )
    assert len(kept) + len(refused) == 1
    assert bool(kept) == (last == "ok")


def test_unknown_topic_is_refused() -> None:
    kept, refused = records(commit_request(partition(), topic="other"))
    assert (kept, refused) == ([], {("other", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


@pytest.mark.parametrize(
    ("text", "fits"),
    [("a" * 8, True), ("a" * 9, False), ("ä" * 8, True), ("🧀" * 4, True), ("🧀" * 4 + "a", False)],
)
def test_metadata_is_measured_in_utf_16_units_and_the_limit_is_inclusive(
    text: str, fits: bool
) -> None:
    kept, refused = records(
        commit_request(partition(metadata=text), partition(1)), metadata_max_bytes=8
    )
    assert len(kept) == (2 if fits else 1)
    assert refused == ({} if fits else {("t", 0): ErrorCode.OFFSET_METADATA_TOO_LARGE})
