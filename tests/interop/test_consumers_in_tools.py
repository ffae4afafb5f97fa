"""`kgroup` beside Kafka's own tool for groups with members: the same tables, of either broker.

`make test` asks a broker of ours, `make interop` also a stock one.
"""

import asyncio
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import pytest

from broker.kbroker.local_cluster import HOST
from clients.admin import Admin, NewTopic
from clients.transport.connection import Connection
from groups.coordinator.membership.state import GroupState
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupRequestMember
from protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.interop.driven_group import DrivenGroup, Writer
from tests.interop.kafka_cluster import unique
from tests.interop.stock_consumers import LIBRDKAFKA, RANGE
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT, command_line
from tests.stage.stock_kafka import run_tool, stock_broker
from tests.stage.waiting import DEADLINE_S, until

LONG_MS = 300_000
"""Sessions of members that do nothing after they have joined."""

PATIENTLY = ("--timeout", "60000")
"""Kafka's tool waits for 5 s, which may be too little on a busy machine."""

CONNECT = "connect"
CONNECT_ASSIGNMENT = b"\x00\x02source-1\xff"

EMPTY, LEFT, PREPARING = "only-commits", "all-have-left", "prepares-a-rebalance"
COMPLETING, CONNECTORS = "completes-a-rebalance", "connectors"

KAFKA_COLUMNS = ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID"]
KAFKA_COLUMNS += ["#PARTITIONS", "ASSIGNMENT"]


@pytest.fixture(scope="module", params=["ours", pytest.param("stock", marks=pytest.mark.product)])
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, zookeeper: str
) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("tools")
    if request.param == "stock":
        with stock_broker(f"{zookeeper}/{unique('tools')}", directory) as address:
            yield address
    else:
        settings = ("--set", "group.initial.rebalance.delay.ms=0")
        with DevCluster(directory / "dev", settings) as cluster:
            yield cluster.address("bootstrap")


@attrs.frozen
class SilentMember:
    """A member that sends what the test wants, and nothing else."""

    connection: Connection
    group_id: str
    protocol_type: str = "consumer"

    async def join(self, member_id: str = "") -> JoinGroupResponse:
        """Ask to become a member, with the id that the coordinator gives."""
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=LONG_MS,
            rebalance_timeout_ms=LONG_MS,
            member_id=member_id,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\x00\x00" + bytes(8))],
        )
        response: JoinGroupResponse = await self.connection.call(request, timeout_ms=LONG_MS)

        # The coordinator of a topic that was just created loads it first.
        async def is_loaded() -> bool:
            nonlocal response
            if response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                response = await self.connection.call(request, timeout_ms=LONG_MS)
            return response.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

        await until(is_loaded, "the coordinator has loaded the group")
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return await self.join(response.member_id)
        assert response.error_code == ErrorCode.NONE
        return response

    async def sync(self, joined: JoinGroupResponse, assignment: bytes) -> None:
        """Assign something to itself."""
        own = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type=self.protocol_type,
            protocol_name="range",
            assignments=[own],
        )
        response: SyncGroupResponse = await self.connection.call(request)
        assert response.error_code == ErrorCode.NONE

    async def leave(self, joined: JoinGroupResponse) -> None:
        """Leave the group."""
        own = LeaveGroupRequestMember(member_id=joined.member_id)
        await self.connection.call(LeaveGroupRequest(group_id=self.group_id, members=[own]))

    async def is_in(self, state: GroupState) -> bool:
        """Return whether the coordinator says so of the group."""
        request = DescribeGroupsRequest(groups=[self.group_id])
        response: DescribeGroupsResponse = await self.connection.call(request)
        return response.groups[0].group_state == state.value


async def open_connection(bootstrap: str) -> Connection:
    """Connect as the client of its own name."""
    port = int(bootstrap.rpartition(":")[2])
    connection = await Connection.open(HOST, port, client_id="a-test")

    # The topic of the offsets is created by the first who asks for a coordinator.
    async def has_coordinator() -> bool:
        request = FindCoordinatorRequest(key="any", coordinator_keys=["any"])
        response: FindCoordinatorResponse = await connection.call(request)
        codes = {response.error_code, *(each.error_code for each in response.coordinators)}
        return codes == {ErrorCode.NONE}

    await until(has_coordinator, "a coordinator")
    return connection


