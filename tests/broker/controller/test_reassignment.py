"""Partitions that move, by the tool and by the API: epochs, order, conflicts, and ways to stop."""

from typing import Any

import pytest

from broker.controller.effects import (
    Answer,
    DropReassignments,
    ReadReassignments,
    WriteAssignments,
)
from broker.controller.events import (
    ArrivalsDue,
    ClusterRead,
    InSyncSetChanged,
    LeadershipRead,
    ReassignmentRequested,
    ReassignmentsListed,
    ReassignmentsRead,
    StopReplicaAnswered,
    TopicsChanged,
    TopicsMarkedForDeletion,
    WatchFired,
)
from broker.controller.replica_states import ReplicaStatus
from broker.controller.state import Reassignment
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition
from tests.broker.controller.reign import (
    P0,
    P1,
    Reign,
    broker,
    changed,
    led,
    reigning,
    stopped,
    told_to_lead,
)

NEW = ReplicaStatus.NEW
NONE = ErrorCode.NONE
INVALID = ErrorCode.INVALID_REPLICA_ASSIGNMENT


def one_replica(*brokers: int) -> Reign:
    """Partition 0 of "t" on broker 1, of brokers 1, 2 and others."""
    return Reign(reigning([1, 2, *brokers], {0: (1,)}, {P0: led(1, [1])}))


def assignments(reign: Reign) -> list[tuple[tuple[int, ...], ...]]:
    """What was written to the topic's node: replicas, those that come, those that go."""
    effects = [each for each in reign.done if isinstance(each, WriteAssignments)]
    writes = [write for each in effects for write in each.writes]
    return [(each.replicas, each.adding, each.removing) for each in writes]


# --- the tool --------------------------------------------------------------------------------


def test_reassignment_of_one_replica_ends_at_leader_epoch_three() -> None:
    reign = one_replica()
    reign.take(ReassignmentsRead({P0: (2,)}))
    assert reign.led(P0) == (1, (1,), 1)
    reign.catches_up(P0, 1, 2)
    assert reign.led(P0) == (2, (2,), 3)
    assert reign.state.replicas(P0) == (2,)
    assert assignments(reign) == [((2, 1), (), ()), ((2,), (), ())]
    assert DropReassignments((P0,)) in reign.done
    assert reign.state.reassignments == {}


def test_all_replicas_hear_of_the_move_and_the_new_one_may_make_its_log() -> None:
    reign = one_replica()
    told = told_to_lead(reign.take(ReassignmentsRead({P0: (2,)})))
    assert [(to, each.replicas, each.is_new) for to, each in told] == [
        (1, (2, 1), False),
        (2, (2, 1), True),
    ]
    assert reign.state.replica_states[P0, 2] is NEW


def test_replica_that_goes_is_stopped_then_out_of_sync_then_deleted() -> None:
    reign = one_replica()
    reign.take(ReassignmentsRead({P0: (2,)}))
    effects = reign.catches_up(P0, 1, 2)
    assert stopped(effects) == [(1, (P0,), False), (1, (P0,), True)]
    assert {to for to, _ in told_to_lead(effects)} == {2}
    assert (P0, 1) not in reign.state.replica_states
    assert reign.state.replica_states[P0, 2] is ReplicaStatus.ONLINE


def test_target_that_is_down_halts_at_epoch_one_and_goes_on_when_it_is_back() -> None:
    reign = one_replica()
    reign.take(changed([1]))
    reign.take(ReassignmentsRead({P0: (2,)}))
    assert reign.led(P0) == (1, (1,), 1)
    assert P0 in reign.state.reassignments
    reign.take(changed([1, 2], b2=11))
    reign.catches_up(P0, 1, 2)
    assert reign.led(P0) == (2, (2,), 4)


def test_target_in_sync_already_needs_no_first_step() -> None:
    reign = Reign(reigning([1, 2, 3], {0: (1, 2, 3)}, {P0: led(1, [1, 2, 3])}))
    reign.take(ReassignmentsRead({P0: (2, 3)}))
    assert reign.led(P0) == (2, (2, 3), 2)
    assert assignments(reign) == [((2, 3), (), ())]


def test_reordered_replicas_keep_their_leader() -> None:
    reign = Reign(reigning([1, 2], {0: (1, 2)}, {P0: led(1, [1, 2])}))
    reign.take(ReassignmentsRead({P0: (2, 1)}))
    assert reign.led(P0) == (1, (1, 2), 1)
    assert reign.state.replicas(P0) == (2, 1)
    assert stopped(reign.done) == []


