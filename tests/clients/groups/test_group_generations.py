"""The generations of a group, read from the records that any coordinator writes."""

from typing import Any

import attrs

from clients.groups.group_generations import Generations, judge_generations
from offsets.records import (
    CommittedOffset,
    GroupKey,
    GroupMember,
    GroupMetadata,
    OffsetKey,
    encode_key,
    encode_value,
)
from protocol.consumer_protocol import Assignment, encode_assignment
from protocol.topic_partition import TopicPartition

WRITTEN_MS = 1_700_000_000_000
KEY = encode_key(GroupKey("g"))


def member(name: str, *partitions: int, instance: str | None = None) -> GroupMember:
    """Return a member that owns partitions of t."""
    owned = tuple(TopicPartition("t", number) for number in partitions)
    return GroupMember(
        member_id=f"{name}-1",
        group_instance_id=instance,
        client_id=name,
        client_host="/127.0.0.1",
        rebalance_timeout_ms=1,
        session_timeout_ms=1,
        subscription=b"",
        assignment=encode_assignment(Assignment(owned)),
    )


def record(generation: int, *members: GroupMember, protocol_type: str = "consumer") -> bytes:
    """Return the value of a group's record; its first member leads."""
    metadata = GroupMetadata(
        protocol_type=protocol_type,
        generation_id=generation,
        protocol="range" if members else None,
        leader=members[0].member_id if members else None,
        members=members,
    )
    value = encode_value(metadata)
    assert value is not None
    return value


@attrs.define
class Log:
    generations: Generations = attrs.field(factory=lambda: Generations("g"))

    def read(self, value: bytes | None, key: bytes | None = KEY) -> Any:
        return self.generations.read(key, value, WRITTEN_MS)


def test_first_record_says_who_is_there_and_not_what_has_changed() -> None:
    shown = Log().read(record(7, member("a", 0, 1), member("b", 2)))
    assert shown == {
        "group": "g",
        "generation_before": None,
        "generation_after": 7,
        "protocol_type": "consumer",
        "protocol": "range",
        "leader_id": "a-1",
        "leader": "a",
        "members": ["a-1", "b-1"],
        "ended_ms": WRITTEN_MS,
        "members_added": None,
        "members_gone": None,
        "members_kept": None,
        "partitions_moved": None,
        "partitions_kept": None,
    }


def test_next_record_says_who_came_and_went_and_what_moved() -> None:
    log = Log()
    log.read(record(7, member("a", 0, 1), member("b", 2, 3)))
    shown = log.read(record(8, member("a", 0, 2), member("c", 1, 3)))
    assert (shown["generation_before"], shown["generation_after"]) == (7, 8)
    assert (shown["members_added"], shown["members_gone"]) == (["c-1"], ["b-1"])
    assert (shown["partitions_moved"], shown["partitions_kept"]) == (3, 1)


def test_static_member_that_restarted_has_kept_its_partitions() -> None:
    log = Log()
    log.read(record(7, member("a", 0, instance="i")))
    shown = log.read(record(7, member("b", 0, instance="i")))
    assert (shown["partitions_moved"], shown["partitions_kept"]) == (0, 1)


def test_empty_group_is_shown_and_one_that_is_gone_begins_again() -> None:
    log = Log()
    log.read(record(7, member("a", 0)))
    assert log.read(record(8))["members_gone"] == ["a-1"]
    assert log.read(None) is None
    assert log.read(record(1, member("a", 0)))["members_added"] is None


def test_partitions_of_other_protocols_are_not_counted() -> None:
    log = Log()
    log.read(record(1, member("a", 0), protocol_type="connect"))
    assert log.read(record(2, member("a", 0), protocol_type="connect"))["partitions_moved"] is None


def test_records_of_other_groups_of_offsets_and_of_nobody_are_skipped() -> None:
    log = Log()
    value = record(7, member("a", 0))
    assert log.read(value, encode_key(GroupKey("other"))) is None
    assert log.read(encode_value(CommittedOffset(5)), encode_key(OffsetKey("g", "t", 0))) is None
    assert log.read(b"junk") is None
    assert log.read(value, None) is None


def test_sentence_says_what_records_cannot_tell() -> None:
    assert judge_generations([]) == "no generation of the group is in __consumer_offsets"
    sentence = judge_generations([{}, {}])
    assert sentence.startswith("2 records of __consumer_offsets")
    assert "do not say why" in sentence
