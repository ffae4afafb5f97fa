"""Check and plan new topics and partitions: for CreateTopics, CreatePartitions and automatic
creation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import attrs

from broker.controller.replica_placement import place_replicas
from broker.controller.topic_names import TopicNames, check_name
from core_log.config import UNKNOWN_TOPIC_CONFIG, LogConfig, contradiction
from protocol.errors import ApiError, ErrorCode
from protocol.frozen import frozen
from protocol.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from protocol.messages.create_partitions import CreatePartitionsRequestTopic
from protocol.messages.create_topics import (
    CreateTopicsRequestAssignment,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
)
from protocol.settings import SettingError, UnknownSetting
from zk.znodes import EntityConfig, TopicAssignment

BROKER_DEFAULT = -1
MIN_INSYNC_REPLICAS = "min.insync.replicas"
MAX_TOPIC_BYTES = 900_000
"""The largest node of a topic, with its settings. They are written in one packet, and ZooKeeper
ends a connection with a packet above jute.maxbuffer (1 MiB)."""
MIN_PARTITION_BYTES = 7
"""The least that a partition takes of it beside its number, with one replica: `"":[1],`."""
MAX_NEW_REPLICAS = MAX_TOPIC_BYTES // 2
"""Replicas that one request may have placed: as many as the largest topic, at two bytes each."""

_KEPT_BY_KEY: Mapping[str, str] = {
    OFFSETS_TOPIC: (
        "most groups would be looked for in another partition, and begin again without offsets"
    ),
    TRANSACTIONS_TOPIC: (
        "most transactional ids would be looked for in another partition, and their open "
        "transactions would not end"
    ),
}
"""The topics that find the partition of a key by their number of partitions: what more would do."""

Assignment = Mapping[int, tuple[int, ...]]


@frozen
class PlannedTopic:
    """A topic to be created: the replicas of each partition, and its own settings."""

    name: str
    assignment: Assignment
    configs: Mapping[str, str] = attrs.field(factory=dict)


@frozen
class TopicDefaults:
    """The broker's num.partitions, default.replication.factor and log settings.

    `own` has, by name, the initial settings of topics with a purpose.
    """

    num_partitions: int
    replication_factor: int
    log: LogConfig
    own: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)


@attrs.define(eq=False)
class ReplicaRoom:
    """Counts the replicas that the broker chooses for one request; `left` more may be chosen."""

    left: int = MAX_NEW_REPLICAS

    def take(self, partitions: int, replication_factor: int) -> None:
        """Refuse partitions for which there is no room. Raises ApiError(POLICY_VIOLATION)."""
        replicas = partitions * replication_factor
        # A request of 38 KB can ask for 190,000,000 partitions (fault strangers-9).
        if replicas > self.left:
            # The words are those of Kafka's controllers without ZooKeeper, which have this bound.
            raise ApiError(
                ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
            )
        self.left -= max(replicas, 0)


def check_configs(configs: Mapping[str, str], defaults: LogConfig) -> None:
    """Refuse impossible settings. Raises ApiError(INVALID_CONFIG), which names the setting."""
    try:
        LogConfig.from_properties(defaults, configs)
    except UnknownSetting as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, UNKNOWN_TOPIC_CONFIG + error.name) from error
    except SettingError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
    if reason := contradiction(configs):
        raise ApiError(ErrorCode.INVALID_CONFIG, reason)


def plan_topic(
    topic: CreateTopicsRequestTopic,
    existing: TopicNames,
    defaults: TopicDefaults,
    place: Callable[[int, int], Assignment],
) -> PlannedTopic:
    """Plan the topic that a CreateTopics request asks for. Raises ApiError.

    `place(partitions, replication_factor)` chooses the replicas when the request does not name
    them. -1 is the broker's default (KIP-464), in every version: some clients speak at most version
    3 and send it, and Kafka has accepted it since 2.4.
    """
    check_name(topic.name, existing)

    # A client's settings override the topic's own (those of __consumer_offsets, say).
    own = defaults.own.get(topic.name, {})
    asked = _configs(topic.configs)
    check_configs({**own, **asked}, defaults.log)

    # The client chose the replicas.
    partitions = topic.num_partitions
    factor = topic.replication_factor
    if topic.assignments:
        if partitions != BROKER_DEFAULT or factor != BROKER_DEFAULT:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "Both numPartitions or replicationFactor and replicasAssignments were set. "
                "Both cannot be used at the same time.",
            )
        assignment = manual_assignment(topic.assignments)

    # The broker chooses them.
    else:
        if partitions == BROKER_DEFAULT:
            partitions = defaults.num_partitions
        if factor == BROKER_DEFAULT:
            factor = defaults.replication_factor

        # Before the placement: a huge number would hold up the loop.
        check_count(partitions)
        assignment = place(partitions, factor)

    configs = {**_without_impossible_isr(own, assignment), **asked}
    return checked_size(PlannedTopic(topic.name, assignment, configs))


def _without_impossible_isr(own: Mapping[str, str], assignment: Assignment) -> Mapping[str, str]:
    """Leave min.insync.replicas out if there are fewer replicas: nobody could ever write."""
    replicas = min(map(len, assignment.values()), default=0)
    if int(own.get(MIN_INSYNC_REPLICAS, 0)) <= replicas:
        return own
    return {name: value for name, value in own.items() if name != MIN_INSYNC_REPLICAS}


def check_count(partitions: int) -> None:
    """Refuse a number of partitions that no topic can have, before they are placed.

    Raises ApiError(INVALID_PARTITIONS).
    """
    if partitions * MIN_PARTITION_BYTES + _count_digits(partitions) > MAX_TOPIC_BYTES:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions are {_TOO_MANY}")


def _count_digits(numbers: int) -> int:
    """Count the digits of all numbers below `numbers`."""
    longest = len(str(numbers - 1))
    return numbers + sum(numbers - int(10**digits) for digits in range(1, longest))


def checked_size(topic: PlannedTopic) -> PlannedTopic:
    """Return the topic if ZooKeeper can hold it. Raises ApiError(INVALID_PARTITIONS)."""
    # To encode the largest takes 60 ms of a turn: most are known to fit without it.
    config_bytes = len(EntityConfig(topic.configs).encode())
    if _most_bytes(topic.assignment) + config_bytes <= MAX_TOPIC_BYTES:
        return topic
    check_size(TopicAssignment(topic.assignment), EntityConfig(topic.configs))
    return topic


def _most_bytes(assignment: Assignment) -> int:
    """Return a bound of the node's bytes: as if all partitions had the longest list of replicas."""
    longest = max(sum(len(str(id)) + 1 for id in replicas) for replicas in {*assignment.values()})
    # As in `"0":[1,2],`; the brackets have one comma less between them.
    in_all = len(TopicAssignment({}).encode()) + _count_digits(len(assignment))
    return in_all + len(assignment) * (longest + 5)


