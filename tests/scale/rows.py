"""What is done by the number: requests of the broker, and what clients make of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sized
from typing import Any

from clients.admin import Admin, NewPartitions
from clients.group_metadata import ConsumerGroupMetadata
from clients.high_level.connector import ConsumerConnector
from clients.producer.producer import Producer
from kgroup.testing.threads import as_in_thread
from kgroup.testing.waiting import until
from protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsRequestConfig,
    AlterConfigsRequestResource,
)
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
from protocol.messages.elect_leaders import ElectLeadersRequest
from protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)
from protocol.messages.metadata import MetadataRequest
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from protocol.messages.offset_fetch import OffsetFetchRequest
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.scale.stage import GROUP, TIMEOUT_MS, TOPIC, Row, Stage, produce_request

OFFSETS_OF_A_GROUP = 20
TOPIC_RESOURCE = 2
SESSION_S = 10.0
"""Virtual seconds in which the session of a dead broker ends."""
DELETION_S = 400.0
"""Virtual seconds in which retention is checked, and the files of deleted segments are removed."""


# ---- preparations


async def make_partitions(stage: Stage) -> None:
    """Make the partitions."""
    await stage.create_partitions()


async def make_records(stage: Stage) -> None:
    """Make the partitions, with a record in each."""
    await stage.create_partitions()
    await stage.produce(stage.partitions)


async def make_topics(stage: Stage) -> None:
    """Make the topics."""
    await stage.create_topics()


async def make_groups(stage: Stage) -> None:
    """Make groups with a few offsets each."""
    stage_of_one_topic = Stage(stage.cluster, OFFSETS_OF_A_GROUP, stage.connections)
    await stage_of_one_topic.create_partitions()
    for group_id in stage.groups:
        await stage.commit(group_id, stage_of_one_topic.partitions)


async def make_offsets(stage: Stage) -> None:
    """Make the partitions, and a group with an offset in each."""
    await stage.create_partitions()
    await stage.commit(GROUP, stage.partitions)


async def make_nothing(stage: Stage) -> None:
    """Make nothing."""


# ---- requests about partitions


async def metadata(stage: Stage) -> None:
    """Ask for all metadata."""
    await stage.ask(MetadataRequest(topics=None))


async def produce(stage: Stage) -> None:
    """Write to all partitions in one request."""
    await stage.produce(stage.partitions)


def fetch_request(stage: Stage, offset: int, max_wait_ms: int, min_bytes: int) -> FetchRequest:
    """Return a request for all partitions."""
    parts = [
        FetchRequestPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
        for number in range(stage.size)
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=50_000_000,
        topics=[FetchRequestTopic(topic=TOPIC, partitions=parts)],
    )


async def fetch(stage: Stage) -> None:
    """Read all partitions in one request."""
    await stage.ask(fetch_request(stage, 0, 0, 1))


async def wait_for_bytes(stage: Stage) -> None:
    """Wait with one request until each partition has had a record."""
    waiting = asyncio.create_task(
        stage.ask(fetch_request(stage, 0, TIMEOUT_MS, 70 * stage.size), purpose="wait")
    )
    for partition in stage.partitions:
        await stage.ask(produce_request([partition], acks=1), purpose="write")
    waiting.cancel()


async def list_offsets(stage: Stage) -> None:
    """Look the last offsets of all partitions up, and those of a time."""
    for timestamp in (-1, 1):
        parts = [
            ListOffsetsRequestPartition(partition_index=number, timestamp=timestamp)
            for number in range(stage.size)
        ]
        topics = [ListOffsetsRequestTopic(name=TOPIC, partitions=parts)]
        await stage.ask(ListOffsetsRequest(replica_id=-1, topics=topics))


async def delete_records(stage: Stage) -> None:
    """Delete the records of all partitions in one request."""
    parts = [
        DeleteRecordsRequestPartition(partition_index=number, offset=-1)
        for number in range(stage.size)
    ]
    response = await stage.ask(
        DeleteRecordsRequest(
            topics=[DeleteRecordsRequestTopic(name=TOPIC, partitions=parts)], timeout_ms=TIMEOUT_MS
        )
    )
    assert {p.error_code for topic in response.topics for p in topic.partitions} == {0}


async def write_markers(stage: Stage) -> None:
    """End a transaction in all partitions that no coordinator knows, as a tool does."""
    topics = [WritableTxnMarkerTopic(name=TOPIC, partition_indexes=list(range(stage.size)))]
    marker = WritableTxnMarker(
        producer_id=7,
        producer_epoch=0,
        transaction_result=False,
        topics=topics,
        coordinator_epoch=0,
    )
    response = await stage.ask(WriteTxnMarkersRequest(markers=[marker]))
    results = [p for topic in response.markers[0].topics for p in topic.partitions]
    assert {result.error_code for result in results} == {0}


async def elect_leaders(stage: Stage) -> None:
    """Elect the preferred leaders of all partitions."""
    await stage.ask(ElectLeadersRequest(topic_partitions=None), await stage.controller())


# ---- groups


async def commit(stage: Stage) -> None:
    """Commit an offset of each partition in one request."""
    await stage.commit(GROUP, stage.partitions)


async def fetch_offsets(stage: Stage) -> None:
    """Read all offsets of a group."""
    await stage.ask(OffsetFetchRequest(group_id=GROUP, topics=None))


async def delete_offsets(stage: Stage) -> None:
    """Delete all offsets of a group by name."""
    parts = [OffsetDeleteRequestPartition(partition_index=number) for number in range(stage.size)]
    topics = [OffsetDeleteRequestTopic(name=TOPIC, partitions=parts)]
    assert (await stage.ask(OffsetDeleteRequest(group_id=GROUP, topics=topics))).error_code == 0


async def list_groups(stage: Stage) -> None:
    """List all groups."""
    assert len((await stage.ask(ListGroupsRequest())).groups) == stage.size


async def describe_groups(stage: Stage) -> None:
    """Describe all groups in one request."""
    await stage.ask(DescribeGroupsRequest(groups=stage.groups))


async def delete_groups(stage: Stage) -> None:
    """Delete all groups in one request."""
    response = await stage.ask(DeleteGroupsRequest(groups_names=stage.groups))
    assert {result.error_code for result in response.results} == {0}


async def delete_group(stage: Stage) -> None:
    """Delete a group with many offsets."""
    response = await stage.ask(DeleteGroupsRequest(groups_names=[GROUP]))
    assert response.results[0].error_code == 0


# ---- topics


async def create_topics(stage: Stage) -> None:
    """Create all topics in one request."""
    await stage.create_topics()


async def describe_configs(stage: Stage) -> None:
    """Describe the settings of all topics in one request."""
    resources = [
        DescribeConfigsRequestResource(
            resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None
        )
        for name in stage.topics
    ]
    await stage.ask(DescribeConfigsRequest(resources=resources))


async def alter_configs(stage: Stage) -> None:
    """Change a setting of all topics in one request."""
    configs = [AlterConfigsRequestConfig(name="retention.ms", value="86400000")]
    resources = [
        AlterConfigsRequestResource(
            resource_type=TOPIC_RESOURCE, resource_name=name, configs=configs
        )
        for name in stage.topics
    ]
    response = await stage.ask(AlterConfigsRequest(resources=resources, validate_only=False))
    assert {result.error_code for result in response.responses} == {0}


async def delete_topics(stage: Stage) -> None:
    """Delete all topics in one request."""
    request = DeleteTopicsRequest(topic_names=stage.topics, timeout_ms=TIMEOUT_MS)
    response = await stage.ask(request, await stage.controller(), version=5)
    assert {result.error_code for result in response.responses} == {0}


# ---- connections and requests on their way


async def ask_on_the_way(stage: Stage) -> None:
    """Have many requests on their way on one connection."""
    request = MetadataRequest(topics=[])
    await asyncio.gather(*(stage.ask(request) for _ in range(stage.size)))


# ---- clients


async def consume(stage: Stage) -> None:
    """Read a record of each partition as the only member of a group, and commit."""
    settings = stage.bootstrap | {
        "group.id": "consumers",
        "membership": "coordinator",
        "auto.offset.reset": "earliest",
        "auto.commit.enable": "false",
    }
    connector = ConsumerConnector(settings)
    (stream,) = (await connector.create_message_streams({TOPIC: 1}))[TOPIC]
    read = 0
    async for _ in stream:
        read += 1
        if read == stage.size:
            break
    await connector.commit_offsets()
    await connector.shutdown()


async def send_to_topics(stage: Stage) -> None:
    """Send a record to each topic, one after the other, with one producer."""
    async with Producer(stage.bootstrap) as producer:
        for name in stage.topics:
            await producer.send_and_wait(name, b"value")


async def send_to_partitions(stage: Stage) -> None:
    """Send a record to each partition with one producer."""
    async with Producer(stage.bootstrap) as producer:
        for partition in stage.partitions:
            await producer.send(TOPIC, b"value", partition=partition.partition)
        await producer.flush()


async def consume_in_zookeeper(stage: Stage) -> None:
    """Read a record of each partition as the only member of a group in ZooKeeper, and commit."""
    session = await stage.cluster.open_session()
    settings = stage.bootstrap | {
        "group.id": "old-consumers",
        "zookeeper.connect": "zk:2181",
        "auto.offset.reset": "smallest",
        "auto.commit.enable": "false",
        "offsets.storage": "kafka",
    }
    connector = ConsumerConnector(settings, zk=session)
    (stream,) = (await connector.create_message_streams({TOPIC: 1}))[TOPIC]
    read = 0
    async for _ in stream:
        read += 1
        if read == stage.size:
            break
    await connector.commit_offsets()
    await connector.shutdown()


async def commit_transaction(stage: Stage) -> None:
    """Commit a transaction with a record and an offset in each partition."""
    settings = stage.bootstrap | {"transactional.id": "x", "transaction.timeout.ms": 600_000}
    async with Producer(settings) as producer:
        await producer.begin_transaction()
        for partition in stage.partitions:
            await producer.send(TOPIC, b"value", partition=partition.partition)
        offsets = dict.fromkeys(stage.partitions, OffsetAndMetadata(1))
        await producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata(GROUP))
        await producer.commit_transaction()


async def send_at_once(stage: Stage) -> None:
    """Have many records of one partition on their way."""
    async with Producer(stage.bootstrap | {"linger.ms": 5}) as producer:
        sent = [await producer.send("one", b"value", partition=0) for _ in range(stage.size)]
        await asyncio.gather(*sent)


# ---- members


async def join(stage: Stage, metadata: bytes = b"m", assignment: bytes = b"a") -> None:
    """Have many members join a group, and stay."""
    ids = await asyncio.gather(
        *(join_as(stage, number, "", metadata) for number in range(stage.size))
    )
    joined = await asyncio.gather(
        *(join_as(stage, number, member.member_id, metadata) for number, member in enumerate(ids))
    )
    assert {response.error_code for response in joined} == {0}

    leader = next(response for response in joined if response.leader == response.member_id)
    assignments = [
        SyncGroupRequestAssignment(member_id=response.member_id, assignment=assignment)
        for response in joined
    ]
    await asyncio.gather(
        *(
            stage.ask(
                SyncGroupRequest(
                    group_id=GROUP,
                    generation_id=response.generation_id,
                    member_id=response.member_id,
                    assignments=assignments if response is leader else (),
                ),
                purpose=f"member-{number}",
            )
            for number, response in enumerate(joined)
        )
    )
    await asyncio.gather(
        *(
            stage.ask(
                HeartbeatRequest(
                    group_id=GROUP,
                    generation_id=response.generation_id,
                    member_id=response.member_id,
                ),
                purpose=f"member-{number}",
            )
            for number, response in enumerate(joined)
        )
    )


async def join_as(stage: Stage, number: int, member_id: str, metadata: bytes) -> Any:
    """Join as one of many members, on a connection of its own."""
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )
    return await stage.ask(request, purpose=f"member-{number}")


# ---- brokers that come and go


async def restart(stage: Stage) -> None:
    """Kill the broker, and start it again."""
    await kill(stage, "b1")
    stage.cluster.nodes[0].start()
    await stage.until_led()


async def fail_over(stage: Stage) -> None:
    """Kill the controller; another one leads, and others lead what it led."""
    await kill(stage, await stage.controller())
    await asyncio.sleep(SESSION_S)
    await stage.until_led()


async def fail_and_return(stage: Stage) -> None:
    """Kill the leader of all partitions; others lead, and it is in sync when it is back."""
    await kill(stage, "b1")
    await asyncio.sleep(SESSION_S)
    await stage.until_led()
    stage.cluster.nodes[0].start()
    await stage.until_led()


async def kill(stage: Stage, host: str) -> None:
    """Kill a broker."""
    node = next(node for node in stage.cluster.nodes if node.host == host)
    stage.connections.clear()
    node.stop()


async def reassign(stage: Stage) -> None:
    """Give all partitions their replicas in another order."""
    async with Admin(stage.bootstrap) as admin:
        await admin.alter_partition_reassignments(dict.fromkeys(stage.partitions, (2, 3, 1)))
        await until(
            lambda: _is_empty(admin.list_partition_reassignments()), "all is moved", pause_s=0.1
        )


async def _is_empty(listed: Awaitable[Sized]) -> bool:
    return not len(await listed)


# ---- segments


async def make_segments(stage: Stage) -> None:
    """Fill a log with segments of a record each."""
    await stage.create_topic("one", {"segment.bytes": "1024"})
    for _ in range(stage.size):
        await stage.produce([TopicPartition("one", 0)], value=b"v" * 900)


async def read_segments(stage: Stage) -> None:
    """Read a record of each segment by its offset."""
    for offset in range(stage.size):
        part = FetchRequestPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
        topics = [FetchRequestTopic(topic="one", partitions=[part])]
        await stage.ask(FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics))


async def delete_segments(stage: Stage) -> None:
    """Delete the records of all segments but the last."""
    part = DeleteRecordsRequestPartition(partition_index=0, offset=stage.size - 1)
    topics = [DeleteRecordsRequestTopic(name="one", partitions=[part])]
    response = await stage.ask(DeleteRecordsRequest(topics=topics, timeout_ms=TIMEOUT_MS))
    assert response.topics[0].partitions[0].error_code == 0, response
    await asyncio.sleep(DELETION_S)

    log = stage.cluster.nodes[0].log(TopicPartition("one", 0))
    assert log is not None
    assert len([name for name in as_in_thread(log.files) if name.endswith(".log")]) == 1


async def make_one(stage: Stage) -> None:
    """Make a topic of one partition."""
    await stage.create_topic("one")


# ---- what tools ask


async def grow_topics(stage: Stage) -> None:
    """Give each topic one more partition, in one request."""
    async with Admin(stage.bootstrap) as admin:
        grown = await admin.create_partitions(dict.fromkeys(stage.topics, NewPartitions(2)))
    assert set(grown.values()) == {None}


async def read_groups(stage: Stage) -> None:
    """Read descriptions and offsets of all groups."""
    async with Admin(stage.bootstrap) as admin:
        listed = [group.group_id for group in await admin.list_groups()]
        await admin.describe_groups(listed)
        await admin.offsets_of_each_group(listed)


ROWS = (
    Row("Metadata of all partitions", metadata, make_partitions),
    Row("Produce to all partitions", produce, make_partitions),
    Row("Produce to all partitions, three replicas", produce, make_partitions, brokers=3),
    Row("Fetch of all partitions", fetch, make_records),
    Row("Fetch that waits for all partitions", wait_for_bytes, make_partitions),
    Row("ListOffsets of all partitions", list_offsets, make_records),
    Row("DeleteRecords of all partitions, three replicas", delete_records, make_records, brokers=3),
    Row(
        "WriteTxnMarkers for all partitions, three replicas",
        write_markers,
        make_partitions,
        brokers=3,
    ),
    Row("ElectLeaders of all partitions", elect_leaders, make_partitions, brokers=3),
    Row("OffsetCommit of all partitions", commit, make_offsets),
    Row("OffsetFetch of all partitions", fetch_offsets, make_offsets),
    Row("OffsetDelete of all partitions", delete_offsets, make_offsets),
    Row("DeleteGroups of a group with many offsets", delete_group, make_offsets),
    Row("ListGroups", list_groups, make_groups),
    Row("DescribeGroups of all groups", describe_groups, make_groups),
    Row("DeleteGroups of all groups", delete_groups, make_groups),
    Row("CreateTopics of all topics", create_topics, make_nothing),
    Row("DescribeConfigs of all topics", describe_configs, make_topics),
    Row("AlterConfigs of all topics", alter_configs, make_topics),
    Row("DeleteTopics of all topics", delete_topics, make_topics),
    Row("CreatePartitions of all topics", grow_topics, make_topics),
    Row("a member of ZooKeeper reads all partitions", consume_in_zookeeper, make_records),
    Row("a transaction over all partitions", commit_transaction, make_partitions),
    Row("records of one partition on their way", send_at_once, make_one),
    Row("members join a group", join, make_offsets),
    Row("a broker restarts", restart, make_records),
    # A follower may ask for all partitions once or twice, which 50 of them hide.
    Row("a controller fails", fail_over, make_partitions, brokers=3, small=(100, 500)),
    Row("a leader fails and comes back, three replicas", fail_and_return, make_records, brokers=3),
    Row("all partitions are reassigned", reassign, make_partitions, brokers=3),
    Row("segments are read", read_segments, make_segments),
    Row("segments are deleted", delete_segments, make_segments),
    Row("groups are read by a tool", read_groups, make_groups),
    Row("Requests on their way", ask_on_the_way, make_nothing),
    Row("ConsumerConnector reads all partitions", consume, make_records),
    Row("Producer sends to new topics", send_to_topics, make_topics),
    Row("Producer sends to all partitions", send_to_partitions, make_partitions),
)
