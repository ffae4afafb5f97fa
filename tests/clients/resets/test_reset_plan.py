"""Where each of Kafka's positions leads, which stores are written, and who is refused."""

from __future__ import annotations

import pytest

from clients.admin.descriptions import CONSUMER_GROUP
from clients.groups.group_facts import (
    CoordinatorFacts,
    GroupFacts,
    MemberFacts,
    ZooKeeperFacts,
    ZooKeeperOffset,
)
from clients.resets.reset_plan import (
    LogRange,
    Named,
    Position,
    ShiftBy,
    ToOffset,
    ToOffsets,
    ToTime,
    csv_rows,
    plan_rows,
    refusal,
    stores_of,
)
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

T0 = TopicPartition("flights", 0)
T1 = TopicPartition("flights", 1)
LOG = LogRange(start=10, end=100)


def in_kafka(offset: int | None, *, state: str = "Empty") -> GroupFacts:
    """A group at a coordinator with one offset."""
    offsets = {} if offset is None else {T0: OffsetAndMetadata(offset, "note")}
    return GroupFacts("g", coordinator=CoordinatorFacts(state, offsets=offsets))


def in_zookeeper(
    offset: int | None, kafka: int | None = None, storage: str | None = None
) -> GroupFacts:
    """A group that registered in ZooKeeper once, perhaps with an offset in Kafka too."""
    held = {} if offset is None else {T0: ZooKeeperOffset(offset, 0)}
    committed = {} if kafka is None else {T0: OffsetAndMetadata(kafka)}
    return GroupFacts(
        "g",
        ZooKeeperFacts(has_ids=True, offsets=held),
        CoordinatorFacts("Empty", offsets=committed),
        storage,
    )


@pytest.mark.parametrize(
    ("position", "old", "log", "new", "note"),
    [
        (Named.EARLIEST, 50, LOG, 10, None),
        (Named.LATEST, 50, LOG, 100, None),
        (Named.CURRENT, 50, LOG, 50, None),
        (Named.CURRENT, None, LOG, 100, None),
        (ToOffset(60), 50, LOG, 60, None),
        (ToOffset(100), 50, LOG, 100, None),
        (ToOffset(101), 50, LOG, 100, "higher than latest"),
        (ToOffset(9), 50, LOG, 10, "lower than earliest"),
        (ShiftBy(-30), 50, LOG, 20, None),
        (ShiftBy(-41), 50, LOG, 10, "lower than earliest"),
        (ShiftBy(60), 50, LOG, 100, "higher than latest"),
        (ToTime(5), 50, LogRange(10, 100, at_time=42), 42, None),
        (ToTime(5), 50, LOG, 100, "no message that young"),
        (ToTime(5), None, LogRange(0, 0), 0, "no message that young"),
        (ToOffsets({T0: OffsetAndMetadata(70)}), 50, LOG, 70, None),
        (ToOffsets({T0: OffsetAndMetadata(2**62)}), 50, LOG, 100, "higher than latest"),
    ],
)
def test_a_position_leads_where_kafkas_tool_goes(
    position: Position, old: int | None, log: LogRange, new: int, note: str | None
) -> None:
    (row,), failures = plan_rows(in_kafka(old), position, {T0: log})
    assert (row.old, row.new, failures) == (old, new, [])
    assert (note or "") in (row.note or "")
    assert (row.note is None) == (note is None)


def test_a_partition_without_an_offset_cannot_be_shifted_and_the_others_are() -> None:
    rows, failures = plan_rows(in_kafka(50), ShiftBy(1), {T0: LOG, T1: LOG})
    assert [row.partition for row in rows] == [T0]
    assert [(failure.what, failure.error) for failure in failures] == [("flights-1", "NoPosition")]


@pytest.mark.parametrize(
    ("old", "new", "skips", "repeats"),
    [(50, 60, 10, 0), (50, 20, 0, 30), (50, 50, 0, 0), (None, 60, None, None)],
)
def test_a_row_counts_what_is_skipped_or_repeated(
    old: int | None, new: int, skips: int | None, repeats: int | None
) -> None:
    (row,), _ = plan_rows(in_kafka(old), ToOffset(new), {T0: LOG})
    assert (row.skips, row.repeats) == (skips, repeats)


