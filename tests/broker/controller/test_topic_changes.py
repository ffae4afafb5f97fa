"""New topics and partitions: names, numbers, assignments and settings."""

import attrs
import pytest

from broker.controller.topic_changes import (
    MAX_TOPIC_BYTES,
    MIN_PARTITION_BYTES,
    PlannedTopic,
    ReplicaRoom,
    TopicDefaults,
    _count_digits,
    _most_bytes,
    plan_partitions,
    plan_topic,
)
from broker.controller.topic_names import TopicNames, check_name
from core_log.config import LogConfig
from protocol.errors import ApiError, ErrorCode
from protocol.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from protocol.messages.create_partitions import CreatePartitionsRequestTopic
from protocol.messages.create_topics import (
    CreateTopicsRequestAssignment,
    CreateTopicsRequestTopic,
)
from tests.broker.controller.topic_requests import topic
from zk.znodes import TopicAssignment

DEFAULTS = TopicDefaults(num_partitions=3, replication_factor=2, log=LogConfig())


def place(partitions: int, factor: int) -> dict[int, tuple[int, ...]]:
    """Return an assignment that shows the parameters: each partition has replicas 0, 1, …"""
    return {index: tuple(range(factor)) for index in range(partitions)}


def plan(wanted: CreateTopicsRequestTopic) -> PlannedTopic:
    return plan_topic(wanted, TopicNames(["existing", "a.b"]), DEFAULTS, place)


def refusal(wanted: CreateTopicsRequestTopic) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        plan(wanted)
    assert refused.value.detail
    return refused.value.code


@pytest.mark.parametrize("name", ["a", "A-z_0.9", "__consumer_offsets", "x" * 249, "..."])
def test_legal_names(name: str) -> None:
    check_name(name, TopicNames())


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "a\n", "ä", "x" * 250])
def test_illegal_names(name: str) -> None:
    assert refusal(topic(name)) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_name_that_exists() -> None:
    assert refusal(topic("existing")) is ErrorCode.TOPIC_ALREADY_EXISTS


def test_name_that_differs_from_another_only_in_dot_and_underscore() -> None:
    assert refusal(topic("a_b")) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_numbers_are_placed() -> None:
    assert plan(topic(partitions=2, factor=3)) == PlannedTopic("t", {0: (0, 1, 2), 1: (0, 1, 2)})


def test_topic_with_a_purpose_begins_with_its_own_settings_and_those_asked_for_come_on_top() -> (
    None
):
    own = {"offsets": {"cleanup.policy": "compact", "segment.bytes": "100"}}
    defaults = attrs.evolve(DEFAULTS, own=own)
    wanted = topic("offsets", configs={"segment.bytes": "200"})
    planned = plan_topic(wanted, TopicNames(), defaults, place)
    assert planned.configs == {"cleanup.policy": "compact", "segment.bytes": "200"}
    assert plan_topic(topic("t"), TopicNames(), defaults, place).configs == {}


@pytest.mark.parametrize(
    ("wanted", "least"),
    [
        (topic("state", factor=1), None),
        (topic("state", partitions=-1, factor=-1, assignments={0: (7,)}), None),
        (topic("state", factor=2), "2"),
        (topic("state", factor=1, configs={"min.insync.replicas": "2"}), "2"),
    ],
)
def test_topic_of_fewer_replicas_than_its_own_min_isr_can_be_written_to(
    wanted: CreateTopicsRequestTopic, least: str | None
) -> None:
    own = {"state": {"cleanup.policy": "compact", "min.insync.replicas": "2"}}
    planned = plan_topic(wanted, TopicNames(), attrs.evolve(DEFAULTS, own=own), place)
    assert planned.configs["cleanup.policy"] == "compact"
    assert planned.configs.get("min.insync.replicas") == least


def test_minus_one_is_the_brokers_default() -> None:
    assert plan(topic(partitions=-1, factor=-1)).assignment == place(3, 2)


def test_manual_assignment_is_taken_as_it_is_even_on_unknown_brokers() -> None:
    wanted = topic(partitions=-1, factor=-1, assignments={1: (7, 8), 0: (8, 9)})
    assert plan(wanted).assignment == {0: (8, 9), 1: (7, 8)}


def test_numbers_beside_a_manual_assignment_are_refused() -> None:
    assert refusal(topic(assignments={0: (1,)})) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "assignments",
    [
        pytest.param({0: (1,), 2: (1,)}, id="gap"),
        pytest.param({1: (1,)}, id="not from 0"),
        pytest.param({0: (1, 2), 1: (1,)}, id="sizes differ"),
        pytest.param({0: (1, 1)}, id="broker twice"),
        pytest.param({0: ()}, id="no replica"),
        pytest.param({0: (1, -1)}, id="negative broker"),
    ],
)
def test_bad_manual_assignments(assignments: dict[int, tuple[int, ...]]) -> None:
    wanted = topic(partitions=-1, factor=-1, assignments=assignments)
    assert refusal(wanted) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_partition_assigned_twice() -> None:
    twice = [CreateTopicsRequestAssignment(partition_index=0, broker_ids=(1,))] * 2
    wanted = CreateTopicsRequestTopic(
        name="t", num_partitions=-1, replication_factor=-1, assignments=twice, configs=()
    )
    assert refusal(wanted) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_settings_are_kept_as_they_were_written() -> None:
    assert plan(topic(configs={"retention.ms": "5"})).configs == {"retention.ms": "5"}


