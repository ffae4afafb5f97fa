"""Messages in error responses have the words by which people and scripts know Kafka's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.config_alteration import Change, Operation, altered, topic_schema
from broker.controller.replica_placement import place_replicas
from broker.controller.topic_changes import TopicDefaults, plan_partitions, plan_topic
from broker.topic_names import TopicNames
from core_log.config import LogConfig
from protocol.errors import ApiError, ErrorCode
from protocol.messages.create_partitions import (
    CreatePartitionsRequestAssignment,
    CreatePartitionsRequestTopic,
)
from tests.broker.controller.test_topic_changes import topic

LONG = "x" * 250
LIVE = dict.fromkeys([1, 2])


def created(**wanted: Any) -> None:
    defaults = TopicDefaults(num_partitions=3, replication_factor=2, log=LogConfig())

    def place(partitions: int, factor: int) -> dict[int, tuple[int, ...]]:
        return place_replicas(LIVE, partitions, factor, start_index=0, shift=0)

    plan_topic(topic(**wanted), TopicNames(["existing", "a.b"]), defaults, place)


def grown(count: int, *assigned: tuple[int, ...]) -> None:
    """Of a topic with two partitions, each with one replica."""
    assignments = [CreatePartitionsRequestAssignment(broker_ids=each) for each in assigned]
    more = CreatePartitionsRequestTopic(name="t", count=count, assignments=assignments or None)
    plan_partitions(more, {0: (1,), 1: (2,)}, LIVE)


def configured(*changes: Change) -> None:
    altered(topic_schema(LogConfig()), changes, {}, replaces=False)


@pytest.mark.parametrize(
    ("attempt", "code", "message"),
    [
        (
            lambda: created(name="existing"),
            ErrorCode.TOPIC_ALREADY_EXISTS,
            "Topic 'existing' already exists.",
        ),
        (
            lambda: created(name="a_b"),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic 'a_b' collides with existing topics: a.b",
        ),
        (
            lambda: created(name=""),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is illegal, it can't be empty",
        ),
        (
            lambda: created(name=".."),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            'Topic name cannot be "." or ".."',
        ),
        (
            lambda: created(name=LONG),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is illegal, it can't be longer than 249 characters, topic name: " + LONG,
        ),
        (
            lambda: created(name="a b"),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            'Topic name "a b" is illegal, it contains a character other than ASCII alphanumerics, '
            "'.', '_' and '-'",
        ),
        (
            lambda: created(partitions=0),
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions must be larger than 0.",
        ),
        (
            lambda: created(factor=0),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0.",
        ),
        (
            lambda: created(factor=3),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor: 3 larger than available brokers: 2.",
        ),
        (
            lambda: created(assignments={0: (1,)}),
            ErrorCode.INVALID_REQUEST,
            "Both numPartitions or replicationFactor and replicasAssignments were set. Both cannot "
            "be used at the same time.",
        ),
        (
            lambda: created(configs={"retention.ms": None}),
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for topic configs : retention.ms",
        ),
        (lambda: grown(2), ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partitions."),
        (
            lambda: grown(1),
            ErrorCode.INVALID_PARTITIONS,
            "Topic currently has 2 partitions, which is higher than the requested 1.",
        ),
        (
            lambda: grown(4, (1,)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Increasing the number of partitions by 2 but 1 assignments provided.",
        ),
        (
            lambda: grown(3, (7,)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Unknown broker(s) in replica assignment: 7.",
        ),
        (
            lambda: configured(Change("retention.ms", "1"), Change("retention.ms", "2")),
            ErrorCode.INVALID_REQUEST,
            "Error due to duplicate config keys : retention.ms",
        ),
        (
            lambda: configured(Change("retention.ms", None)),
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : retention.ms",
        ),
        (
            lambda: configured(Change("retention.ms", "1", Operation.APPEND)),
            ErrorCode.INVALID_REQUEST,
            "Config value append is not allowed for config key: retention.ms",
        ),
    ],
)
def test_refusal_has_the_words_of_kafka(
    attempt: Callable[[], None], code: ErrorCode, message: str
) -> None:
    with pytest.raises(ApiError) as refused:
        attempt()
    assert (refused.value.code, refused.value.detail) == (code, message)