def check_size(topic: TopicAssignment, config: EntityConfig | None = None) -> None:
    """Refuse a topic that ZooKeeper cannot hold. Raises ApiError(INVALID_PARTITIONS)."""
    # Topic and settings go in one packet.
    size = len(topic.encode()) + (len(config.encode()) if config else 0)
    if size > MAX_TOPIC_BYTES:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"{len(topic.partitions)} partitions, {size} bytes with replicas, are {_TOO_MANY}",
        )


_TOO_MANY = f"more than ZooKeeper takes in one node ({MAX_TOPIC_BYTES} bytes)"


def manual_assignment(assignments: Sequence[CreateTopicsRequestAssignment]) -> Assignment:
    """Return the client's own assignment. Raises ApiError(INVALID_REPLICA_ASSIGNMENT).

    Unknown brokers are not refused: they may be about to start.
    """
    # A partition that comes twice shows in the count.
    assignment = {entry.partition_index: tuple(entry.broker_ids) for entry in assignments}
    count = len(assignment)
    if count != len(assignments) or sorted(assignment) != list(range(count)):
        raise _invalid_assignment("partitions should be a consecutive 0-based integer sequence")
    if len({len(replicas) for replicas in assignment.values()}) != 1 or not assignment[0]:
        raise _invalid_assignment("All partitions should have the same number of replicas")
    if any(len(set(replicas)) != len(replicas) for replicas in assignment.values()):
        raise _invalid_assignment(f"Duplicate replica assignment found: {assignment}")

    # Nobody could read the topic's node.
    if negative := [each for replicas in assignment.values() for each in replicas if each < 0]:
        raise _invalid_assignment(f"Broker ids cannot be negative: {_join(negative)}.")
    return dict(sorted(assignment.items()))


