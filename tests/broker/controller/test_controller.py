"""The controller's shell over ZooKeeper in memory, with brokers that only record and respond."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from broker.cluster.topic_creation import TopicCreator
from protocol.messages.leader_and_isr import LeaderAndIsrRequest
from protocol.messages.stop_replica import StopReplicaRequest
from protocol.messages.update_metadata import UpdateMetadataRequest
from protocol.topic_partition import TopicPartition
from tests.broker.controller.cluster import P0, Cluster, on_cluster
from zk.api import Op, Stat, ZkError
from zk.znodes import (
    ControllerEpoch,
    PartitionState,
    TopicAssignment,
)


@on_cluster
async def test_first_broker_is_elected_with_epoch_one(cluster: Cluster) -> None:
    await cluster.start(1)
    controller = cluster.controllers[1]
    assert (controller.is_active, controller.controller_id, controller.epoch) == (True, 1, 1)
    data, _ = await cluster.session.get("/controller")
    assert data == b'{"version":1,"brokerid":1,"timestamp":"0"}'


@on_cluster
async def test_second_broker_knows_the_first_and_takes_over_when_it_dies(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    second = cluster.controllers[2]
    assert (second.is_active, second.controller_id) == (False, 1)
    await cluster.kill(1)
    assert (second.is_active, second.controller_id, second.epoch) == (True, 2, 2)


@on_cluster
async def test_controller_that_stops_has_a_successor_while_its_session_goes_on(
    cluster: Cluster,
) -> None:
    await cluster.start(1, 2)
    await cluster.stop(1)
    second = cluster.controllers[2]
    assert (second.is_active, second.epoch) == (True, 2)
    assert await cluster.session.exists("/brokers/ids/1") is not None


@on_cluster
async def test_controller_that_stops_unaware_of_its_successor_leaves_it_alone(
    cluster: Cluster,
) -> None:
    await cluster.start(1, 2)
    cluster.zookeeper.suspend(cluster.sessions[1])
    cluster.zookeeper.expire(cluster.sessions[1])
    await cluster.settle()
    assert cluster.controllers[2].is_active
    await cluster.stop(1)
    assert cluster.controllers[2].is_active


@on_cluster
async def test_controller_that_stops_while_zookeeper_is_away_does_not_wait_for_it(
    cluster: Cluster,
) -> None:
    await cluster.start(1)
    loop = asyncio.get_running_loop()
    cluster.zookeeper.suspend(cluster.sessions[1])
    before_s = loop.time()
    await cluster.controllers.pop(1).close()
    assert loop.time() == before_s


@on_cluster
async def test_created_topic_is_led_and_announced(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    cluster.wire.received.clear()
    await cluster.create("t", (2, 1))
    data, stat = await cluster.session.get(PartitionState.path("t", 0))
    assert data == b'{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":0,"isr":[2,1]}'
    for broker_id in (1, 2):
        (lead,) = cluster.wire.requests(broker_id, LeaderAndIsrRequest)
        ((topic, partitions),) = [(t.topic_name, t.partition_states) for t in lead.topic_states]
        assert (topic, partitions[0].leader, partitions[0].is_new) == ("t", 2, True)
        assert partitions[0].partition_epoch == stat.version
        node = await cluster.session.exists(f"/brokers/ids/{broker_id}")
        assert node is not None
        assert lead.broker_epoch == node.czxid
        assert [type(request) for to, request in cluster.wire.received if to == broker_id] == [
            LeaderAndIsrRequest,
            UpdateMetadataRequest,
        ]


@pytest.mark.parametrize("method", ["children", "get", "multi"])
def test_new_topic_is_led_though_zookeeper_refuses_a_call(method: str) -> None:
    @on_cluster
    async def story(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.asked[1].refuse(method, ZkError("SessionMoved"), ZkError("SessionMoved"))
        await cluster.create("t", (1,))
        assert (await cluster.state()).leader == 1
        await cluster.create("u", (1,))
        assert (await cluster.state(TopicPartition("u", 0))).leader == 1

    story()


@on_cluster
async def test_broker_that_died_is_seen_though_zookeeper_refuses_a_read(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (2, 1))
    cluster.asked[1].refuse("children", ZkError("SessionMoved"), ZkError("SessionMoved"))
    await cluster.kill(2)
    assert (await cluster.state()).leader == 1


@on_cluster
async def test_refused_read_of_before_a_resignation_is_not_tried_again(cluster: Cluster) -> None:
    await cluster.start(1)
    cluster.asked[1].refuse("children", ZkError("SessionMoved"))
    await cluster.session.create(TopicAssignment.path("t"), TopicAssignment({0: (1,)}).encode())
    await asyncio.sleep(0)
    cluster.zookeeper.expire(cluster.sessions[1])
    await cluster.settle()
    assert (await cluster.state()).controller_epoch == 2


@on_cluster
async def test_fifty_partitions_are_created_in_two_round_trips(cluster: Cluster) -> None:
    await cluster.start(1)
    multis: list[int] = []
    multi = cluster.session.multi

    async def counted(ops: Sequence[Op]) -> list[str | Stat | None]:
        multis.append(len(ops))
        return await multi(ops)

    cluster.session.multi = counted  # type: ignore[method-assign]
    await cluster.create("t", *[(1,)] * 50)
    assert multis == [2, 101]
    assert (await cluster.state(TopicPartition("t", 49))).leader == 1


@on_cluster
async def test_more_partitions_than_a_multi_takes_are_all_led(cluster: Cluster) -> None:
    await cluster.start(1)
    await cluster.create("t", *[(1,)] * 121)
    states = [await cluster.state(TopicPartition("t", index)) for index in range(121)]
    assert {state.leader for state in states} == {1}


@on_cluster
async def test_leader_moves_when_its_broker_dies_and_stays_when_it_returns(
    cluster: Cluster,
) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (2, 1))
    await cluster.kill(2)
    assert await cluster.state() == PartitionState(1, 1, (1,), 1)
    cluster.wire.received.clear()
    await cluster.start(2)
    assert await cluster.state() == PartitionState(1, 1, (1,), 1)
    kinds = [type(request) for to, request in cluster.wire.received if to == 2]
    assert kinds == [UpdateMetadataRequest, LeaderAndIsrRequest, UpdateMetadataRequest]


@on_cluster
async def test_unclean_election_follows_the_setting_of_the_topic(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (2, 1))
    await cluster.create("u", (2, 1))
    for topic in ("t", "u"):
        alone = PartitionState(2, 0, (2,), 1)  # as the leader writes it when 1 falls behind
        await cluster.session.set(PartitionState.path(topic, 0), alone.encode())
    unclean = b'{"version":1,"config":{"unclean.leader.election.enable":"true"}}'
    await cluster.session.create("/config/topics/u", unclean)
    await cluster.kill(2)
    assert await cluster.state(P0) == PartitionState(-1, 1, (2,), 1)
    assert await cluster.state(TopicPartition("u", 0)) == PartitionState(1, 1, (1,), 1)


@on_cluster
async def test_state_changed_by_the_leader_meanwhile_is_respected(cluster: Cluster) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create("t", (3, 2, 1))
    shrunk = PartitionState(3, 0, (3, 1), 1)  # unseen by the controller
    await cluster.session.set(PartitionState.path("t", 0), shrunk.encode())
    await cluster.kill(3)
    assert await cluster.state() == PartitionState(1, 1, (1,), 1)


@on_cluster
async def test_new_controller_continues_with_the_states_it_finds(cluster: Cluster) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create("t", (1, 2, 3))
    await cluster.kill(1)
    assert cluster.controllers[2].is_active
    assert await cluster.state() == PartitionState(2, 1, (2, 3), 2)


@on_cluster
async def test_expired_controller_resigns_registers_again_and_then_stands(
    cluster: Cluster,
) -> None:
    await cluster.start(1, 2)
    before = await cluster.session.exists("/brokers/ids/1")
    cluster.zookeeper.expire(cluster.sessions[1])
    assert not cluster.controllers[1].is_active  # at once, before anything of the new session
    await cluster.settle()
    after = await cluster.session.exists("/brokers/ids/1")
    assert before is not None
    assert after is not None
    assert after.czxid > before.czxid
    assert [controller.is_active for controller in cluster.controllers.values()] == [False, True]
    assert cluster.controllers[1].controller_id == 2


@on_cluster
async def test_controller_whose_epoch_was_passed_writes_nothing_and_resigns(
    cluster: Cluster,
) -> None:
    await cluster.start(1)
    await cluster.session.set("/controller_epoch", ControllerEpoch(8).encode())
    await cluster.create("t", (1,))
    # It was elected again, and led the topic under its next epoch.
    assert cluster.controllers[1].epoch == 9
    assert await cluster.state() == PartitionState(1, 0, (1,), 9)


@on_cluster
async def test_election_whose_answer_was_lost_is_won(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    cluster.zookeeper.lose_reply(cluster.sessions[2])
    await cluster.controllers.pop(1).close()
    await cluster.sessions.pop(1).close()
    await asyncio.sleep(0)
    await cluster.settle()
    cluster.zookeeper.resume(cluster.sessions[2])
    await cluster.settle()
    assert (cluster.controllers[2].is_active, cluster.controllers[2].epoch) == (True, 2)


@on_cluster
async def test_states_whose_answer_was_lost_are_announced(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    await cluster.session.create("/brokers/topics/t/partitions", None, make_parents=True)
    await cluster.session.set("/brokers/topics/t", TopicAssignment({0: (2,), 1: (2,)}).encode())
    cluster.zookeeper.lose_reply(cluster.sessions[1])
    await cluster.settle()
    cluster.zookeeper.resume(cluster.sessions[1])
    await cluster.settle()
    (lead,) = cluster.wire.requests(2, LeaderAndIsrRequest)
    assert [state.is_new for state in lead.topic_states[0].partition_states] == [True, True]


@on_cluster
async def test_added_partition_is_led(cluster: Cluster) -> None:
    await cluster.start(1)
    await cluster.create("t", (1,))
    await cluster.session.set("/brokers/topics/t", TopicAssignment({0: (1,), 1: (1,)}).encode())
    await cluster.settle()
    assert (await cluster.state(TopicPartition("t", 1))).leader == 1


@on_cluster
async def test_deleted_topic_leaves_nothing_and_its_name_is_free(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    await cluster.session.create("/config/topics/t", b'{"version":1,"config":{}}')
    await cluster.create("t", *[(1, 2)] * 60)
    cluster.controllers[1].request_deletion(["t"])
    await cluster.settle()
    for parent in ("/brokers/topics", "/config/topics", "/admin/delete_topics"):
        assert (await cluster.session.children(parent))[0] == []
    (stop,) = cluster.wire.requests(2, StopReplicaRequest)
    assert stop.delete_partitions
    await cluster.create("t", (2,))
    assert (await cluster.state()).leader == 2


@on_cluster
async def test_topic_with_a_dead_replica_is_deleted_when_its_broker_returns(
    cluster: Cluster,
) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (1, 2))
    await cluster.kill(2)
    cluster.controllers[1].request_deletion(["t"])
    await cluster.settle()
    assert await cluster.session.exists("/brokers/topics/t") is not None
    await cluster.start(2)
    assert await cluster.session.exists("/brokers/topics/t") is None


@on_cluster
async def test_deletion_begun_under_one_controller_ends_under_the_next(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (2,))
    cluster.wire.unreachable.add(2)
    cluster.controllers[1].request_deletion(["t"])
    await cluster.settle()
    await cluster.kill(1)
    assert await cluster.session.exists("/brokers/topics/t") is not None
    cluster.wire.unreachable.clear()
    await cluster.settle()
    assert await cluster.session.exists("/brokers/topics/t") is None


@on_cluster
async def test_requests_reach_a_broker_that_could_not_be_reached_in_order(
    cluster: Cluster,
) -> None:
    await cluster.start(1, 2)
    cluster.wire.received.clear()
    cluster.wire.unreachable.add(2)
    await cluster.create("t", (2,))
    await cluster.create("u", (2,))
    assert cluster.wire.requests(2, LeaderAndIsrRequest) == []
    cluster.wire.unreachable.clear()
    await cluster.settle()
    sent = cluster.wire.requests(2, LeaderAndIsrRequest)
    assert [request.topic_states[0].topic_name for request in sent] == ["t", "u"]


@on_cluster
async def test_broken_nodes_end_nothing_but_themselves(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    await cluster.session.create("/brokers/topics/broken", b"{")
    await cluster.create("t", (2,))
    await cluster.session.create("/brokers/ids/7", b"not a broker")
    await cluster.kill(1)
    await cluster.create("u", (2,))
    assert (await cluster.state(TopicPartition("u", 0))).leader == 2


def test_failed_event_is_logged_and_made_good_at_the_next_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @on_cluster
    async def run(cluster: Cluster) -> None:
        await cluster.start(1)
        multi = cluster.session.multi

        async def failing(ops: Sequence[Op]) -> list[str | Stat | None]:
            cluster.session.multi = multi  # type: ignore[method-assign]
            raise RuntimeError("no luck")

        cluster.session.multi = failing  # type: ignore[method-assign]
        await cluster.create("t", (1,))
        await cluster.create("u", (1,))
        assert (await cluster.state(TopicPartition("u", 0))).leader == 1
        assert await cluster.session.exists(PartitionState.path("t", 0)) is None
        await cluster.start(2)
        assert (await cluster.state()).leader == 1

    run()
    assert "no luck" in caplog.text


@on_cluster
async def test_session_that_ends_in_the_middle_of_an_event_ends_the_event(
    cluster: Cluster,
) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (2, 1), (2, 3))
    await cluster.start(3)  # without broker 2, partition 1 will need an unclean election
    session = cluster.sessions[1]
    multi, get, read = session.multi, session.get, list[str]()

    async def expiring(ops: Sequence[Op]) -> list[str | Stat | None]:
        results = await multi(ops)
        session.multi = multi  # type: ignore[method-assign]
        cluster.zookeeper.expire(session)
        return results

    async def noted(path: str, watch: Any = None) -> tuple[bytes | None, Stat]:
        read.append(path)
        return await get(path, watch)

    session.multi, session.get = expiring, noted  # type: ignore[method-assign]
    await cluster.kill(2)
    assert cluster.controllers[3].is_active
    assert "/config/topics/t" not in read[: read.index("/controller")]


@on_cluster
async def test_election_won_in_a_session_that_has_ended_does_not_count(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    session, controller = cluster.sessions[2], cluster.controllers[2]
    multi, children, epochs = session.multi, session.children, list[int]()

    async def expiring(ops: Sequence[Op]) -> list[str | Stat | None]:
        results = await multi(ops)
        session.multi = multi  # type: ignore[method-assign]
        cluster.zookeeper.expire(session)
        return results

    async def noted(path: str, watch: Any = None) -> tuple[list[str], Stat]:
        epochs.append(controller.epoch)
        return await children(path, watch)

    session.multi, session.children = expiring, noted  # type: ignore[method-assign]
    await cluster.kill(1)
    assert controller.epoch == 3
    assert set(epochs) == {0, 3}  # to register, and to read the cluster


@on_cluster
async def test_registration_that_fails_in_a_new_session_is_tried_again(cluster: Cluster) -> None:
    await cluster.start(1)
    session = cluster.sessions[1]
    create = session.create

    async def failing(path: str, data: bytes | None, **how: Any) -> str:
        session.create = create  # type: ignore[method-assign]
        raise RuntimeError("no luck")

    session.create = failing  # type: ignore[method-assign]
    cluster.zookeeper.expire(session)
    await cluster.settle()
    assert await session.exists("/brokers/ids/1") is not None
    assert cluster.controllers[1].is_active


@on_cluster
async def test_controller_that_cannot_read_the_cluster_lets_another_try(cluster: Cluster) -> None:
    await cluster.start(1, 2)

    async def failing(path: str, watch: Any = None) -> tuple[list[str], Stat]:
        raise RuntimeError("unreadable")

    cluster.sessions[2].children = failing  # type: ignore[method-assign]
    await cluster.start(3)
    await cluster.kill(1)
    assert cluster.controllers[3].is_active
    assert not cluster.controllers[2].is_active


@on_cluster
async def test_topics_created_by_any_broker_are_led_by_the_controller(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    touched: list[Any] = []
    creator = TopicCreator(
        cluster.sessions[2],
        racks=lambda: {1: None, 2: None},
        touch=touched.append,
        rng=random.Random(1),
    )
    await creator.start()
    creation = creator.create("t", 4, 2, {"retention.ms": "1"})
    await cluster.settle()
    await creator.close()
    assert (creation.result, touched) == (0, [("topic", "t")])
    states = [await cluster.state(TopicPartition("t", index)) for index in range(4)]
    assert {len(state.isr) for state in states} == {2}
    data, _ = await cluster.session.get("/config/topics/t")
    assert data == b'{"version":1,"config":{"retention.ms":"1"}}'