async def make_silent_groups(
    bootstrap: str, connections: Sequence[Connection]
) -> asyncio.Task[JoinGroupResponse]:
    """Make a group in each state. Returns the join that is never answered."""
    first, second = connections
    preparing, completing = SilentMember(first, PREPARING), SilentMember(first, COMPLETING)
    connector, left = SilentMember(first, CONNECTORS, CONNECT), SilentMember(first, LEFT)

    await connector.sync(await connector.join(), CONNECT_ASSIGNMENT)
    await left.leave(await left.join())
    await completing.join()
    await preparing.sync(await preparing.join(), b"")
    parked = asyncio.create_task(SilentMember(second, PREPARING).join())
    await until(lambda: preparing.is_in(GroupState.PREPARING_REBALANCE), "a rebalance")
    assert await completing.is_in(GroupState.COMPLETING_REBALANCE)

    async with Admin(bootstrap) as admin:
        offsets = {TopicPartition("rows", 0): OffsetAndMetadata(0)}
        await admin.commit_group_offsets(EMPTY, offsets)
    return parked


async def by_kafka(bootstrap: str, *words: str) -> str:
    """Run Kafka's tool."""
    args = ("--bootstrap-server", bootstrap, *words, *PATIENTLY)
    return await asyncio.to_thread(run_tool, "kafka.admin.ConsumerGroupCommand", *args)


async def by_ours(bootstrap: str, *words: str) -> str:
    """Run kgroup, in the spelling of Kafka's tool."""
    command = command_line("kgroup", "--bootstrap-server", bootstrap, *words)

    def run() -> str:
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout + ran.stderr

    return await asyncio.to_thread(run)


def lines_of(text: str) -> list[list[str]]:
    """Return the words of all lines, in any order: Kafka's brokers list groups and members in any.

    Columns are as wide as Kafka's, but for `--state`: there Kafka's do not grow with what they
    hold.
    """
    return sorted(line.split() for line in text.splitlines() if line.strip())


async def test_groups_with_members_are_shown_as_kafkas_tool_shows_them(
    bootstrap: str, tmp_path: Path
) -> None:
    group_id, topics = unique("a-group-with-quite-a-long-name"), {"rows": 5, "more-rows": 1}
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, count, 1) for topic, count in topics.items()])
    connections = [await open_connection(bootstrap) for _ in range(2)]
    parked = await make_silent_groups(bootstrap, connections)

    with DrivenGroup(bootstrap, group_id, topics, [RANGE], tmp_path) as group:
        group.start(LIBRDKAFKA)
        group.start(LIBRDKAFKA, instance_id="host-7")
        async with Writer(bootstrap, group.partitions) as writer:
            await group.settled()
        await group.consumes(writer.values)
        await group.commits_all()

        for words in (
            ["--list", "--state"],
            ["--list", "--state", "Stable,PreparingRebalance"],
            ["--describe", "--all-groups"],
            ["--describe", "--all-groups", "--members"],
            ["--describe", "--all-groups", "--members", "--verbose"],
            ["--describe", "--all-groups", "--state"],
            ["--describe", "--group", group_id, "--group", LEFT, "--members", "--verbose"],
        ):
            kafkas, ours = await by_kafka(bootstrap, *words), await by_ours(bootstrap, *words)
            assert lines_of(ours) == lines_of(kafkas), f"{words}\n{kafkas}\n{ours}"

        header, *_ = ours.splitlines()
        assert header.split() == KAFKA_COLUMNS
        assert f"Consumer group '{LEFT}' has no active members." in ours

        # Kafka's tool refuses groups of other types; ours shows what there is.
        words = ["--describe", "--group", CONNECTORS, "--members", "--verbose"]
        _, row = (await by_ours(bootstrap, *words)).splitlines()
        assert row.split()[3:] == ["a-test", "-", r"\x00\x02source-1\xff"]

    parked.cancel()
    for connection in connections:
        await connection.close()
