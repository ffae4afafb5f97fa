"""The admin client's calls about partitions, replicas and settings: brokers, and results."""

from typing import Any

import pytest

from clients.admin import PREFERRED, UNCLEAN, Admin, ConfigResource, NewPartitions
from clients.admin.descriptions import PartitionReassignment, TopicPartitionReplica
from clients.errors import UnsupportedApi
from protocol.api_key import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages import (
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    controlled_shutdown,
    create_partitions,
    elect_leaders,
    incremental_alter_configs,
    list_partition_reassignments,
)
from protocol.messages.describe_log_dirs import (
    DescribeLogDirsResponse,
    DescribeLogDirsResponsePartition,
    DescribeLogDirsResponseResult,
    DescribeLogDirsResponseTopic,
)
from tests.clients.admin.running_admin import P0, P2, with_admin
from tests.clients.scripted_broker import ScriptedBroker, all_versions

MODULES = {
    ApiKey.CREATE_PARTITIONS: create_partitions,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments,
    ApiKey.ELECT_LEADERS: elect_leaders,
    ApiKey.CONTROLLED_SHUTDOWN: controlled_shutdown,
}


def has_moved(key: ApiKey, broker_1: ScriptedBroker, broker_2: ScriptedBroker, answer: Any) -> None:
    """Move the controller: broker 1 says so when it is asked; broker 2 responds."""

    def not_controller(request: Any) -> Any:
        broker_1.answers[ApiKey.METADATA] = broker_2.metadata
        return MODULES[key].error_response(request, ErrorCode.NOT_CONTROLLER)

    broker_1.answers[key] = not_controller
    broker_2.answers[key] = lambda request: answer


def test_partitions_are_added_by_the_controller_even_when_it_has_just_moved() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        result = create_partitions.CreatePartitionsResponseResult
        answer = create_partitions.CreatePartitionsResponse(
            results=[
                result(name="t", error_code=0),
                result(name="u", error_code=37, error_message="it has 3"),
            ]
        )

        has_moved(ApiKey.CREATE_PARTITIONS, broker_1, broker_2, answer)
        wanted = {"t": NewPartitions(4), "u": NewPartitions(2, ((1, 2),))}
        verdicts = await admin.create_partitions(wanted)
        assert verdicts["t"] is None
        assert str(verdicts["u"]) == "INVALID_PARTITIONS: it has 3"

        first, second = broker_2.asked(ApiKey.CREATE_PARTITIONS)[0].topics
        assert (first.count, first.assignments) == (4, None)
        assert [tuple(a.broker_ids) for a in second.assignments] == [(1, 2)]

    with_admin(scenario)


def test_moves_begin_and_end_where_the_controller_is() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        module = alter_partition_reassignments
        partition = module.AlterPartitionReassignmentsResponsePartition
        answer = module.AlterPartitionReassignmentsResponse(
            responses=[
                module.AlterPartitionReassignmentsResponseTopic(
                    name="t",
                    partitions=[
                        partition(partition_index=0, error_code=0),
                        partition(partition_index=2, error_code=85, error_message="it stands"),
                    ],
                )
            ]
        )

        has_moved(ApiKey.ALTER_PARTITION_REASSIGNMENTS, broker_1, broker_2, answer)
        verdicts = await admin.alter_partition_reassignments({P0: (1, 2), P2: None})
        assert verdicts[P0] is None
        assert str(verdicts[P2]) == "NO_REASSIGNMENT_IN_PROGRESS: it stands"

        (topic,) = broker_2.asked(ApiKey.ALTER_PARTITION_REASSIGNMENTS)[0].topics
        asked = [(p.partition_index, p.replicas and tuple(p.replicas)) for p in topic.partitions]
        assert asked == [(0, (1, 2)), (2, None)]

    with_admin(scenario)


@pytest.mark.parametrize("partitions", [None, [P0]])
def test_moves_are_listed_by_the_controller(partitions: list[Any] | None) -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        module = list_partition_reassignments
        partition = module.ListPartitionReassignmentsResponsePartition(
            partition_index=0, replicas=[1, 2], adding_replicas=[2], removing_replicas=[1]
        )
        answer = module.ListPartitionReassignmentsResponse(
            topics=[
                module.ListPartitionReassignmentsResponseTopic(name="t", partitions=[partition])
            ]
        )
        has_moved(ApiKey.LIST_PARTITION_REASSIGNMENTS, broker_1, broker_2, answer)
        listed = await admin.list_partition_reassignments(partitions)
        assert listed == {P0: PartitionReassignment((1, 2), (2,), (1,))}
        topics = broker_2.asked(ApiKey.LIST_PARTITION_REASSIGNMENTS)[0].topics
        assert (topics is None) == (partitions is None)

    with_admin(scenario)


def test_an_election_says_of_each_partition_how_it_came_out() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        module = elect_leaders
        result = module.ElectLeadersResponsePartitionResult
        answer = module.ElectLeadersResponse(
            replica_election_results=[
                module.ElectLeadersResponseReplicaElectionResult(
                    topic="t",
                    partition_result=[
                        result(partition_id=0, error_code=0, error_message=None),
                        result(partition_id=2, error_code=84, error_message=None),
                    ],
                )
            ]
        )

        has_moved(ApiKey.ELECT_LEADERS, broker_1, broker_2, answer)
        verdicts = await admin.elect_leaders(UNCLEAN, [P0, P2])
        assert verdicts[P0] is None
        assert [e.code for e in verdicts.values() if e] == [ErrorCode.ELECTION_NOT_NEEDED]

        request = broker_2.asked(ApiKey.ELECT_LEADERS)[0]
        assert (request.election_type, request.topic_partitions[0].partitions) == (1, (0, 2))

        await admin.elect_leaders(PREFERRED)
        request = broker_2.asked(ApiKey.ELECT_LEADERS)[1]
        assert (request.election_type, request.topic_partitions) == (0, None)

    with_admin(scenario)