def test_target_partly_in_sync_is_waited_for() -> None:
    reign = Reign(reigning([1, 2, 3], {0: (1,)}, {P0: led(1, [1])}))
    reign.take(ReassignmentsRead({P0: (2, 3)}))
    reign.catches_up(P0, 1, 2)
    assert reign.led(P0) == (1, (1, 2), 1)
    reign.catches_up(P0, 1, 2, 3)
    assert reign.led(P0) == (2, (2, 3), 3)


def test_state_that_its_leader_wrote_meanwhile_is_raised_all_the_same() -> None:
    reign = Reign(reigning([1, 2, 3], {0: (1, 3)}, {P0: led(1, [1, 3])}))
    reign.leader_writes(P0, 1)
    reign.take(ReassignmentsRead({P0: (1, 2)}))
    assert reign.led(P0) == (1, (1,), 1)
    assert {to for to, each in told_to_lead(reign.done) if each.replicas == (1, 2, 3)} == {1, 2, 3}


def test_state_written_between_catching_up_and_taking_over_is_kept() -> None:
    reign = one_replica(3)
    reign.take(ReassignmentsRead({P0: (2, 3)}))
    reign.leader_writes(P0, 1, 2, 3)
    stale = reign.nodes[P0]
    reign.state.learn(P0, stale)
    reign.leader_writes(P0, 1, 2, 3)
    reign.take(InSyncSetChanged(P0))
    assert reign.led(P0) == (2, (2, 3), 3)


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
    reign = one_replica()
    assert reign.take(ReassignmentsRead({partition: target})) == [DropReassignments((partition,))]
    assert named in caplog.text


def test_reassignment_under_way_is_not_begun_again_when_its_node_is_rewritten() -> None:
    reign = one_replica(3)
    reign.take(ReassignmentsRead({P0: (2,)}))
    assert reign.take(ReassignmentsRead({P0: (3,)})) == []


def test_node_is_read_when_it_changes() -> None:
    reign = one_replica()
    assert reign.take(WatchFired(ReadReassignments())) == [ReadReassignments()]


def test_new_controller_goes_on_with_the_tool() -> None:
    reign = Reign(reigning([]), nodes={P0: led(1, [1, 2], epoch=1)})
    reign.take(
        ClusterRead(
            (broker(1), broker(2)),
            {"t": {0: (2, 1)}},
            dict(reign.nodes),
            (),
            reassignments={P0: (2,)},
        )
    )
    assert reign.led(P0) == (2, (2,), 3)
    assert DropReassignments((P0,)) in reign.done


def test_topic_that_vanished_takes_its_reassignment_with_it() -> None:
    reign = one_replica()
    reign.take(ReassignmentsRead({P0: (2,)}))
    assert DropReassignments((P0,)) in reign.take(TopicsChanged(()))
    assert reign.state.reassignments == {}


# --- the API ---------------------------------------------------------------------------------


def ask(reign: Reign, target: tuple[int, ...] | None) -> tuple[ErrorCode, str]:
    verdicts = reign.answer(ReassignmentRequested({P0: target}, request_id=5))
    verdict: tuple[ErrorCode, str] = verdicts[P0]
    return verdict


def test_reassignment_by_api_is_kept_in_the_topic() -> None:
    reign = one_replica()
    assert ask(reign, (2,)) == (NONE, "")
    assert assignments(reign) == [((2, 1), (2,), (1,))]
    reign.catches_up(P0, 1, 2)
    assert assignments(reign)[-1] == ((2,), (), ())
    assert reign.led(P0) == (2, (2,), 3)
    assert not any(isinstance(each, DropReassignments) for each in reign.done)


def test_what_is_on_the_move_is_listed() -> None:
    reign = one_replica()
    ask(reign, (2,))
    assert reign.answer(ReassignmentsListed()) == {P0: ((2, 1), (2,), (1,))}
    assert reign.answer(ReassignmentsListed((P1,))) == {}
    reign.catches_up(P0, 1, 2)
    assert reign.answer(ReassignmentsListed()) == {}


def test_cancelled_reassignment_leaves_the_original_and_deletes_what_had_come() -> None:
    reign = one_replica()
    ask(reign, (2,))
    assert ask(reign, None) == (NONE, "")
    assert reign.state.replicas(P0) == (1,)
    assert reign.led(P0) == (1, (1,), 2)
    assert stopped(reign.done) == [(2, (P0,), True)]
    assert assignments(reign)[-1] == ((1,), (), ())
    assert reign.state.reassignments == {}