def _refuse_more_for_keys(topic: str) -> None:
    lost = _KEPT_BY_KEY.get(topic)
    if lost is not None:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The number of partitions for {topic} cannot be changed: {lost}.",
        )


def plan_partitions(
    topic: CreatePartitionsRequestTopic,
    existing: Assignment,
    racks: Mapping[int, str | None],
    room: ReplicaRoom,
) -> Assignment:
    """Plan the partitions that a CreatePartitions request adds to `existing`. Raises ApiError.

    `racks` has the live brokers, `room` is the request's. The placement starts at the leader of the
    first partition, so that the new leaders of different topics do not all start at the same
    broker.
    """
    before = len(existing)
    added = topic.count - before

    # Refuse impossible counts.
    if added < 0:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic currently has {before} partitions, which is higher than the requested "
            f"{topic.count}.",
        )
    if added == 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {before} partitions.")
    # Keys stay where they are, and are looked for by the number of partitions (fault groups-4).
    _refuse_more_for_keys(topic.name)
    check_count(topic.count)
    if 0 not in existing:
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Unexpected existing replica assignment for topic '{topic.name}', partition id 0 is "
            "missing.",
        )

    # The client chose the replicas.
    first = existing[0]
    if topic.assignments is not None:
        assignments = [tuple(entry.broker_ids) for entry in topic.assignments]
        _check_added(assignments, before, topic.count, len(first), racks)
        return dict(enumerate(assignments, start=before))

    # The broker chooses them.
    room.take(added, len(first))
    brokers = sorted(racks)

    # The leader of partition 0, or the next broker if that one has gone.
    start = next((place for place, broker_id in enumerate(brokers) if broker_id >= first[0]), 0)
    return place_replicas(
        racks, added, len(first), start_index=start, shift=start, start_partition=before
    )


def _check_added(
    assignments: Sequence[tuple[int, ...]],
    before: int,
    after: int,
    factor: int,
    brokers: Collection[int],
) -> None:
    """Refuse impossible assignments, in Kafka's order of checks: it decides which error is sent."""
    broker_ids = dict.fromkeys(broker_id for replicas in assignments for broker_id in replicas)
    if unknown := [broker_id for broker_id in broker_ids if broker_id not in brokers]:
        raise _invalid_assignment(f"Unknown broker(s) in replica assignment: {_join(unknown)}.")
    if len(assignments) != after - before:
        raise _invalid_assignment(
            f"Increasing the number of partitions by {after - before} but {len(assignments)} "
            "assignments provided."
        )
    for partition, replicas in enumerate(assignments, start=before):
        if not replicas:
            raise _invalid_assignment(
                f"Cannot have replication factor of 0 for partition id {partition}."
            )
        if len(set(replicas)) != len(replicas):
            raise _invalid_assignment(
                f"Duplicate brokers not allowed in replica assignment: {_join(replicas)} for "
                f"partition id {partition}."
            )

    # All partitions of a topic have as many replicas as its first.
    unlike = {
        partition: len(replicas)
        for partition, replicas in enumerate(assignments, start=before)
        if len(replicas) != factor
    }
    if unlike:
        raise _invalid_assignment(
            f"Inconsistent replication factor between partitions, partition 0 has {factor} while "
            f"partitions [{_join(unlike)}] have replication factors [{_join(unlike.values())}],"
            " respectively."
        )


def _join(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _configs(configs: Sequence[CreateTopicsRequestConfig]) -> dict[str, str]:
    if unset := [config.name for config in configs if config.value is None]:
        reason = f"Null value not supported for topic configs : {','.join(unset)}"
        raise ApiError(ErrorCode.INVALID_REQUEST, reason)
    return {config.name: config.value for config in configs if config.value is not None}


def _invalid_assignment(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
