"""When offsets expire, row by row of KIP-211's table."""

import attrs
import pytest

from clients.groups.group_facts import (
    CoordinatorFacts,
    GroupFacts,
    MemberFacts,
    ZooKeeperFacts,
    ZooKeeperOffset,
)
from clients.groups.offset_expiry import deleted_at_ms, expires_at_ms
from clients.groups.offset_times import _times
from clients.groups.recorded_groups import RecordedGroup, RecordedGroups, RecordedOffset
from offsets.records import GroupMember, GroupMetadata
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

T0 = TopicPartition("t", 0)
# The broker wrote it down at another time than its committer says.
COMMIT = RecordedOffset(5, -1, "", 3_000, None, 0, commit_timestamp_ms=1_000)
DAY = 86_400_000


def metadata(
    state_ms: int, *members: GroupMember, protocol_type: str = "consumer"
) -> GroupMetadata:
    return GroupMetadata(
        protocol_type=protocol_type,
        generation_id=3,
        protocol=None,
        leader=None,
        state_timestamp_ms=state_ms,
        members=members,
    )


def consumer(*topics: str) -> CoordinatorFacts:
    member = MemberFacts("m", topics=frozenset(topics))
    return CoordinatorFacts("Stable", protocol_type="consumer", members=(member,))


EMPTY = CoordinatorFacts("Empty")
REBALANCING = attrs.evolve(consumer("u"), state="PreparingRebalance")
OTHER = CoordinatorFacts("Stable", protocol_type="connect", members=(MemberFacts("m"),))
CASES = [
    ("only commits: from the commit", EMPTY, None, 1_000 + DAY),
    ("lost its members: from then", EMPTY, metadata(7_000), 7_000 + DAY),
    ("an old record does not say when", EMPTY, metadata(-1), 1_000 + DAY),
    ("members that subscribe to it", consumer("t"), metadata(7_000), None),
    ("members that do not (KAFKA-8730)", consumer("u"), metadata(7_000), 1_000 + DAY),
    ("rebalancing", REBALANCING, metadata(7_000), None),
    ("members that are no consumers", OTHER, metadata(7_000), None),
]


@pytest.mark.parametrize(
    ("group", "record", "expected"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_an_offset_expires_as_its_group_says(
    group: CoordinatorFacts, record: GroupMetadata | None, expected: int | None
) -> None:
    recorded = RecordedGroup({T0: COMMIT}, record)
    assert expires_at_ms(group, recorded, T0, DAY) == expected


def test_an_expiry_of_the_commits_own_needs_no_setting_of_the_broker() -> None:
    own = COMMIT._replace(expires_at_ms=9_000)
    assert expires_at_ms(EMPTY, RecordedGroup({T0: own}), T0, None) == 9_000
    assert expires_at_ms(EMPTY, RecordedGroup({T0: COMMIT}), T0, None) is None


@pytest.mark.parametrize(("storage", "expected"), [("kafka", 1_000 + DAY), ("zookeeper", None)])
def test_what_is_left_in_kafka_beside_an_offset_in_zookeeper_is_no_expiry_of_that_one(
    storage: str, expected: int | None
) -> None:
    """As after a migration to ZooKeeper, which keeps offsets for ever."""
    kafka = CoordinatorFacts("Empty", coordinator_id=1, offsets={T0: OffsetAndMetadata(5)})
    zookeeper = ZooKeeperFacts(offsets={T0: ZooKeeperOffset(9, 2_000)})
    group = GroupFacts("g", zookeeper, kafka, storage=storage)
    recorded = RecordedGroups(groups={"g": RecordedGroup({T0: COMMIT}, metadata(-1))})
    assert _times(group, T0, 9, recorded, {1: DAY}, {}, {}).expires_at_ms == expected


def test_an_offset_that_is_not_recorded_has_no_expiry() -> None:
    assert expires_at_ms(EMPTY, RecordedGroup(), T0, DAY) is None


def test_retention_takes_a_record_after_its_time_unless_the_topic_keeps_all() -> None:
    assert deleted_at_ms(5_000, "delete", 1_000) == 6_000
    assert deleted_at_ms(5_000, "compact,delete", 1_000) == 6_000
    assert deleted_at_ms(5_000, "compact", 1_000) is None
    assert deleted_at_ms(5_000, "delete", -1) is None
