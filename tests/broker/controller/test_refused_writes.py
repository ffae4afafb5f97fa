"""Writes that ZooKeeper refuses are repeated until it takes them."""

import pytest

from broker.controller.effects import (
    AssignmentWrite,
    DeleteMarkers,
    DeleteToolReassignments,
    DeleteTopicZnodes,
    Repeat,
    WriteAssignments,
)
from broker.controller.events import ReassignmentRequested, ReassignmentsDue, RetryDue
from broker.controller.state import Reassignment
from protocol.topic_partition import TopicPartition
from tests.broker.controller.admin_nodes import PREFERRED, REASSIGN, exists, move, topic_node
from tests.broker.controller.cluster import P0, Cluster, on_cluster
from tests.broker.controller.script import P1, ControllerScript, active_state, led_by
from zk.admin_znodes import LogDirEvent
from zk.znodes import PreferredReplicaElection

TOPIC = "/brokers/topics/t"


def refuse_writes(cluster: Cluster, *paths: str) -> None:
    """Refuse all writes of these nodes, and the creation and deletion of their children."""
    cluster.zookeeper.read_only.update(paths)


async def allow_writes(cluster: Cluster) -> None:
    cluster.zookeeper.read_only.clear()
    await cluster.settle()


@on_cluster
async def test_topic_that_could_not_be_deleted_goes_and_its_name_is_free(cluster: Cluster) -> None:
    await cluster.start(1)
    await cluster.create("t", (1,))
    refuse_writes(cluster, "/brokers/topics")
    cluster.controllers[1].request_deletion(["t"])
    await cluster.settle()
    assert await exists(cluster, TOPIC)
    assert cluster.controllers[1].refusals["DeleteTopicZnodes"] > 0
    await allow_writes(cluster)
    assert not await exists(cluster, TOPIC)
    await cluster.create("t", (1,))
    assert (await cluster.state()).leader == 1


@on_cluster
async def test_tools_node_of_an_election_goes_so_that_another_may_be_asked_for(
    cluster: Cluster,
) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (1, 2))
    asked = PreferredReplicaElection((("t", 0),)).encode()
    await cluster.session.create(PREFERRED, asked)
    refuse_writes(cluster, "/admin")
    await cluster.settle()
    assert await exists(cluster, PREFERRED)
    await allow_writes(cluster)
    assert not await exists(cluster, PREFERRED)


@on_cluster
async def test_tools_node_of_a_move_goes(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (1,))
    await cluster.put(REASSIGN, move(2))
    refuse_writes(cluster, "/admin", REASSIGN)
    await cluster.leader_writes(1, 2)
    assert await exists(cluster, REASSIGN)
    await allow_writes(cluster)
    assert not await exists(cluster, REASSIGN)


@on_cluster
async def test_move_that_could_not_be_begun_is_begun(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (1,))
    refuse_writes(cluster, TOPIC)
    await cluster.ask(ReassignmentRequested({P0: (2,)}))
    await cluster.settle()
    assert (await topic_node(cluster))["partitions"] == {"0": [1]}
    await allow_writes(cluster)
    assert (await topic_node(cluster))["adding_replicas"] == {"0": [2]}


@on_cluster
async def test_completion_that_could_not_be_written_is_written_later(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (1,))
    await cluster.ask(ReassignmentRequested({P0: (2,)}))
    await cluster.settle()
    refuse_writes(cluster, TOPIC)
    await cluster.leader_writes(1, 2)
    await cluster.settle()
    assert (await topic_node(cluster))["adding_replicas"] == {"0": [2]}
    await allow_writes(cluster)
    node = await topic_node(cluster)
    assert (node["partitions"], node["adding_replicas"]) == ({"0": [2]}, {})


@on_cluster
async def test_notification_that_could_not_be_deleted_goes(cluster: Cluster) -> None:
    await cluster.start(1)
    await cluster.session.create(LogDirEvent.prefix(), LogDirEvent(1).encode(), sequence=True)
    refuse_writes(cluster, LogDirEvent.directory())
    await cluster.settle()
    assert (await cluster.session.children(LogDirEvent.directory()))[0] != []
    await allow_writes(cluster)
    assert (await cluster.session.children(LogDirEvent.directory()))[0] == []


# --- a late write takes nothing back


def one_replica() -> ControllerScript:
    """Partition 0 of "t" is on broker 1."""
    return ControllerScript(active_state([1, 2, 3], {0: (1,)}, {P0: led_by(1, [1])}))


def test_assignment_that_another_has_followed_is_not_written_late() -> None:
    assert one_replica().take(RetryDue(WriteAssignments((AssignmentWrite(P0, (2,)),)))) == []


def test_reassignment_is_started_again_with_its_present_target() -> None:
    work = one_replica()
    work.state.reassignments[P0] = Reassignment((1,), (3,))
    late = WriteAssignments((AssignmentWrite(P0, (2, 1), (2,), (1,)),))
    effects = work.take(RetryDue(late))
    assert effects[0] == Repeat(ReassignmentsDue((P0,)))
    assert WriteAssignments((AssignmentWrite(P0, (3, 1), (3,), (1,)),)) in work.effects
    assert late not in work.effects


def test_wish_that_came_since_is_not_dropped() -> None:
    work = one_replica()
    work.state.reassignments[P0] = Reassignment((1,), (3,), by_tool=True)
    assert work.take(RetryDue(DeleteToolReassignments((P0, P1)))) == [
        DeleteToolReassignments((P1,))
    ]


@pytest.mark.parametrize(
    "late", [DeleteTopicZnodes("t"), DeleteMarkers(("t",))], ids=["topic", "marker"]
)
def test_topic_that_is_there_again_is_not_deleted_late(
    late: DeleteTopicZnodes | DeleteMarkers,
) -> None:
    assert TopicPartition("t", 0) in one_replica().state.leadership
    assert one_replica().take(RetryDue(late)) == []
