"""The controller's shell at the requests of tools, leaders and clients."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from broker.controller.events import (
    ElectionRequested,
    ReassignmentRequested,
    ReassignmentsListed,
    ShutdownRequested,
)
from broker.controller.state import LeaderRebalance, Reassignment
from protocol.errors import ApiError, ErrorCode
from protocol.messages.leader_and_isr import LeaderAndIsrRequest
from protocol.messages.stop_replica import StopReplicaRequest
from protocol.messages.update_metadata import UpdateMetadataRequest
from protocol.topic_partition import TopicPartition
from tests.broker.controller.admin_nodes import PREFERRED, REASSIGN, exists, move, topic_node
from tests.broker.controller.cluster import P0, Cluster, on_cluster
from zk.znodes import (
    Controller,
    ControllerEpoch,
    IsrChange,
    LogDirEvent,
    PartitionState,
    PreferredReplicaElection,
    TopicAssignment,
)

# --- reassignment by the tool ----------------------------------------------------------------


@on_cluster
async def test_tool_moves_a_partition_and_its_node_goes(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (1,))
    await cluster.put(REASSIGN, move(2))
    assert (await topic_node(cluster))["partitions"] == {"0": [2, 1]}
    await cluster.leader_writes(1, 2)
    assert await cluster.state() == PartitionState(2, 3, (2,), 1)
    assert await topic_node(cluster) == {"version": 1, "partitions": {"0": [2]}}
    assert not await exists(cluster, REASSIGN)
    stops = cluster.wire.requests(1, StopReplicaRequest)
    assert [stop.delete_partitions for stop in stops] == [False, True]


@on_cluster
async def test_tool_may_move_again_after_its_node_went(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (1,))
    for leader, target in ((1, 2), (2, 1)):
        await cluster.put(REASSIGN, move(target))
        await cluster.leader_writes(leader, target)
    assert (await topic_node(cluster))["partitions"] == {"0": [1]}
    assert not await exists(cluster, REASSIGN)


@on_cluster
async def test_move_to_a_broker_that_is_down_waits_for_it(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (1,))
    await cluster.kill(2)
    await cluster.put(REASSIGN, move(2))
    assert (await cluster.state()).leader_epoch == 1
    assert await exists(cluster, REASSIGN)
    await cluster.start(2)
    await cluster.leader_writes(1, 2)
    assert await cluster.state() == PartitionState(2, 4, (2,), 1)


class Moves(dict[TopicPartition, Reassignment]):
    """Reassignments, with the number of those that were looked at."""

    looked_at = 0

    def __iter__(self) -> Iterator[TopicPartition]:
        for partition in super().__iter__():
            self.looked_at += 1
            yield partition

    def __contains__(self, partition: object) -> bool:
        self.looked_at += 1
        return super().__contains__(partition)


@on_cluster
async def test_topic_is_on_the_move_or_not_however_many_others_are(cluster: Cluster) -> None:
    await cluster.start(1)
    await cluster.create("t", (1,))
    await cluster.create("u", (1,))
    controller = cluster.controllers[1]
    moves = Moves(
        {TopicPartition(f"t{number}", 0): Reassignment((1,), (2,)) for number in range(100)}
    )
    moves[TopicPartition("u", 0)] = Reassignment((1,), (2,))
    controller.state.reassignments = moves
    assert [controller.is_reassigning(name) for name in ("t", "u")] == [False, True]
    assert moves.looked_at == 2


@on_cluster
async def test_next_controller_finishes_what_the_tool_began(cluster: Cluster) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create("t", (3,))
    await cluster.put(REASSIGN, move(2))
    await cluster.kill(1)
    assert cluster.controllers[2].is_reassigning("t")
    await cluster.leader_writes(3, 2)
    assert (await topic_node(cluster))["partitions"] == {"0": [2]}
    assert not await exists(cluster, REASSIGN)


@on_cluster
async def test_only_what_is_done_leaves_the_tools_node(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (1,))
    await cluster.create("u", (1, 2))
    both = b'{"version":1,"partitions":[%s,%s],"by":"me"}' % (
        b'{"topic":"t","partition":0,"replicas":[2]}',
        b'{"topic":"u","partition":0,"replicas":[2]}',
    )
    await cluster.put(REASSIGN, both)
    data, _ = await cluster.session.get(REASSIGN)
    left = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2]}],"by":"me"}'
    assert data == left
    assert (await topic_node(cluster, "u"))["partitions"] == {"0": [2]}


def test_nonsense_is_named_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    @on_cluster
    async def run(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create("t", (1,))
        await cluster.put(REASSIGN, b"not JSON")
        await cluster.put(PREFERRED, b'{"partitions":7}')
        await cluster.session.delete(REASSIGN)
        await cluster.put(REASSIGN, move(2))
        assert (await cluster.state()).leader_epoch == 1

    run()
    assert f"{REASSIGN}: not JSON" in caplog.text
    assert f"{PREFERRED}: 'partitions' is 7" in caplog.text


def test_broker_that_does_not_exist_is_named_and_the_move_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @on_cluster
    async def run(cluster: Cluster) -> None:
        await cluster.start(1)
        await cluster.create("t", (1,))
        await cluster.put(REASSIGN, move(77))
        assert not await exists(cluster, REASSIGN)

    run()
    assert "there is no broker 77" in caplog.text


@on_cluster
async def test_node_that_became_nonsense_holds_up_no_move(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (1,))
    await cluster.put(REASSIGN, move(2))
    await cluster.session.set(REASSIGN, b"nonsense")
    await cluster.leader_writes(1, 2)
    assert (await topic_node(cluster))["partitions"] == {"0": [2]}
    assert not cluster.controllers[1].is_reassigning("t")


# --- reassignment by the API -----------------------------------------------------------------


@on_cluster
async def test_move_by_api_survives_its_controller(cluster: Cluster) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create("t", (3,))
    verdicts = await cluster.ask(ReassignmentRequested({P0: (2,)}))
    assert verdicts == {P0: (ErrorCode.NONE, "")}
    moving = {"adding_replicas": {"0": [2]}, "removing_replicas": {"0": [3]}}
    assert await topic_node(cluster) == {"version": 2, "partitions": {"0": [2, 3]}, **moving}
    await cluster.kill(1)
    assert await cluster.ask(ReassignmentsListed()) == {P0: ((2, 3), (2,), (3,))}
    await cluster.leader_writes(3, 2)
    nothing: dict[str, Any] = {"adding_replicas": {}, "removing_replicas": {}}
    assert await topic_node(cluster) == {"version": 2, "partitions": {"0": [2]}, **nothing}


@on_cluster
async def test_partitions_added_meanwhile_and_unknown_keys_survive_a_move(
    cluster: Cluster,
) -> None:
    await cluster.start(1, 2)
    path = TopicAssignment.path("t")
    await cluster.put(path, b'{"version":3,"partitions":{"0":[1]},"topic_id":"x"}')
    await cluster.ask(ReassignmentRequested({P0: (2,)}))
    node = await topic_node(cluster)
    node["partitions"]["1"] = [1]
    await cluster.session.set(path, json.dumps(node).encode())
    await cluster.leader_writes(1, 2)
    node = await topic_node(cluster)
    assert (node["version"], node["topic_id"]) == (3, "x")
    assert node["partitions"] == {"0": [2], "1": [1]}
    assert (await cluster.state(TopicPartition("t", 1))).leader == 1


@on_cluster
async def test_cancelled_move_leaves_no_trace(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (1,))
    await cluster.ask(ReassignmentRequested({P0: (2,)}))
    await cluster.ask(ReassignmentRequested({P0: None}))
    assert (await topic_node(cluster))["partitions"] == {"0": [1]}
    assert (await cluster.state()).isr == (1,)
    (stop,) = cluster.wire.requests(2, StopReplicaRequest)
    assert stop.delete_partitions


# --- preferred leaders -----------------------------------------------------------------------


@on_cluster
async def test_preferred_leader_leads_again_and_the_tool_may_ask_again(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (2, 1))
    for epoch in (2, 4):
        await cluster.kill(2)
        await cluster.start(2)
        await cluster.leader_writes(1, 2)
        await cluster.put(PREFERRED, PreferredReplicaElection((("t", 0),)).encode())
        assert await cluster.state() == PartitionState(2, epoch, (1, 2), 1)
        assert not await exists(cluster, PREFERRED)


@on_cluster
async def test_preferred_leader_that_is_offline_leads_not_and_the_node_goes(
    cluster: Cluster,
) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (2, 1))
    await cluster.kill(2)
    await cluster.put(PREFERRED, PreferredReplicaElection((("t", 0),)).encode())
    assert await cluster.state() == PartitionState(1, 1, (1,), 1)
    assert not await exists(cluster, PREFERRED)


@on_cluster
async def test_preferred_leader_leads_again_by_itself(cluster: Cluster) -> None:
    cluster.rebalance = LeaderRebalance(check_interval_ms=60_000)
    await cluster.start(1, 2)
    await cluster.create("t", (2, 1))
    await cluster.kill(2)
    await cluster.start(2)
    await cluster.leader_writes(1, 2)
    await asyncio.sleep(60)
    assert (await cluster.state()).leader == 2


@on_cluster
async def test_election_is_answered(cluster: Cluster) -> None:
    await cluster.start(1)
    await cluster.create("t", (1,))
    verdicts = await cluster.ask(ElectionRequested(None))
    assert [code for code, _ in verdicts.values()] == [ErrorCode.ELECTION_NOT_NEEDED]


# --- controlled shutdown ---------------------------------------------------------------------


@on_cluster
async def test_shutdown_moves_leadership_and_names_what_cannot_move(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (2, 1))
    assert await cluster.ask(ShutdownRequested(2)) == ()
    assert await cluster.state() == PartitionState(1, 1, (1,), 1)
    for broker_id in (1, 2):
        last = cluster.wire.requests(broker_id, UpdateMetadataRequest)[-1]
        assert last.topic_states[0].partition_states[0].leader == 1
    assert await cluster.ask(ShutdownRequested(1)) == (P0,)


@on_cluster
async def test_shutdown_by_an_earlier_registration_is_refused(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    with pytest.raises(ApiError) as refusal:
        await cluster.ask(ShutdownRequested(2, broker_epoch=0))
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


# --- reports of brokers ----------------------------------------------------------------------


@on_cluster
async def test_changed_isr_is_published_and_its_notification_goes(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (2, 1))
    await cluster.leader_writes(2)
    cluster.wire.received.clear()
    await cluster.session.create(
        IsrChange.prefix(), IsrChange((("t", 0), ("unknown", 3))).encode(), sequence=True
    )
    await cluster.settle()
    (sent,) = cluster.wire.requests(1, UpdateMetadataRequest)
    assert sent.topic_states[0].partition_states[0].isr == (2,)
    assert (await cluster.session.children(IsrChange.directory()))[0] == []


@on_cluster
async def test_lost_disk_is_asked_about_and_its_notification_goes(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (2, 1))
    cluster.wire.received.clear()
    await cluster.session.create(LogDirEvent.prefix(), LogDirEvent(2).encode(), sequence=True)
    await cluster.session.create(LogDirEvent.prefix(), b"nonsense", sequence=True)
    await cluster.settle()
    assert len(cluster.wire.requests(2, LeaderAndIsrRequest)) >= 1
    assert cluster.wire.requests(1, LeaderAndIsrRequest) == []
    assert (await cluster.session.children(LogDirEvent.directory()))[0] == []


@on_cluster
async def test_notifications_of_before_are_gone_when_a_controller_takes_over(
    cluster: Cluster,
) -> None:
    await cluster.start(1, 2)
    cluster.zookeeper.suspend(cluster.sessions[1])
    await cluster.sessions[2].create(IsrChange.prefix(), b"{}", sequence=True)
    await cluster.sessions[2].create(LogDirEvent.prefix(), b"{}", sequence=True)
    cluster.zookeeper.expire(cluster.sessions[1])
    await cluster.settle()
    for kind in (IsrChange, LogDirEvent):
        assert (await cluster.sessions[2].children(kind.directory()))[0] == []


# --- requests at the wrong place or time -----------------------------------------------------


@on_cluster
async def test_broker_that_is_not_the_controller_refuses(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    with pytest.raises(ApiError) as refusal:
        await cluster.controllers[2].ask(ElectionRequested(None))
    assert refusal.value.code is ErrorCode.NOT_CONTROLLER


@on_cluster
async def test_question_is_refused_when_the_controller_resigns_before_its_answer(
    cluster: Cluster,
) -> None:
    await cluster.start(1, 2)
    asked = asyncio.ensure_future(cluster.controllers[1].ask(ShutdownRequested(2)))
    await asyncio.sleep(0)
    cluster.zookeeper.expire(cluster.sessions[1])
    with pytest.raises(ApiError) as refusal:
        await asked
    assert refusal.value.code is ErrorCode.NOT_CONTROLLER


async def depose(cluster: Cluster) -> None:
    """Elect another controller, of epoch 8, unseen by the present one."""
    await cluster.session.set(ControllerEpoch.path(), ControllerEpoch(8).encode())


@on_cluster
async def test_question_to_an_overtaken_controller_is_refused_and_nothing_is_written(
    cluster: Cluster,
) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (1, 2))
    await depose(cluster)
    with pytest.raises(ApiError) as refusal:
        await cluster.ask(ReassignmentRequested({P0: (2,)}))
    assert refusal.value.code is ErrorCode.NOT_CONTROLLER
    await cluster.settle()
    assert await topic_node(cluster) == {"version": 1, "partitions": {"0": [1, 2]}}
    assert cluster.controllers[1].epoch == 9


@pytest.mark.parametrize(
    ("path", "data"),
    [
        pytest.param("/admin/delete_topics/t", b"", id="deletion"),
        pytest.param(REASSIGN, move(1), id="reassignment"),
        pytest.param(
            PREFERRED, PreferredReplicaElection((("t", 0),)).encode(), id="preferred election"
        ),
        pytest.param("/brokers/topics/u", TopicAssignment({0: (1,)}).encode(), id="creation"),
    ],
)
def test_overtaken_controller_resigns_at_its_first_write(path: str, data: bytes) -> None:
    @on_cluster
    async def run(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create("t", (2, 1))
        await cluster.ask(ShutdownRequested(2))
        await depose(cluster)
        await cluster.put(path, data)
        # Elected again, it does under its next epoch what the other controller left.
        assert cluster.controllers[1].epoch == 9
        assert not await exists(cluster, "/admin/delete_topics/t")

    run()


@on_cluster
async def test_controller_epoch_outlives_all_brokers(cluster: Cluster) -> None:
    await cluster.start(1)
    await cluster.kill(1)
    await cluster.start(1)
    assert cluster.controllers[1].epoch == 2
    data, _ = await cluster.session.get(Controller.path())
    assert Controller.decode(data).broker_id == 1


# --- deletion --------------------------------------------------------------------------------


@on_cluster
async def test_topic_deleted_and_created_at_once_has_its_new_partitions(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (1,), (2,), (1,))
    cluster.controllers[1].request_deletion(["t"])
    while await exists(cluster, TopicAssignment.path("t")):
        await asyncio.sleep(0)
    await cluster.create("t", (2,))
    assert (await cluster.state()).leader == 2
    assert not cluster.controllers[1].is_deleting("t")
    assert (await cluster.session.children("/brokers/topics/t/partitions"))[0] == ["0"]
    last = cluster.wire.requests(1, UpdateMetadataRequest)[-1]
    assert [state.leader for state in last.topic_states[0].partition_states] == [2]


@on_cluster
async def test_partition_added_to_a_topic_that_is_being_deleted_goes_with_it(
    cluster: Cluster,
) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (2,))
    await cluster.kill(2)
    cluster.controllers[1].request_deletion(["t"])
    await cluster.settle()
    assert cluster.controllers[1].is_deleting("t")
    await cluster.session.set("/brokers/topics/t", TopicAssignment({0: (2,), 1: (1,)}).encode())
    await cluster.settle()
    assert not await exists(cluster, "/brokers/topics/t/partitions/1/state")
    await cluster.start(2)
    assert not await exists(cluster, "/brokers/topics/t")


@on_cluster
async def test_reassigning_topic_is_deleted_when_the_reassignment_completes(
    cluster: Cluster,
) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (1,))
    await cluster.put(REASSIGN, move(2))
    cluster.controllers[1].request_deletion(["t"])
    await cluster.settle()
    assert await exists(cluster, "/brokers/topics/t")
    await cluster.leader_writes(1, 2)
    for path in ("/brokers/topics/t", "/admin/delete_topics/t", REASSIGN):
        assert not await exists(cluster, path)
