"""A coordinator stands still while its partition is moved to other brokers, and comes back."""

from __future__ import annotations

import asyncio

import pytest

from clients.admin import Admin
from clients.transport.connection import Connection
from kgroup.testing.simulation.cluster import OFFSETS_PARTITIONS, Cluster
from kgroup.testing.simulation.faults import Faults
from kgroup.testing.simulation.scene import simulate
from kgroup.testing.waiting import until
from offsets.topic import partition_for
from protocol.errors import ErrorCode
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

GROUP = "g"
OWN = TopicPartition(OFFSETS_TOPIC, partition_for(GROUP, OFFSETS_PARTITIONS))
SETTINGS = {"auto.leader.rebalance.enable": "false"}
JOIN = JoinGroupRequest(
    group_id=GROUP,
    session_timeout_ms=300_000,
    rebalance_timeout_ms=600_000,
    member_id="",
    protocol_type="consumer",
    protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
)
SILENCE_S = 60.0


@pytest.mark.fault("groups-9")
def test_join_that_waits_at_a_coordinator_that_was_moved_away_unheard_is_answered() -> None:
    async def scene(cluster: Cluster, faults: Faults) -> ErrorCode:
        async def operate() -> ErrorCode:
            async def is_there() -> bool:
                async with Admin(cluster.bootstrap) as admin:
                    offsets = {TopicPartition("t", 0): OffsetAndMetadata(1)}
                    await admin.commit_group_offsets(GROUP, offsets)
                return True

            await until(is_there, "there is a coordinator", 60, retry_on=(Exception,), pause_s=0.5)
            state = cluster.partition_states()[OWN]
            (node,) = (node for node in cluster.nodes if node.broker_id == state.leader)
            host, _, port = node.address.rpartition(":")
            connection = await Connection.open(host, int(port), request_timeout_ms=900_000)

            # The first makes a generation, the second waits for the first to join again.
            first = await connection.call(JOIN, version=3)
            assert first.error_code == ErrorCode.NONE
            waiting = connection.send(JOIN, version=3)
            await asyncio.sleep(5)
            assert not waiting.done()

            # Its session ends, and the partition goes to the two others.
            node.process.pause()
            others = [other.broker_id for other in cluster.nodes if other is not node]
            bootstrap = ",".join(other.address for other in cluster.nodes if other is not node)

            async def is_moved() -> bool:
                async with Admin(bootstrap) as admin:
                    await admin.alter_partition_reassignments({OWN: others})
                    moving = await admin.list_partition_reassignments()
                return not moving and cluster.partition_states()[OWN].leader in others

            await until(is_moved, "it is moved", SILENCE_S, retry_on=(Exception,), pause_s=1)
            await asyncio.sleep(SILENCE_S)
            node.process.resume()

            response = await asyncio.wait_for(waiting, SILENCE_S)
            return ErrorCode.of(response.error_code)

        return await cluster.client("op").run(operate)

    topics = {"t": 1}
    assert simulate(scene, seed=5, topics=topics, settings=SETTINGS) is ErrorCode.NOT_COORDINATOR