def test_settings_without_a_value() -> None:
    assert refusal(topic(configs={"retention.ms": None})) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("configs", [{"no.such": "1"}, {"retention.ms": "soon"}])
def test_bad_settings(configs: dict[str, str | None]) -> None:
    assert refusal(topic(configs=configs)) is ErrorCode.INVALID_CONFIG


def test_added_partitions_go_on_from_the_leader_of_the_first() -> None:
    more = CreatePartitionsRequestTopic(name="t", count=4, assignments=None)
    racks = dict.fromkeys([1, 2, 3])
    assert plan_partitions(more, {0: (2, 3)}, racks, ReplicaRoom()) == {
        1: (3, 2),
        2: (1, 3),
        3: (2, 3),
    }


def test_added_partitions_begin_anywhere_when_that_leader_has_no_successor() -> None:
    more = CreatePartitionsRequestTopic(name="t", count=2, assignments=None)
    assert plan_partitions(more, {0: (9,)}, dict.fromkeys([1, 2]), ReplicaRoom()) == {1: (2,)}


@pytest.mark.fault("groups-4")
@pytest.mark.parametrize("name", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
def test_topics_of_coordinators_do_not_grow_and_the_refusal_names_the_loss(name: str) -> None:
    more = CreatePartitionsRequestTopic(name=name, count=8, assignments=None)
    with pytest.raises(ApiError, match="would be looked for in another partition") as refused:
        plan_partitions(more, dict.fromkeys(range(5), (1,)), {1: None}, ReplicaRoom())
    assert refused.value.code is ErrorCode.INVALID_PARTITIONS


def test_topic_without_partition_0_cannot_grow() -> None:
    more = CreatePartitionsRequestTopic(name="t", count=3, assignments=None)
    with pytest.raises(ApiError, match="partition id 0 is missing"):
        plan_partitions(more, {1: (1,)}, {1: None}, ReplicaRoom())


def test_topic_that_no_node_in_zookeeper_can_hold_is_refused_before_it_is_placed() -> None:
    def never(partitions: int, factor: int) -> dict[int, tuple[int, ...]]:
        raise AssertionError("replicas were placed")

    with pytest.raises(ApiError) as refused:
        plan_topic(topic(partitions=10**6), TopicNames(), DEFAULTS, never)
    assert refused.value.code is ErrorCode.INVALID_PARTITIONS
    assert "more than ZooKeeper takes" in refused.value.detail


@pytest.mark.parametrize(
    "wanted",
    [
        topic(partitions=60_000, factor=3),
        topic(partitions=-1, factor=-1, assignments=dict.fromkeys(range(60000), (1, 2, 3))),
        topic(configs={"leader.replication.throttled.replicas": "100:100," * 120_000 + "1:1"}),
    ],
    ids=["by number", "by hand", "settings"],
)
def test_topic_whose_node_would_be_too_large_is_refused(wanted: CreateTopicsRequestTopic) -> None:
    assert refusal(wanted) is ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize("partitions", [1, 9, 10, 11, 99, 100, 101, 10_000, 75_000])
def test_size_of_a_node_is_known_from_its_numbers(partitions: int) -> None:
    assignment = dict.fromkeys(range(partitions), (1,))
    size = len(TopicAssignment(assignment).encode())
    assert 0 <= size - (partitions * MIN_PARTITION_BYTES + _count_digits(partitions)) < 40
    assert 0 <= _most_bytes(assignment) - size < 2


def test_size_of_a_node_is_at_most_that_of_its_longest_replicas() -> None:
    assignment = {0: (1, 2, 3), 1: (10, 2, 300), 2: (5, 6, 7)}
    assert 0 < _most_bytes(assignment) - len(TopicAssignment(assignment).encode()) < 10


@pytest.mark.fault("strangers-9")
def test_request_has_room_for_the_largest_topic_and_no_more_than_a_few() -> None:
    room = ReplicaRoom()
    room.take(75_000, 5)
    with pytest.raises(ApiError) as refused:
        room.take(75_000, 2)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    room.take(1, 1)


@pytest.mark.fault("strangers-9")
def test_topics_that_grow_share_the_room_of_their_request() -> None:
    room = ReplicaRoom(left=5)
    more = CreatePartitionsRequestTopic(name="t", count=4, assignments=None)
    assert len(plan_partitions(more, {0: (1,)}, {1: None}, room)) == 3
    with pytest.raises(ApiError) as refused:
        plan_partitions(more, {0: (1,)}, {1: None}, room)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


def test_topic_that_is_just_small_enough_is_planned() -> None:
    wanted = topic(partitions=40_000, factor=3)
    node = TopicAssignment(plan(wanted).assignment)
    assert 600_000 < len(node.encode()) <= MAX_TOPIC_BYTES
