"""Controlled shutdown: what is moved, what cannot be, and who is refused."""

import pytest

from broker.controller.events import IsrChangesRead, ShutdownRequested
from broker.controller.replica_states import ReplicaStatus
from protocol.errors import ApiError, ErrorCode
from tests.broker.controller.reign import (
    P0,
    P1,
    Reign,
    changed,
    described,
    led,
    reigning,
    stopped,
    told_to_lead,
)


def cluster() -> Reign:
    """Broker 2 leads partition 0 and follows partition 1."""
    leadership = {P0: led(2, [2, 1, 3]), P1: led(1, [1, 2])}
    return Reign(reigning([1, 2, 3], {0: (2, 1, 3), 1: (1, 2)}, leadership))


def test_leaders_move_and_followers_are_stopped_and_out_of_sync() -> None:
    reign = cluster()
    assert reign.answer(ShutdownRequested(2, request_id=1)) == ()
    assert reign.led(P0) == (1, (1, 3), 1)
    assert reign.led(P1) == (1, (1,), 1)
    assert stopped(reign.done) == [(2, (P1,), False)]
    assert reign.state.replica_states[P1, 2] is ReplicaStatus.OFFLINE


def test_broker_that_leaves_still_hears_of_everything() -> None:
    reign = cluster()
    effects = reign.take(ShutdownRequested(2))
    assert {to for to, each in told_to_lead(effects) if each.partition == P0} == {1, 2, 3}
    assert all(each.broker_ids == (1, 2, 3) for each in described(effects))
    assert [b.id for b in described(effects)[-1].live_brokers] == [1, 2, 3]
    offline = {p.partition: p.offline_replicas for d in described(effects) for p in d.partitions}
    assert offline == {P0: (2,), P1: (2,)}


def test_partition_that_nobody_can_take_over_remains_led() -> None:
    leadership = {P0: led(2, [2]), P1: led(2, [2])}
    reign = Reign(reigning([1, 2], {0: (2, 1), 1: (2,)}, leadership))
    assert reign.answer(ShutdownRequested(2, request_id=1)) == (P0,)
    assert (reign.led(P0), reign.led(P1)) == ((2, (2,), 0), (2, (2,), 0))


def test_remaining_partition_moves_when_another_is_in_sync_and_it_asks_again() -> None:
    reign = Reign(reigning([1, 2], {0: (2, 1)}, {P0: led(2, [2])}))
    reign.take(ShutdownRequested(2))
    reign.leader_writes(P0, 2, 1)
    reign.state.learn(P0, reign.nodes[P0])
    assert reign.answer(ShutdownRequested(2, request_id=1)) == ()
    assert reign.led(P0) == (1, (1,), 1)


def test_leader_that_wrote_meanwhile_is_moved_all_the_same() -> None:
    reign = cluster()
    reign.leader_writes(P0, 2, 3)
    assert reign.answer(ShutdownRequested(2, request_id=1)) == ()
    assert reign.led(P0) == (3, (3,), 1)


def test_broker_whose_last_fetch_took_it_back_into_the_isr_is_out_when_it_is_gone() -> None:
    reign = cluster()
    reign.take(ShutdownRequested(2))
    reign.leader_writes(P1, 1, 2)
    reign.take(changed([1, 3]))
    assert reign.led(P1) == (1, (1,), 2)


def test_broker_that_leaves_is_out_as_soon_as_its_leader_tells_it_was_taken_back() -> None:
    reign = cluster()
    reign.take(ShutdownRequested(2))
    reign.leader_writes(P1, 1, 2)
    reign.take(IsrChangesRead((), (P1,)))
    assert reign.led(P1) == (1, (1,), 2)


def test_broker_taken_back_unheard_that_bounces_is_out_until_it_has_caught_up() -> None:
    reign = cluster()
    reign.take(ShutdownRequested(2))
    reign.leader_writes(P1, 1, 2)
    reign.take(changed([1, 2, 3], b2=11))
    assert reign.led(P1) == (1, (1,), 2)


def test_broker_that_leaves_is_not_elected_when_another_dies() -> None:
    reign = cluster()
    reign.take(ShutdownRequested(2))
    reign.take(changed([2, 3]))
    assert reign.led(P0)[0] == 3
    assert reign.led(P1)[0] == -1


def test_broker_that_comes_back_is_as_good_as_any() -> None:
    reign = cluster()
    reign.take(ShutdownRequested(2))
    reign.take(changed([1, 3]))
    reign.take(changed([1, 2, 3], b2=11))
    assert reign.state.shutting_down == set()
    assert (P1, True) in [(each.partition, to == 2) for to, each in told_to_lead(reign.done)]


@pytest.mark.parametrize(
    ("broker_id", "epoch", "code"),
    [(2, 9, ErrorCode.STALE_BROKER_EPOCH), (7, -1, ErrorCode.BROKER_NOT_AVAILABLE)],
)
def test_broker_that_is_not_this_registration_is_refused(
    broker_id: int, epoch: int, code: ErrorCode
) -> None:
    reign = cluster()
    refusal = reign.answer(ShutdownRequested(broker_id, epoch, request_id=1))
    assert isinstance(refusal, ApiError)
    assert refusal.code is code
    assert reign.state.shutting_down == set()


@pytest.mark.parametrize("epoch", [-1, 10, 11])
def test_broker_epoch_may_be_unknown(epoch: int) -> None:
    assert cluster().answer(ShutdownRequested(2, epoch, request_id=1)) == ()


def test_topic_that_is_being_deleted_is_not_moved() -> None:
    reign = cluster()
    reign.state.deletions.add("t")
    assert reign.answer(ShutdownRequested(2, request_id=1)) == ()
    assert reign.led(P0) == (2, (2, 1, 3), 0)


def test_partition_that_needs_an_unclean_election_holds_up_nobody() -> None:
    reign = Reign(reigning([1, 2], {0: (2, 3, 1)}, {P0: led(-1, [3])}))
    assert reign.answer(ShutdownRequested(2, request_id=1)) == ()


def test_in_sync_set_is_read_before_it_is_said_that_nobody_can_take_over() -> None:
    reign = Reign(reigning([1, 2], {0: (2, 1)}, {P0: led(2, [2])}))
    reign.leader_writes(P0, 2, 1)
    assert reign.answer(ShutdownRequested(2, request_id=1)) == ()
    assert reign.led(P0)[0] == 1