@pytest.mark.parametrize(
    ("facts", "stores"),
    [
        (in_kafka(50), ("kafka",)),
        (in_kafka(None), ("kafka",)),
        (in_zookeeper(50), ("zookeeper",)),
        (in_zookeeper(None), ("zookeeper",)),
        (in_zookeeper(50, kafka=40), ("zookeeper", "kafka")),
        (in_zookeeper(50, storage="kafka"), ("kafka",)),
        (in_zookeeper(50, kafka=60, storage="zookeeper"), ("zookeeper",)),
        (in_zookeeper(50, storage="dual-kafka"), ("zookeeper", "kafka")),
    ],
)
def test_the_stores_that_the_group_may_read_are_written(
    facts: GroupFacts, stores: tuple[str, ...]
) -> None:
    assert stores_of(facts, T0) == stores


def test_a_change_has_what_each_store_held_and_zookeeper_gets_no_metadata() -> None:
    position = ToOffsets({T0: OffsetAndMetadata(70, "from a copy", 4)})
    (row,), _ = plan_rows(in_zookeeper(50, kafka=40), position, {T0: LOG})
    assert [(change.store, change.old, change.new) for change in row.changes] == [
        ("zookeeper", OffsetAndMetadata(50), OffsetAndMetadata(70)),
        ("kafka", OffsetAndMetadata(40), OffsetAndMetadata(70, "from a copy", 4)),
    ]


def test_a_group_with_members_is_refused_in_kafkas_words_and_told_what_to_do() -> None:
    members = (MemberFacts("m-1", client_id="app"),)
    facts = GroupFacts("g", coordinator=CoordinatorFacts("Stable", members=members))
    assert refusal(facts, online=False) == (
        "Assignments can only be reset if the group 'g' is inactive, but the current state is "
        "Stable. Stop its members (app), or use --online"
    )
    assert refusal(facts, online=True) is None


def test_a_group_that_could_not_be_read_is_not_said_to_have_members_or_a_state() -> None:
    text = "group 'g' could not be read, so it may have members: nothing is written"
    assert refusal(GroupFacts("g")) == refusal(GroupFacts("g"), online=False) == text


def test_who_has_no_option_for_it_is_not_told_to_reset_online() -> None:
    members = (MemberFacts("m-1", client_id="app"),)
    facts = GroupFacts("g", coordinator=CoordinatorFacts("Stable", members=members))
    assert refusal(facts) == (
        "Offsets can only be written if the group 'g' is inactive, but the current state is "
        "Stable. Stop its members (app)"
    )


def test_members_that_no_coordinator_removes_are_to_be_stopped() -> None:
    members = (MemberFacts("m-1", client_id="app"),)
    modern = CoordinatorFacts("Stable", type=CONSUMER_GROUP, members=members)
    text = refusal(GroupFacts("g", coordinator=modern), online=False)
    assert text is not None
    assert text.endswith("Stop its members (app)")


def test_members_in_zookeeper_are_never_reset_online() -> None:
    facts = GroupFacts(
        "g", ZooKeeperFacts(members=(MemberFacts("g_host-1"),)), in_kafka(5).coordinator
    )
    text = refusal(facts, online=True)
    assert text is not None
    assert "stop them" in text


@pytest.mark.parametrize("state", ["Empty", "Dead"])
def test_a_group_without_members_is_not_refused(state: str) -> None:
    assert refusal(in_kafka(None, state=state), online=False) is None


def test_csv_is_kafkas_and_names_the_group_only_among_several() -> None:
    rows, _ = plan_rows(in_kafka(50), Named.EARLIEST, {T0: LOG, T1: LOG})
    assert csv_rows(rows, None) == "flights,0,10\nflights,1,10\n"
    assert csv_rows(rows[:1], 'a "b", c') == '"a ""b"", c",flights,0,10\n'
