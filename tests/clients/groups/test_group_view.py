"""Facts of a group in, table items out."""

import attrs
import pytest

from clients.groups.group_facts import (
    CoordinatorFacts,
    GroupFacts,
    LogOffsets,
    MemberFacts,
    OffsetTimes,
    ZooKeeperFacts,
    ZooKeeperOffset,
    host_of,
    zookeeper_members,
)
from clients.groups.group_view import (
    OFFSET_COLUMNS,
    Item,
    assignment_text,
    duration,
    member_items,
    offset_items,
    position_remarks,
    remark,
    state_item,
    summary,
    total_lag,
)
from clients.watching.top_view import group_row
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

T0, T1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
ANNA = "g_anna-1418710530123-1a2b3c4d"
BERT = "g_bert-1418710530124-2a2b3c4d"


def in_zookeeper(
    ids: tuple[str, ...], owners: dict[TopicPartition, str], **offsets: int
) -> GroupFacts:
    """Build group g with members, owners and, as `p0=…`, offsets of flights in ZooKeeper."""
    return GroupFacts(
        "g",
        zookeeper=ZooKeeperFacts(
            has_ids=True,
            members=zookeeper_members("g", ids, owners),
            owners=owners,
            partitions=frozenset(owners),
            offsets={
                TopicPartition("flights", int(name[1:])): ZooKeeperOffset(offset, 1_000)
                for name, offset in offsets.items()
            },
        ),
    )


def committing(*members: MemberFacts, state: str = "Empty", **offsets: int) -> GroupFacts:
    """Build group g from its coordinator's facts."""
    return GroupFacts(
        "g",
        coordinator=CoordinatorFacts(
            state,
            coordinator="k:9092 (0)",
            protocol_type="consumer" if members else "",
            assignment_strategy="range" if members else "",
            members=members,
            offsets={
                TopicPartition("flights", int(name[1:])): OffsetAndMetadata(offset)
                for name, offset in offsets.items()
            },
        ),
    )


def only(items: list[Item], *keys: str) -> list[tuple[object, ...]]:
    return [tuple(item.get(key) for key in keys) for item in items]


def test_a_group_in_zookeeper_shows_owner_host_offset_and_lag() -> None:
    facts = in_zookeeper((ANNA,), {T0: ANNA}, p0=40)
    items = offset_items(facts, {T0}, {T0: LogOffsets(0, 42)}, now_ms=4_000)
    assert items == [
        {
            "group": "g",
            "topic": "flights",
            "partition": 0,
            "current_offset": 40,
            "log_end_offset": 42,
            "lag": 2,
            "stream": None,
            "wins": "zookeeper",
            "diverged": False,
            "consumer_id": ANNA,
            "host": "anna",
            "client_id": None,
            "coordination": "zookeeper",
            "offsets": "zookeeper",
            "log_start_offset": 0,
            "zk_offset": 40,
            "kafka_offset": None,
            "position": None,
            "committed_at_ms": 1_000,
            "age_ms": 3_000,
            "expires_in_ms": None,
            "time_lag_ms": None,
            "time_lag_method": None,
            "above_log_start": 40,
            "deleted_in_ms": None,
            "unsubscribed": False,
            "unowned": False,
            "metadata": None,
        }
    ]


def test_partitions_are_listed_by_number_and_an_unowned_one_has_no_consumer() -> None:
    facts = in_zookeeper((ANNA,), {T1: ANNA})
    ten = TopicPartition("flights", 10)
    items = offset_items(facts, {ten, T1}, {}, now_ms=0)
    assert only(items, "partition", "consumer_id") == [(1, ANNA), (10, None)]


def test_an_owner_whose_member_is_gone_is_still_named() -> None:
    items = offset_items(in_zookeeper((), {T0: BERT}), {T0}, {}, now_ms=0)
    assert only(items, "consumer_id", "host") == [(BERT, "bert")]


def test_an_idle_member_of_a_group_in_zookeeper_has_a_line_without_topic() -> None:
    items = offset_items(in_zookeeper((ANNA, BERT), {T0: ANNA}), {T0}, {}, now_ms=0)
    assert only(items, "topic", "partition", "consumer_id") == [
        ("flights", 0, ANNA),
        (None, None, BERT),
    ]


