"""Messages in error responses are Kafka's to the letter: people and scripts know them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from broker.controller.events import (
    ElectionRequested,
    ReassignmentRequested,
    TopicsMarkedForDeletion,
)
from broker.controller.replica_placement import place_replicas
from broker.controller.topic_changes import (
    ReplicaRoom,
    TopicDefaults,
    plan_partitions,
    plan_topic,
)
from broker.controller.topic_names import TopicNames
from broker.settings.config import load_broker_config
from broker.settings.config_alteration import (
    AlterOperation,
    Change,
    apply_changes,
    broker_schema,
    topic_schema,
)
from broker.settings.dynamic_config import refuse_contradiction
from core_log.config import LogConfig
from protocol.api_key import ApiKey
from protocol.bounds import MAX_ERROR_CHARACTERS
from protocol.encoding import decode, encode
from protocol.errors import ApiError, ErrorCode
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from protocol.messages.create_partitions import (
    CreatePartitionsRequestAssignment,
    CreatePartitionsRequestTopic,
)
from protocol.messages.create_topics import CreateTopicsResponse, CreateTopicsResponseTopic
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.registry import API
from protocol.topic_partition import TopicPartition
from tests.broker.controller.script import P0, P1, ControllerScript, active_state, led_by
from tests.broker.controller.topic_requests import topic

LONG = "x" * 250
LIVE = dict.fromkeys([1, 2])


def created(**wanted: Any) -> None:
    defaults = TopicDefaults(num_partitions=3, replication_factor=2, log=LogConfig())

    def place(partitions: int, factor: int) -> dict[int, tuple[int, ...]]:
        return place_replicas(LIVE, partitions, factor, start_index=0, shift=0)

    plan_topic(topic(**wanted), TopicNames(["existing", "a.b"]), defaults, place)


def grown(count: int, *assigned: tuple[int, ...]) -> None:
    """Plan partitions for a topic with two partitions, each with one replica."""
    assignments = [
        CreatePartitionsRequestAssignment(broker_ids=broker_ids) for broker_ids in assigned
    ]
    more = CreatePartitionsRequestTopic(name="t", count=count, assignments=assignments or None)
    plan_partitions(more, {0: (1,), 1: (2,)}, LIVE, ReplicaRoom())


def configured(*changes: Change) -> None:
    apply_changes(topic_schema(LogConfig(), "t"), changes, {}, replaces=False)


def replaced(**settings: str | None) -> None:
    changes = [Change(name.replace("_", "."), value) for name, value in settings.items()]
    apply_changes(topic_schema(LogConfig(), "t"), changes, {}, replaces=True)


def broker_configured(name: str, value: str) -> None:
    config, _ = load_broker_config({"zookeeper.connect": "zk:1", "log.cleaner.threads": "2"})
    schema = broker_schema(config, "1", partial(refuse_contradiction, config))
    apply_changes(schema, [Change(name, value)], {}, replaces=True)


def created_with(**settings: str) -> None:
    created(configs={name.replace("_", "."): value for name, value in settings.items()})


IN_TOPIC = "Invalid config value for resource ConfigResource(type=TOPIC, name='t'): "
IN_BROKER = "Invalid config value for resource ConfigResource(type=BROKER, name='1'): "
REPLICAS_FORMAT = (
    "must be the literal '*' or a list of replicas in the following format: "
    "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
)


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
            lambda: grown(3, ()),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Cannot have replication factor of 0 for partition id 2.",
        ),
        (
            lambda: grown(3, (1, 1)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Duplicate brokers not allowed in replica assignment: 1, 1 for partition id 2.",
        ),
        (
            lambda: grown(4, (1, 2), (2, 1)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Inconsistent replication factor between partitions, partition 0 has 1 while "
            "partitions [2, 3] have replication factors [2, 2], respectively.",
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
            "Null value not supported for : SET:retention.ms",
        ),
        (
            lambda: configured(Change("retention.ms", "1", AlterOperation.APPEND)),
            ErrorCode.INVALID_REQUEST,
            "Config value append is not allowed for config key: retention.ms",
        ),
        (
            lambda: replaced(retention_ms=None, segment_ms=None),
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : retention.ms,segment.ms",
        ),
        (
            lambda: configured(Change("retention.millis", "1")),
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: retention.millis",
        ),
        (
            lambda: created_with(retention_millis="1"),
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: retention.millis",
        ),
        (
            lambda: created_with(segment_bytes="13"),
            ErrorCode.INVALID_CONFIG,
            "Invalid value 13 for configuration segment.bytes: Value must be at least 14",
        ),
        (
            lambda: created_with(segment_bytes="2147483648"),
            ErrorCode.INVALID_CONFIG,
            "Invalid value 2147483648 for configuration segment.bytes: Not a number of type INT",
        ),
        (
            lambda: created_with(min_compaction_lag_ms="5", max_compaction_lag_ms="3"),
            ErrorCode.INVALID_CONFIG,
            "conflict topic config setting min.compaction.lag.ms (5) > max.compaction.lag.ms (3)",
        ),
        (
            lambda: replaced(min_compaction_lag_ms="5", max_compaction_lag_ms="3"),
            ErrorCode.INVALID_CONFIG,
            "conflict topic config setting min.compaction.lag.ms (5) > max.compaction.lag.ms (3)",
        ),
        (
            lambda: replaced(retention_ms="soon"),
            ErrorCode.INVALID_REQUEST,
            IN_TOPIC
            + "Invalid value soon for configuration retention.ms: Not a number of type LONG",
        ),
        (
            lambda: replaced(retention_ms="-2"),
            ErrorCode.INVALID_REQUEST,
            IN_TOPIC + "Invalid value -2 for configuration retention.ms: Value must be at least -1",
        ),
        (
            lambda: replaced(preallocate="yes"),
            ErrorCode.INVALID_REQUEST,
            IN_TOPIC + "Invalid value yes for configuration preallocate: "
            "Expected value to be either true or false",
        ),
        (
            lambda: replaced(min_cleanable_dirty_ratio="1.5"),
            ErrorCode.INVALID_REQUEST,
            IN_TOPIC + "Invalid value 1.5 for configuration min.cleanable.dirty.ratio: "
            "Value must be no more than 1",
        ),
        (
            lambda: replaced(min_cleanable_dirty_ratio="half"),
            ErrorCode.INVALID_REQUEST,
            IN_TOPIC + "Invalid value half for configuration min.cleanable.dirty.ratio: "
            "Not a number of type DOUBLE",
        ),
        (
            lambda: replaced(cleanup_policy="delete,burn"),
            ErrorCode.INVALID_REQUEST,
            IN_TOPIC + "Invalid value burn for configuration cleanup.policy: "
            "String must be one of: compact, delete",
        ),
        (
            lambda: replaced(compression_type="brotli"),
            ErrorCode.INVALID_REQUEST,
            IN_TOPIC + "Invalid value brotli for configuration compression.type: "
            "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        (
            lambda: replaced(message_format_version="9.9"),
            ErrorCode.INVALID_REQUEST,
            IN_TOPIC + "Invalid value 9.9 for configuration message.format.version: "
            "Version `9.9` is not a valid version",
        ),
        (
            lambda: replaced(leader_replication_throttled_replicas="0:1,2"),
            ErrorCode.INVALID_REQUEST,
            IN_TOPIC
            + "Invalid value [0:1, 2] for configuration leader.replication.throttled.replicas: "
            + f"leader.replication.throttled.replicas {REPLICAS_FORMAT}",
        ),
        (
            lambda: broker_configured("broker.id", "2"),
            ErrorCode.INVALID_REQUEST,
            IN_BROKER + "Cannot update these configs dynamically: Set(broker.id)",
        ),
        (
            lambda: broker_configured("log.segment.bytes", "x"),
            ErrorCode.INVALID_REQUEST,
            IN_BROKER
            + "Invalid value x for configuration log.segment.bytes: Not a number of type INT",
        ),
        (
            lambda: broker_configured("leader.replication.throttled.rate", "-1"),
            ErrorCode.INVALID_REQUEST,
            IN_BROKER + "Invalid value -1 for configuration leader.replication.throttled.rate: "
            "Value must be at least 0",
        ),
    ],
)
def test_refusal_has_the_words_of_kafka(
    attempt: Callable[[], None], code: ErrorCode, message: str
) -> None:
    with pytest.raises(ApiError) as refused:
        attempt()
    assert (refused.value.code, refused.value.detail) == (code, message)


def led_by_another() -> ControllerScript:
    """Partition 0 of "t" prefers broker 1, which is down, and is led by 2."""
    return ControllerScript(active_state([2, 3], {0: (1, 2)}, {P0: led_by(2, [2])}))


@pytest.mark.parametrize(
    ("partition", "target", "code", "message"),
    [
        (P1, (2,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."),
        (
            P0,
            None,
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            "No partition reassignment is in progress.",
        ),
        (
            P0,
            (),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Empty replica list specified in partition reassignment.",
        ),
        (
            P0,
            (2, 2),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Duplicate replica ids in partition reassignment replica list: 2, 2",
        ),
        (
            P0,
            (2, -1),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Invalid broker id in replica list: 2, -1",
        ),
        (
            P0,
            (2, 7),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Replica assignment has brokers that are not alive. Replica list: 7, live broker list: "
            "2, 3",
        ),
    ],
)
def test_refusal_to_reassign_has_the_words_of_kafka(
    partition: TopicPartition, target: tuple[int, ...] | None, code: ErrorCode, message: str
) -> None:
    event = ReassignmentRequested({partition: target}, request_id=1)
    assert led_by_another().reply_to(event) == {partition: (code, message)}


@pytest.mark.parametrize(
    ("partition", "unclean", "code", "message"),
    [
        (P1, False, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."),
        (
            P0,
            True,
            ErrorCode.ELECTION_NOT_NEEDED,
            "Leader election not needed for topic partition.",
        ),
        (
            P0,
            False,
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            "Failed to elect leader for partition t-0 under strategy "
            "PreferredReplicaPartitionLeaderElectionStrategy",
        ),
    ],
)
def test_refusal_to_elect_has_the_words_of_kafka(
    partition: TopicPartition, unclean: bool, code: ErrorCode, message: str
) -> None:
    event = ElectionRequested((partition,), unclean, request_id=1)
    assert led_by_another().reply_to(event) == {partition: (code, message)}


def test_nobody_left_to_elect_is_said_in_the_words_of_kafka() -> None:
    nobody = ControllerScript(active_state([3], {0: (1, 2)}, {P0: led_by(-1, [2])}))
    event = ElectionRequested((P0,), unclean=True, request_id=1)
    assert nobody.reply_to(event) == {
        P0: (
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            "Failed to elect leader for partition t-0 under strategy "
            "OfflinePartitionLeaderElectionStrategy(true)",
        )
    }


def test_no_election_in_a_topic_that_goes_is_said_in_the_words_of_kafka() -> None:
    going = led_by_another()
    going.take(TopicsMarkedForDeletion(("t",)))
    assert going.reply_to(ElectionRequested((P0,), request_id=1)) == {
        P0: (ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted")
    }


def test_refusal_of_a_whole_request_says_what_its_code_says() -> None:
    request = FindCoordinatorRequest(key="g", key_type=0)
    refused = API[ApiKey.FIND_COORDINATOR].error_response(
        request, ErrorCode.COORDINATOR_NOT_AVAILABLE
    )
    assert refused.error_message == "The coordinator is not available."
    moved = API[ApiKey.ALTER_PARTITION_REASSIGNMENTS].error_response(
        AlterPartitionReassignmentsRequest(timeout_ms=0, topics=[]), ErrorCode.NOT_CONTROLLER
    )
    assert moved.error_message == "This is not the correct controller for this cluster."


@pytest.mark.fault("strangers-26")
@pytest.mark.parametrize("version", [1, 4, 5, 7])
def test_a_message_that_no_response_has_room_for_lacks_its_middle(version: int) -> None:
    refused = CreateTopicsResponseTopic(
        name="t",
        error_code=ErrorCode.INVALID_CONFIG,
        error_message="begin" + 40_000 * "\u20ac" + "end",
    )
    body = encode(CreateTopicsResponse(topics=[refused]), version)
    (topic,) = decode(CreateTopicsResponse, version, body)[0].topics
    assert topic.error_message.startswith("begin\u20ac")
    assert topic.error_message.endswith("\u20acend")
    assert len(topic.error_message) <= MAX_ERROR_CHARACTERS + 5
