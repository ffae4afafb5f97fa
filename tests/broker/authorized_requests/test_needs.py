"""Every API and the table of what it needs: without, with all, and with all but one permission.

A case is a request of one API with the permissions that it needs. What is refused gets the error
that the table says, and nothing else: in each version the response for a name that exists is the
same as for one that does not, and has no name that the request has not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import attrs
import pytest

from broker.network.authorization import (
    CLUSTER,
    Resource,
    group,
    topic,
    transactional_id,
)
from protocol.acls import Operation, PatternType, Permission, ResourceType
from protocol.api import key_of
from protocol.api_key import ApiKey
from protocol.encoding import encode
from protocol.errors import ErrorCode
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntity,
    AlterClientQuotasRequestEntry,
)
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsRequestDir,
    AlterReplicaLogDirsRequestTopic,
)
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsRequestDeletion,
)
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.controlled_shutdown import ControlledShutdownRequest
from protocol.messages.create_acls import CreateAclsRequest, CreateAclsRequestCreation
from protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsRequestFilter
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_acls import DescribeAclsRequest
from protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopic,
)
from protocol.messages.describe_transactions import DescribeTransactionsRequest
from protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersRequestTopicPartitions
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leader_and_isr import LeaderAndIsrRequest
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupRequestMember
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from protocol.messages.list_transactions import ListTransactionsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.messages.sasl_handshake import SaslHandshakeRequest
from protocol.messages.stop_replica import StopReplicaRequest
from protocol.messages.sync_group import SyncGroupRequest
from protocol.messages.update_metadata import UpdateMetadataRequest
from protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from protocol.needs import NEEDS, Need, Refusal
from protocol.registry import API
from protocol.topic_partition import TopicPartition
from protocol.wire import NO_VERSIONS
from tests.broker.authorized_requests import requests
from tests.broker.authorized_requests.stage import MISSING, OPEN, Stage, errors, text_of
from tests.broker.authorized_requests.test_cluster import CONTROL, follower_fetch, transactional
from tests.broker.transactions import commit_request, marker

REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
Permitted = tuple[Operation, Resource]
MISSING_GROUP = f"{MISSING}-group"


class Names(NamedTuple):
    """A topic and a group that a request is about."""

    topic: str
    group_id: str


@attrs.frozen
class Case:
    """A request about a topic and a group, and what it needs.

    It is made in `version` alone, or in all versions, those before `since` excepted.
    """

    build: Callable[[str, str], Any]
    needs: Callable[[str, str], tuple[Permitted, ...]]
    version: int | None = None
    since: int = 0
    label: str = ""

    def versions(self, key: ApiKey) -> list[int]:
        """Return the versions in which the request says what it is about."""
        if self.version is not None:
            return [self.version]
        served = range(max(API[key].served.first, self.since), API[key].served.last + 1)
        one, other = self.build("t", "g"), self.build("u", "h")
        return [
            version
            for version in served
            if one == other or encode(one, version) != encode(other, version)
        ]

    def permissions_but(self, names: Names, left_out: int | None) -> list[Permitted]:
        """Return what the request needs, without one of it; for None, nothing."""
        if left_out is None:
            return []
        return [need for at, need in enumerate(self.needs(*names)) if at != left_out]

    def without(self, names: Names, left_out: int | None) -> Names:
        """Return names that are missing where the permission that is left out is about them."""
        kind = None if left_out is None else self.needs(*names)[left_out][1].kind
        return Names(
            names.topic if kind is ResourceType.GROUP else MISSING,
            names.group_id if kind is ResourceType.TOPIC else MISSING_GROUP,
        )


def of_topic(build: Callable[[str], Any], operation: Operation, **rest: Any) -> Case:
    return Case(
        lambda name, group_id: build(name), lambda name, _: ((operation, topic(name)),), **rest
    )


def of_group(build: Callable[[str], Any], operation: Operation, **rest: Any) -> Case:
    return Case(
        lambda name, group_id: build(group_id),
        lambda _, group_id: ((operation, group(group_id)),),
        **rest,
    )


def of_cluster(request: Any, operation: Operation, **rest: Any) -> Case:
    return Case(lambda *_: request, lambda *_: ((operation, CLUSTER),), **rest)


def join(group_id: str) -> Any:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def both_needs(of_a_group: Operation, of_a_topic: Operation) -> Any:
    return lambda name, group_id: ((of_a_group, group(group_id)), (of_a_topic, topic(name)))


def fetch_offsets_of_groups(name: str, group_id: str) -> Any:
    asked = OffsetFetchRequestTopic(name=name, partition_indexes=[0])
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=[asked])])


TRANSACTION = transactional_id("t")
PRODUCER = {"transactional_id": "t", "producer_id": 0, "producer_epoch": 0}
ANY_ACL = {"operation": Operation.ANY, "permission_type": Permission.ANY}
ANY_NAME = dict.fromkeys(["resource_name_filter", "principal_filter", "host_filter"])
CREATION = CreateAclsRequestCreation(
    resource_type=ResourceType.TOPIC,
    resource_name="t",
    resource_pattern_type=PatternType.LITERAL,
    principal="User:a",
    host="*",
    operation=Operation.READ,
    permission_type=Permission.ALLOW,
)

CASES: dict[ApiKey, list[Case]] = {
    ApiKey.PRODUCE: [
        of_topic(requests.produce, Operation.WRITE),
        of_topic(requests.produce_compressed, Operation.WRITE, label="compressed"),
        of_topic(requests.produce_old, Operation.WRITE, version=2, label="old"),
        Case(
            lambda name, _: transactional(name),
            lambda name, _: ((Operation.WRITE, TRANSACTION), (Operation.WRITE, topic(name))),
            label="transactional",
        ),
    ],
    ApiKey.FETCH: [
        of_topic(requests.fetch, Operation.READ),
        Case(
            lambda name, _: follower_fetch(name),
            lambda *_: ((Operation.CLUSTER_ACTION, CLUSTER),),
            label="follower",
        ),
    ],
    ApiKey.LIST_OFFSETS: [
        of_topic(requests.list_offsets, Operation.DESCRIBE),
        of_topic(requests.list_offsets_at_time, Operation.DESCRIBE, label="at a time"),
        # Nobody is let in by the name of a replica (CVE-2018-1288).
        of_topic(
            lambda name: attrs.evolve(requests.list_offsets(name), replica_id=2),
            Operation.DESCRIBE,
            label="replica",
        ),
    ],
    ApiKey.DELETE_RECORDS: [of_topic(requests.delete_records, Operation.DELETE)],
    ApiKey.OFFSET_FOR_LEADER_EPOCH: [
        of_topic(requests.offset_for_leader_epoch, Operation.DESCRIBE),
        of_topic(
            lambda name: attrs.evolve(requests.offset_for_leader_epoch(name), replica_id=2),
            Operation.DESCRIBE,
            label="replica",
        ),
        Case(
            lambda name, _: requests.offset_for_leader_epoch(name),
            lambda *_: ((Operation.CLUSTER_ACTION, CLUSTER),),
            label="cluster",
        ),
    ],
    ApiKey.INIT_PRODUCER_ID: [
        of_cluster(InitProducerIdRequest(), Operation.IDEMPOTENT_WRITE),
        Case(
            lambda *_: InitProducerIdRequest(),
            lambda *_: ((Operation.WRITE, topic("*")),),
            label="any topic",
        ),
        Case(
            lambda *_: InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000),
            lambda *_: ((Operation.WRITE, TRANSACTION),),
            label="transactional",
        ),
    ],
    ApiKey.ADD_PARTITIONS_TO_TXN: [
        Case(
            lambda name, _: AddPartitionsToTxnRequest(
                **PRODUCER, topics=[AddPartitionsToTxnTopic(name=name, partitions=[0])]
            ),
            lambda name, _: ((Operation.WRITE, TRANSACTION), (Operation.WRITE, topic(name))),
        )
    ],
    ApiKey.ADD_OFFSETS_TO_TXN: [
        Case(
            lambda _, group_id: AddOffsetsToTxnRequest(**PRODUCER, group_id=group_id),
            lambda _, group_id: ((Operation.WRITE, TRANSACTION), (Operation.READ, group(group_id))),
        )
    ],
    ApiKey.END_TXN: [
        Case(
            lambda *_: EndTxnRequest(**PRODUCER, committed=True),
            lambda *_: ((Operation.WRITE, TRANSACTION),),
        )
    ],
    ApiKey.DESCRIBE_TRANSACTIONS: [
        Case(
            lambda *_: DescribeTransactionsRequest(transactional_ids=[OPEN]),
            lambda name, _: (
                (Operation.DESCRIBE, transactional_id(OPEN)),
                (Operation.DESCRIBE, topic(name)),
            ),
        )
    ],
    ApiKey.LIST_TRANSACTIONS: [
        Case(
            lambda *_: ListTransactionsRequest(),
            lambda *_: ((Operation.DESCRIBE, transactional_id(OPEN)),),
        )
    ],
    ApiKey.METADATA: [
        of_topic(requests.metadata, Operation.DESCRIBE),
        of_topic(lambda _: MetadataRequest(topics=None), Operation.DESCRIBE, since=1, label="all"),
        Case(
            lambda name, _: requests.metadata(f"new-{name}", creates=True),
            lambda name, _: (
                (Operation.DESCRIBE, topic(f"new-{name}")),
                (Operation.CREATE, topic(f"new-{name}")),
            ),
            label="creates",
        ),
    ],
    ApiKey.CREATE_TOPICS: [
        of_topic(requests.create_topics, Operation.CREATE),
        Case(
            lambda name, _: requests.create_topics(name),
            lambda *_: ((Operation.CREATE, CLUSTER),),
            label="cluster",
        ),
        # The settings of what is created are told to those who may describe them.
        Case(
            lambda name, _: requests.create_topics(f"new-{name}"),
            lambda name, _: ((Operation.CREATE, topic(f"new-{name}")),),
            label="new",
        ),
    ],
    ApiKey.CREATE_PARTITIONS: [of_topic(requests.create_partitions, Operation.ALTER)],
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: [
        of_cluster(AlterPartitionReassignmentsRequest(topics=[]), Operation.ALTER)
    ],
    ApiKey.LIST_PARTITION_REASSIGNMENTS: [
        of_cluster(ListPartitionReassignmentsRequest(topics=None), Operation.DESCRIBE)
    ],
    ApiKey.ELECT_LEADERS: [
        Case(
            lambda name, _: ElectLeadersRequest(
                topic_partitions=[ElectLeadersRequestTopicPartitions(topic=name, partitions=[0])]
            ),
            lambda *_: ((Operation.ALTER, CLUSTER),),
        )
    ],
    ApiKey.ALTER_REPLICA_LOG_DIRS: [
        Case(
            lambda name, _: AlterReplicaLogDirsRequest(
                dirs=[
                    AlterReplicaLogDirsRequestDir(
                        path="/d",
                        topics=[AlterReplicaLogDirsRequestTopic(name=name, partitions=[0])],
                    )
                ]
            ),
            lambda *_: ((Operation.ALTER, CLUSTER),),
        )
    ],
    ApiKey.DESCRIBE_LOG_DIRS: [of_cluster(DescribeLogDirsRequest(topics=None), Operation.DESCRIBE)],
    ApiKey.DESCRIBE_CONFIGS: [
        of_topic(requests.describe_configs, Operation.DESCRIBE_CONFIGS),
        of_cluster(
            requests.describe_configs("1", kind=requests.BROKER_CONFIGS),
            Operation.DESCRIBE_CONFIGS,
            label="broker",
        ),
    ],
    ApiKey.ALTER_CONFIGS: [
        of_topic(requests.alter_configs, Operation.ALTER_CONFIGS),
        of_cluster(
            requests.alter_configs("1", kind=requests.BROKER_CONFIGS),
            Operation.ALTER_CONFIGS,
            label="broker",
        ),
    ],
    ApiKey.INCREMENTAL_ALTER_CONFIGS: [
        of_topic(requests.incremental_alter_configs, Operation.ALTER_CONFIGS),
        of_cluster(
            requests.incremental_alter_configs("1", kind=requests.BROKER_CONFIGS),
            Operation.ALTER_CONFIGS,
            label="broker",
        ),
    ],
    ApiKey.DESCRIBE_CLIENT_QUOTAS: [
        of_cluster(
            DescribeClientQuotasRequest(components=[], strict=False), Operation.DESCRIBE_CONFIGS
        )
    ],
    ApiKey.ALTER_CLIENT_QUOTAS: [
        of_cluster(
            AlterClientQuotasRequest(
                entries=[
                    AlterClientQuotasRequestEntry(
                        entity=[
                            AlterClientQuotasRequestEntity(entity_type="user", entity_name="u")
                        ],
                        ops=[],
                    )
                ],
                validate_only=True,
            ),
            Operation.ALTER_CONFIGS,
        )
    ],
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: [
        of_cluster(DescribeUserScramCredentialsRequest(users=None), Operation.DESCRIBE)
    ],
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: [
        of_cluster(
            AlterUserScramCredentialsRequest(
                deletions=[AlterUserScramCredentialsRequestDeletion(name="u", mechanism=1)],
                upsertions=[],
            ),
            Operation.ALTER,
        )
    ],
    ApiKey.DESCRIBE_ACLS: [
        of_cluster(
            DescribeAclsRequest(resource_type_filter=ResourceType.ANY, **ANY_NAME, **ANY_ACL),
            Operation.DESCRIBE,
        )
    ],
    ApiKey.CREATE_ACLS: [of_cluster(CreateAclsRequest(creations=[CREATION]), Operation.ALTER)],
    ApiKey.DELETE_ACLS: [
        of_cluster(
            DeleteAclsRequest(
                filters=[
                    DeleteAclsRequestFilter(
                        resource_type_filter=ResourceType.ANY, **ANY_NAME, **ANY_ACL
                    )
                ]
            ),
            Operation.ALTER,
        )
    ],
    ApiKey.JOIN_GROUP: [of_group(join, Operation.READ)],
    ApiKey.SYNC_GROUP: [
        of_group(
            lambda group_id: SyncGroupRequest(
                group_id=group_id, generation_id=1, member_id="m", assignments=[]
            ),
            Operation.READ,
            version=3,
        )
    ],
    ApiKey.HEARTBEAT: [
        of_group(
            lambda group_id: HeartbeatRequest(group_id=group_id, generation_id=1, member_id="m"),
            Operation.READ,
            version=3,
        )
    ],
    ApiKey.LEAVE_GROUP: [
        of_group(
            lambda group_id: LeaveGroupRequest(
                group_id=group_id, members=[LeaveGroupRequestMember(member_id="m")]
            ),
            Operation.READ,
        )
    ],
    ApiKey.OFFSET_COMMIT: [
        Case(
            lambda name, group_id: requests.offset_commit(name, group_id=group_id),
            both_needs(Operation.READ, Operation.READ),
            version=version,
            label=str(version),
        )
        for version in (0, 7, None)
    ],
    ApiKey.TXN_OFFSET_COMMIT: [
        Case(
            lambda name, group_id: commit_request((name, 0, 1), group_id=group_id),
            lambda name, group_id: (
                (Operation.WRITE, transactional_id("x")),
                (Operation.READ, group(group_id)),
                (Operation.READ, topic(name)),
            ),
        )
    ],
    ApiKey.OFFSET_FETCH: [
        Case(
            lambda name, group_id: requests.offset_fetch(name, group_id=group_id),
            both_needs(Operation.DESCRIBE, Operation.DESCRIBE),
            version=7,
        ),
        Case(
            fetch_offsets_of_groups,
            both_needs(Operation.DESCRIBE, Operation.DESCRIBE),
            version=8,
            label="groups",
        ),
        Case(
            lambda _, group_id: OffsetFetchRequest(group_id=group_id, topics=None),
            both_needs(Operation.DESCRIBE, Operation.DESCRIBE),
            version=7,
            label="all",
        ),
    ],
    ApiKey.FIND_COORDINATOR: [
        of_group(
            lambda group_id: FindCoordinatorRequest(key=group_id), Operation.DESCRIBE, version=3
        ),
        of_group(
            lambda group_id: FindCoordinatorRequest(coordinator_keys=[group_id]),
            Operation.DESCRIBE,
            version=4,
            label="several",
        ),
        Case(
            lambda *_: FindCoordinatorRequest(key="t", key_type=1),
            lambda *_: ((Operation.DESCRIBE, TRANSACTION),),
            label="transactional",
        ),
    ],
    ApiKey.DESCRIBE_GROUPS: [
        of_group(lambda group_id: DescribeGroupsRequest(groups=[group_id]), Operation.DESCRIBE),
        of_group(
            lambda group_id: DescribeGroupsRequest(
                groups=[group_id], include_zookeeper_members=True
            ),
            Operation.DESCRIBE,
            label="with ZooKeeper's",
        ),
    ],
    ApiKey.LIST_GROUPS: [of_group(lambda _: ListGroupsRequest(), Operation.DESCRIBE)],
    ApiKey.OFFSET_DELETE: [
        Case(
            lambda name, group_id: requests.offset_delete(name, group_id=group_id),
            both_needs(Operation.DELETE, Operation.READ),
        )
    ],
    ApiKey.DELETE_GROUPS: [
        of_group(lambda group_id: DeleteGroupsRequest(groups_names=[group_id]), Operation.DELETE)
    ],
    ApiKey.DELETE_TOPICS: [of_topic(requests.delete_topics, Operation.DELETE)],
    ApiKey.LEADER_AND_ISR: [
        of_cluster(
            LeaderAndIsrRequest(**CONTROL, topic_states=[], live_leaders=[]),
            Operation.CLUSTER_ACTION,
        )
    ],
    ApiKey.STOP_REPLICA: [
        of_cluster(StopReplicaRequest(**CONTROL, topics=[]), Operation.CLUSTER_ACTION)
    ],
    ApiKey.UPDATE_METADATA: [
        of_cluster(
            UpdateMetadataRequest(**CONTROL, topic_states=[], live_brokers=[]),
            Operation.CLUSTER_ACTION,
        )
    ],
    ApiKey.CONTROLLED_SHUTDOWN: [
        of_cluster(ControlledShutdownRequest(broker_id=99), Operation.CLUSTER_ACTION, since=1)
    ],
    ApiKey.WRITE_TXN_MARKERS: [
        Case(
            lambda name, _: WriteTxnMarkersRequest(markers=[marker(TopicPartition(name, 0))]),
            lambda *_: ((Operation.CLUSTER_ACTION, CLUSTER),),
        )
    ],
    ApiKey.DESCRIBE_PRODUCERS: [
        of_topic(
            lambda name: DescribeProducersRequest(
                topics=[DescribeProducersRequestTopic(name=name, partition_indexes=[0])]
            ),
            Operation.READ,
        )
    ],
    ApiKey.DESCRIBE_CLUSTER: [Case(lambda *_: DescribeClusterRequest(), lambda *_: ())],
    ApiKey.API_VERSIONS: [
        Case(
            lambda *_: ApiVersionsRequest(client_software_name="n", client_software_version="1"),
            lambda *_: (),
        )
    ],
    ApiKey.SASL_HANDSHAKE: [
        Case(lambda *_: SaslHandshakeRequest(mechanism="PLAIN"), lambda *_: ())
    ],
    ApiKey.SASL_AUTHENTICATE: [
        Case(lambda *_: SaslAuthenticateRequest(auth_bytes=b""), lambda *_: ())
    ],
}
NOT_SERVED = {key for key, api in API.items() if api.served == NO_VERSIONS}


ALL_CASES = [
    pytest.param(key, case, id=f"{key.name} {case.label}".rstrip())
    for key, of_api in CASES.items()
    for case in of_api
]


def need_of(key: ApiKey, permitted: Permitted) -> Need:
    """Return the row of the table for a permission, also for one that makes up for it."""
    operation, resource = permitted
    (need, *_) = [
        need
        for need in NEEDS[key]
        if (operation, resource.kind) in ((need.operation, need.kind), need.instead)
    ]
    return need


def granted(key: ApiKey) -> tuple[Permitted, ...]:
    """Return what the broker itself needs meanwhile, unless the requests of the API need it too.

    A topic that is created is led when the controller's requests have been served.
    """
    brokers = (Operation.CLUSTER_ACTION, CLUSTER)
    kinds = [(need.operation, need.kind) for need in NEEDS[key]]
    kinds += [need.instead for need in NEEDS[key] if need.instead is not None]
    return () if (Operation.CLUSTER_ACTION, ResourceType.CLUSTER) in kinds else (brokers,)


def refusals(response: Any) -> set[ErrorCode]:
    return REFUSALS & set(errors(response).values())


# ---- the table


def test_the_table_has_every_api() -> None:
    assert API.keys() <= NEEDS.keys()


def test_there_is_a_case_of_every_api_that_is_served() -> None:
    assert CASES.keys() == API.keys() - NOT_SERVED


@pytest.mark.parametrize("key", CASES, ids=lambda key: key.name)
def test_a_handler_asks_for_what_the_table_says(stage: Stage, key: ApiKey) -> None:
    name = stage.new_topic()
    group_id = stage.new_group(name)
    asked = stage.authorizer.asked
    asked.clear()
    # What makes up for something is asked where the other is missing; the rest where nothing is.
    for case in CASES[key]:
        assert key_of(case.build(name, group_id)) is key
        stage.call_with(case.build(name, group_id), *granted(key), version=case.version)
        needs = case.needs(name, group_id)
        for missing in (*needs, None):
            rest = [need for need in needs if need != missing]
            rest += granted(key)
            stage.call_with(case.build(name, group_id), *rest, version=case.version)

    expected = {(need.operation, need.kind) for need in NEEDS[key]}
    expected |= {need.instead for need in NEEDS[key] if need.instead is not None}
    assert asked - {(operation, resource.kind) for operation, resource in granted(key)} == expected


# ---- requests


@pytest.mark.parametrize(("key", "case"), ALL_CASES)
def test_a_request_gets_what_its_sender_may_have(stage: Stage, key: ApiKey, case: Case) -> None:
    name = stage.new_topic()
    group_id = stage.new_group(name)
    request = case.build(name, group_id)
    needs = case.needs(name, group_id)

    # Nothing, then all but one: the first that is missing decides.
    for allowed in ([], *([need for need in needs if need != missing] for missing in needs)):
        missing = [need_of(key, need) for need in needs if need not in allowed]
        if not missing:
            continue
        response = stage.call_with(request, *allowed, *granted(key), version=case.version)
        is_omitted = missing[0].refusal is Refusal.OMITTED or (
            missing[0].refusal is Refusal.ENTRY_OR_OMITTED and case.label == "all"
        )
        # These versions have no place for the error.
        if is_omitted or key is ApiKey.DESCRIBE_LOG_DIRS:
            assert refusals(response) == set()
            assert name not in str(response)
            assert group_id not in str(getattr(response, "groups", ()))
            if missing[0].kind is ResourceType.TRANSACTIONAL_ID:
                assert OPEN not in str(response)
        else:
            assert refusals(response) == {missing[0].error}

    response = stage.call_with(request, *needs, *granted(key), version=case.version)
    assert not refusals(response)


@pytest.mark.parametrize(("key", "case"), ALL_CASES)
def test_a_sender_who_lacks_a_permission_learns_nothing_of_names(
    stage: Stage, key: ApiKey, case: Case
) -> None:
    """In no version, and neither without any permission nor with all but one."""
    name = stage.new_topic()
    existing = Names(name, stage.new_group(name))
    versions = case.versions(key)
    assert versions
    for version in versions:
        for left_out in (None, *range(len(case.needs(*existing)))):

            def ask(names: Names, left_out: int | None = left_out, version: int = version) -> Any:
                allowed = [*case.permissions_but(names, left_out), *granted(key)]
                return stage.call_with(case.build(*names), *allowed, version=version)

            # What is not asked for is not named.
            response = ask(existing)
            unasked = [known for known in existing if known not in str(case.build(*existing))]
            assert not [known for known in unasked if known in str(response)], (version, left_out)

            # What is asked for looks the same as what does not exist.
            missing = case.without(existing, left_out)
            assert anonymous(response, existing) == anonymous(ask(missing), missing), (
                version,
                left_out,
            )


def anonymous(response: Any, names: Names) -> str:
    """Write a response as text, with MISSING instead of the names."""
    return text_of(response, names.topic).replace(names.group_id, MISSING)