def test_an_idle_member_of_a_coordinator_has_no_line() -> None:
    facts = committing(MemberFacts("c-1", "/127.0.0.1", "c"), state="Stable", p0=1)
    assert only(offset_items(facts, {T0}, {}, now_ms=0), "topic") == [("flights",)]


def test_without_a_commit_and_with_data_offset_and_lag_are_unknown() -> None:
    facts = in_zookeeper((ANNA,), {T0: ANNA})
    items = offset_items(facts, {T0}, {T0: LogOffsets(0, 5)}, now_ms=0)
    assert only(items, "current_offset", "lag") == [(None, None)]


def test_without_a_commit_an_empty_log_is_no_lag() -> None:
    facts = in_zookeeper((ANNA,), {T0: ANNA})
    items = offset_items(facts, {T0}, {T0: LogOffsets(5, 5)}, now_ms=0)
    assert only(items, "lag") == [(0,)]


@pytest.mark.parametrize(
    ("committed", "lag", "position"), [(3, 15, "below-log-start"), (30, -5, "beyond-log-end")]
)
def test_an_offset_outside_the_log_is_flagged(committed: int, lag: int, position: str) -> None:
    items = offset_items(committing(p0=committed), {T0}, {T0: LogOffsets(10, 25)}, now_ms=0)
    assert only(items, "lag", "position") == [(lag, position)]


def test_offsets_outside_their_logs_have_a_remark_of_what_a_consumer_does() -> None:
    logs = {T0: LogOffsets(10, 25), T1: LogOffsets(0, 8)}
    elsewhere = "where its auto.offset.reset says, or where `kgroup reset` puts it."
    items = offset_items(committing(p0=3, p1=9), {T0, T1}, logs, now_ms=0)
    assert position_remarks("g", items) == [
        "Warning: Consumer group 'g' has committed before the log's start: flights-0 at 3, where "
        f"the log is from 10 to 25; records were deleted unread: a consumer goes on {elsewhere}",
        "Warning: Consumer group 'g' has committed beyond the log's end: flights-1 at 9, where the "
        "log is from 0 to 8; the log was truncated, or its topic made again: a consumer goes on "
        "where the log parts from what it read, if it committed with a leader epoch (KIP-320), and "
        f"otherwise {elsewhere}",
    ]
    both = offset_items(committing(p0=26, p1=9), {T0, T1}, logs, now_ms=0)
    (remark,) = position_remarks("g", both)
    assert "flights-0 at 26, where the log is from 10 to 25, and 1 more; " in remark
    assert position_remarks("g", offset_items(committing(p0=25), {T0}, logs, now_ms=0)) == []


def test_without_a_leader_the_committed_offset_is_shown_and_the_lag_unknown() -> None:
    items = offset_items(committing(p0=3), {T0}, {T0: LogOffsets()}, now_ms=0)
    assert only(items, "current_offset", "log_end_offset", "lag") == [(3, None, None)]


def test_of_two_stores_a_group_in_zookeeper_resumes_from_the_greater() -> None:
    both = GroupFacts(
        "g", in_zookeeper((ANNA,), {T0: ANNA}, p0=7).zookeeper, committing(p0=9).coordinator
    )
    items = offset_items(both, {T0}, {}, now_ms=0)
    assert only(items, "current_offset", "offsets", "zk_offset", "kafka_offset") == [
        (9, "dual", 7, 9)
    ]


def test_of_two_stores_a_group_with_a_coordinator_resumes_from_kafkas() -> None:
    member = MemberFacts("c-1", "/127.0.0.1", "c", (T0,))
    both = GroupFacts(
        "g",
        in_zookeeper((), {}, p0=70).zookeeper,
        committing(member, state="Stable", p0=9).coordinator,
    )
    assert only(offset_items(both, {T0}, {}, now_ms=0), "current_offset") == [(9,)]


def kept_in_both(storage: str | None, zk: int | None, kafka: int | None) -> GroupFacts:
    """Build group g with these offsets of flights-0 in its two stores."""
    held = {} if zk is None else {T0: ZooKeeperOffset(zk, 1_000)}
    in_kafka = {} if kafka is None else {T0: OffsetAndMetadata(kafka)}
    return GroupFacts(
        "g",
        ZooKeeperFacts(has_ids=True, offsets=held),
        CoordinatorFacts("Empty", offsets=in_kafka),
        storage,
    )


