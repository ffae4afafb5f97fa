"""Expiry: offsets of which groups, and counted from when (KIP-211)."""

from collections.abc import Collection, Sequence

import pytest

from groups.coordinator.decide import decide
from groups.coordinator.events import RemovalEnded, RetentionCheck
from groups.coordinator.expiry import EXPIRY_SLICE, retention_checks
from groups.coordinator.shard import GroupShard
from groups.coordinator.tombstones import APPEND_BYTES
from groups.runtime.effects import Append
from groups.runtime.journal import RECORD_OVERHEAD
from offsets.committed import EncodedRecord
from offsets.records import (
    CommittedOffset,
    GroupKey,
    GroupMember,
    GroupMetadata,
    Key,
    OffsetKey,
    Record,
    ValueVersions,
    encode_key,
    encode_value,
)
from tests.stage.replay import replay

DAY_MS = 86_400_000
RETENTION_MS = 7 * DAY_MS
NOW_MS = 1_700_000_000_000
LONG_AGO_MS = NOW_MS - RETENTION_MS
LATELY_MS = LONG_AGO_MS + 1
GROUP = GroupKey("g")


def offset(
    partition: int, commit_ms: int, expire_ms: int | None = None, topic: str = "t"
) -> Record:
    value = CommittedOffset(42, -1, "", commit_ms, expire_ms)
    return OffsetKey("g", topic, partition), value


def member(*topics: str, subscription: bytes | None = None, member_id: str = "m") -> GroupMember:
    names = b"".join(len(t).to_bytes(2, "big") + t.encode() for t in topics)
    of_topics = b"\x00\x00" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"
    return GroupMember(
        member_id=member_id,
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=60_000,
        session_timeout_ms=10_000,
        subscription=of_topics if subscription is None else subscription,
        assignment=b"",
    )


def group(
    *members: GroupMember, since_ms: int = -1, protocol_type: str = "consumer", generation: int = 3
) -> Record:
    metadata = GroupMetadata(
        protocol_type=protocol_type,
        generation_id=generation,
        protocol="range" if members else None,
        leader="m" if members else None,
        state_timestamp_ms=since_ms,
        members=members,
    )
    return GROUP, metadata


def shard_of(*records: Record) -> GroupShard:
    shard = GroupShard()
    replay(shard, *records)
    return shard


def appends(
    shard: GroupShard,
    keys: Sequence[OffsetKey] | None = None,
    in_flight: Collection[Key] = (),
    now_ms: int = NOW_MS,
) -> list[Append]:
    shard.begin_write([(key, None) for key in in_flight])
    effects = decide(shard, RetentionCheck(["g"], RETENTION_MS, keys), now_ms)
    shard.end_write([(key, None) for key in in_flight])
    tombstone_appends = [effect for effect in effects if isinstance(effect, Append)]
    assert tombstone_appends == effects
    assert all(effect.then == RemovalEnded("g") for effect in tombstone_appends)
    return tombstone_appends


def removed(
    shard: GroupShard,
    keys: Sequence[OffsetKey] | None = None,
    in_flight: Collection[Key] = (),
) -> Sequence[Key]:
    records = [record for effect in appends(shard, keys, in_flight) for record in effect.records]
    assert all(value is None for _, value in records)
    return [key for key, _ in records]


# ---- groups that only commit


def test_of_a_group_that_only_commits_the_old_offsets_go_and_the_others_stay() -> None:
    shard = shard_of(offset(0, LONG_AGO_MS), offset(1, LATELY_MS))
    assert removed(shard) == [OffsetKey("g", "t", 0)]


def test_group_of_offsets_alone_leaves_no_tombstone_of_its_own() -> None:
    shard = shard_of(offset(0, LONG_AGO_MS), offset(1, LONG_AGO_MS))
    assert removed(shard) == [OffsetKey("g", "t", 0), OffsetKey("g", "t", 1)]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_value_of_any_version_expires(version: int) -> None:
    shard = GroupShard()
    key, value = offset(0, LONG_AGO_MS)
    old_key = b"\x00\x00" + encode_key(key)[2:]
    assert isinstance(value, CommittedOffset)
    encoded: EncodedRecord = (
        old_key,
        encode_value(value._replace(metadata="note"), ValueVersions(version)),
    )
    shard.replay([encoded])
    assert removed(shard) == [key]


def test_time_that_the_committer_asked_for_counts_in_place_of_the_retention() -> None:
    shard = shard_of(
        offset(0, LATELY_MS, expire_ms=NOW_MS),
        offset(1, LONG_AGO_MS, expire_ms=NOW_MS + 1),
        group(since_ms=LONG_AGO_MS),
    )
    assert removed(shard) == [OffsetKey("g", "t", 0)]


# ---- groups that had members


def test_offsets_of_an_empty_group_expire_together_since_it_is_empty_and_it_goes_with_them() -> (
    None
):
    shard = shard_of(group(since_ms=LONG_AGO_MS), offset(0, 0), offset(1, NOW_MS))
    assert removed(shard) == [OffsetKey("g", "t", 0), OffsetKey("g", "t", 1), GROUP]


def test_offsets_of_a_group_that_is_empty_since_lately_stay_however_old_they_are() -> None:
    assert removed(shard_of(group(since_ms=LATELY_MS), offset(0, 0))) == []


def test_older_record_that_does_not_say_since_when_leaves_the_time_of_each_commit() -> None:
    shard = shard_of(group(since_ms=-1), offset(0, LONG_AGO_MS), offset(1, LATELY_MS))
    assert removed(shard) == [OffsetKey("g", "t", 0)]


def test_group_without_a_protocol_type_is_one_that_only_commits() -> None:
    shard = shard_of(group(since_ms=0, protocol_type=""), offset(0, LATELY_MS))
    assert removed(shard) == []


