"""Brokers that come back with an empty disk under their old id."""

from broker.controller.effects import LedPartition
from broker.controller.events import LeaderAndIsrAnswered
from broker.controller.replica_states import ReplicaStatus
from tests.broker.controller.reign import P0, Reign, changed, led, reigning, told_to_lead


def cluster(leader: int, isr: list[int], live: list[int] | None = None) -> Reign:
    return Reign(reigning(live or [1, 2, 3], {0: (1, 2, 3)}, {P0: led(leader, isr)}))


def lost(reign: Reign, broker_id: int) -> list[tuple[int, LedPartition]]:
    """The broker says it has no log; who is told what of the partition then."""
    return told_to_lead(reign.take(LeaderAndIsrAnswered(broker_id, taken=(), lost=(P0,))))


def test_a_leader_without_its_log_is_replaced_and_follows_like_one_that_is_new() -> None:
    reign = cluster(1, [1, 2, 3])
    told = lost(reign, 1)
    assert reign.led(P0) == (2, (2, 3), 1)
    assert sorted(to for to, _ in told) == [1, 2, 3]
    assert not any(each.is_new for _, each in told)
    assert reign.state.replica_states[P0, 1] is ReplicaStatus.ONLINE


def test_a_follower_without_its_log_leaves_the_isr_before_it_follows() -> None:
    reign = cluster(1, [1, 2, 3])
    told = lost(reign, 3)
    assert reign.led(P0) == (1, (1, 2), 1)
    assert sorted(to for to, _ in told) == [1, 2, 3]


def test_the_last_one_in_sync_leads_nothing_and_stays_in_the_isr() -> None:
    reign = cluster(1, [1])
    lost(reign, 1)
    assert lost(reign, 1) == []  # it is told of the new state, and says it again
    assert reign.led(P0) == (-1, (1,), 1)
    assert not reign.state.is_online(P0, 1)


def test_a_broker_that_registers_anew_is_asked_again() -> None:
    reign = cluster(1, [1])
    lost(reign, 1)
    reign.take(changed([1, 2, 3], b1=11))
    assert reign.led(P0)[:2] == (1, (1,))
    lost(reign, 1)
    assert reign.led(P0)[:2] == (-1, (1,))


def test_where_no_replica_has_a_log_the_partition_begins_anew() -> None:
    reign = cluster(1, [1, 2, 3])
    lost(reign, 1)
    lost(reign, 2)
    told = lost(reign, 3)
    assert reign.led(P0)[:2] == (3, (3,))
    assert {to: each.is_new for to, each in told} == {1: True, 2: True, 3: True}


def test_a_damaged_log_is_a_log_so_the_partition_does_not_begin_anew() -> None:
    reign = cluster(1, [1, 2, 3])
    reign.take(LeaderAndIsrAnswered(1, taken=(), lost=(P0,), damaged=(P0,)))
    assert reign.led(P0)[:2] == (2, (2, 3))
    lost(reign, 2)
    told = lost(reign, 3)
    assert reign.led(P0)[:2] == (-1, (3,))
    assert not any(each.is_new for _, each in told)


def test_a_replica_that_is_down_may_have_the_log_so_the_others_wait_for_it() -> None:
    reign = cluster(1, [1, 2], live=[1, 2])
    lost(reign, 1)
    lost(reign, 2)
    assert reign.led(P0)[:2] == (-1, (2,))


def test_once_it_is_led_again_a_later_loss_is_weighed_anew() -> None:
    reign = cluster(1, [1, 2, 3])
    lost(reign, 1)
    reign.take(LeaderAndIsrAnswered(2, taken=(P0,)))
    assert reign.state.lost_logs == {}
    lost(reign, 2)
    lost(reign, 3)
    assert reign.led(P0)[:2] == (-1, (3,))


def test_one_that_was_elected_alone_gives_way_to_those_in_sync_before_it() -> None:
    """All died; the first to come back has lost its disk."""
    reign = cluster(1, [1, 2, 3])
    reign.take(changed([2]))
    assert reign.led(P0)[:2] == (2, (2,))
    lost(reign, 2)
    assert reign.led(P0)[:2] == (-1, (1, 3))
    reign.take(changed([1, 2]))
    assert reign.led(P0)[:2] == (1, (1,))


def test_one_that_has_led_is_the_only_one_to_be_trusted() -> None:
    reign = cluster(1, [1, 2, 3])
    reign.take(changed([2]))
    reign.take(LeaderAndIsrAnswered(2, taken=(P0,)))
    reign.take(changed([2], b2=11))
    lost(reign, 2)
    assert reign.led(P0)[:2] == (-1, (2,))
