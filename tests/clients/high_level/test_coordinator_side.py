"""Connectors at a coordinator that responds as the test says: what they ask, and when they end."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from clients.errors import NoBrokersAvailable
from clients.high_level.connector import ConsumerConnector
from groups.consumer.member_failed import MemberFailed
from groups.zookeeper.filters import Whitelist
from protocol.api_key import ApiKey
from protocol.consumer_protocol import Assignment, encode_assignment
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribeGroupsResponse, DescribeGroupsResponseGroup
from protocol.messages.find_coordinator import FindCoordinatorResponse
from protocol.messages.heartbeat import HeartbeatResponse
from protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from protocol.messages.leave_group import LeaveGroupResponse
from protocol.messages.sync_group import SyncGroupResponse
from tests.clients.scripted_broker import HANG_UP, PARKED, SILENCE, ScriptedBroker
from tests.stage.clock import run_in_own_time

ME = "me-1"


def describe(request: Any) -> DescribeGroupsResponse:
    """Return that the group has no members of the other kind."""
    groups = [
        DescribeGroupsResponseGroup(
            error_code=0,
            group_id=name,
            group_state="Empty",
            protocol_type="",
            protocol_data="",
            members=(),
        )
        for name in request.groups
    ]
    return DescribeGroupsResponse(groups=groups)


def join(request: Any) -> Any:
    """Hand out a member id, and then wait for the other members."""
    if request.member_id:
        return PARKED
    return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=ME)


def play(
    scene: Callable[[ScriptedBroker, ConsumerConnector], Awaitable[None]], **settings: Any
) -> None:
    async def whole() -> None:
        async with ScriptedBroker({"t": 2}) as broker:
            broker.answers |= {
                ApiKey.DESCRIBE_GROUPS: describe,
                ApiKey.JOIN_GROUP: join,
                ApiKey.LEAVE_GROUP: lambda request: LeaveGroupResponse(),
            }
            connector = ConsumerConnector(
                {
                    "bootstrap.servers": broker.bootstrap,
                    "group.id": "g",
                    "membership": "coordinator",
                    **{name.replace("_", "."): value for name, value in settings.items()},
                }
            )
            try:
                await scene(broker, connector)
            finally:
                await connector.shutdown()

    run_in_own_time(whole())


def test_who_leaves_while_its_join_is_parked_says_so_at_once() -> None:
    async def scene(broker: ScriptedBroker, connector: ConsumerConnector) -> None:
        joining = asyncio.ensure_future(connector.create_message_streams({"t": 1}))
        await broker.received(ApiKey.JOIN_GROUP, 2)
        await connector.shutdown()
        (request,) = broker.asked(ApiKey.LEAVE_GROUP)
        assert [member.member_id for member in request.members] == [ME]
        with pytest.raises(MemberFailed, match="left before it had joined"):
            await joining

    play(scene)


def test_nothing_joins_after_a_shutdown_that_found_no_member_yet() -> None:
    async def scene(broker: ScriptedBroker, connector: ConsumerConnector) -> None:
        broker.answers[ApiKey.DESCRIBE_GROUPS] = lambda request: SILENCE
        joining = asyncio.ensure_future(connector.create_message_streams({"t": 1}))
        await broker.received(ApiKey.DESCRIBE_GROUPS)
        await connector.shutdown()
        with pytest.raises(MemberFailed, match="left before it had joined"):
            await joining
        assert broker.asked(ApiKey.JOIN_GROUP) == []

    play(scene)


def test_streams_can_be_created_again_when_no_broker_responded() -> None:
    async def scene(broker: ScriptedBroker, connector: ConsumerConnector) -> None:
        answer = broker.answers[ApiKey.METADATA]
        broker.answers[ApiKey.METADATA] = lambda request: HANG_UP
        with pytest.raises(NoBrokersAvailable):
            await connector.create_message_streams_by_filter(Whitelist("t"))
        assert connector.streams == {}

        broker.answers[ApiKey.METADATA] = answer
        joining = asyncio.ensure_future(connector.create_message_streams_by_filter(Whitelist("t")))
        await broker.received(ApiKey.JOIN_GROUP, 2)
        assert len(connector.streams["*"]) == 1
        await connector.shutdown()
        with pytest.raises(MemberFailed):
            await joining

    play(scene)


def test_streams_can_be_created_again_after_a_cancellation_without_a_member() -> None:
    async def scene(broker: ScriptedBroker, connector: ConsumerConnector) -> None:
        broker.answers[ApiKey.DESCRIBE_GROUPS] = lambda request: SILENCE
        first = asyncio.ensure_future(connector.create_message_streams({"t": 1}))
        await broker.received(ApiKey.DESCRIBE_GROUPS)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first

        broker.answers[ApiKey.DESCRIBE_GROUPS] = describe
        joining = asyncio.ensure_future(connector.create_message_streams({"t": 1}))
        await broker.received(ApiKey.JOIN_GROUP, 2)
        await connector.shutdown()
        with pytest.raises(MemberFailed):
            await joining

    play(scene)


def test_who_may_not_find_the_coordinator_is_told_so() -> None:
    async def scene(broker: ScriptedBroker, connector: ConsumerConnector) -> None:
        broker.answers[ApiKey.FIND_COORDINATOR] = lambda request: FindCoordinatorResponse(
            error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, node_id=-1, host="", port=-1
        )
        with pytest.raises(MemberFailed) as failure:
            await connector.create_message_streams({"t": 1})
        assert failure.value.error is ErrorCode.GROUP_AUTHORIZATION_FAILED

    play(scene)


def lead_as_before(request: Any) -> JoinGroupResponse:
    """Let a static member lead again, with the assignment that the coordinator has kept."""
    me = JoinGroupResponseMember(
        member_id=ME, group_instance_id="i", metadata=request.protocols[0].metadata
    )
    return JoinGroupResponse(
        generation_id=1,
        protocol_type="consumer",
        protocol_name=request.protocols[0].name,
        leader=ME,
        skip_assignment=True,
        member_id=ME,
        members=[me],
    )


def test_leader_that_restarts_watches_for_new_partitions() -> None:
    async def scene(broker: ScriptedBroker, connector: ConsumerConnector) -> None:
        nothing = encode_assignment(Assignment(()))
        broker.answers |= {
            ApiKey.JOIN_GROUP: lead_as_before,
            ApiKey.SYNC_GROUP: lambda request: SyncGroupResponse(error_code=0, assignment=nothing),
            ApiKey.HEARTBEAT: lambda request: HeartbeatResponse(error_code=0),
        }
        await connector.create_message_streams({"t": 1})
        broker.topics["t"] = 3
        _, again = await broker.received(ApiKey.JOIN_GROUP, 2)
        assert again.reason == "the partitions of t have changed"

    play(scene, group_instance_id="i", metadata_max_age_ms=50)
