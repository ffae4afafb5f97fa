"""The one list of what we speak: API key → classes, versions, and how to answer with an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages import (
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    controlled_shutdown,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    elect_leaders,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    leader_and_isr,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    stop_replica,
    update_metadata,
)


@attrs.frozen
class Api:
    """One API: its message classes and the inclusive range of versions that we speak."""

    request: type
    response: type
    min_version: int
    max_version: int
    error_response: Callable[[Any, ErrorCode, int], Any]


API: Mapping[int, Api] = {
    ApiKey.PRODUCE: Api(
        produce.ProduceRequest, produce.ProduceResponse, 0, 7, produce.error_response
    ),
    ApiKey.FETCH: Api(fetch.FetchRequest, fetch.FetchResponse, 0, 11, fetch.error_response),
    ApiKey.LIST_OFFSETS: Api(
        list_offsets.ListOffsetsRequest,
        list_offsets.ListOffsetsResponse,
        0,
        5,
        list_offsets.error_response,
    ),
    ApiKey.METADATA: Api(
        metadata.MetadataRequest, metadata.MetadataResponse, 0, 8, metadata.error_response
    ),
    ApiKey.LEADER_AND_ISR: Api(
        leader_and_isr.LeaderAndIsrRequest,
        leader_and_isr.LeaderAndIsrResponse,
        0,
        2,
        leader_and_isr.error_response,
    ),
    ApiKey.STOP_REPLICA: Api(
        stop_replica.StopReplicaRequest,
        stop_replica.StopReplicaResponse,
        0,
        1,
        stop_replica.error_response,
    ),
    ApiKey.UPDATE_METADATA: Api(
        update_metadata.UpdateMetadataRequest,
        update_metadata.UpdateMetadataResponse,
        0,
        5,
        update_metadata.error_response,
    ),
    ApiKey.OFFSET_COMMIT: Api(
        offset_commit.OffsetCommitRequest,
        offset_commit.OffsetCommitResponse,
        0,
        7,
        offset_commit.error_response,
    ),
    ApiKey.OFFSET_FETCH: Api(
        offset_fetch.OffsetFetchRequest,
        offset_fetch.OffsetFetchResponse,
        0,
        5,
        offset_fetch.error_response,
    ),
    ApiKey.FIND_COORDINATOR: Api(
        find_coordinator.FindCoordinatorRequest,
        find_coordinator.FindCoordinatorResponse,
        0,
        2,
        find_coordinator.error_response,
    ),
    ApiKey.DESCRIBE_GROUPS: Api(
        describe_groups.DescribeGroupsRequest,
        describe_groups.DescribeGroupsResponse,
        0,
        4,
        describe_groups.error_response,
    ),
    ApiKey.LIST_GROUPS: Api(
        list_groups.ListGroupsRequest,
        list_groups.ListGroupsResponse,
        0,
        4,
        list_groups.error_response,
    ),
    ApiKey.DELETE_GROUPS: Api(
        delete_groups.DeleteGroupsRequest,
        delete_groups.DeleteGroupsResponse,
        0,
        1,
        delete_groups.error_response,
    ),
    ApiKey.OFFSET_DELETE: Api(
        offset_delete.OffsetDeleteRequest,
        offset_delete.OffsetDeleteResponse,
        0,
        0,
        offset_delete.error_response,
    ),
    ApiKey.API_VERSIONS: Api(
        api_versions.ApiVersionsRequest,
        api_versions.ApiVersionsResponse,
        0,
        3,
        api_versions.error_response,
    ),
    ApiKey.CREATE_TOPICS: Api(
        create_topics.CreateTopicsRequest,
        create_topics.CreateTopicsResponse,
        0,
        4,
        create_topics.error_response,
    ),
    ApiKey.DELETE_TOPICS: Api(
        delete_topics.DeleteTopicsRequest,
        delete_topics.DeleteTopicsResponse,
        0,
        3,
        delete_topics.error_response,
    ),
    ApiKey.DELETE_RECORDS: Api(
        delete_records.DeleteRecordsRequest,
        delete_records.DeleteRecordsResponse,
        0,
        1,
        delete_records.error_response,
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Api(
        offset_for_leader_epoch.OffsetForLeaderEpochRequest,
        offset_for_leader_epoch.OffsetForLeaderEpochResponse,
        0,
        3,
        offset_for_leader_epoch.error_response,
    ),
    ApiKey.INIT_PRODUCER_ID: Api(
        init_producer_id.InitProducerIdRequest,
        init_producer_id.InitProducerIdResponse,
        0,
        1,
        init_producer_id.error_response,
    ),
    ApiKey.DESCRIBE_CONFIGS: Api(
        describe_configs.DescribeConfigsRequest,
        describe_configs.DescribeConfigsResponse,
        0,
        2,
        describe_configs.error_response,
    ),
    ApiKey.ALTER_CONFIGS: Api(
        alter_configs.AlterConfigsRequest,
        alter_configs.AlterConfigsResponse,
        0,
        1,
        alter_configs.error_response,
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Api(
        alter_replica_log_dirs.AlterReplicaLogDirsRequest,
        alter_replica_log_dirs.AlterReplicaLogDirsResponse,
        0,
        1,
        alter_replica_log_dirs.error_response,
    ),
    ApiKey.DESCRIBE_LOG_DIRS: Api(
        describe_log_dirs.DescribeLogDirsRequest,
        describe_log_dirs.DescribeLogDirsResponse,
        0,
        1,
        describe_log_dirs.error_response,
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Api(
        incremental_alter_configs.IncrementalAlterConfigsRequest,
        incremental_alter_configs.IncrementalAlterConfigsResponse,
        0,
        1,
        incremental_alter_configs.error_response,
    ),
    ApiKey.CONTROLLED_SHUTDOWN: Api(
        controlled_shutdown.ControlledShutdownRequest,
        controlled_shutdown.ControlledShutdownResponse,
        0,
        2,
        controlled_shutdown.error_response,
    ),
    ApiKey.ELECT_LEADERS: Api(
        elect_leaders.ElectLeadersRequest,
        elect_leaders.ElectLeadersResponse,
        0,
        1,
        elect_leaders.error_response,
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Api(
        alter_partition_reassignments.AlterPartitionReassignmentsRequest,
        alter_partition_reassignments.AlterPartitionReassignmentsResponse,
        0,
        0,
        alter_partition_reassignments.error_response,
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Api(
        list_partition_reassignments.ListPartitionReassignmentsRequest,
        list_partition_reassignments.ListPartitionReassignmentsResponse,
        0,
        0,
        list_partition_reassignments.error_response,
    ),
    ApiKey.CREATE_PARTITIONS: Api(
        create_partitions.CreatePartitionsRequest,
        create_partitions.CreatePartitionsResponse,
        0,
        1,
        create_partitions.error_response,
    ),
}

KEY_OF: dict[type, ApiKey] = {api.request: ApiKey(key) for key, api in API.items()}