def test_group_without_members_and_offsets_is_forgotten_at_once() -> None:
    assert removed(shard_of(group(since_ms=NOW_MS))) == [GROUP]


def test_group_whose_offset_is_being_committed_stays() -> None:
    shard = shard_of(group(since_ms=LONG_AGO_MS))
    assert removed(shard, in_flight=[OffsetKey("g", "t", 0)]) == []


def test_offset_that_is_being_committed_stays_and_its_group_with_it() -> None:
    shard = shard_of(group(since_ms=LONG_AGO_MS), offset(0, 0), offset(1, 0))
    assert removed(shard, in_flight=[OffsetKey("g", "t", 0)]) == [OffsetKey("g", "t", 1)]


# ---- groups that have members


def test_live_group_keeps_what_it_subscribes_to_and_loses_what_it_does_not() -> None:
    shard = shard_of(
        group(member("t"), member("u", member_id="n")),
        offset(0, LONG_AGO_MS, topic="t"),
        offset(0, LONG_AGO_MS, expire_ms=NOW_MS, topic="u"),
        offset(0, LONG_AGO_MS, topic="former"),
        offset(0, LATELY_MS, topic="left-lately"),
    )
    assert removed(shard) == [OffsetKey("g", "former", 0)]


def test_live_group_without_offsets_stays() -> None:
    assert removed(shard_of(group(member("t")), offset(0, 0, topic="u"))) == [
        OffsetKey("g", "u", 0)
    ]
    assert removed(shard_of(group(member("t")))) == []


UNKNOWN_SUBSCRIPTION = member(subscription=b"\x00\x00\x00\x00\x00\x09", member_id="n")


@pytest.mark.parametrize(
    "record",
    [group(member(), protocol_type="connect"), group(member("t"), UNKNOWN_SUBSCRIPTION)],
    ids=["connect", "malformed"],
)
def test_live_group_whose_subscription_cannot_be_told_loses_nothing(record: Record) -> None:
    assert removed(shard_of(record, offset(0, 0, topic="u"))) == []


# ---- how much at once


def test_only_the_keys_that_were_asked_for_are_removed_and_the_group_with_the_last() -> None:
    shard = shard_of(group(since_ms=LONG_AGO_MS), *(offset(p, 0) for p in range(5)))
    keys = [OffsetKey("g", "t", p) for p in range(5)]
    assert removed(shard, keys[:3]) == keys[:3]
    replay(shard, *((key, None) for key in keys[:3]))
    assert removed(shard, keys[2:]) == [*keys[3:], GROUP]


def test_groups_are_checked_some_at_a_time_and_a_large_one_a_part_at_a_time() -> None:
    shard = GroupShard()
    sizes = {"a": 1, "large": 2 * EXPIRY_SLICE + 1, "b": EXPIRY_SLICE - 2, "c": 1, "whole": 499}
    for name, size in sizes.items():
        records = [(OffsetKey(name, "t", p), CommittedOffset(1)) for p in range(size)]
        replay(shard, *records)

    checks = list(retention_checks(shard, RETENTION_MS))
    assert [(check.group_ids, len(check.keys or ())) for check in checks] == [
        (["a"], 0),
        (["large"], EXPIRY_SLICE),
        (["large"], EXPIRY_SLICE),
        (["large"], 1),
        (["b"], 0),
        (["c"], 0),
        (["whole"], 0),
    ]
    examined = [key for check in checks for key in check.keys or ()]
    assert examined == [OffsetKey("large", "t", p) for p in range(sizes["large"])]


def test_offsets_that_go_between_two_parts_of_a_group_are_no_longer_examined() -> None:
    shard = shard_of(*(offset(p, 0, topic=f"t{p % 2}") for p in range(2 * EXPIRY_SLICE)))
    checks = retention_checks(shard, RETENTION_MS)
    first = next(checks)
    assert removed(shard, first.keys) == first.keys

    replay(shard, *((OffsetKey("g", f"t{p % 2}", p), None) for p in range(2 * EXPIRY_SLICE)))
    assert [removed(shard, check.keys) for check in checks] == []


def test_append_is_bounded_and_a_key_that_is_larger_goes_alone() -> None:
    long_topic = "x" * APPEND_BYTES
    keys = [OffsetKey("g", topic, p) for topic in ("t", long_topic) for p in range(400)]
    shard = shard_of(*((key, CommittedOffset(1, -1, "", 0)) for key in keys))
    tombstone_appends = appends(shard)
    sizes = [
        sum(len(encode_key(key)) + RECORD_OVERHEAD for key, _ in append.records)
        for append in tombstone_appends
    ]
    assert all(
        size <= APPEND_BYTES or len(append.records) == 1
        for size, append in zip(sizes, tombstone_appends, strict=True)
    )
    assert [key for append in tombstone_appends for key, _ in append.records] == keys
    assert len(tombstone_appends) < 420


def test_groups_are_looked_at_each_for_itself() -> None:
    shard = GroupShard()
    for name, since_ms in {"a": LONG_AGO_MS, "b": LATELY_MS, "c": LONG_AGO_MS}.items():
        replay(shard, (GroupKey(name), group(since_ms=since_ms)[1]))
        replay(shard, (OffsetKey(name, "t", 0), CommittedOffset(1)))
    effects = decide(shard, RetentionCheck(["a", "b", "c"], RETENTION_MS), NOW_MS)
    assert [append.then for append in effects if isinstance(append, Append)] == [
        RemovalEnded("a"),
        RemovalEnded("c"),
    ]
    assert list(shard.groups) == ["a", "b", "c"], "only replaying changes anything"
