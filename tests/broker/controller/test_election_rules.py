"""Unclean election is allowed while partitions have no leader: then they get one."""

from __future__ import annotations

from broker.controller.effects import ReadUncleanElection
from broker.controller.events import ElectionRulesChanged
from protocol.topic_partition import TopicPartition
from tests.broker.controller.cluster import P0, Cluster, on_cluster
from tests.broker.controller.script import P1, ControllerScript, active_state, led_by
from zk.znodes import PartitionState

ALLOWED = {"t": True}


def one_leaderless() -> ControllerScript:
    """Partition 0 has only replica 1, out of sync; partition 1 has a leader."""
    state = active_state((1,), {0: (2, 1), 1: (1, 2)}, {P0: led_by(-1, (2,)), P1: led_by(1, (1,))})
    return ControllerScript(state)


def test_when_it_is_allowed_what_has_no_leader_gets_one() -> None:
    script = one_leaderless()
    script.unclean = ALLOWED
    script.take(ElectionRulesChanged())
    assert (script.leader_isr_epoch(P0), script.leader_isr_epoch(P1)) == (
        (1, (1,), 1),
        (1, (1,), 0),
    )


def test_while_it_is_not_allowed_nothing_happens() -> None:
    script = one_leaderless()
    effects = script.take(ElectionRulesChanged())
    assert effects[0] == ReadUncleanElection((P0,))
    assert script.leader_isr_epoch(P0) == (-1, (2,), 0)


def test_it_is_looked_at_for_the_topic_alone_whose_settings_changed() -> None:
    script = one_leaderless()
    script.unclean = ALLOWED
    assert script.take(ElectionRulesChanged("u")) == []
    script.take(ElectionRulesChanged("t"))
    assert script.leader_isr_epoch(P0) == (1, (1,), 1)


def test_what_is_led_costs_no_look() -> None:
    script = ControllerScript(active_state((1,), {1: (1, 2)}, {P1: led_by(1, (1,))}))
    assert script.take(ElectionRulesChanged("t")) == []


@on_cluster
async def test_the_brokers_own_setting_counts_where_a_topic_has_none(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (2, 1))
    await cluster.create("u", (2, 1))
    for topic in ("t", "u"):
        await cluster.leader_writes(2, partition=TopicPartition(topic, 0))
    await cluster.put(
        "/config/topics/u", b'{"version":1,"config":{"unclean.leader.election.enable":"false"}}'
    )
    await cluster.kill(2)
    assert (await cluster.state()).leader == -1
    cluster.controllers[1].allow_unclean_election(True)
    await cluster.settle()
    assert await cluster.state(P0) == PartitionState(1, 2, (1,), 1)
    assert (await cluster.state(TopicPartition("u", 0))).leader == -1


@on_cluster
async def test_a_topics_new_settings_are_read_by_the_controller(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (2, 1))
    await cluster.leader_writes(2)
    await cluster.kill(2)
    await cluster.put(
        "/config/topics/t", b'{"version":1,"config":{"unclean.leader.election.enable":"true"}}'
    )
    assert (await cluster.state()).leader == -1
    cluster.controllers[1].topic_config_changed("t")
    await cluster.settle()
    assert (await cluster.state()).leader == 1
