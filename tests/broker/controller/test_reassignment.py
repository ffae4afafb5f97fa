"""Reassignments by the tool and by the API: epochs, order, conflicts, and cancellation."""

from typing import Any

import pytest

from broker.controller.effects import (
    DeleteToolReassignments,
    ReadReassignments,
    Reply,
    WriteAssignments,
)
from broker.controller.events import (
    ClusterRead,
    CompletedReassignmentsDue,
    IsrChanged,
    LeadershipRead,
    ReassignmentRequested,
    ReassignmentsListed,
    ReassignmentsRead,
    StopReplicaResponseReceived,
    TopicsChanged,
    TopicsMarkedForDeletion,
    WatchFired,
)
from broker.controller.replica_states import ReplicaStatus
from broker.controller.state import Reassignment
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
    sent_stop_replicas,
)

NEW = ReplicaStatus.NEW
NONE = ErrorCode.NONE
INVALID = ErrorCode.INVALID_REPLICA_ASSIGNMENT


def one_replica(*brokers: int) -> ControllerScript:
    """Partition 0 of "t" is on broker 1, of brokers 1, 2 and others."""
    return ControllerScript(active_state([1, 2, *brokers], {0: (1,)}, {P0: led_by(1, [1])}))


def assignments(script: ControllerScript) -> list[tuple[tuple[int, ...], ...]]:
    """Return the writes to the topic's node: replicas, those added, those removed."""
    effects = [effect for effect in script.effects if isinstance(effect, WriteAssignments)]
    writes = [write for effect in effects for write in effect.writes]
    return [(write.replicas, write.adding, write.removing) for write in writes]


# --- the tool --------------------------------------------------------------------------------


def test_reassignment_of_one_replica_ends_at_leader_epoch_three() -> None:
    script = one_replica()
    script.take(ReassignmentsRead({P0: (2,)}))
    assert script.leader_isr_epoch(P0) == (1, (1,), 1)
    script.catches_up(P0, 1, 2)
    assert script.leader_isr_epoch(P0) == (2, (2,), 3)
    assert script.state.replicas(P0) == (2,)
    assert assignments(script) == [((2, 1), (), ()), ((2,), (), ())]
    assert DeleteToolReassignments((P0,)) in script.effects
    assert script.state.reassignments == {}


def test_all_replicas_hear_of_the_move_and_the_new_one_may_make_its_log() -> None:
    script = one_replica()
    sent = sent_leader_and_isr(script.take(ReassignmentsRead({P0: (2,)})))
    assert [(to, led.replicas, led.is_new) for to, led in sent] == [
        (1, (2, 1), False),
        (2, (2, 1), True),
    ]
    assert script.state.replica_states[P0, 2] is NEW


def test_replica_that_goes_is_stopped_then_out_of_sync_then_deleted() -> None:
    script = one_replica()
    script.take(ReassignmentsRead({P0: (2,)}))
    effects = script.catches_up(P0, 1, 2)
    assert sent_stop_replicas(effects) == [(1, (P0,), False), (1, (P0,), True)]
    assert {to for to, _ in sent_leader_and_isr(effects)} == {2}
    assert (P0, 1) not in script.state.replica_states
    assert script.state.replica_states[P0, 2] is ReplicaStatus.ONLINE


def test_target_that_is_down_halts_at_epoch_one_and_goes_on_when_it_is_back() -> None:
    script = one_replica()
    script.take(brokers_changed([1]))
    script.take(ReassignmentsRead({P0: (2,)}))
    assert script.leader_isr_epoch(P0) == (1, (1,), 1)
    assert P0 in script.state.reassignments
    script.take(brokers_changed([1, 2], b2=11))
    script.catches_up(P0, 1, 2)
    assert script.leader_isr_epoch(P0) == (2, (2,), 4)