def test_a_broker_that_knows_no_unclean_elections_is_not_asked_for_one() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        broker_1.answers[ApiKey.API_VERSIONS] = lambda request: all_versions(ELECT_LEADERS=(0, 0))
        with pytest.raises(UnsupportedApi, match="ELECT_LEADERS"):
            await admin.elect_leaders(UNCLEAN, [P0])
        assert broker_1.asked(ApiKey.ELECT_LEADERS) == []

    with_admin(scenario)


def test_a_shutdown_is_asked_of_the_controller_and_names_what_remains() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        module = controlled_shutdown
        remains = module.ControlledShutdownResponseRemainingPartition
        answer = module.ControlledShutdownResponse(
            error_code=0, remaining_partitions=[remains(topic_name="t", partition_index=2)]
        )
        has_moved(ApiKey.CONTROLLED_SHUTDOWN, broker_1, broker_2, answer)
        assert await admin.controlled_shutdown(1) == (P2,)
        broker_2.answers[ApiKey.CONTROLLED_SHUTDOWN] = lambda request: module.error_response(
            request, ErrorCode.BROKER_NOT_AVAILABLE
        )
        with pytest.raises(ApiError, match="BROKER_NOT_AVAILABLE"):
            await admin.controlled_shutdown(7)

    with_admin(scenario)


def test_a_broker_is_asked_for_its_own_settings_and_disks() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        def altered(request: Any) -> Any:
            return incremental_alter_configs.error_response(request, ErrorCode.NONE)

        broker_1.answers[ApiKey.INCREMENTAL_ALTER_CONFIGS] = altered
        broker_2.answers[ApiKey.INCREMENTAL_ALTER_CONFIGS] = altered
        broker = ConfigResource.broker(2)
        verdicts = await admin.incremental_alter_configs({broker: {"a": "1", "b": None}})
        assert verdicts == {broker: None}
        (resource,) = broker_2.asked(ApiKey.INCREMENTAL_ALTER_CONFIGS)[0].resources
        operations = [(c.name, c.config_operation, c.value) for c in resource.configs]
        assert operations == [("a", 0, "1"), ("b", 1, None)]

        log = DescribeLogDirsResponsePartition(
            partition_index=2, partition_size=70, offset_lag=3, is_future_key=False
        )
        topic = DescribeLogDirsResponseTopic(name="t", partitions=[log])
        broker_2.answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda request: DescribeLogDirsResponse(
            results=[
                DescribeLogDirsResponseResult(error_code=0, log_dir="/a", topics=[topic]),
                DescribeLogDirsResponseResult(error_code=56, log_dir="/b", topics=[]),
            ]
        )
        directories = await admin.describe_log_dirs(2)
        assert directories["/a"].replicas[P2].size_bytes == 70
        assert directories["/b"].error is ErrorCode.KAFKA_STORAGE_ERROR

    with_admin(scenario)


def test_each_broker_is_told_of_its_own_replicas_directories() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        def answer(request: Any) -> Any:
            code = {"/a": ErrorCode.NONE, "/b": ErrorCode.LOG_DIR_NOT_FOUND}
            (directory,) = request.dirs
            only = alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs=[directory])
            return alter_replica_log_dirs.error_response(only, code[directory.path])

        broker_1.answers[ApiKey.ALTER_REPLICA_LOG_DIRS] = answer
        broker_2.answers[ApiKey.ALTER_REPLICA_LOG_DIRS] = answer
        first, second = TopicPartitionReplica(P0, 1), TopicPartitionReplica(P2, 2)
        verdicts = await admin.alter_replica_log_dirs({first: "/a", second: "/b"})
        assert verdicts[first] is None
        refused = verdicts[second]
        assert refused is not None
        assert refused.code is ErrorCode.LOG_DIR_NOT_FOUND
        assert "t-2 on broker 2: /b" in refused.detail
        (request,) = broker_2.asked(ApiKey.ALTER_REPLICA_LOG_DIRS)
        (directory,) = request.dirs
        assert [(t.name, list(t.partitions)) for t in directory.topics] == [("t", [2])]

    with_admin(scenario)


def test_settings_that_are_refused_are_so_one_by_one() -> None:
    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> None:
        def refused(request: Any) -> Any:
            return alter_configs.error_response(request, ErrorCode.INVALID_CONFIG)

        broker_1.answers[ApiKey.ALTER_CONFIGS] = broker_2.answers[ApiKey.ALTER_CONFIGS] = refused
        topics = {ConfigResource.topic(name): {"a": "1"} for name in ("t", "u")}
        verdicts = await admin.alter_configs(topics)
        assert [error.code for error in verdicts.values() if error] == [
            ErrorCode.INVALID_CONFIG,
            ErrorCode.INVALID_CONFIG,
        ]

    with_admin(scenario)
