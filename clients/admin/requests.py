"""Make the admin client's requests about topics, settings and replicas, and read the responses.

The result for one of many items is a verdict. Few processes send these requests, so `Admin` imports
this module, with its messages, where it sends one.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from numbers import Number
from typing import Any

from clients.admin.descriptions import (
    ConfigResource,
    LogDirDescription,
    NewPartitions,
    NewTopic,
    PartitionReassignment,
    ReplicaDescription,
    SettingValue,
    TopicPartitionReplica,
)
from clients.admin.verdicts import Verdicts, make_verdict, raise_for
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsRequestConfig,
    AlterConfigsRequestResource,
)
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestPartition,
    AlterPartitionReassignmentsRequestTopic,
    AlterPartitionReassignmentsResponse,
)
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsRequestDir,
    AlterReplicaLogDirsRequestTopic,
    AlterReplicaLogDirsResponse,
)
from protocol.messages.controlled_shutdown import ControlledShutdownResponse
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestAssignment,
    CreatePartitionsRequestTopic,
)
from protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestAssignment,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
)
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
)
from protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersRequestTopicPartitions,
    ElectLeadersResponse,
)
from protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequestTopic,
    ListPartitionReassignmentsResponse,
)
from protocol.topic_partition import TopicPartition, by_topic

# Operations of IncrementalAlterConfigs.
SET = 0
DELETE = 1


# --- topics


def create_topics_request(
    topics: Iterable[NewTopic], timeout_ms: int, *, validate_only: bool
) -> CreateTopicsRequest:
    """Ask for topics; the controller answers when all have leaders, or after `timeout_ms`."""
    return CreateTopicsRequest(
        topics=[_new_topic(topic) for topic in topics],
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )


def _new_topic(topic: NewTopic) -> CreateTopicsRequestTopic:
    return CreateTopicsRequestTopic(
        name=topic.name,
        # Assignments name partitions and replicas one by one; the counts are -1 then.
        num_partitions=-1 if topic.assignments else topic.num_partitions,
        replication_factor=-1 if topic.assignments else topic.replication_factor,
        assignments=[
            CreateTopicsRequestAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in topic.assignments.items()
        ],
        configs=[
            CreateTopicsRequestConfig(name=name, value=setting_text(value))
            for name, value in topic.configs.items()
        ],
    )


def create_partitions_request(
    new_partitions: Mapping[str, NewPartitions], timeout_ms: int, *, validate_only: bool
) -> CreatePartitionsRequest:
    """Ask for partitions; the controller answers when all have leaders, or after `timeout_ms`."""
    return CreatePartitionsRequest(
        topics=[
            CreatePartitionsRequestTopic(
                name=name,
                count=new.total_count,
                assignments=[
                    CreatePartitionsRequestAssignment(broker_ids=broker_ids)
                    for broker_ids in new.added
                ]
                # Null lets the controller choose the brokers.
                if new.added
                else None,
            )
            for name, new in new_partitions.items()
        ],
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )


# --- settings


def describe_configs_request(
    resources: Iterable[ConfigResource], *, synonyms: bool
) -> DescribeConfigsRequest:
    """Ask for all settings; with `synonyms` also for the values that would apply without each."""
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequestResource(
                resource_type=resource.resource_type,
                resource_name=resource.name,
                # Null asks for all settings.
                configuration_keys=None,
            )
            for resource in resources
        ],
        include_synonyms=synonyms,
    )


def setting_text(value: SettingValue | None) -> str | None:
    """Return the value of a setting as brokers have it: `true`, and not Python's `True`."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, Number):
        raise TypeError(f"the value of a setting, {value!r}, must be a str or a number")
    # Stock clients take numbers, too (fault strangers-182).
    return str(value).lower() if isinstance(value, bool) else str(value)


def alter_configs_request(
    configs: Mapping[ConfigResource, Mapping[str, SettingValue]], *, validate_only: bool
) -> AlterConfigsRequest:
    """Ask to replace settings; a setting that is not named gets its default."""
    return AlterConfigsRequest(
        resources=[
            AlterConfigsRequestResource(
                resource_type=resource.resource_type,
                resource_name=resource.name,
                configs=[
                    AlterConfigsRequestConfig(name=name, value=setting_text(value))
                    for name, value in values.items()
                ],
            )
            for resource, values in configs.items()
        ],
        validate_only=validate_only,
    )


def incremental_alter_configs_request(
    changes: Mapping[ConfigResource, Mapping[str, SettingValue | None]], *, validate_only: bool
) -> IncrementalAlterConfigsRequest:
    """Ask to change single settings; None deletes a setting."""
    return IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequestResource(
                resource_type=resource.resource_type,
                resource_name=resource.name,
                configs=[
                    IncrementalAlterConfigsRequestConfig(
                        name=name,
                        config_operation=DELETE if value is None else SET,
                        value=setting_text(value),
                    )
                    for name, value in values.items()
                ],
            )
            for resource, values in changes.items()
        ],
        validate_only=validate_only,
    )


def altered_configs(response: Any) -> Verdicts[ConfigResource]:
    """Read the response to either request."""
    return {
        ConfigResource(result.resource_type, result.resource_name): make_verdict(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            result.error_code,
            result.error_message or result.resource_name,
        )
        for result in response.responses
    }


# --- replicas


