"""JoinGroup: through its handler, and at a whole broker whose client hangs up."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from broker.handlers import heartbeat, join_group, leave_group, sync_group
from broker.network.authorization import Resource, group
from broker.network.request_context import RequestContext
from broker.network.session import ANONYMOUS
from broker.server import Broker
from clients.admin import Admin, NewTopic
from clients.errors import ConnectionFailed
from clients.transport.connection import Connection
from groups.coordinator.coordinator import GroupCoordinator
from groups.runtime.memory_partition_log import MemoryPartitionLog
from protocol.acls import Operation
from protocol.errors import ApiError, ErrorCode
from protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.authorizer import REFUSING, AskingAuthorizer
from tests.stage.broker import Site, connected
from tests.stage.coordinator import (
    coordinator_of_nothing,
    coordinator_over,
    coordinator_still_loading,
)
from tests.stage.waiting import until

CONTEXT = RequestContext(2, "client", "PLAINTEXT", "127.0.0.1:1", 0)
GROUP = "orders"
LONGEST_GROUP_ID = "g" * 32_767
LONGEST_CLIENT_IDS = ["c" * 32_767, "\U0001f600" * 8_191]
SETTINGS = {
    "offsets_topic_num_partitions": "1",
    "offsets_topic_replication_factor": "1",
    "group_initial_rebalance_delay_ms": "500",
    "group_min_session_timeout_ms": "100",
}
PROTOCOLS = [JoinGroupRequestProtocol(name="range", metadata=b"\xff")]


def join_request(group_id: str = GROUP, session_ms: int = 10_000) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=PROTOCOLS,
    )


def beat_request(group_id: str, joined: JoinGroupResponse) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=group_id, generation_id=joined.generation_id, member_id=joined.member_id
    )


# ---- coordinators that do not serve


def test_members_are_told_to_wait_while_their_group_is_loaded() -> None:
    """GroupCoordinatorTest.testRequestHandlingWhileLoadingInProgress."""
    assert answers_of(coordinator_still_loading()) == (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.NONE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    )


def test_members_look_elsewhere_where_their_group_is_not() -> None:
    assert answers_of(coordinator_of_nothing()) == (ErrorCode.NOT_COORDINATOR,) * 4


def answers_of(coordinator: GroupCoordinator) -> tuple[ErrorCode, ...]:
    """Return the errors of JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""
    sync = SyncGroupRequest(group_id=GROUP, generation_id=1, member_id="m", assignments=[])
    beat = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m")
    leave = LeaveGroupRequest(group_id=GROUP, member_id="m")
    responses = [
        lambda: join_group.handle(coordinator, join_request(), CONTEXT),
        lambda: sync_group.handle(coordinator, sync, CONTEXT),
        lambda: heartbeat.handle(coordinator, beat, CONTEXT),
        lambda: leave_group.handle(coordinator, leave, CONTEXT),
    ]
    errors = []
    for respond in responses:
        try:
            errors.append(ErrorCode.of(respond().error_code))  # type: ignore[attr-defined]
        except ApiError as error:
            errors.append(error.code)
    return tuple(errors)


# ---- a whole broker


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def make_offsets_topic(broker: Broker) -> None:
    """Have the broker coordinate groups."""
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topics([NewTopic("t", 1, 1)])
        await admin.commit_group_offsets("other", {TopicPartition("t", 0): OffsetAndMetadata(1)})


async def describe(connection: Connection, group_id: str = GROUP) -> tuple[str, int]:
    """Return the state of the group, and the number of its members."""
    response: DescribeGroupsResponse = await connection.call(
        DescribeGroupsRequest(groups=[group_id])
    )
    (described,) = response.groups
    return described.group_state, len(described.members)