def test_cancelled_reassignment_takes_back_the_leadership_of_who_goes() -> None:
    reign = Reign(reigning([1, 2, 3], {0: (1, 2)}, {P0: led(1, [1, 2])}))
    ask(reign, (3, 2))
    reign.catches_up(P0, 2, 1)
    reign.nodes[P0] = led(3, [3, 2], epoch=7, zk_version=9)  # an election in between
    reign.state.learn(P0, reign.nodes[P0])
    ask(reign, None)
    assert reign.led(P0)[:2] == (2, (2,))


def test_tools_reassignment_may_be_cancelled_by_the_api() -> None:
    reign = one_replica()
    reign.take(ReassignmentsRead({P0: (2,)}))
    assert ask(reign, None) == (NONE, "")
    assert DropReassignments((P0,)) in reign.done
    assert reign.state.replicas(P0) == (1,)


def test_new_target_replaces_the_one_under_way() -> None:
    reign = one_replica(3)
    ask(reign, (2,))
    ask(reign, (3,))
    assert assignments(reign) == [((2, 1), (2,), (1,)), ((3, 1), (3,), (1,))]
    assert stopped(reign.done) == [(2, (P0,), True)]
    reign.catches_up(P0, 1, 3)
    assert reign.led(P0)[:2] == (3, (3,))
    assert reign.state.replicas(P0) == (3,)


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
    reign = one_replica()
    assert ask(reign, target)[0] is code
    assert reign.done == [Answer(5, {P0: reign.done[-1].value[P0]})]  # type: ignore[union-attr]


def test_replica_that_is_down_may_stay_but_not_come() -> None:
    reign = Reign(reigning([1, 2], {0: (1, 3)}, {P0: led(1, [1])}))
    assert ask(reign, (1, 3, 2))[0] is NONE
    assert ask(reign, (1, 4))[0] is INVALID


