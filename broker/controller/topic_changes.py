"""What a topic may be called and made of: the checks of CreateTopics, of automatic creation and of
CreatePartitions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import attrs

from broker.cluster.topic_names import TopicNames, check_name
from broker.controller.replica_placement import place_replicas
from core_log.config import UNKNOWN_TOPIC_CONFIG, LogConfig, contradiction
from protocol.errors import ApiError, ErrorCode
from protocol.messages.create_partitions import CreatePartitionsRequestTopic
from protocol.messages.create_topics import (
    CreateTopicsRequestAssignment,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
)
from protocol.settings import SettingError, UnknownSetting
from zk.znodes import EntityConfig, TopicAssignment

BROKER_DEFAULT = -1
MAX_TOPIC_BYTES = 900_000
"""Largest node of a topic, with its settings. They are written in one packet, and ZooKeeper's
jute.maxbuffer (1 MiB) ends the connection on which a larger one comes."""
MIN_PARTITION_BYTES = 7
"""What a partition takes of it with one replica, at least: `"0":[1]` and a comma, or a bracket."""

Assignment = Mapping[int, tuple[int, ...]]


@attrs.frozen
class PlannedTopic:
    """A topic to be created: the replicas of each partition, and its own settings."""

    name: str
    assignment: Assignment
    configs: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class TopicDefaults:
    """The broker's num.partitions, default.replication.factor and log settings.

    `own` has, by name, the settings that topics with a purpose begin with.
    """

    num_partitions: int
    replication_factor: int
    log: LogConfig
    own: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)


def check_configs(configs: Mapping[str, str], defaults: LogConfig) -> None:
    """Raises ApiError(INVALID_CONFIG), naming the setting."""
    try:
        LogConfig.from_properties(defaults, configs)
    except UnknownSetting as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, UNKNOWN_TOPIC_CONFIG + error.name) from error
    except SettingError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
    if fault := contradiction(configs):
        raise ApiError(ErrorCode.INVALID_CONFIG, fault)


def plan_topic(
    topic: CreateTopicsRequestTopic,
    existing: TopicNames,
    defaults: TopicDefaults,
    place: Callable[[int, int], Assignment],
) -> PlannedTopic:
    """The topic a CreateTopics request asks for. Raises ApiError.

    `place(partitions, replication_factor)` chooses the replicas when the request does not name
    them. -1 is the broker's default (KIP-464), in every version: there are clients that speak 3 at
    most and send it, as Kafka takes it since 2.4.
    """
    check_name(topic.name, existing)
    configs = {**defaults.own.get(topic.name, {}), **_configs(topic.configs)}
    check_configs(configs, defaults.log)
    partitions, factor = topic.num_partitions, topic.replication_factor
    if topic.assignments:
        if (partitions, factor) != (BROKER_DEFAULT, BROKER_DEFAULT):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "Both numPartitions or replicationFactor and replicasAssignments were set. "
                "Both cannot be used at the same time.",
            )
        return checked_size(PlannedTopic(topic.name, manual_assignment(topic.assignments), configs))
    partitions = defaults.num_partitions if partitions == BROKER_DEFAULT else partitions
    factor = defaults.replication_factor if factor == BROKER_DEFAULT else factor
    check_count(partitions)
    return checked_size(PlannedTopic(topic.name, place(partitions, factor), configs))


def check_count(partitions: int) -> None:
    """Refuse a number of partitions that no topic can have, before they are placed.

    Raises ApiError(INVALID_PARTITIONS).
    """
    if partitions * MIN_PARTITION_BYTES > MAX_TOPIC_BYTES:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions are {_TOO_MANY}")


def checked_size(topic: PlannedTopic) -> PlannedTopic:
    """The topic, if ZooKeeper can take it. Raises ApiError(INVALID_PARTITIONS)."""
    check_size(TopicAssignment(topic.assignment), EntityConfig(topic.configs))
    return topic


def check_size(topic: TopicAssignment, config: EntityConfig | None = None) -> None:
    """Refuse what ZooKeeper could not be given. Raises ApiError(INVALID_PARTITIONS)."""
    size = len(topic.encode()) + (len(config.encode()) if config else 0)
    if size > MAX_TOPIC_BYTES:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"{len(topic.partitions)} partitions, {size} bytes with replicas, are {_TOO_MANY}",
        )


_TOO_MANY = f"more than ZooKeeper takes in one node ({MAX_TOPIC_BYTES} bytes)"


def manual_assignment(assignments: Sequence[CreateTopicsRequestAssignment]) -> Assignment:
    """The assignment as the client made it. Raises ApiError(INVALID_REPLICA_ASSIGNMENT).

    Brokers that are not there are not refused: they may be about to start.
    """
    made = {each.partition_index: tuple(each.broker_ids) for each in assignments}
    if len(made) != len(assignments) or sorted(made) != list(range(len(made))):
        raise _bad_assignment("partitions should be a consecutive 0-based integer sequence")
    if len({len(replicas) for replicas in made.values()}) != 1 or not made[0]:
        raise _bad_assignment("All partitions should have the same number of replicas")
    if any(len(set(replicas)) != len(replicas) for replicas in made.values()):
        raise _bad_assignment(f"Duplicate replica assignment found: {made}")
    return dict(sorted(made.items()))


def plan_partitions(
    topic: CreatePartitionsRequestTopic,
    existing: Assignment,
    racks: Mapping[int, str | None],
) -> Assignment:
    """The partitions a CreatePartitions request adds to those in `existing`. Raises ApiError.

    `racks` has the live brokers. What is placed goes on where the first partition's leader is, so
    that the new leaders do not all begin at the same broker.
    """
    before = len(existing)
    added = topic.count - before
    if added < 0:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic currently has {before} partitions, which is higher than the requested "
            f"{topic.count}.",
        )
    if added == 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {before} partitions.")
    check_count(topic.count)
    if 0 not in existing:
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Unexpected existing replica assignment for topic '{topic.name}', partition id 0 is "
            "missing.",
        )
    first = existing[0]
    if topic.assignments is not None:
        given = [tuple(each.broker_ids) for each in topic.assignments]
        _check_growth(given, before, topic.count, len(first), racks)
        return dict(enumerate(given, start=len(existing)))
    brokers = sorted(racks)
    start = next((place for place, each in enumerate(brokers) if each >= first[0]), 0)
    return place_replicas(
        racks, added, len(first), start_index=start, shift=start, start_partition=len(existing)
    )


def _check_growth(
    given: Sequence[tuple[int, ...]],
    before: int,
    after: int,
    factor: int,
    brokers: Collection[int],
) -> None:
    """In the order in which Kafka looks: who has several faults is told of the same one."""
    named = dict.fromkeys(each for replicas in given for each in replicas)
    if absent := [each for each in named if each not in brokers]:
        raise _bad_assignment(f"Unknown broker(s) in replica assignment: {_listed(absent)}.")
    if len(given) != after - before:
        raise _bad_assignment(
            f"Increasing the number of partitions by {after - before} but {len(given)} assignments "
            "provided."
        )
    for partition, replicas in enumerate(given, start=before):
        if not replicas:
            raise _bad_assignment(
                f"Cannot have replication factor of 0 for partition id {partition}."
            )
        if len(set(replicas)) != len(replicas):
            raise _bad_assignment(
                f"Duplicate brokers not allowed in replica assignment: {_listed(replicas)} for "
                f"partition id {partition}."
            )
    unlike = {p: len(each) for p, each in enumerate(given, start=before) if len(each) != factor}
    if unlike:
        raise _bad_assignment(
            f"Inconsistent replication factor between partitions, partition 0 has {factor} while "
            f"partitions [{_listed(unlike)}] have replication factors [{_listed(unlike.values())}],"
            " respectively."
        )


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _configs(given: Sequence[CreateTopicsRequestConfig]) -> dict[str, str]:
    if unset := [each.name for each in given if each.value is None]:
        what = f"Null value not supported for topic configs : {','.join(unset)}"
        raise ApiError(ErrorCode.INVALID_REQUEST, what)
    return {each.name: each.value for each in given if each.value is not None}


def _bad_assignment(why: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
