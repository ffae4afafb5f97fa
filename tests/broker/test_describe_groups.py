"""DescribeGroups through its handler."""

import asyncio
from typing import Any

from broker.handlers import describe_groups
from broker.network.purgatory import Purgatory, Wait
from broker.network.request_context import RequestContext
from groups.coordinator.coordinator import GroupCoordinator
from groups.runtime.memory_partition_log import MemoryPartitionLog
from offsets.records import (
    CommittedOffset,
    GroupKey,
    GroupMember,
    GroupMetadata,
    encode_key,
    encode_value,
)
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponseMember
from protocol.records.batch import encode_batch
from tests.broker.zookeeper_twin import NO_MEMBERS, zookeeper_members
from tests.stage.clock import run_in_virtual_time
from tests.stage.coordinator import (
    NOW_MS,
    commit,
    coordinator_of_nothing,
    coordinator_over,
    coordinator_still_loading,
)
from zk.memory import MemoryZooKeeper
from zk.znodes import ConsumerRegistration

CONTEXT = RequestContext(4, "client", "PLAINTEXT", "127.0.0.1:1", 0)


def states(coordinator: GroupCoordinator, *groups: str) -> list[tuple[str, str, ErrorCode]]:
    request = DescribeGroupsRequest(groups=groups)
    response: Any = describe_groups.handle(coordinator, NO_MEMBERS, request, CONTEXT)
    return [(g.group_id, g.group_state, ErrorCode.of(g.error_code)) for g in response.groups]


def test_group_that_only_commits_is_empty_and_an_unknown_one_dead() -> None:
    coordinator = coordinator_over(MemoryPartitionLog())
    commit(coordinator, "g", {("t", 0): CommittedOffset(42)})
    assert states(coordinator, "g", "nobody") == [
        ("g", "Empty", ErrorCode.NONE),
        ("nobody", "Dead", ErrorCode.NONE),
    ]


def test_group_without_its_coordinator_has_an_error_and_no_state() -> None:
    assert states(coordinator_of_nothing(), "g") == [("g", "", ErrorCode.NOT_COORDINATOR)]
    assert states(coordinator_still_loading(), "g") == [
        ("g", "", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    ]


def test_loaded_group_with_members_is_shown_with_them() -> None:
    member = GroupMember(
        member_id="m",
        group_instance_id="i",
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=60_000,
        session_timeout_ms=10_000,
        subscription=b"s",
        assignment=b"a",
    )
    metadata = GroupMetadata(
        protocol_type="consumer",
        generation_id=1,
        protocol="range",
        leader="m",
        members=(member,),
    )
    log = MemoryPartitionLog()
    row = (NOW_MS, encode_key(GroupKey("g")), encode_value(metadata), ())
    log.append(0, encode_batch([row]), NOW_MS)
    request = DescribeGroupsRequest(groups=["g"])
    response: Any = describe_groups.handle(coordinator_over(log), NO_MEMBERS, request, CONTEXT)
    (group,) = response.groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    assert list(group.members) == [
        DescribeGroupsResponseMember(
            member_id="m",
            group_instance_id="i",
            client_id="c",
            client_host="/h",
            member_metadata=b"s",
            member_assignment=b"a",
        )
    ]


def test_members_in_zookeeper_are_named_to_who_asks_for_them() -> None:
    coordinator = coordinator_over(MemoryPartitionLog())
    groups = ["g", "nobody", "no/node"]

    # Kafka's clients do not ask, and wait for no ZooKeeper.
    plain: Any = describe_groups.handle(
        coordinator, NO_MEMBERS, DescribeGroupsRequest(groups=groups), CONTEXT
    )
    assert [list(group.zookeeper_members) for group in plain.groups] == [[], [], []]

    async def scene() -> None:
        purgatory, session = Purgatory(), MemoryZooKeeper().session()
        await session.start()
        for name in ("g_b", "g_a"):
            path = ConsumerRegistration.path("g", name)
            await session.create(path, b"{}", make_parents=True)

        request = DescribeGroupsRequest(groups=groups, include_zookeeper_members=True)
        members = zookeeper_members(session, purgatory)
        wait = describe_groups.handle(coordinator, members, request, CONTEXT)
        assert isinstance(wait, Wait)
        responded: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        purgatory.park(wait, responded.set_result)
        response = await responded
        named = {group.group_id: list(group.zookeeper_members) for group in response.groups}
        assert named == {"g": ["g_a", "g_b"], "nobody": [], "no/node": []}
        await session.close()

    run_in_virtual_time(scene())