def test_each_partition_of_a_request_is_judged_for_itself() -> None:
    reign = one_replica()
    verdicts = reign.answer(ReassignmentRequested({P0: (2,), P1: (2,)}, request_id=5))
    assert {each: code for each, (code, _) in verdicts.items()} == {
        P0: NONE,
        P1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


@pytest.mark.parametrize("by_tool", [True, False])
def test_topic_that_moves_as_a_whole_is_written_twice_however_many_partitions_it_has(
    by_tool: bool,
) -> None:
    partitions = [TopicPartition("t", index) for index in range(50)]
    reign = Reign(
        reigning(
            [1, 2],
            {each.partition: (1,) for each in partitions},
            {p: led(1, [1]) for p in partitions},
        )
    )
    moves: dict[TopicPartition, Any] = dict.fromkeys(partitions, (2,))
    reign.take(ReassignmentsRead(moves) if by_tool else ReassignmentRequested(moves, request_id=5))
    reign.take(LeadershipRead({each: reign.leader_writes(each, 1, 2) for each in partitions}))
    assert [reign.state.replicas(each) for each in partitions] == [(2,)] * 50
    assert not reign.state.reassignments

    writes = [each.writes for each in reign.done if isinstance(each, WriteAssignments)]
    assert [[write.replicas for write in some] for some in writes] == [[(2, 1)] * 50, [(2,)] * 50]
    drops = [each for each in reign.done if isinstance(each, DropReassignments)]
    assert drops == ([DropReassignments(tuple(partitions))] if by_tool else [])


def arriving(by_tool: bool) -> Reign:
    """Partition 0 has arrived on broker 2, and that is not written down yet."""
    state = reigning([1, 2, 3], {0: (2,)}, {P0: led(2, [2])})
    state.arrived[P0] = Reassignment((1,), (2,), by_tool)
    return Reign(state)


@pytest.mark.parametrize("by_tool", [True, False])
def test_arrival_that_is_not_written_yet_gives_way_to_where_it_goes_next(by_tool: bool) -> None:
    reign = arriving(by_tool)
    reign.take(ReassignmentRequested({P0: (3,)}, request_id=6))
    assert (DropReassignments((P0,)) in reign.done) is by_tool
    reign.take(ArrivalsDue(reign.state.reign))
    assert assignments(reign) == [((3, 2), (3,), (2,))]


def test_arrival_that_is_not_written_yet_is_not_begun_again_by_the_tools_node() -> None:
    reign = arriving(by_tool=True)
    assert reign.take(ReassignmentsRead({P0: (2,)})) == []
    reign.take(ArrivalsDue(reign.state.reign))
    assert assignments(reign) == [((2,), (), ())]
    assert DropReassignments((P0,)) in reign.done


def test_arrivals_of_an_earlier_reign_are_not_written() -> None:
    reign = arriving(by_tool=True)
    assert reign.take(ArrivalsDue(reign.state.reign - 1)) == []


def test_topic_that_would_be_too_large_on_its_way_stays_where_it_is() -> None:
    assignment = dict.fromkeys(range(40000), (1,))
    reign = Reign(reigning([1, 2], assignment, {P0: led(1, [1])}))
    moves = {TopicPartition("t", index): (2,) for index in assignment}
    verdicts = reign.answer(ReassignmentRequested(dict(moves), request_id=5))
    assert {code for code, _ in verdicts.values()} == {ErrorCode.INVALID_REPLICA_ASSIGNMENT}
    assert "more than ZooKeeper takes" in verdicts[P0][1]
    assert not reign.state.reassignments

    verdicts = reign.answer(ReassignmentRequested({P0: (2,)}, request_id=6))
    assert verdicts[P0][0] is ErrorCode.NONE


def test_new_controller_goes_on_with_what_the_topics_tell() -> None:
    reign = Reign(reigning([]), nodes={P0: led(1, [1], epoch=1)})
    reign.take(
        ClusterRead(
            (broker(1), broker(2)),
            {"t": {0: (2, 1)}},
            dict(reign.nodes),
            (),
            reassigning={P0: Reassignment((1,), (2,))},
        )
    )
    assert reign.answer(ReassignmentsListed()) == {P0: ((2, 1), (2,), (1,))}
    reign.catches_up(P0, 1, 2)
    assert reign.led(P0)[:2] == (2, (2,))
    assert assignments(reign)[-1] == ((2,), (), ())


def test_new_controller_takes_out_of_both_nodes_what_a_stock_one_noted_in_both() -> None:
    reign = Reign(reigning([]), nodes={P0: led(1, [1], epoch=1)})
    reign.take(
        ClusterRead(
            (broker(1), broker(2)),
            {"t": {0: (2, 1)}},
            dict(reign.nodes),
            (),
            reassigning={P0: Reassignment((1,), (2,))},
            reassignments={P0: (2,)},
        )
    )
    assert DropReassignments((P0,)) not in reign.done
    reign.catches_up(P0, 1, 2)
    assert reign.led(P0)[:2] == (2, (2,))
    assert assignments(reign)[-1] == ((2,), (), ())
    assert DropReassignments((P0,)) in reign.done


# --- and deletions ---------------------------------------------------------------------------


def test_topic_on_the_move_is_deleted_when_it_has_arrived() -> None:
    reign = one_replica()
    ask(reign, (2,))
    assert reign.take(TopicsMarkedForDeletion(("t",))) == []
    reign.catches_up(P0, 1, 2)
    assert stopped(reign.done)[-1] == (2, (P0,), True)
    reign.take(StopReplicaAnswered(2, deleted=(P0,)))
    assert reign.state.assignments == {}


def test_topic_to_be_deleted_is_not_moved() -> None:
    reign = one_replica()
    reign.take(TopicsMarkedForDeletion(("t",)))
    assert ask(reign, (2,))[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    reign.take(ReassignmentsRead({P0: (2,)}))
    assert reign.done[-1] == DropReassignments((P0,))


def test_moving_partition_whose_leader_dies_is_led_by_another_and_goes_on() -> None:
    reign = Reign(reigning([1, 2, 3], {0: (1, 2)}, {P0: led(1, [1, 2])}))
    ask(reign, (3, 2))
    reign.take(changed([2, 3]))
    assert reign.led(P0)[:2] == (2, (2,))
    reign.catches_up(P0, 2, 3)
    assert reign.led(P0)[:2] == (2, (2, 3))
    assert reign.state.replicas(P0) == (3, 2)


def test_partition_that_never_had_a_leader_is_led_by_its_target() -> None:
    reign = Reign(reigning([2], {0: (1,)}))
    ask(reign, (2,))
    assert reign.led(P0)[:2] == (2, (2,))
    assert reign.state.replicas(P0) == (2,)
    assert reign.state.reassignments == {}