async def test_response_to_a_client_that_has_hung_up_is_dropped(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    async with site.running(**SETTINGS) as broker, connected(broker) as watching:
        await make_offsets_topic(broker)
        async with connected(broker) as leaving:
            response = leaving.send(join_request(session_ms=300), version=3)
            await until(lambda: joins(watching), "the group has its member")
            assert not response.done()
        # Nobody waits for the response any longer.
        assert isinstance(response.exception(), ConnectionFailed)

        # The rebalance ends without anyone to tell, and the session with it.
        await until(lambda: is_empty(watching), "the member is gone")
        joined: JoinGroupResponse = await watching.call(join_request(), version=3)

    assert joined.error_code == ErrorCode.NONE
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.fault("strangers-15")
async def test_a_member_whose_right_is_taken_while_it_waits_learns_nothing(tmp_path: Path) -> None:
    refused: set[tuple[Operation, Resource]] = set()
    authorizer = AskingAuthorizer(lambda _, operation, of: (operation, of) not in refused)
    site = Site(tmp_path, authorizer=authorizer)
    async with site.running(**SETTINGS) as broker, connected(broker) as watching:
        await make_offsets_topic(broker)
        async with connected(broker) as first, connected(broker) as second:
            # The leader gets the metadata of all.
            joining = [each.send(join_request(), version=3) for each in (first, second)]
            await until(lambda: has_both(watching), "both wait")
            refused.add((Operation.READ, group(GROUP)))
            joined: list[JoinGroupResponse] = [await each for each in joining]
    assert {each.error_code for each in joined} == {ErrorCode.GROUP_AUTHORIZATION_FAILED}
    assert [member for each in joined for member in each.members] == []


@pytest.mark.fault("strangers-15")
def test_a_member_whose_right_is_gone_gets_no_assignment() -> None:
    coordinator = coordinator_over(MemoryPartitionLog())
    sync = SyncGroupRequest(group_id=GROUP, generation_id=1, member_id="m", assignments=[])
    synced = sync_group.handle(coordinator, sync, CONTEXT)
    assert isinstance(synced, SyncGroupResponse)
    assert synced.error_code == ErrorCode.UNKNOWN_MEMBER_ID

    # The right was there when the request came, and is not when its response is made.
    refused = CONTEXT._replace(sender=REFUSING.sender(ANONYMOUS, "127.0.0.1"))
    synced = sync_group.handle(coordinator, sync, refused)
    assert isinstance(synced, SyncGroupResponse)
    assert synced.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


async def joins(connection: Connection) -> bool:
    return (await describe(connection))[1] == 1


async def has_both(connection: Connection) -> bool:
    return (await describe(connection))[1] == 2


async def is_empty(connection: Connection) -> bool:
    return await describe(connection) == ("Empty", 0)


@pytest.mark.parametrize("client_id", LONGEST_CLIENT_IDS)
async def test_member_with_the_longest_client_id_there_is_gets_its_assignment(
    site: Site, client_id: str
) -> None:
    async with site.running(**SETTINGS) as broker, connected(broker) as connection:
        await make_offsets_topic(broker)
        connection.client_id = client_id
        joined: JoinGroupResponse = await connection.call(join_request(), version=3)
        assert joined.member_id.startswith(client_id[:255] + "-")
        sync = SyncGroupRequest(
            group_id=GROUP,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")],
        )
        synced: SyncGroupResponse = await connection.call(sync, version=3)
        assert bytes(synced.assignment) == b"all"


async def test_group_with_the_longest_id_there_is_outlives_its_broker(site: Site) -> None:
    async with site.running(**SETTINGS) as broker, connected(broker) as connection:
        await make_offsets_topic(broker)
        joined: JoinGroupResponse = await connection.call(join_request(LONGEST_GROUP_ID), version=3)
        mine = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")
        synced: SyncGroupResponse = await connection.call(
            SyncGroupRequest(
                group_id=LONGEST_GROUP_ID,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                assignments=[mine],
            ),
            version=3,
        )
        assert bytes(synced.assignment) == b"all"

    async with site.running(**SETTINGS) as broker, connected(broker) as connection:

        async def is_stable() -> bool:
            return await describe(connection, LONGEST_GROUP_ID) == ("Stable", 1)

        await until(is_stable, "the group is loaded")
        beat: HeartbeatResponse = await connection.call(beat_request(LONGEST_GROUP_ID, joined))
        assert beat.error_code == ErrorCode.NONE
