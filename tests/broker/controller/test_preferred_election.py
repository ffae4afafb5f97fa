"""Elections on request of a tool, a client and the timer: preferred and unclean."""

from typing import Any

import pytest

from broker.controller.effects import DeletePreferredElection, SetTimer, WritePartitionStates
from broker.controller.events import (
    ClusterRead,
    ElectionRequested,
    PreferredElectionDue,
    PreferredElectionRead,
    ReassignmentRequested,
)
from broker.controller.state import LeaderRebalance
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition
from tests.broker.controller.script import (
    P0,
    P1,
    ControllerScript,
    active_state,
    broker,
    brokers_changed,
    led_by,
    sent_leader_and_isr,
)

NOT_AVAILABLE = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
NOT_NEEDED = ErrorCode.ELECTION_NOT_NEEDED


def led_by_another() -> ControllerScript:
    """Partition 0 prefers broker 1 and is led by 2."""
    return ControllerScript(active_state([1, 2], {0: (1, 2)}, {P0: led_by(2, [2, 1], epoch=1)}))


def codes(
    script: ControllerScript, *asked: TopicPartition, unclean: bool = False
) -> dict[Any, ErrorCode]:
    verdicts = script.reply_to(ElectionRequested(asked or None, unclean, request_id=1))
    return {partition: code for partition, (code, _) in verdicts.items()}


# --- the tool --------------------------------------------------------------------------------


def test_tool_gives_leadership_back_and_its_node_goes() -> None:
    script = led_by_another()
    effects = script.take(PreferredElectionRead((P0,)))
    assert script.leader_isr_epoch(P0) == (1, (2, 1), 2)
    assert {to for to, _ in sent_leader_and_isr(effects)} == {1, 2}
    assert effects[-1] == DeletePreferredElection()


def test_node_goes_even_if_the_preferred_leader_is_offline() -> None:
    script = led_by_another()
    script.take(brokers_changed([2]))
    before = script.leader_isr_epoch(P0)
    assert script.take(PreferredElectionRead((P0, P1)))[-1] == DeletePreferredElection()
    assert script.leader_isr_epoch(P0) == before


def test_no_node_asks_for_nothing() -> None:
    assert led_by_another().take(PreferredElectionRead(None)) == []


def test_new_controller_finishes_what_the_tool_asked_for() -> None:
    script = ControllerScript(active_state([]), nodes={P0: led_by(2, [2, 1])})
    script.take(
        ClusterRead(
            (broker(1), broker(2)),
            {"t": {0: (1, 2)}},
            dict(script.nodes),
            (),
            preferred_election=(P0,),
        )
    )
    assert script.leader_isr_epoch(P0)[0] == 1
    assert script.effects[-1] == DeletePreferredElection()


# --- clients ---------------------------------------------------------------------------------