@pytest.mark.parametrize(
    ("storage", "zk", "kafka", "current", "wins", "diverged"),
    [
        (None, 9, 7, 9, "zookeeper", True),
        (None, 7, 7, 7, "kafka", False),
        (None, 7, None, 7, "zookeeper", False),  # it may well know one store alone
        ("dual", 9, 7, 9, "zookeeper", True),
        ("dual", None, 7, 7, "kafka", True),
        ("dual-zookeeper", 3, 7, 3, "zookeeper", True),
        ("dual-kafka", 9, 7, 7, "kafka", True),
        ("dual-kafka", 9, None, None, "kafka", True),
        ("kafka", 9, 7, 7, "kafka", False),  # leftovers in a store that is not written
        ("zookeeper", 3, 7, 3, "zookeeper", False),
        (None, None, None, None, None, False),
    ],
)
def test_the_store_that_members_read_wins_and_stores_that_should_agree_diverge(
    storage: str | None,
    zk: int | None,
    kafka: int | None,
    current: int | None,
    wins: str | None,
    diverged: bool,
) -> None:
    items = offset_items(kept_in_both(storage, zk, kafka), {T0}, {}, now_ms=0)
    assert only(items, "current_offset", "wins", "diverged") == [(current, wins, diverged)]


def test_a_store_that_could_not_be_asked_has_not_diverged() -> None:
    facts = attrs.evolve(kept_in_both("dual", 9, 7), coordinator=None)
    assert not facts.is_diverged(T0)


def test_a_group_that_only_commits_is_coordinated_by_nobody() -> None:
    assert state_item(committing(p0=1))["coordination"] == "none"


def test_a_group_that_left_its_coordinator_for_zookeeper_is_coordinated_there() -> None:
    here = in_zookeeper((ANNA,), {T0: ANNA}, p0=900).zookeeper
    left = CoordinatorFacts("Empty", protocol_type="consumer", offsets={T0: OffsetAndMetadata(100)})
    facts = GroupFacts("g", here, left)
    assert (facts.coordination, facts.state) == ("zookeeper", "Stable")
    assert facts.current_offset(T0) == 900

    nobody = attrs.evolve(facts, zookeeper=in_zookeeper((), {}).zookeeper)
    assert (nobody.coordination, nobody.state) == ("coordinator", "Empty")


def test_the_state_of_a_group_whose_coordinator_was_not_read_is_unknown() -> None:
    facts = in_zookeeper((), {}, p0=3)
    assert state_item(facts)["state"] == "Unknown"
    assert remark(facts) is None

    assert in_zookeeper((ANNA,), {T0: ANNA}).state == "Stable"


def test_a_group_the_coordinator_calls_dead_and_zookeeper_lacks_does_not_exist() -> None:
    assert not GroupFacts("g", None, CoordinatorFacts("Dead")).exists


def test_a_group_in_zookeeper_is_stable_when_every_owner_is_registered() -> None:
    assert in_zookeeper((ANNA,), {T0: ANNA}).state == "Stable"


def test_a_group_in_zookeeper_rebalances_while_an_owner_is_gone() -> None:
    facts = in_zookeeper((ANNA,), {T0: BERT})
    assert remark(facts) == "Warning: Consumer group 'g' is rebalancing."


def test_a_group_in_zookeeper_rebalances_while_a_partition_has_no_owner() -> None:
    facts = in_zookeeper((ANNA,), {T0: ANNA})
    assert facts.zookeeper is not None
    half = attrs.evolve(facts.zookeeper, partitions=frozenset({T0, T1}))
    assert GroupFacts("g", half).state == "PreparingRebalance"


def test_a_partition_nobody_owns_or_committed_is_among_those_to_show() -> None:
    waiting = ZooKeeperFacts(has_ids=True, partitions=frozenset({T1}))
    assert GroupFacts("g", waiting).partitions == {T1}


def test_a_group_without_members_is_said_to_have_none() -> None:
    assert remark(committing(p0=1)) == "Consumer group 'g' has no active members."


