"""Brokers that return with an empty disk under their old id."""

from broker.controller.effects import LeaderAndIsrPartition
from broker.controller.events import LeaderAndIsrResponseReceived
from broker.controller.replica_states import ReplicaStatus
from tests.broker.controller.script import (
    P0,
    ControllerScript,
    active_state,
    brokers_changed,
    led_by,
    sent_leader_and_isr,
)


def cluster(leader: int, isr: list[int], live: list[int] | None = None) -> ControllerScript:
    return ControllerScript(
        active_state(live or [1, 2, 3], {0: (1, 2, 3)}, {P0: led_by(leader, isr)})
    )


def lose_log(script: ControllerScript, broker_id: int) -> list[tuple[int, LeaderAndIsrPartition]]:
    """Report that the broker has no log; return the LeaderAndIsr that follow."""
    return sent_leader_and_isr(
        script.take(LeaderAndIsrResponseReceived(broker_id, taken=(), lost=(P0,)))
    )


def test_a_leader_without_its_log_is_replaced_and_follows_like_one_that_is_new() -> None:
    script = cluster(1, [1, 2, 3])
    requests = lose_log(script, 1)
    assert script.leader_isr_epoch(P0) == (2, (2, 3), 1)
    assert sorted(to for to, _ in requests) == [1, 2, 3]
    assert not any(led.is_new for _, led in requests)
    assert script.state.replica_states[P0, 1] is ReplicaStatus.ONLINE


def test_a_follower_without_its_log_leaves_the_isr_before_it_follows() -> None:
    script = cluster(1, [1, 2, 3])
    requests = lose_log(script, 3)
    assert script.leader_isr_epoch(P0) == (1, (1, 2), 1)
    assert sorted(to for to, _ in requests) == [1, 2, 3]


def test_the_last_one_in_sync_leads_nothing_and_stays_in_the_isr() -> None:
    script = cluster(1, [1])
    lose_log(script, 1)
    assert lose_log(script, 1) == []  # it is told of the new state, and says it again
    assert script.leader_isr_epoch(P0) == (-1, (1,), 1)
    assert not script.state.is_online(P0, 1)


def test_a_broker_that_registers_again_is_asked_again() -> None:
    script = cluster(1, [1])
    lose_log(script, 1)
    script.take(brokers_changed([1, 2, 3], b1=11))
    assert script.leader_isr_epoch(P0)[:2] == (1, (1,))
    lose_log(script, 1)
    assert script.leader_isr_epoch(P0)[:2] == (-1, (1,))


def test_where_no_replica_has_a_log_the_partition_starts_over() -> None:
    script = cluster(1, [1, 2, 3])
    lose_log(script, 1)
    lose_log(script, 2)
    requests = lose_log(script, 3)
    assert script.leader_isr_epoch(P0)[:2] == (3, (3,))
    assert {to: led.is_new for to, led in requests} == {1: True, 2: True, 3: True}


def test_a_damaged_log_is_a_log_so_the_partition_does_not_start_over() -> None:
    script = cluster(1, [1, 2, 3])
    script.take(LeaderAndIsrResponseReceived(1, taken=(), lost=(P0,), damaged=(P0,)))
    assert script.leader_isr_epoch(P0)[:2] == (2, (2, 3))
    lose_log(script, 2)
    requests = lose_log(script, 3)
    assert script.leader_isr_epoch(P0)[:2] == (-1, (3,))
    assert not any(led.is_new for _, led in requests)


def test_a_replica_that_is_down_may_have_the_log_so_the_others_wait_for_it() -> None:
    script = cluster(1, [1, 2], live=[1, 2])
    lose_log(script, 1)
    lose_log(script, 2)
    assert script.leader_isr_epoch(P0)[:2] == (-1, (2,))


def test_once_it_is_led_again_a_later_loss_is_judged_by_itself() -> None:
    script = cluster(1, [1, 2, 3])
    lose_log(script, 1)
    script.take(LeaderAndIsrResponseReceived(2, taken=(P0,)))
    assert script.state.lost_logs == {}
    lose_log(script, 2)
    lose_log(script, 3)
    assert script.leader_isr_epoch(P0)[:2] == (-1, (3,))


def test_one_that_was_elected_alone_gives_way_to_those_in_sync_before_it() -> None:
    """All died; the first to return has lost its disk."""
    script = cluster(1, [1, 2, 3])
    script.take(brokers_changed([2]))
    assert script.leader_isr_epoch(P0)[:2] == (2, (2,))
    lose_log(script, 2)
    assert script.leader_isr_epoch(P0)[:2] == (-1, (1, 3))
    script.take(brokers_changed([1, 2]))
    assert script.leader_isr_epoch(P0)[:2] == (1, (1,))


def test_one_that_has_led_is_the_only_one_to_be_trusted() -> None:
    script = cluster(1, [1, 2, 3])
    script.take(brokers_changed([2]))
    script.take(LeaderAndIsrResponseReceived(2, taken=(P0,)))
    script.take(brokers_changed([2], b2=11))
    lose_log(script, 2)
    assert script.leader_isr_epoch(P0)[:2] == (-1, (2,))
