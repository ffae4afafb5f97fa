"""Controlled shutdown: leaders that move, leaders that cannot, and brokers that are refused."""

import pytest

from broker.controller.events import IsrChangesRead, ShutdownRequested
from broker.controller.replica_states import ReplicaStatus
from protocol.errors import ApiError, ErrorCode
from tests.broker.controller.script import (
    P0,
    P1,
    ControllerScript,
    active_state,
    brokers_changed,
    led_by,
    sent_leader_and_isr,
    sent_stop_replicas,
    sent_update_metadata,
)


def cluster() -> ControllerScript:
    """Broker 2 leads partition 0 and follows partition 1."""
    leadership = {P0: led_by(2, [2, 1, 3]), P1: led_by(1, [1, 2])}
    return ControllerScript(active_state([1, 2, 3], {0: (2, 1, 3), 1: (1, 2)}, leadership))


def test_leaders_move_and_followers_are_stopped_and_out_of_sync() -> None:
    script = cluster()
    assert script.reply_to(ShutdownRequested(2, request_id=1)) == ()
    assert script.leader_isr_epoch(P0) == (1, (1, 3), 1)
    assert script.leader_isr_epoch(P1) == (1, (1,), 1)
    assert sent_stop_replicas(script.effects) == [(2, (P1,), False)]
    assert script.state.replica_states[P1, 2] is ReplicaStatus.OFFLINE


def test_broker_that_leaves_still_hears_of_everything() -> None:
    script = cluster()
    effects = script.take(ShutdownRequested(2))
    assert {to for to, led in sent_leader_and_isr(effects) if led.partition == P0} == {1, 2, 3}
    assert all(request.broker_ids == (1, 2, 3) for request in sent_update_metadata(effects))
    assert [b.id for b in sent_update_metadata(effects)[-1].live_brokers] == [1, 2, 3]
    offline = {
        p.partition: p.offline_replicas for d in sent_update_metadata(effects) for p in d.partitions
    }
    assert offline == {P0: (2,), P1: (2,)}


def test_partition_that_nobody_can_take_over_remains_led() -> None:
    leadership = {P0: led_by(2, [2]), P1: led_by(2, [2])}
    script = ControllerScript(active_state([1, 2], {0: (2, 1), 1: (2,)}, leadership))
    assert script.reply_to(ShutdownRequested(2, request_id=1)) == (P0,)
    assert (script.leader_isr_epoch(P0), script.leader_isr_epoch(P1)) == (
        (2, (2,), 0),
        (2, (2,), 0),
    )


def test_remaining_partition_moves_when_another_is_in_sync_and_it_asks_again() -> None:
    script = ControllerScript(active_state([1, 2], {0: (2, 1)}, {P0: led_by(2, [2])}))
    script.take(ShutdownRequested(2))
    script.leader_writes(P0, 2, 1)
    script.state.set_leadership(P0, script.nodes[P0])
    assert script.reply_to(ShutdownRequested(2, request_id=1)) == ()
    assert script.leader_isr_epoch(P0) == (1, (1,), 1)


def test_leader_that_wrote_meanwhile_is_moved_all_the_same() -> None:
    script = cluster()
    script.leader_writes(P0, 2, 3)
    assert script.reply_to(ShutdownRequested(2, request_id=1)) == ()
    assert script.leader_isr_epoch(P0) == (3, (3,), 1)


def test_broker_whose_last_fetch_took_it_back_into_the_isr_is_out_when_it_is_gone() -> None:
    script = cluster()
    script.take(ShutdownRequested(2))
    script.leader_writes(P1, 1, 2)
    script.take(brokers_changed([1, 3]))
    assert script.leader_isr_epoch(P1) == (1, (1,), 2)


def test_broker_that_leaves_is_out_as_soon_as_its_leader_tells_it_was_taken_back() -> None:
    script = cluster()
    script.take(ShutdownRequested(2))
    script.leader_writes(P1, 1, 2)
    script.take(IsrChangesRead((), (P1,)))
    assert script.leader_isr_epoch(P1) == (1, (1,), 2)


def test_broker_taken_back_unheard_that_bounces_is_out_until_it_has_caught_up() -> None:
    script = cluster()
    script.take(ShutdownRequested(2))
    script.leader_writes(P1, 1, 2)
    script.take(brokers_changed([1, 2, 3], b2=11))
    assert script.leader_isr_epoch(P1) == (1, (1,), 2)


def test_broker_that_leaves_is_not_elected_when_another_dies() -> None:
    script = cluster()
    script.take(ShutdownRequested(2))
    script.take(brokers_changed([2, 3]))
    assert script.leader_isr_epoch(P0)[0] == 3
    assert script.leader_isr_epoch(P1)[0] == -1


def test_broker_that_comes_back_is_as_good_as_any() -> None:
    script = cluster()
    script.take(ShutdownRequested(2))
    script.take(brokers_changed([1, 3]))
    script.take(brokers_changed([1, 2, 3], b2=11))
    assert script.state.shutting_down == set()
    assert (P1, True) in [
        (led.partition, to == 2) for to, led in sent_leader_and_isr(script.effects)
    ]


@pytest.mark.parametrize(
    ("broker_id", "epoch", "code"),
    [(2, 9, ErrorCode.STALE_BROKER_EPOCH), (7, -1, ErrorCode.BROKER_NOT_AVAILABLE)],
)
def test_broker_that_is_not_this_registration_is_refused(
    broker_id: int, epoch: int, code: ErrorCode
) -> None:
    script = cluster()
    refusal = script.reply_to(ShutdownRequested(broker_id, epoch, request_id=1))
    assert isinstance(refusal, ApiError)
    assert refusal.code is code
    assert script.state.shutting_down == set()


@pytest.mark.parametrize("epoch", [-1, 10, 11])
def test_broker_epoch_may_be_unknown(epoch: int) -> None:
    assert cluster().reply_to(ShutdownRequested(2, epoch, request_id=1)) == ()


def test_topic_that_is_being_deleted_is_not_moved() -> None:
    script = cluster()
    script.state.deletions.add("t")
    assert script.reply_to(ShutdownRequested(2, request_id=1)) == ()
    assert script.leader_isr_epoch(P0) == (2, (2, 1, 3), 0)


def test_partition_that_needs_an_unclean_election_holds_up_nobody() -> None:
    script = ControllerScript(active_state([1, 2], {0: (2, 3, 1)}, {P0: led_by(-1, [3])}))
    assert script.reply_to(ShutdownRequested(2, request_id=1)) == ()


def test_in_sync_set_is_read_before_it_is_said_that_nobody_can_take_over() -> None:
    script = ControllerScript(active_state([1, 2], {0: (2, 1)}, {P0: led_by(2, [2])}))
    script.leader_writes(P0, 2, 1)
    assert script.reply_to(ShutdownRequested(2, request_id=1)) == ()
    assert script.leader_isr_epoch(P0)[0] == 1