def reassignments_request(
    targets: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: int
) -> AlterPartitionReassignmentsRequest:
    """Ask to move partitions; None stops a move and returns the partition to where it was."""
    return AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms,
        topics=[
            AlterPartitionReassignmentsRequestTopic(
                name=topic,
                partitions=[
                    AlterPartitionReassignmentsRequestPartition(
                        partition_index=partition.partition,
                        replicas=targets[partition],
                    )
                    for partition in same_topic
                ],
            )
            for topic, same_topic in by_topic(targets)
        ],
    )


def begun_reassignments(
    response: AlterPartitionReassignmentsResponse,
) -> Verdicts[TopicPartition]:
    """Return the verdicts. Raises BrokerError if the request was refused as a whole."""
    raise_for(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        response.error_code,
        response.error_message or "reassignments",
    )
    return {
        (partition := TopicPartition(topic.name, result.partition_index)): make_verdict(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            result.error_code,
            result.error_message or str(partition),
        )
        for topic in response.responses
        for result in topic.partitions
    }


def list_reassignments_request(
    partitions: Collection[TopicPartition] | None, timeout_ms: int
) -> ListPartitionReassignmentsRequest:
    """Ask for the partitions that are being moved, of `partitions` or of all (None)."""
    # Null asks for all partitions.
    topics = None
    if partitions is not None:
        topics = [
            ListPartitionReassignmentsRequestTopic(
                name=topic, partition_indexes=[partition.partition for partition in same_topic]
            )
            for topic, same_topic in by_topic(partitions)
        ]

    return ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=topics)


def listed_reassignments(
    response: ListPartitionReassignmentsResponse,
) -> dict[TopicPartition, PartitionReassignment]:
    """Return the partitions that are being moved. Raises BrokerError."""
    raise_for(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        response.error_code,
        response.error_message or "reassignments",
    )
    return {
        TopicPartition(topic.name, moving.partition_index): PartitionReassignment(
            tuple(moving.replicas), tuple(moving.adding_replicas), tuple(moving.removing_replicas)
        )
        for topic in response.topics
        for moving in topic.partitions
    }


def elect_leaders_request(
    election_type: int, partitions: Collection[TopicPartition] | None, timeout_ms: int
) -> ElectLeadersRequest:
    """Ask for elections in `partitions`, or in all (None)."""
    # Null asks for all partitions.
    topics = None
    if partitions is not None:
        topics = [
            ElectLeadersRequestTopicPartitions(
                topic=topic, partitions=[partition.partition for partition in same_topic]
            )
            for topic, same_topic in by_topic(partitions)
        ]

    return ElectLeadersRequest(
        election_type=election_type, topic_partitions=topics, timeout_ms=timeout_ms
    )


def elected_leaders(response: ElectLeadersResponse) -> Verdicts[TopicPartition]:
    """Return the verdicts. Raises BrokerError if the request was refused as a whole."""
    raise_for(ApiKey.ELECT_LEADERS, response.error_code, "election of leaders")
    return {
        (partition := TopicPartition(topic.topic, result.partition_id)): make_verdict(
            ApiKey.ELECT_LEADERS, result.error_code, result.error_message or str(partition)
        )
        for topic in response.replica_election_results
        for result in topic.partition_result
    }


def remaining_partitions(response: ControlledShutdownResponse) -> tuple[TopicPartition, ...]:
    """Return the partitions that a broker still leads while it shuts down. Raises BrokerError."""
    raise_for(ApiKey.CONTROLLED_SHUTDOWN, response.error_code, "controlled shutdown")
    return tuple(
        sorted(
            TopicPartition(remaining.topic_name, remaining.partition_index)
            for remaining in response.remaining_partitions
        )
    )


def by_broker(
    places: Mapping[TopicPartitionReplica, str],
) -> dict[int, dict[TopicPartition, str]]:
    """Return the replicas' new directories by broker."""
    by_id: dict[int, dict[TopicPartition, str]] = defaultdict(dict)
    for replica, path in places.items():
        by_id[replica.broker][replica.topic_partition] = path

    return by_id


def alter_log_dirs_request(places: Mapping[TopicPartition, str]) -> AlterReplicaLogDirsRequest:
    """Ask a broker to keep its replicas in these directories."""
    by_path: dict[str, list[TopicPartition]] = defaultdict(list)
    for partition, path in places.items():
        by_path[path].append(partition)

    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDirsRequestDir(
                path=path,
                topics=[
                    AlterReplicaLogDirsRequestTopic(
                        name=topic,
                        partitions=[partition.partition for partition in same_topic],
                    )
                    for topic, same_topic in by_topic(partitions)
                ],
            )
            for path, partitions in by_path.items()
        ]
    )


def altered_log_dirs(
    broker: int, places: Mapping[TopicPartition, str], response: AlterReplicaLogDirsResponse
) -> Verdicts[TopicPartitionReplica]:
    """Return the verdicts for the replicas of one broker's request."""
    return {
        TopicPartitionReplica(partition, broker): make_verdict(
            ApiKey.ALTER_REPLICA_LOG_DIRS,
            result.error_code,
            f"{partition} on broker {broker}: {places.get(partition)}",
        )
        for topic in response.results
        for result in topic.partitions
        for partition in [TopicPartition(topic.topic_name, result.partition_index)]
    }


def log_dirs(response: DescribeLogDirsResponse) -> dict[str, LogDirDescription]:
    """Return a broker's log directories by path."""
    return {
        directory.log_dir: LogDirDescription(
            ErrorCode.of(directory.error_code),
            {
                TopicPartition(topic.name, replica.partition_index): ReplicaDescription(
                    replica.partition_size, replica.offset_lag, replica.is_future_key
                )
                for topic in directory.topics
                for replica in topic.partitions
            },
            directory.is_full,
        )
        for directory in response.results
    }
