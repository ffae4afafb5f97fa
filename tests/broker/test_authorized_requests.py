"""Requests with an authorizer: the error of each refusal, and what it must not reveal.

A broker serves a socket. Each row of a table is a request and a permission that is taken away. A
request that names several topics or groups is sent with one that is allowed and one that is not:
the first is served, and the response about the second is the same whether or not it exists.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from broker.network.authorization import (
    CLUSTER,
    Operation,
    Resource,
    group,
    topic,
    transactional_id,
)
from broker.network.session import ANONYMOUS, Principal
from broker.server import Broker
from clients.errors import ConnectionFailed
from clients.transport.connection import Connection
from protocol.errors import ErrorCode
from protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsRequestResource
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestPartition,
    AlterPartitionReassignmentsRequestTopic,
)
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsRequestDir,
    AlterReplicaLogDirsRequestTopic,
)
from protocol.messages.controlled_shutdown import ControlledShutdownRequest
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
)
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
)
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersRequestTopicPartitions
from protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestResource,
)
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.leader_and_isr import LeaderAndIsrRequest
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)
from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
)
from protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from protocol.messages.stop_replica import StopReplicaRequest
from protocol.messages.update_metadata import UpdateMetadataRequest
from protocol.records.batch import encode_batch
from protocol.records.batch_header import TRANSACTIONAL
from protocol.records.compression import Codec
from protocol.records.legacy import encode_messages
from tests.broker.replication.replicas import batch
from tests.stage.broker import Site

TOPIC_FAILED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_FAILED = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_FAILED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TRANSACTION_FAILED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
TOPIC_CONFIGS, BROKER_CONFIGS = 2, 4
MISSING = "missing"


@attrs.define(eq=False)
class Authorizer:
    """Allows everything but `refused`."""

    refused: set[tuple[Operation, Resource]] = attrs.field(factory=set)

    def __call__(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        assert principal == ANONYMOUS
        return (operation, resource) not in self.refused


@attrs.define(eq=False)
class Stage:
    """A running broker, a connection to it, and the loop that both run in."""

    runner: asyncio.Runner
    site: Site
    authorizer: Authorizer
    broker: Broker = attrs.field(init=False)
    _numbers: Iterator[int] = attrs.field(factory=itertools.count)

    def start(self) -> None:
        self.broker = self.site.broker(
            1, offsets_topic_replication_factor="1", offsets_topic_num_partitions="1"
        )
        self.runner.run(self.broker.start())
        self.call(FindCoordinatorRequest(key="any"), until=ErrorCode.NONE)

    def call(
        self,
        request: Any,
        *refused: tuple[Operation, Resource],
        version: int | None = None,
        until: ErrorCode | None = None,
    ) -> Any:
        """Send a request while some permissions are taken away."""
        self.authorizer.refused.update(refused)
        try:
            return self.runner.run(self._call(request, version, until))
        finally:
            self.authorizer.refused.clear()

    async def _call(self, request: Any, version: int | None, until: ErrorCode | None) -> Any:
        host, _, port = self.broker.bootstrap.rpartition(":")
        connection = await Connection.open(host, int(port))
        try:
            async with asyncio.timeout(10):
                response = await connection.call(request, version=version)
                while until is not None and response.error_code != until:
                    await asyncio.sleep(0.01)
                    response = await connection.call(request, version=version)
                return response
        finally:
            await connection.close()

    def new_topic(self) -> str:
        """Create a topic with one record in it."""
        name = f"topic-{next(self._numbers)}"
        created = self.call(create_topics(name))
        assert set(errors(created).values()) == {ErrorCode.NONE}
        produced = self.call(produce(name))
        assert set(errors(produced).values()) == {ErrorCode.NONE}
        return name

    def new_group(self, *topics: str) -> str:
        """Commit an offset of each topic for a new group."""
        group_id = f"group-{next(self._numbers)}"
        committed = self.call(offset_commit(*topics, group_id=group_id))
        assert set(errors(committed).values()) == {ErrorCode.NONE}
        return group_id


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    directory: Path = tmp_path_factory.mktemp("broker")
    authorizer = Authorizer()
    with asyncio.Runner() as runner:
        stage = Stage(runner, Site(directory, authorizer=authorizer), authorizer)
        stage.start()
        yield stage
        runner.run(stage.broker.close())


NAMES = ("name", "topic", "topic_name", "group_id", "resource_name")


def errors(response: Any) -> dict[str, ErrorCode]:
    """Return all error codes of a response by the topic, group or resource they are about.

    That of the whole response is under "".
    """
    codes: dict[str, ErrorCode] = {}

    def walk(part: Any, name: str) -> None:
        for field in NAMES:
            name = getattr(part, field, name)
        if hasattr(part, "error_code"):
            codes[name] = ErrorCode.of(part.error_code)
        for field in attrs.fields(type(part)):
            value = getattr(part, field.name)
            for nested in value if isinstance(value, (list, tuple)) else ():
                if attrs.has(type(nested)):
                    walk(nested, name)

    walk(response, "")
    return codes


def text_of(response: Any, name: str) -> str:
    """Write a response about `name` as text, with MISSING instead of the name."""

    def write(part: Any) -> str:
        if isinstance(part, (list, tuple)):
            return str([write(nested) for nested in part])
        if attrs.has(type(part)):
            return str([write(getattr(part, field.name)) for field in attrs.fields(type(part))])
        return str(bytes(part)) if isinstance(part, memoryview) else str(part)

    return write(response).replace(name, MISSING)


# ---- requests


def produce(*topics: str, records: bytes | None = None, transaction: str | None = None) -> Any:
    return ProduceRequest(
        transactional_id=transaction,
        acks=-1,
        timeout_ms=5000,
        topic_data=[
            ProduceRequestTopic(
                name=name,
                partition_data=[ProduceRequestPartition(index=0, records=records or batch(b"a"))],
            )
            for name in topics
        ],
    )


def produce_compressed(*topics: str) -> Any:
    records = encode_batch([(0, None, b"a" * 100, ())], codec=Codec.GZIP)
    return produce(*topics, records=records)


def produce_old(*topics: str) -> Any:
    return produce(*topics, records=encode_messages([(0, 7, None, b"a", ())], 1))


def fetch(*topics: str, session: tuple[int, int] = (0, -1), replica_id: int = -1) -> Any:
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=100,
        min_bytes=1,
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            FetchRequestTopic(
                topic=name,
                partitions=[
                    FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
                ],
            )
            for name in topics
        ],
    )


def list_offsets(*topics: str, timestamp: int = -1) -> Any:
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsRequestTopic(
                name=name,
                partitions=[ListOffsetsRequestPartition(partition_index=0, timestamp=timestamp)],
            )
            for name in topics
        ],
    )


def list_offsets_at_time(*topics: str) -> Any:
    return list_offsets(*topics, timestamp=0)


def metadata(*topics: str, creates: bool = False) -> Any:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in topics],
        allow_auto_topic_creation=creates,
    )


def offset_commit(*topics: str, group_id: str = "g") -> Any:
    return OffsetCommitRequest(
        group_id=group_id,
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=7, committed_metadata=""
                    )
                ],
            )
            for name in topics
        ],
    )


def offset_fetch(*topics: str, group_id: str = "g") -> Any:
    return OffsetFetchRequest(
        group_id=group_id,
        topics=[OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in topics],
    )


def offset_delete(*topics: str, group_id: str = "g") -> Any:
    return OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
            )
            for name in topics
        ],
    )


def offset_for_leader_epoch(*topics: str) -> Any:
    return OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderEpochRequestTopic(
                topic=name,
                partitions=[OffsetForLeaderEpochRequestPartition(partition=0, leader_epoch=0)],
            )
            for name in topics
        ]
    )


def delete_records(*topics: str) -> Any:
    return DeleteRecordsRequest(
        timeout_ms=5000,
        topics=[
            DeleteRecordsRequestTopic(
                name=name, partitions=[DeleteRecordsRequestPartition(partition_index=0, offset=1)]
            )
            for name in topics
        ],
    )


def create_topics(*topics: str) -> Any:
    return CreateTopicsRequest(
        timeout_ms=5000,
        topics=[
            CreateTopicsRequestTopic(
                name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
            )
            for name in topics
        ],
    )


def delete_topics(*topics: str) -> Any:
    return DeleteTopicsRequest(topic_names=topics, timeout_ms=5000)


def create_partitions(*topics: str) -> Any:
    return CreatePartitionsRequest(
        timeout_ms=5000,
        validate_only=False,
        topics=[
            CreatePartitionsRequestTopic(name=name, count=2, assignments=None) for name in topics
        ],
    )


def describe_configs(*names: str, kind: int = TOPIC_CONFIGS) -> Any:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequestResource(
                resource_type=kind, resource_name=name, configuration_keys=None
            )
            for name in names
        ]
    )


def alter_configs(*names: str, kind: int = TOPIC_CONFIGS) -> Any:
    return AlterConfigsRequest(
        resources=[
            AlterConfigsRequestResource(resource_type=kind, resource_name=name, configs=[])
            for name in names
        ],
        validate_only=False,
    )


def incremental_alter_configs(*names: str, kind: int = TOPIC_CONFIGS) -> Any:
    return IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequestResource(
                resource_type=kind, resource_name=name, configs=[]
            )
            for name in names
        ],
        validate_only=False,
    )


# ---- topics


NEEDS_CLUSTER = {
    offset_for_leader_epoch: (Operation.CLUSTER_ACTION, CLUSTER),
    create_topics: (Operation.CREATE, CLUSTER),
}
"""A permission of the cluster that allows all topics, and is taken away too."""

OF_TOPICS = [
    (produce, Operation.WRITE, None),
    (produce_compressed, Operation.WRITE, None),
    (produce_old, Operation.WRITE, 2),
    (fetch, Operation.READ, None),
    (fetch, Operation.READ, 3),
    (list_offsets, Operation.DESCRIBE, None),
    (list_offsets_at_time, Operation.DESCRIBE, None),
    (list_offsets, Operation.DESCRIBE, 0),
    (metadata, Operation.DESCRIBE, None),
    (offset_commit, Operation.READ, None),
    (offset_commit, Operation.READ, 0),
    (offset_fetch, Operation.DESCRIBE, None),
    (offset_fetch, Operation.DESCRIBE, 0),
    (offset_delete, Operation.READ, None),
    (offset_for_leader_epoch, Operation.DESCRIBE, None),
    (delete_records, Operation.DELETE, None),
    (delete_topics, Operation.DELETE, None),
    (create_partitions, Operation.ALTER, None),
    (describe_configs, Operation.DESCRIBE_CONFIGS, None),
    (alter_configs, Operation.ALTER_CONFIGS, None),
    (incremental_alter_configs, Operation.ALTER_CONFIGS, None),
]


@pytest.mark.parametrize(("build", "operation", "version"), OF_TOPICS)
def test_refused_topic_gets_the_error_and_the_other_is_served(
    stage: Stage, build: Callable[..., Any], operation: Operation, version: int | None
) -> None:
    allowed, refused = stage.new_topic(), stage.new_topic()
    stage.call(offset_commit(allowed, refused))
    stage.call(offset_commit(allowed, refused), version=0)
    permissions = [(operation, topic(refused)), (operation, topic(MISSING))]
    if build in NEEDS_CLUSTER:
        permissions.append(NEEDS_CLUSTER[build])

    # A missing topic and an existing one get the same response.
    existing = stage.call(build(refused), *permissions, version=version)
    missing = stage.call(build(MISSING), *permissions, version=version)
    assert text_of(existing, refused) == text_of(missing, MISSING)
    assert errors(existing)[refused] == TOPIC_FAILED

    together = errors(stage.call(build(refused, allowed), *permissions, version=version))
    assert together.pop("", ErrorCode.NONE) == ErrorCode.NONE
    assert together == {refused: TOPIC_FAILED, allowed: ErrorCode.NONE}


def test_topic_may_be_created_with_either_permission(stage: Stage) -> None:
    existing = stage.new_topic()
    of_cluster = (Operation.CREATE, CLUSTER)
    names = ("created-1", "refused", existing)
    of_topics = [(Operation.CREATE, topic(name)) for name in names[1:]]
    created = errors(stage.call(create_topics(*names), of_cluster, *of_topics))
    assert created == {
        "created-1": ErrorCode.NONE,
        "refused": TOPIC_FAILED,
        existing: TOPIC_FAILED,
    }
    assert set(errors(stage.call(create_topics("created-2"), *of_topics)).values()) == {
        ErrorCode.NONE
    }


def test_topic_named_twice_is_an_invalid_request_before_it_is_refused(stage: Stage) -> None:
    permissions = [(Operation.CREATE, CLUSTER), (Operation.CREATE, topic("twice"))]
    created = errors(stage.call(create_topics("twice", "twice"), *permissions))
    assert created == {"twice": ErrorCode.INVALID_REQUEST}


def test_missing_topic_is_created_by_metadata_with_either_permission(stage: Stage) -> None:
    of_cluster = (Operation.CREATE, CLUSTER)
    of_topic = (Operation.CREATE, topic("automatic"))
    request = metadata("automatic", creates=True)
    assert errors(stage.call(request, of_cluster, of_topic)) == {"automatic": TOPIC_FAILED}
    existing = stage.call(MetadataRequest(topics=None)).topics
    assert "automatic" not in [entry.name for entry in existing]
    created = errors(stage.call(request, of_cluster))
    assert created == {"automatic": ErrorCode.LEADER_NOT_AVAILABLE}


def test_topics_that_may_not_be_described_are_left_out_of_all(stage: Stage) -> None:
    allowed, refused = stage.new_topic(), stage.new_topic()
    response = stage.call(MetadataRequest(topics=None), (Operation.DESCRIBE, topic(refused)))
    names = [entry.name for entry in response.topics]
    assert allowed in names
    assert refused not in names
    names = [entry.name for entry in stage.call(MetadataRequest(topics=None)).topics]
    assert refused in names


def test_offsets_of_topics_that_may_not_be_described_are_left_out_of_all(stage: Stage) -> None:
    allowed, refused = stage.new_topic(), stage.new_topic()
    group_id = stage.new_group(allowed, refused)
    request = OffsetFetchRequest(group_id=group_id, topics=None)
    response = stage.call(request, (Operation.DESCRIBE, topic(refused)))
    assert [entry.name for entry in response.topics] == [allowed]


def test_nothing_is_appended_to_a_refused_topic(stage: Stage) -> None:
    name = stage.new_topic()
    for build, version in ((produce, None), (produce_compressed, None), (produce_old, 2)):
        stage.call(build(name), (Operation.WRITE, topic(name)), version=version)
    (of_topic,) = stage.call(list_offsets(name)).topics
    assert of_topic.partitions[0].offset == 1


def test_refused_produce_without_a_response_ends_the_connection(stage: Stage) -> None:
    request = attrs.evolve(produce("any"), acks=0)

    async def send_two() -> None:
        host, _, port = stage.broker.bootstrap.rpartition(":")
        connection = await Connection.open(host, int(port))
        try:
            await connection.call(request)
            await connection.call(metadata())
        finally:
            await connection.close()

    stage.authorizer.refused.add((Operation.WRITE, topic("any")))
    try:
        with pytest.raises(ConnectionFailed):
            stage.runner.run(send_two())
    finally:
        stage.authorizer.refused.clear()


def test_session_serves_its_allowed_topics_and_repeats_the_refusal(stage: Stage) -> None:
    allowed, refused = stage.new_topic(), stage.new_topic()
    permission = (Operation.READ, topic(refused))
    first = stage.call(fetch(allowed, refused, session=(0, 0)), permission)
    assert errors(first) == {
        "": ErrorCode.NONE,
        allowed: ErrorCode.NONE,
        refused: TOPIC_FAILED,
    }
    again = stage.call(fetch(session=(first.session_id, 1)), permission)
    assert errors(again)[refused] == TOPIC_FAILED

    # With the permission back the session goes on.
    served = stage.call(fetch(session=(first.session_id, 2)))
    assert errors(served)[refused] == ErrorCode.NONE


def test_fetch_of_refused_topics_alone_does_not_wait(stage: Stage) -> None:
    name = stage.new_topic()
    request = attrs.evolve(fetch(name, session=(0, 0)), max_wait_ms=15_000)
    started = stage.runner.get_loop().time()
    stage.call(request, (Operation.READ, topic(name)))
    assert stage.runner.get_loop().time() - started < 10


# ---- groups


def describe_groups(*group_ids: str) -> Any:
    return DescribeGroupsRequest(groups=group_ids)


def delete_groups(*group_ids: str) -> Any:
    return DeleteGroupsRequest(groups_names=group_ids)


@pytest.mark.parametrize(
    ("build", "operation"),
    [(describe_groups, Operation.DESCRIBE), (delete_groups, Operation.DELETE)],
)
def test_refused_group_gets_the_error_and_the_other_is_served(
    stage: Stage, build: Callable[..., Any], operation: Operation
) -> None:
    name = stage.new_topic()
    allowed, refused = stage.new_group(name), stage.new_group(name)
    permissions = [(operation, group(refused)), (operation, group(MISSING))]
    existing = stage.call(build(refused), *permissions)
    missing = stage.call(build(MISSING), *permissions)
    assert text_of(existing, refused) == text_of(missing, MISSING)
    together = errors(stage.call(build(refused, allowed), *permissions))
    assert together == {refused: GROUP_FAILED, allowed: ErrorCode.NONE}
    assert (
        stage.call(offset_fetch(name, group_id=refused)).topics[0].partitions[0].committed_offset
        == 7
    )


@pytest.mark.parametrize(
    ("build", "operation", "version", "code_at"),
    [
        (offset_commit, Operation.READ, None, "topic"),
        (offset_commit, Operation.READ, 0, "topic"),
        (offset_fetch, Operation.DESCRIBE, None, ""),
        (offset_fetch, Operation.DESCRIBE, 1, "topic"),
        (offset_delete, Operation.DELETE, None, ""),
    ],
)
def test_refused_group_gets_nothing_of_its_offsets(
    stage: Stage, build: Callable[..., Any], operation: Operation, version: int | None, code_at: str
) -> None:
    name = stage.new_topic()
    permission = (operation, group("g"))
    refused = errors(stage.call(build(name, group_id="g"), permission, version=version))
    if code_at == "topic":
        assert refused.pop("", ErrorCode.NONE) == ErrorCode.NONE
        assert list(refused) == [name]
    assert set(refused.values()) == {GROUP_FAILED}


def test_groups_are_listed_with_a_permission_of_the_cluster_or_their_own(stage: Stage) -> None:
    name = stage.new_topic()
    allowed, refused = stage.new_group(name), stage.new_group(name)
    of_cluster = (Operation.DESCRIBE, CLUSTER)
    of_group = (Operation.DESCRIBE, group(refused))

    def listed(*permissions: tuple[Operation, Resource]) -> set[str]:
        response = stage.call(ListGroupsRequest(), *permissions)
        assert response.error_code == ErrorCode.NONE
        return {entry.group_id for entry in response.groups} & {allowed, refused}

    assert listed(of_group) == {allowed, refused}
    assert listed(of_cluster) == {allowed, refused}
    assert listed(of_cluster, of_group) == {allowed}


@pytest.mark.parametrize(
    ("key_type", "resource", "code"),
    [(0, group("g"), GROUP_FAILED), (1, transactional_id("g"), TRANSACTION_FAILED)],
)
def test_coordinator_is_named_to_those_who_may_describe(
    stage: Stage, key_type: int, resource: Resource, code: ErrorCode
) -> None:
    request = FindCoordinatorRequest(key="g", key_type=key_type)
    response = stage.call(request, (Operation.DESCRIBE, resource))
    assert (response.error_code, response.node_id) == (code, -1)


# ---- the cluster


def idempotent(*topics: str) -> Any:
    records = encode_batch(
        [(0, None, b"a", ())], producer_id=4000, producer_epoch=0, base_sequence=0
    )
    return produce(*topics, records=records)


def transactional(*topics: str, transaction: str | None = "t") -> Any:
    records = encode_batch(
        [(0, None, b"a", ())],
        producer_id=4000,
        producer_epoch=0,
        base_sequence=0,
        flags=TRANSACTIONAL,
    )
    return produce(*topics, records=records, transaction=transaction)


def follower_fetch(*topics: str) -> Any:
    return fetch(*topics, replica_id=2)


@pytest.mark.parametrize(
    ("build", "operation", "resource", "code"),
    [
        (idempotent, Operation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_FAILED),
        (transactional, Operation.WRITE, transactional_id("t"), TRANSACTION_FAILED),
        (follower_fetch, Operation.CLUSTER_ACTION, CLUSTER, TOPIC_FAILED),
    ],
)
def test_all_topics_are_refused_with_the_cluster_or_the_transaction(
    stage: Stage,
    build: Callable[..., Any],
    operation: Operation,
    resource: Resource,
    code: ErrorCode,
) -> None:
    topics = stage.new_topic(), stage.new_topic()
    refused = errors(stage.call(build(*topics), (operation, resource)))
    assert refused.pop("", ErrorCode.NONE) == ErrorCode.NONE
    assert refused == dict.fromkeys(topics, code)


def test_transactional_batch_without_its_id_is_refused(stage: Stage) -> None:
    name = stage.new_topic()
    response = stage.call(transactional(name, transaction=None))
    assert errors(response) == {name: TRANSACTION_FAILED}


def test_follower_needs_no_permission_of_a_topic(stage: Stage) -> None:
    name = stage.new_topic()
    response = stage.call(follower_fetch(name), (Operation.READ, topic(name)))
    assert errors(response)[name] != TOPIC_FAILED


def test_epochs_are_told_with_the_permission_of_the_cluster(stage: Stage) -> None:
    name = stage.new_topic()
    response = stage.call(offset_for_leader_epoch(name), (Operation.DESCRIBE, topic(name)))
    assert errors(response) == {name: ErrorCode.NONE}


@pytest.mark.parametrize(
    ("build", "operation"),
    [
        (describe_configs, Operation.DESCRIBE_CONFIGS),
        (alter_configs, Operation.ALTER_CONFIGS),
        (incremental_alter_configs, Operation.ALTER_CONFIGS),
    ],
)
def test_configs_of_brokers_need_the_cluster(
    stage: Stage, build: Callable[..., Any], operation: Operation
) -> None:
    request = build("1", "", kind=BROKER_CONFIGS)
    refused = stage.call(request, (operation, CLUSTER))
    assert errors(refused) == {"1": CLUSTER_FAILED, "": CLUSTER_FAILED}
    assert errors(stage.call(request)) == {"1": ErrorCode.NONE, "": ErrorCode.NONE}


CONTROL = {"controller_id": 1, "controller_epoch": -1}
WHOLE_REQUESTS = [
    (InitProducerIdRequest(), Operation.IDEMPOTENT_WRITE),
    (LeaderAndIsrRequest(**CONTROL, topic_states=[], live_leaders=[]), Operation.CLUSTER_ACTION),
    (StopReplicaRequest(**CONTROL, topics=[]), Operation.CLUSTER_ACTION),
    (
        UpdateMetadataRequest(**CONTROL, topic_states=[], live_brokers=[]),
        Operation.CLUSTER_ACTION,
    ),
    (ControlledShutdownRequest(broker_id=1), Operation.CLUSTER_ACTION),
    (
        AlterPartitionReassignmentsRequest(
            topics=[
                AlterPartitionReassignmentsRequestTopic(
                    name="t",
                    partitions=[AlterPartitionReassignmentsRequestPartition(partition_index=0)],
                )
            ]
        ),
        Operation.ALTER,
    ),
    (ListPartitionReassignmentsRequest(topics=None), Operation.DESCRIBE),
    (
        ElectLeadersRequest(
            topic_partitions=[ElectLeadersRequestTopicPartitions(topic="t", partitions=[0])]
        ),
        Operation.ALTER,
    ),
    (
        AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDirsRequestDir(
                    path="/d", topics=[AlterReplicaLogDirsRequestTopic(name="t", partitions=[0])]
                )
            ]
        ),
        Operation.ALTER,
    ),
]


@pytest.mark.parametrize(
    ("request_", "operation"), WHOLE_REQUESTS, ids=lambda value: type(value).__name__
)
def test_request_about_the_cluster_is_refused_as_a_whole(
    stage: Stage, request_: Any, operation: Operation
) -> None:
    refused = errors(stage.call(request_, (operation, CLUSTER)))
    assert refused
    assert set(refused.values()) == {CLUSTER_FAILED}


def test_log_dirs_without_permission_are_none(stage: Stage) -> None:
    request = DescribeLogDirsRequest(topics=None)
    assert stage.call(request).results
    assert not stage.call(request, (Operation.DESCRIBE, CLUSTER)).results
