"""Descriptions of groups with members, groups that had some, and groups that only commit."""

from groups.coordinator.listing import (
    GroupDetails,
    GroupOverview,
    MemberDetails,
    describe,
    overviews,
)
from groups.coordinator.shard import GroupShard
from offsets.records import CommittedOffset, GroupKey, GroupMember, GroupMetadata, OffsetKey
from tests.stage.replay import replay

MEMBER = GroupMember(
    member_id="m",
    client_id="c",
    client_host="/h",
    rebalance_timeout_ms=60_000,
    session_timeout_ms=10_000,
    subscription=b"s",
    assignment=b"a",
)
SHOWN = MemberDetails("m", None, "c", "/h", b"s", b"a")


def shard() -> GroupShard:
    shard = GroupShard()
    for group, members in {"live": (MEMBER,), "left": ()}.items():
        metadata = GroupMetadata(
            protocol_type="consumer",
            generation_id=1,
            protocol="range" if members else None,
            leader="m" if members else None,
            members=members,
        )
        replay(shard, (GroupKey(group), metadata))
    for group in ("live", "simple"):
        replay(shard, (OffsetKey(group, "t", 0), CommittedOffset(1)))
    return shard


def test_every_group_is_listed_once_a_simple_one_without_a_protocol_type() -> None:
    assert list(overviews(shard())) == [
        GroupOverview("live", "consumer", "Stable"),
        GroupOverview("left", "consumer", "Empty"),
        GroupOverview("simple", "", "Empty"),
    ]


def test_group_that_is_gone_when_its_turn_comes_is_not_listed() -> None:
    some = shard()
    listed = overviews(some)
    first = next(listed)
    replay(some, (GroupKey("left"), None))
    assert [first.group_id, *(overview.group_id for overview in listed)] == ["live", "simple"]


def test_group_with_members_is_stable_and_shows_them() -> None:
    expected = GroupDetails("live", "Stable", "consumer", "range", (SHOWN,))
    assert describe(shard(), "live") == expected


def test_group_all_members_left_is_empty_and_keeps_its_protocol_type() -> None:
    assert describe(shard(), "left") == GroupDetails("left", "Empty", "consumer")


def test_group_that_only_commits_is_empty() -> None:
    assert describe(shard(), "simple") == GroupDetails("simple", "Empty")


def test_unknown_group_is_dead() -> None:
    assert describe(shard(), "nobody") == GroupDetails("nobody", "Dead")