def test_target_in_sync_already_needs_no_first_step() -> None:
    script = ControllerScript(active_state([1, 2, 3], {0: (1, 2, 3)}, {P0: led_by(1, [1, 2, 3])}))
    script.take(ReassignmentsRead({P0: (2, 3)}))
    assert script.leader_isr_epoch(P0) == (2, (2, 3), 2)
    assert assignments(script) == [((2, 3), (), ())]


def test_reordered_replicas_keep_their_leader() -> None:
    script = ControllerScript(active_state([1, 2], {0: (1, 2)}, {P0: led_by(1, [1, 2])}))
    script.take(ReassignmentsRead({P0: (2, 1)}))
    assert script.leader_isr_epoch(P0) == (1, (1, 2), 1)
    assert script.state.replicas(P0) == (2, 1)
    assert sent_stop_replicas(script.effects) == []


def test_target_partly_in_sync_is_waited_for() -> None:
    script = ControllerScript(active_state([1, 2, 3], {0: (1,)}, {P0: led_by(1, [1])}))
    script.take(ReassignmentsRead({P0: (2, 3)}))
    script.catches_up(P0, 1, 2)
    assert script.leader_isr_epoch(P0) == (1, (1, 2), 1)
    script.catches_up(P0, 1, 2, 3)
    assert script.leader_isr_epoch(P0) == (2, (2, 3), 3)


def test_state_that_its_leader_wrote_meanwhile_is_raised_all_the_same() -> None:
    script = ControllerScript(active_state([1, 2, 3], {0: (1, 3)}, {P0: led_by(1, [1, 3])}))
    script.leader_writes(P0, 1)
    script.take(ReassignmentsRead({P0: (1, 2)}))
    assert script.leader_isr_epoch(P0) == (1, (1,), 1)
    assert {to for to, led in sent_leader_and_isr(script.effects) if led.replicas == (1, 2, 3)} == {
        1,
        2,
        3,
    }


def test_state_written_between_catching_up_and_taking_over_is_kept() -> None:
    script = one_replica(3)
    script.take(ReassignmentsRead({P0: (2, 3)}))
    script.leader_writes(P0, 1, 2, 3)
    stale = script.nodes[P0]
    script.state.set_leadership(P0, stale)
    script.leader_writes(P0, 1, 2, 3)
    script.take(IsrChanged(P0))
    assert script.leader_isr_epoch(P0) == (2, (2, 3), 3)


