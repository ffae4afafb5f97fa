"""Connectors at a coordinator that responds as the test says: what they ask, and when they end."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import attrs
import pytest

from clients.errors import BrokerError, DeadlineExceeded, NoBrokersAvailable
from clients.high_level.connector import ConsumerConnector
from clients.high_level.coordinator_side import CoordinatorSide
from groups.consumer.member_failed import MemberFailed
from groups.zookeeper.filters import Whitelist
from protocol.api_key import ApiKey
from protocol.consumer_protocol import Assignment, decode_assignment, encode_assignment
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribeGroupsResponse, DescribeGroupsResponseGroup
from protocol.messages.find_coordinator import FindCoordinatorResponse
from protocol.messages.heartbeat import HeartbeatResponse
from protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from protocol.messages.leave_group import LeaveGroupResponse
from protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from protocol.messages.sync_group import SyncGroupResponse
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.clients.scripted_broker import HANG_UP, PARKED, SILENCE, ScriptedBroker
from tests.stage.clock import run_in_own_time
from tests.stage.waiting import until

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


@attrs.define(eq=False)
class Two:
    """A cluster of two brokers; the first one is the coordinator until it falls silent."""

    first: ScriptedBroker
    second: ScriptedBroker
    connector: ConsumerConnector

    def fall_silent(self) -> None:
        """Stop the first broker: its connections stay, and the second one coordinates the group."""
        for api_key in self.first.answers:
            self.first.answers[api_key] = lambda request: SILENCE
        self.second.answers[ApiKey.FIND_COORDINATOR] = names(self.second)


def names(broker: ScriptedBroker) -> Callable[[Any], FindCoordinatorResponse]:
    """Return the answer that this broker is the coordinator."""
    return lambda request: FindCoordinatorResponse(
        error_code=0, node_id=broker.node_id, host="127.0.0.1", port=broker.port
    )


def follow(request: Any) -> Any:
    """Let the member join a group that another one leads."""
    if not request.member_id:
        return join(request)
    return JoinGroupResponse(
        generation_id=1,
        protocol_type="consumer",
        protocol_name=request.protocols[0].name,
        leader="another",
        member_id=request.member_id,
        members=[],
    )


def assign(*partitions: TopicPartition) -> Callable[[Any], SyncGroupResponse]:
    """Return the answer to SyncGroup that gives these partitions."""
    assignment = encode_assignment(Assignment(partitions))
    return lambda request: SyncGroupResponse(error_code=0, assignment=assignment)


def committed(partition: TopicPartition, offset: int) -> OffsetFetchResponse:
    """Return that this offset is committed."""
    result = OffsetFetchResponsePartition(
        partition_index=partition.partition, committed_offset=offset, metadata="", error_code=0
    )
    topic = OffsetFetchResponseTopic(name=partition.topic, partitions=[result])
    return OffsetFetchResponse(topics=[topic])


def commit_taken(
    partition: TopicPartition, error: ErrorCode = ErrorCode.NONE
) -> OffsetCommitResponse:
    """Return that an offset was committed, or why not."""
    result = OffsetCommitResponsePartition(partition_index=partition.partition, error_code=error)
    topic = OffsetCommitResponseTopic(name=partition.topic, partitions=[result])
    return OffsetCommitResponse(topics=[topic])


def play_two(scene: Callable[[Two], Awaitable[None]], **settings: Any) -> None:
    """Play with two brokers, of which bootstrap.servers names the first."""

    async def whole() -> None:
        async with ScriptedBroker({"t": 2}, 0) as first, ScriptedBroker({"t": 2}, 1) as second:
            first.peers, second.peers = {1: second.port}, {0: first.port}
            for broker in (first, second):
                broker.answers |= {
                    ApiKey.FIND_COORDINATOR: names(first),
                    ApiKey.DESCRIBE_GROUPS: describe,
                    ApiKey.JOIN_GROUP: follow,
                    ApiKey.SYNC_GROUP: assign(),
                    ApiKey.HEARTBEAT: lambda request: HeartbeatResponse(error_code=0),
                    ApiKey.LEAVE_GROUP: lambda request: LeaveGroupResponse(),
                }
            connector = ConsumerConnector(
                {
                    "bootstrap.servers": first.bootstrap,
                    "group.id": "g",
                    "membership": "coordinator",
                    "heartbeat.interval.ms": 50,
                    "session.timeout.ms": 900,
                    **{name.replace("_", "."): value for name, value in settings.items()},
                }
            )
            try:
                await scene(Two(first, second, connector))
            finally:
                await connector.shutdown()

    run_in_own_time(whole())


@pytest.mark.fault("groups-1")
def test_heartbeats_go_on_when_the_only_bootstrap_address_is_gone() -> None:
    async def scene(two: Two) -> None:
        await two.connector.create_message_streams({"t": 1})
        await two.first.received(ApiKey.HEARTBEAT)
        two.second.answers[ApiKey.FIND_COORDINATOR] = names(two.second)
        await two.first.__aexit__()
        await two.second.received(ApiKey.HEARTBEAT)

    play_two(scene)


@pytest.mark.fault("groups-1")
def test_heartbeats_know_from_the_first_one_on_what_the_member_knows() -> None:
    async def scene(two: Two) -> None:
        await two.connector.create_message_streams({"t": 1})
        assert not two.first.asked(ApiKey.HEARTBEAT)
        two.second.answers[ApiKey.FIND_COORDINATOR] = names(two.second)
        await two.first.__aexit__()
        await two.second.received(ApiKey.HEARTBEAT)

    play_two(scene, session_timeout_ms=9000, heartbeat_interval_ms=3000)


@pytest.mark.fault("groups-3")
def test_heartbeats_do_not_wait_for_their_limit_when_another_broker_coordinates_by_then() -> None:
    async def scene(two: Two) -> None:
        await two.connector.create_message_streams({"t": 1})
        await two.first.received(ApiKey.HEARTBEAT)
        two.fall_silent()
        # Until the cluster notices, the others name the silent one.
        two.second.answers[ApiKey.FIND_COORDINATOR] = names(two.first)
        await two.second.received(ApiKey.FIND_COORDINATOR, 2)
        two.second.answers[ApiKey.FIND_COORDINATOR] = names(two.second)
        await two.second.received(ApiKey.HEARTBEAT)

    play_two(scene, session_timeout_ms=1_000_000)


@pytest.mark.fault("groups-3")
def test_join_that_waits_for_a_silent_coordinator_goes_to_the_one_that_heartbeats_find() -> None:
    async def scene(two: Two) -> None:
        await two.connector.create_message_streams({"t": 1})
        rebalances = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        two.first.answers |= {
            ApiKey.JOIN_GROUP: lambda request: PARKED,
            ApiKey.HEARTBEAT: lambda request: rebalances,
        }
        await two.first.received(ApiKey.JOIN_GROUP, 3)
        two.fall_silent()
        (request,) = await two.second.received(ApiKey.JOIN_GROUP)
        assert request.member_id == ME

    play_two(scene)


@pytest.mark.fault("groups-3")
def test_first_join_of_a_member_does_not_wait_for_a_silent_coordinator() -> None:
    async def scene(two: Two) -> None:
        two.first.answers[ApiKey.JOIN_GROUP] = lambda request: PARKED
        joining = asyncio.ensure_future(two.connector.create_message_streams({"t": 1}))
        await two.first.received(ApiKey.JOIN_GROUP)
        await two.first.received(ApiKey.METADATA)
        two.fall_silent()
        await joining
        assert two.second.asked(ApiKey.JOIN_GROUP)

    play_two(scene)


@pytest.mark.fault("groups-3")
def test_commit_that_waits_for_a_silent_coordinator_goes_to_the_one_that_heartbeats_find() -> None:
    async def scene(two: Two) -> None:
        partition = TopicPartition("t", 0)
        for broker in (two.first, two.second):
            broker.answers |= {
                ApiKey.SYNC_GROUP: assign(partition),
                ApiKey.OFFSET_FETCH: lambda request: committed(partition, 5),
                ApiKey.FETCH: lambda request: SILENCE,
                ApiKey.OFFSET_COMMIT: lambda request: commit_taken(partition),
            }
        await two.connector.create_message_streams({"t": 1})
        two.first.answers[ApiKey.OFFSET_COMMIT] = lambda request: SILENCE
        offsets = {partition: OffsetAndMetadata(6)}
        committing = asyncio.ensure_future(two.connector.commit_offsets(offsets))
        await two.first.received(ApiKey.OFFSET_COMMIT)
        two.fall_silent()
        await committing
        assert two.second.asked(ApiKey.OFFSET_COMMIT)

    play_two(scene, auto_commit_enable=False, offsets_channel_socket_timeout_ms=600_000)


@pytest.mark.fault("groups-3")
@pytest.mark.parametrize("lost", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID])
def test_deposed_coordinator_does_not_end_a_membership(lost: ErrorCode) -> None:
    async def scene(two: Two) -> None:
        await two.connector.create_message_streams({"t": 1})
        await two.first.received(ApiKey.HEARTBEAT)
        # It goes on after a stop, and does not know yet that the group is another one's.
        two.second.answers[ApiKey.FIND_COORDINATOR] = names(two.second)
        two.first.answers[ApiKey.HEARTBEAT] = lambda request: HeartbeatResponse(error_code=lost)
        request, *_ = await two.second.received(ApiKey.HEARTBEAT)
        assert request.member_id == ME
        assert two.second.asked(ApiKey.JOIN_GROUP) == []

    play_two(scene)


@pytest.mark.fault("groups-3")
def test_member_that_a_deposed_coordinator_does_not_know_joins_the_next_one_with_its_id() -> None:
    async def scene(two: Two) -> None:
        await two.connector.create_message_streams({"t": 1})
        await two.first.received(ApiKey.HEARTBEAT)
        two.second.answers[ApiKey.FIND_COORDINATOR] = names(two.second)
        unknown = JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        rebalances = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        two.first.answers |= {
            ApiKey.JOIN_GROUP: lambda request: unknown,
            ApiKey.HEARTBEAT: lambda request: rebalances,
        }
        request, *_ = await two.second.received(ApiKey.JOIN_GROUP)
        assert request.member_id == ME

    play_two(scene)


def test_commit_that_a_deposed_coordinator_refuses_goes_to_the_next_one() -> None:
    async def scene(two: Two) -> None:
        partition = TopicPartition("t", 0)
        for broker in (two.first, two.second):
            broker.answers |= {
                ApiKey.SYNC_GROUP: assign(partition),
                ApiKey.OFFSET_FETCH: lambda request: committed(partition, 5),
                ApiKey.FETCH: lambda request: SILENCE,
                ApiKey.OFFSET_COMMIT: lambda request: commit_taken(partition),
            }
        await two.connector.create_message_streams({"t": 1})
        await two.first.received(ApiKey.HEARTBEAT)
        two.first.answers[ApiKey.OFFSET_COMMIT] = lambda request: commit_taken(
            partition, ErrorCode.UNKNOWN_MEMBER_ID
        )
        two.second.answers[ApiKey.FIND_COORDINATOR] = names(two.second)
        await two.connector.commit_offsets({partition: OffsetAndMetadata(6)})
        assert two.second.asked(ApiKey.OFFSET_COMMIT)
        assert two.connector.assignment() == {partition}

    play_two(scene, auto_commit_enable=False)


@pytest.mark.fault("groups-3")
def test_coordinator_that_moves_away_from_a_silent_broker_has_leaders_looked_up_again() -> None:
    async def scene(two: Two) -> None:
        partition = TopicPartition("t", 0)
        for broker in (two.first, two.second):
            broker.answers |= {
                ApiKey.SYNC_GROUP: assign(partition),
                ApiKey.OFFSET_FETCH: lambda request: committed(partition, 5),
                ApiKey.FETCH: lambda request: SILENCE,
            }
            broker.leaders[partition] = 0
        await two.connector.create_message_streams({"t": 1})
        await two.first.received(ApiKey.FETCH)

        two.fall_silent()
        two.second.leaders[partition] = 1
        two.second.leader_epoch = 1
        await two.second.received(ApiKey.FETCH)

    play_two(scene, auto_commit_enable=False)


def test_silent_leader_is_waited_for_until_another_broker_leads() -> None:
    async def scene(two: Two) -> None:
        partition = TopicPartition("t", 0)
        for broker in (two.first, two.second):
            broker.answers |= {
                ApiKey.FIND_COORDINATOR: names(two.second),
                ApiKey.SYNC_GROUP: assign(partition),
                ApiKey.OFFSET_FETCH: lambda request: committed(partition, 5),
                ApiKey.FETCH: lambda request: SILENCE,
            }
            broker.leaders[partition] = 0
        await two.connector.create_message_streams({"t": 1})
        await two.first.received(ApiKey.FETCH)

        # Nothing else is asked of it, so that nobody else finds it silent.
        two.second.leaders[partition] = 1
        two.second.leader_epoch = 1
        two.first.answers[ApiKey.METADATA] = lambda request: SILENCE
        await two.second.received(ApiKey.FETCH)

    play_two(scene, auto_commit_enable=False, socket_timeout_ms=600_000)


@pytest.mark.fault("groups-1")
def test_nobody_is_entitled_when_the_session_has_passed_without_a_heartbeat() -> None:
    async def scene(two: Two) -> None:
        await two.connector.create_message_streams({"t": 1})
        side = two.connector._side
        assert side.is_entitled()
        assert side.may_commit()
        for broker in (two.first, two.second):
            broker.answers[ApiKey.HEARTBEAT] = lambda request: SILENCE
        await until(lambda: not side.is_entitled(), "the end of the session")
        assert side.may_commit(), "the coordinator checks who commits"
        assert two.connector.assignment() is not None
        await until(lambda: two.connector.metrics.rebalance_error, "the reason")

        for broker in (two.first, two.second):
            broker.answers[ApiKey.HEARTBEAT] = lambda request: HeartbeatResponse(error_code=0)
        await until(side.is_entitled, "the next accepted heartbeat")
        await until(lambda: two.connector.metrics.rebalance_error is None, "the all-clear")
        assert len(two.first.asked(ApiKey.JOIN_GROUP)) == 2, "it has joined once, for an id"

    play_two(scene)


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


@pytest.mark.fault("groups-3")
def test_who_leaves_before_it_has_an_id_gives_back_the_one_that_comes_late() -> None:
    async def scene(broker: ScriptedBroker, connector: ConsumerConnector) -> None:
        broker.answers[ApiKey.JOIN_GROUP] = lambda request: SILENCE
        joining = asyncio.ensure_future(connector.create_message_streams({"t": 1}))
        await broker.received(ApiKey.JOIN_GROUP)
        leaving = asyncio.ensure_future(connector.shutdown())
        side = connector._side
        assert isinstance(side, CoordinatorSide)
        calls = side._calls
        assert calls is not None
        await until(lambda: calls._giving_back is not None, "it waits no longer")
        broker.answer_late(
            ApiKey.JOIN_GROUP,
            JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=ME),
        )
        await leaving
        with pytest.raises(MemberFailed, match="left before it had joined"):
            await joining
        (request,) = broker.asked(ApiKey.LEAVE_GROUP)
        assert [member.member_id for member in request.members] == [ME]

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


def test_a_filter_that_no_topic_passes_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(broker: ScriptedBroker, connector: ConsumerConnector) -> None:
        joining = asyncio.ensure_future(connector.create_message_streams_by_filter(Whitelist("x")))
        await broker.received(ApiKey.METADATA, 6)
        assert caplog.text.count("group g: no topic passes the filter 'x' yet") == 1
        await connector.shutdown()
        with pytest.raises(MemberFailed):
            await joining

    play(scene, metadata_max_age_ms=20)


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


def coordinate(broker: ScriptedBroker, join_group: Callable[[Any], Any]) -> None:
    """Coordinate a group whose member leads it, and is assigned nothing."""
    nothing = encode_assignment(Assignment(()))
    broker.answers |= {
        ApiKey.JOIN_GROUP: join_group,
        ApiKey.SYNC_GROUP: lambda request: SyncGroupResponse(error_code=0, assignment=nothing),
        ApiKey.HEARTBEAT: lambda request: HeartbeatResponse(error_code=0),
    }


def test_leader_that_restarts_watches_for_new_partitions() -> None:
    async def scene(broker: ScriptedBroker, connector: ConsumerConnector) -> None:
        coordinate(broker, lead_as_before)
        await connector.create_message_streams({"t": 1})
        broker.topics["t"] = 3
        _, again = await broker.received(ApiKey.JOIN_GROUP, 2)
        assert again.reason == "the partitions of t have changed"

    play(scene, group_instance_id="i", metadata_max_age_ms=50)


def lead(request: Any) -> Any:
    """Let the member lead a group of its own."""
    if not request.member_id:
        return join(request)
    return attrs.evolve(lead_as_before(request), skip_assignment=False)


@pytest.mark.fault("users-0")
@pytest.mark.parametrize("topics", [("new",), ("new", "t")])
def test_leader_notices_soon_that_a_topic_exists_which_did_not_when_it_joined(
    topics: tuple[str, ...],
) -> None:
    async def scene(broker: ScriptedBroker, connector: ConsumerConnector) -> None:
        coordinate(broker, lead)
        await connector.create_message_streams(dict.fromkeys(topics, 1))
        broker.topics["new"] = 3
        # Long before metadata.max.age.ms.
        _, _, again = await broker.received(ApiKey.JOIN_GROUP, 3)
        assert again.reason == "the partitions of new have changed"
        _, sync = await broker.received(ApiKey.SYNC_GROUP, 2)
        [mine] = sync.assignments
        assigned = decode_assignment(mine.assignment).partitions
        assert {TopicPartition("new", index) for index in range(3)} <= {*assigned}

    play(scene)


@pytest.mark.fault("strangers-178")
def test_member_of_a_topic_that_it_may_not_see_does_not_join_until_it_may() -> None:
    async def scene(broker: ScriptedBroker, connector: ConsumerConnector) -> None:
        coordinate(broker, lead)
        broker.topic_errors["secret"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(BrokerError) as caught:
            await connector.create_message_streams({"secret": 1, "t": 1})
        why = "TOPIC_AUTHORIZATION_FAILED: secret; ask for READ on the topic"
        assert (str(caught.value), connector.streams) == (why, {})
        assert not broker.asked(ApiKey.JOIN_GROUP)
        del broker.topic_errors["secret"]
        # Metadata that have just been read are not read again.
        while not connector.streams:
            with suppress(BrokerError):
                await connector.create_message_streams({"secret": 1, "t": 1})
            await asyncio.sleep(0.05)
        assert connector.streams.keys() == {"secret", "t"}

    play(scene)


@pytest.mark.parametrize("partitions", [2, 8])
def test_leader_notices_soon_that_a_topic_was_made_again_with_other_partitions(
    partitions: int,
) -> None:
    async def scene(broker: ScriptedBroker, connector: ConsumerConnector) -> None:
        coordinate(broker, lead)
        broker.topics["t"] = 4
        await connector.create_message_streams({"t": 1})
        broker.topics["t"] = partitions
        side = connector._side
        assert isinstance(side, CoordinatorSide)
        # As fetchers do that meet a partition which is gone, for as long as it is.
        while len(side._cluster.view.topics["t"]) != partitions:
            await side._cluster.refresh(["t"])
        _, _, again = await broker.received(ApiKey.JOIN_GROUP, 3)
        assert again.reason == "the partitions of t have changed"

    play(scene)


@pytest.mark.fault("strangers-152")
def test_a_member_whose_brokers_do_not_respond_hears_of_it_and_may_try_again() -> None:
    async def whole() -> None:
        settings = {"membership": "coordinator", "group.id": "g", "default.api.timeout.ms": 200}
        async with ConsumerConnector(settings | {"bootstrap.servers": "127.0.0.1:1"}) as connector:
            for _ in range(2):
                async with asyncio.timeout(30):
                    with pytest.raises(DeadlineExceeded, match="connection refused"):
                        await connector.create_message_streams({"t": 1})
                assert not connector.streams

    run_in_own_time(whole())