def test_a_stable_group_needs_no_remark() -> None:
    assert remark(in_zookeeper((ANNA,), {T0: ANNA})) is None


def test_members_show_how_many_partitions_and_which() -> None:
    facts = in_zookeeper((ANNA, BERT), {T0: ANNA, T1: ANNA})
    assert only(member_items(facts), "consumer_id", "partitions", "assignment") == [
        (ANNA, 2, "flights(0,1)"),
        (BERT, 0, None),
    ]


def test_a_static_member_shows_its_instance_id() -> None:
    facts = committing(MemberFacts("c-1", group_instance_id="host-7"), state="Stable")
    assert only(member_items(facts), "consumer_id", "group_instance_id") == [("c-1", "host-7")]


def test_an_assignment_of_another_protocol_is_shown_as_bytes() -> None:
    facts = committing(MemberFacts("c-1", foreign_assignment=b"\x00source-1\n"), state="Stable")
    assert only(member_items(facts), "partitions", "assignment") == [(None, r"\x00source-1\n")]


def test_the_state_of_a_coordinated_group_names_its_coordinator_and_strategy() -> None:
    facts = committing(MemberFacts("c-1", "/127.0.0.1", "c", (T0,)), state="Stable", p0=1)
    assert state_item(facts) == {
        "group": "g",
        "coordinator": "k:9092 (0)",
        "assignment_strategy": "range",
        "state": "Stable",
        "members": 1,
        "coordination": "coordinator",
        "storage": None,
    }


def test_an_assignment_lists_topics_by_name_and_partitions_by_number() -> None:
    assigned = [TopicPartition("b", 0), TopicPartition("a", 10), TopicPartition("a", 2)]
    assert assignment_text(assigned) == "a(2,10), b(0)"


@pytest.mark.parametrize(
    ("consumer_id", "host"),
    [
        (ANNA, "anna"),
        ("g_with-dash.example-1418710530123-1a2b3c4d", "with-dash.example"),
        ("g_fixed-id", None),
        ("other_anna-1418710530123-1a2b3c4d", None),
    ],
)
def test_the_host_is_read_from_a_default_consumer_id_only(consumer_id: str, host: str) -> None:
    assert host_of("g", consumer_id) == host


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, "-"),
        (0, "0s"),
        (-5, "0s"),
        (61_000, "1m 1s"),
        (90_000_000, "1d 1h"),
        (3_600_000, "1h 0m"),
    ],
)
def test_a_duration_shows_its_two_largest_units(ms: int | None, text: str) -> None:
    assert duration(ms) == text


# ---- times


def with_times(
    committed: int, times: OffsetTimes, *, start: int = 0, markers_from: int | None = None
) -> Item:
    facts = committing(p0=committed)
    logs = {T0: LogOffsets(start, 42, markers_from)}
    (item,) = offset_items(facts, {T0}, logs, now_ms=100_000, times={T0: times})
    return item


def test_the_times_of_an_offset_are_counted_from_now() -> None:
    times = OffsetTimes(90_000, 160_000, 40_000, deleted_at_ms=130_000)
    item = with_times(40, times)
    assert (item["committed_at_ms"], item["age_ms"], item["expires_in_ms"]) == (
        90_000,
        10_000,
        60_000,
    )
    assert (item["time_lag_ms"], item["time_lag_method"]) == (60_000, "exact")
    assert (item["deleted_in_ms"], item["above_log_start"]) == (30_000, 40)


def test_without_lag_the_lag_in_time_is_zero_and_unread_it_is_unknown() -> None:
    assert with_times(42, OffsetTimes())["time_lag_ms"] == 0
    assert with_times(40, OffsetTimes())["time_lag_ms"] is None


def test_where_retention_overtook_the_group_the_lag_in_time_is_at_least_that_of_what_is_left() -> (
    None
):
    item = with_times(3, OffsetTimes(next_record_ms=40_000), start=10)
    assert (item["lag"], item["time_lag_ms"], item["time_lag_method"]) == (32, 60_000, "estimate")
    (column,) = [column for column in OFFSET_COLUMNS if column.title == "TIME-LAG"]
    assert column.cell(item) == "≥ 1m 0s"