def test_client_gets_a_verdict_on_each_partition() -> None:
    leadership = {P0: led_by(2, [2, 1]), P1: led_by(1, [1, 2])}
    script = ControllerScript(active_state([1, 2], {0: (1, 2), 1: (1, 2)}, leadership))
    unknown = TopicPartition("u", 0)
    assert codes(script, P0, P1, unknown) == {
        P0: ErrorCode.NONE,
        P1: NOT_NEEDED,
        unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_client_may_ask_for_all() -> None:
    assert codes(led_by_another()) == {P0: ErrorCode.NONE}


@pytest.mark.parametrize("isr", [[2], [2, 3]])
def test_preferred_leader_that_is_not_in_sync_is_not_elected(isr: list[int]) -> None:
    script = ControllerScript(active_state([1, 2, 3], {0: (1, 2, 3)}, {P0: led_by(2, isr)}))
    assert codes(script, P0) == {P0: NOT_AVAILABLE}
    assert script.leader_isr_epoch(P0) == (2, tuple(isr), 0)


def test_preferred_leader_that_is_shutting_down_is_not_elected() -> None:
    script = led_by_another()
    script.state.shutting_down.add(1)
    assert codes(script, P0) == {P0: NOT_AVAILABLE}


def test_topic_that_is_being_deleted_holds_no_elections() -> None:
    script = led_by_another()
    script.state.deletions.add("t")
    assert codes(script, P0) == {P0: ErrorCode.INVALID_TOPIC_EXCEPTION}


def test_leader_that_wrote_meanwhile_is_replaced_all_the_same() -> None:
    script = ControllerScript(
        active_state([1, 2, 3], {0: (1, 2, 3)}, {P0: led_by(2, [2, 1, 3], epoch=1)})
    )
    script.leader_writes(P0, 2, 1)
    assert codes(script, P0) == {P0: ErrorCode.NONE}
    assert script.leader_isr_epoch(P0) == (1, (2, 1), 2)


def test_preferred_leader_that_fell_out_of_sync_meanwhile_is_not_elected() -> None:
    script = led_by_another()
    script.leader_writes(P0, 2)
    assert codes(script, P0) == {P0: NOT_AVAILABLE}
    assert script.leader_isr_epoch(P0) == (2, (2,), 1)


def test_unclean_election_is_held_though_the_topic_forbids_it_elsewhere() -> None:
    script = ControllerScript(active_state([1, 2], {0: (1, 2)}, {P0: led_by(1, [1])}))
    script.take(brokers_changed([2]))
    assert script.leader_isr_epoch(P0) == (-1, (1,), 1)
    assert codes(script, P0, unclean=True) == {P0: ErrorCode.NONE}
    assert script.leader_isr_epoch(P0) == (2, (2,), 2)


def test_unclean_election_of_a_partition_with_a_leader_is_not_needed() -> None:
    assert codes(led_by_another(), P0, unclean=True) == {P0: NOT_NEEDED}


def test_unclean_election_needs_a_live_replica() -> None:
    script = ControllerScript(active_state([3], {0: (1, 2)}, {P0: led_by(1, [1])}))
    assert codes(script, P0, unclean=True) == {P0: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


# --- the timer -------------------------------------------------------------------------------


def rebalancing(script: ControllerScript, percentage: int = 10) -> PreferredElectionDue:
    script.state.rebalance = LeaderRebalance(300_000, percentage)
    return PreferredElectionDue(script.state.resignations)


def test_first_look_is_five_seconds_after_the_failover() -> None:
    script = ControllerScript(active_state([]))
    due = rebalancing(script)
    assert script.take(ClusterRead((broker(1),), {}, {}, ()))[-1] == SetTimer(due, 5000)


def test_imbalance_above_the_percentage_is_put_right_and_looked_for_again() -> None:
    script = led_by_another()
    due = rebalancing(script)
    effects = script.take(due)
    assert script.leader_isr_epoch(P0)[0] == 1
    assert effects[-1] == SetTimer(due, 300_000)


def half_away() -> ControllerScript:
    leadership = {P0: led_by(2, [2, 1]), P1: led_by(1, [1, 2])}
    return ControllerScript(active_state([1, 2], {0: (1, 2), 1: (1, 2)}, leadership))


@pytest.mark.parametrize(("percentage", "leader"), [(49, 1), (50, 2)])
def test_imbalance_is_counted_for_each_preferred_broker(percentage: int, leader: int) -> None:
    script = half_away()
    script.take(rebalancing(script, percentage))
    assert script.leader_isr_epoch(P0)[0] == leader


def test_nothing_is_rebalanced_while_anything_moves() -> None:
    script = half_away()
    script.take(ReassignmentRequested({P1: (1,)}))
    script.take(brokers_changed([1, 2, 3]))
    script.take(ReassignmentRequested({P1: (3,)}))
    due = rebalancing(script, 0)
    assert script.take(due) == [SetTimer(due, 300_000)]


def test_preferred_leader_that_cannot_lead_is_left_alone() -> None:
    script = led_by_another()
    script.take(brokers_changed([2]))
    effects = script.take(rebalancing(script))
    assert not any(isinstance(effect, WritePartitionStates) for effect in effects)


def test_timer_of_before_a_resignation_is_over() -> None:
    script = led_by_another()
    rebalancing(script)
    assert script.take(PreferredElectionDue(script.state.resignations - 1)) == []