@pytest.mark.parametrize(
    ("partition", "target", "named"),
    [
        pytest.param(P1, (2,), "no such partition", id="unknown partition"),
        pytest.param(P0, (1,), "where it is", id="no change"),
        pytest.param(P0, (2, 77, 78), "broker 77, 78", id="unknown brokers"),
        pytest.param(P0, (), "one or more", id="no replicas"),
        pytest.param(P0, (2, 2), "one on each", id="a broker twice"),
    ],
)
def test_what_cannot_be_done_is_dropped_and_named(
    partition: TopicPartition,
    target: tuple[int, ...],
    named: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = one_replica()
    assert script.take(ReassignmentsRead({partition: target})) == [
        DeleteToolReassignments((partition,))
    ]
    assert named in caplog.text


def test_reassignment_under_way_is_not_begun_again_when_its_node_is_rewritten() -> None:
    script = one_replica(3)
    script.take(ReassignmentsRead({P0: (2,)}))
    assert script.take(ReassignmentsRead({P0: (3,)})) == []


def test_node_is_read_when_it_changes() -> None:
    script = one_replica()
    assert script.take(WatchFired(ReadReassignments())) == [ReadReassignments()]


def test_new_controller_goes_on_with_the_tool() -> None:
    script = ControllerScript(active_state([]), nodes={P0: led_by(1, [1, 2], epoch=1)})
    script.take(
        ClusterRead(
            (broker(1), broker(2)),
            {"t": {0: (2, 1)}},
            dict(script.nodes),
            (),
            reassignments={P0: (2,)},
        )
    )
    assert script.leader_isr_epoch(P0) == (2, (2,), 3)
    assert DeleteToolReassignments((P0,)) in script.effects


def test_topic_that_vanished_takes_its_reassignment_with_it() -> None:
    script = one_replica()
    script.take(ReassignmentsRead({P0: (2,)}))
    assert DeleteToolReassignments((P0,)) in script.take(TopicsChanged(()))
    assert script.state.reassignments == {}


# --- the API ---------------------------------------------------------------------------------


def ask(script: ControllerScript, target: tuple[int, ...] | None) -> tuple[ErrorCode, str]:
    verdicts = script.reply_to(ReassignmentRequested({P0: target}, request_id=5))
    verdict: tuple[ErrorCode, str] = verdicts[P0]
    return verdict


def test_reassignment_by_api_is_kept_in_the_topic() -> None:
    script = one_replica()
    assert ask(script, (2,)) == (NONE, "")
    assert assignments(script) == [((2, 1), (2,), (1,))]
    script.catches_up(P0, 1, 2)
    assert assignments(script)[-1] == ((2,), (), ())
    assert script.leader_isr_epoch(P0) == (2, (2,), 3)
    assert not any(isinstance(effect, DeleteToolReassignments) for effect in script.effects)


def test_what_is_on_the_move_is_listed() -> None:
    script = one_replica()
    ask(script, (2,))
    assert script.reply_to(ReassignmentsListed()) == {P0: ((2, 1), (2,), (1,))}
    assert script.reply_to(ReassignmentsListed((P1,))) == {}
    script.catches_up(P0, 1, 2)
    assert script.reply_to(ReassignmentsListed()) == {}


def test_cancelled_reassignment_leaves_the_original_and_deletes_what_had_come() -> None:
    script = one_replica()
    ask(script, (2,))
    assert ask(script, None) == (NONE, "")
    assert script.state.replicas(P0) == (1,)
    assert script.leader_isr_epoch(P0) == (1, (1,), 2)
    assert sent_stop_replicas(script.effects) == [(2, (P0,), True)]
    assert assignments(script)[-1] == ((1,), (), ())
    assert script.state.reassignments == {}


def test_cancelled_reassignment_takes_back_the_leadership_of_who_goes() -> None:
    script = ControllerScript(active_state([1, 2, 3], {0: (1, 2)}, {P0: led_by(1, [1, 2])}))
    ask(script, (3, 2))
    script.catches_up(P0, 2, 1)
    script.nodes[P0] = led_by(3, [3, 2], epoch=7, zk_version=9)  # an election in between
    script.state.set_leadership(P0, script.nodes[P0])
    ask(script, None)
    assert script.leader_isr_epoch(P0)[:2] == (2, (2,))


def test_tools_reassignment_may_be_cancelled_by_the_api() -> None:
    script = one_replica()
    script.take(ReassignmentsRead({P0: (2,)}))
    assert ask(script, None) == (NONE, "")
    assert DeleteToolReassignments((P0,)) in script.effects
    assert script.state.replicas(P0) == (1,)


def test_new_target_replaces_the_one_under_way() -> None:
    script = one_replica(3)
    ask(script, (2,))
    ask(script, (3,))
    assert assignments(script) == [((2, 1), (2,), (1,)), ((3, 1), (3,), (1,))]
    assert sent_stop_replicas(script.effects) == [(2, (P0,), True)]
    script.catches_up(P0, 1, 3)
    assert script.leader_isr_epoch(P0)[:2] == (3, (3,))
    assert script.state.replicas(P0) == (3,)


@pytest.mark.parametrize(
    ("target", "code"),
    [
        pytest.param((), INVALID, id="no replicas"),
        pytest.param((2, 2), INVALID, id="a broker twice"),
        pytest.param((-1,), INVALID, id="negative"),
        pytest.param((9,), INVALID, id="unknown broker"),
        pytest.param(None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, id="nothing to cancel"),
        pytest.param((1,), NONE, id="where it is"),
    ],
)
def test_request_is_checked(target: tuple[int, ...] | None, code: ErrorCode) -> None:
    script = one_replica()
    assert ask(script, target)[0] is code
    assert script.effects == [Reply(5, {P0: script.effects[-1].value[P0]})]  # type: ignore[union-attr]


def test_replica_that_is_down_may_stay_but_not_come() -> None:
    script = ControllerScript(active_state([1, 2], {0: (1, 3)}, {P0: led_by(1, [1])}))
    assert ask(script, (1, 3, 2))[0] is NONE
    assert ask(script, (1, 4))[0] is INVALID


def test_each_partition_of_a_request_is_judged_for_itself() -> None:
    script = one_replica()
    verdicts = script.reply_to(ReassignmentRequested({P0: (2,), P1: (2,)}, request_id=5))
    assert {partition: code for partition, (code, _) in verdicts.items()} == {
        P0: NONE,
        P1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


@pytest.mark.parametrize("by_tool", [True, False])
def test_topic_that_moves_as_a_whole_is_written_twice_however_many_partitions_it_has(
    by_tool: bool,
) -> None:
    partitions = [TopicPartition("t", index) for index in range(50)]
    script = ControllerScript(
        active_state(
            [1, 2],
            {partition.partition: (1,) for partition in partitions},
            {p: led_by(1, [1]) for p in partitions},
        )
    )
    moves: dict[TopicPartition, Any] = dict.fromkeys(partitions, (2,))
    script.take(ReassignmentsRead(moves) if by_tool else ReassignmentRequested(moves, request_id=5))
    script.take(
        LeadershipRead(
            {partition: script.leader_writes(partition, 1, 2) for partition in partitions}
        )
    )
    assert [script.state.replicas(partition) for partition in partitions] == [(2,)] * 50
    assert not script.state.reassignments

    writes = [effect.writes for effect in script.effects if isinstance(effect, WriteAssignments)]
    assert [[write.replicas for write in some] for some in writes] == [[(2, 1)] * 50, [(2,)] * 50]
    drops = [effect for effect in script.effects if isinstance(effect, DeleteToolReassignments)]
    assert drops == ([DeleteToolReassignments(tuple(partitions))] if by_tool else [])


def completing(by_tool: bool) -> ControllerScript:
    """Partition 0 is on broker 2, and ZooKeeper does not have that yet."""
    state = active_state([1, 2, 3], {0: (2,)}, {P0: led_by(2, [2])})
    state.completed_reassignments[P0] = Reassignment((1,), (2,), by_tool)
    return ControllerScript(state)


@pytest.mark.parametrize("by_tool", [True, False])
def test_unwritten_completion_gives_way_to_the_next_target(by_tool: bool) -> None:
    script = completing(by_tool)
    script.take(ReassignmentRequested({P0: (3,)}, request_id=6))
    assert (DeleteToolReassignments((P0,)) in script.effects) is by_tool
    script.take(CompletedReassignmentsDue(script.state.resignations))
    assert assignments(script) == [((3, 2), (3,), (2,))]


def test_unwritten_completion_is_not_started_again_by_the_tools_node() -> None:
    script = completing(by_tool=True)
    assert script.take(ReassignmentsRead({P0: (2,)})) == []
    script.take(CompletedReassignmentsDue(script.state.resignations))
    assert assignments(script) == [((2,), (), ())]
    assert DeleteToolReassignments((P0,)) in script.effects


def test_completions_of_before_a_resignation_are_not_written() -> None:
    script = completing(by_tool=True)
    assert script.take(CompletedReassignmentsDue(script.state.resignations - 1)) == []


def test_topic_that_would_be_too_large_on_its_way_stays_where_it_is() -> None:
    assignment = dict.fromkeys(range(40000), (1,))
    script = ControllerScript(active_state([1, 2], assignment, {P0: led_by(1, [1])}))
    moves = {TopicPartition("t", index): (2,) for index in assignment}
    verdicts = script.reply_to(ReassignmentRequested(dict(moves), request_id=5))
    assert {code for code, _ in verdicts.values()} == {ErrorCode.INVALID_REPLICA_ASSIGNMENT}
    assert "more than ZooKeeper takes" in verdicts[P0][1]
    assert not script.state.reassignments

    verdicts = script.reply_to(ReassignmentRequested({P0: (2,)}, request_id=6))
    assert verdicts[P0][0] is ErrorCode.NONE


def test_new_controller_goes_on_with_what_the_topics_tell() -> None:
    script = ControllerScript(active_state([]), nodes={P0: led_by(1, [1], epoch=1)})
    script.take(
        ClusterRead(
            (broker(1), broker(2)),
            {"t": {0: (2, 1)}},
            dict(script.nodes),
            (),
            reassigning={P0: Reassignment((1,), (2,))},
        )
    )
    assert script.reply_to(ReassignmentsListed()) == {P0: ((2, 1), (2,), (1,))}
    script.catches_up(P0, 1, 2)
    assert script.leader_isr_epoch(P0)[:2] == (2, (2,))
    assert assignments(script)[-1] == ((2,), (), ())


def test_new_controller_takes_out_of_both_nodes_what_a_stock_one_noted_in_both() -> None:
    script = ControllerScript(active_state([]), nodes={P0: led_by(1, [1], epoch=1)})
    script.take(
        ClusterRead(
            (broker(1), broker(2)),
            {"t": {0: (2, 1)}},
            dict(script.nodes),
            (),
            reassigning={P0: Reassignment((1,), (2,))},
            reassignments={P0: (2,)},
        )
    )
    assert DeleteToolReassignments((P0,)) not in script.effects
    script.catches_up(P0, 1, 2)
    assert script.leader_isr_epoch(P0)[:2] == (2, (2,))
    assert assignments(script)[-1] == ((2,), (), ())
    assert DeleteToolReassignments((P0,)) in script.effects


# --- and deletions ---------------------------------------------------------------------------


def test_reassigning_topic_is_deleted_when_the_reassignment_completes() -> None:
    script = one_replica()
    ask(script, (2,))
    assert script.take(TopicsMarkedForDeletion(("t",))) == []
    script.catches_up(P0, 1, 2)
    assert sent_stop_replicas(script.effects)[-1] == (2, (P0,), True)
    script.take(StopReplicaResponseReceived(2, deleted=(P0,)))
    assert script.state.assignments == {}


def test_topic_to_be_deleted_is_not_moved() -> None:
    script = one_replica()
    script.take(TopicsMarkedForDeletion(("t",)))
    assert ask(script, (2,))[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    script.take(ReassignmentsRead({P0: (2,)}))
    assert script.effects[-1] == DeleteToolReassignments((P0,))


def test_moving_partition_whose_leader_dies_is_led_by_another_and_goes_on() -> None:
    script = ControllerScript(active_state([1, 2, 3], {0: (1, 2)}, {P0: led_by(1, [1, 2])}))
    ask(script, (3, 2))
    script.take(brokers_changed([2, 3]))
    assert script.leader_isr_epoch(P0)[:2] == (2, (2,))
    script.catches_up(P0, 2, 3)
    assert script.leader_isr_epoch(P0)[:2] == (2, (2, 3))
    assert script.state.replicas(P0) == (3, 2)


def test_partition_that_never_had_a_leader_is_led_by_its_target() -> None:
    script = ControllerScript(active_state([2], {0: (1,)}))
    ask(script, (2,))
    assert script.leader_isr_epoch(P0)[:2] == (2, (2,))
    assert script.state.replicas(P0) == (2,)
    assert script.state.reassignments == {}