def test_markers_alone_behind_a_commit_are_no_lag_in_messages_or_in_time() -> None:
    item = with_times(41, OffsetTimes(), markers_from=41)
    assert (item["lag"], item["time_lag_ms"]) == (0, 0)


@pytest.mark.fault("strangers-2")
def test_what_is_dated_in_the_future_has_no_age_and_makes_no_lag_in_time() -> None:
    item = with_times(40, OffsetTimes(committed_at_ms=200_000, next_record_ms=200_000))
    assert (item["time_lag_ms"], item["time_lag_method"], item["age_ms"]) == (None, None, None)
    (column,) = [column for column in OFFSET_COLUMNS if column.title == "TIME-LAG"]
    assert column.cell(item) == "-"


# ---- the summary


def test_a_summary_names_state_members_lag_and_the_partition_with_most_of_it() -> None:
    anna = MemberFacts("anna-1", "/h", "anna", (T0, T1))
    facts = committing(anna, state="Stable", p0=40)
    logs = {T0: LogOffsets(0, 42), T1: LogOffsets(5, 12)}
    items = offset_items(facts, {T0, T1}, logs, now_ms=0)
    assert [item["lag"] for item in items] == [2, None]
    # The member will read the whole log of the partition without a commit.
    assert summary(facts, items) == (
        "g: Stable, 1 member, lag 9 in 2 partitions, most 7 in flights-1"
    )


def test_a_partition_without_a_leader_is_unknown_in_the_summary_and_not_zero() -> None:
    facts = committing(p0=40, p1=1)
    items = offset_items(facts, {T0, T1}, {T0: LogOffsets(0, 40)}, now_ms=0)
    assert summary(facts, items) == (
        "g: Empty, 0 members, no lag in 2 partitions, 1 of them unknown"
    )


# ---- topics that members no longer subscribe to


def of_two_topics(*members: MemberFacts, state: str = "Stable") -> GroupFacts:
    """Group g with an offset on flights, 40 of 42, and on another topic."""
    facts = committing(*members, state=state, p0=40)
    assert facts.coordinator is not None
    offsets = {**facts.coordinator.offsets, OTHER0: OffsetAndMetadata(5)}
    return attrs.evolve(facts, coordinator=attrs.evolve(facts.coordinator, offsets=offsets))


OTHER0 = TopicPartition("other", 0)
BOTH_LOGS = {T0: LogOffsets(0, 42), OTHER0: LogOffsets(0, 6)}
TO_OTHER = MemberFacts("m", topics=frozenset({"other"}))
UNREADABLE = MemberFacts("n", topics=None)


@pytest.mark.fault("tool-F7")
def test_the_lag_of_a_topic_that_members_have_dropped_is_flagged_and_not_the_groups() -> None:
    facts = of_two_topics(TO_OTHER)
    items = offset_items(facts, facts.partitions, BOTH_LOGS, now_ms=0)
    assert only(items, "topic", "lag", "unsubscribed") == [
        ("flights", 2, True),
        ("other", 1, False),
    ]
    assert total_lag(items) == 1
    assert "lag 1 in 2 partitions, most 1 in other-0" in summary(facts, items)
    assert group_row(facts, BOTH_LOGS, None, 0.0)["lag"] == 1


@pytest.mark.parametrize(
    "facts",
    [
        of_two_topics(state="Empty"),
        of_two_topics(TO_OTHER, state="PreparingRebalance"),
        of_two_topics(TO_OTHER, UNREADABLE),
        # An assignor of the members' own may share out more.
        of_two_topics(attrs.evolve(TO_OTHER, partitions=(T0,))),
        attrs.evolve(
            of_two_topics(TO_OTHER),
            zookeeper=ZooKeeperFacts(has_ids=True, members=(MemberFacts("old"),)),
        ),
    ],
    ids=["no members", "rebalancing", "not all known", "owned", "members in ZooKeeper"],
)
def test_a_topic_that_may_be_consumed_counts(facts: GroupFacts) -> None:
    items = offset_items(facts, {T0, OTHER0}, BOTH_LOGS, now_ms=0)
    assert [item["unsubscribed"] for item in items if item.get("topic")] == [False, False]
    assert total_lag(items) == 3
    assert group_row(facts, BOTH_LOGS, None, 0.0)["lag"] == 3
