"""The controller's decisions, event by event: elections, writes and requests."""

from collections.abc import Iterable
from typing import TypeVar

from broker.controller.effects import (
    ClearNotifications,
    CloseChannel,
    CloseChannels,
    DeleteMarkers,
    DeleteTopicZnodes,
    Effect,
    Elect,
    MarkForDeletion,
    OpenChannel,
    PartitionMetadata,
    ReadAssignments,
    ReadCluster,
    ReadPartitionStates,
    ReadUncleanElection,
    RefreshLeadership,
    RegisterBroker,
    Repeat,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
    StepDown,
    WritePartitionStates,
)
from broker.controller.events import (
    AssignmentsRead,
    BrokersChanged,
    ClusterRead,
    ControllerMoved,
    DeletionRequested,
    Elected,
    ElectionLost,
    FailoverFailed,
    NewSession,
    PartitionsAffected,
    PartitionStatesRead,
    PartitionStatesWritten,
    SessionExpired,
    StopReplicaResponseReceived,
    TopicDeleted,
    TopicsChanged,
    TopicsMarkedForDeletion,
    UncleanElectionRead,
)
from broker.controller.partitions import PARTITIONS_A_TURN
from broker.controller.state import ControllerState, Leadership
from protocol.topic_partition import TopicPartition
from tests.broker.controller.script import (
    EPOCH,
    P0,
    P1,
    ControllerScript,
    active_state,
    broker,
    brokers_changed,
    decide,
    led_by,
)

E = TypeVar("E")


def writes(effects: Iterable[Effect]) -> dict[TopicPartition, tuple[Leadership, int | None]]:
    """Return the writes: partition -> (leader, ISR and epochs), and the expected version."""
    return {
        write.partition: (Leadership(write.state, 0), write.zk_version)
        for effect in effects
        if isinstance(effect, WritePartitionStates)
        for write in effect.writes
    }


def sent_leader_and_isr(effects: Iterable[Effect]) -> dict[int, dict[TopicPartition, bool]]:
    """Return the receivers of LeaderAndIsr: broker -> partition -> is_new."""
    return {
        effect.broker_id: {led.partition: led.is_new for led in effect.partitions}
        for effect in effects
        if isinstance(effect, SendLeaderAndIsr)
    }


def of_type(effects: Iterable[Effect], kind: type[E]) -> list[E]:
    return [effect for effect in effects if isinstance(effect, kind)]


def write_succeeds(state: ControllerState, effects: Iterable[Effect]) -> list[Effect]:
    (write,) = of_type(effects, WritePartitionStates)
    done = tuple((state_write, (state_write.zk_version or -1) + 1) for state_write in write.writes)
    return decide(state, PartitionStatesWritten(done))


# --- elections -----------------------------------------------------------------------------


def test_elected_broker_reads_the_cluster() -> None:
    state = ControllerState(broker_id=1)
    assert decide(state, Elected(epoch=3, zk_version=4)) == [ClearNotifications(), ReadCluster()]
    assert (state.is_active, state.active_controller_id) == (True, 1)
    assert (state.epoch, state.epoch_zk_version) == (3, 4)


def test_a_controller_elected_again_resigns_first() -> None:
    """Somebody deleted /controller: what the controller knew may be old."""
    state = active_state([1, 2], {0: (1, 2)}, {P0: led_by(1, [1, 2])})
    effects = decide(state, Elected(epoch=state.epoch + 1, zk_version=9))
    assert effects == [CloseChannels(), ClearNotifications(), ReadCluster()]
    assert (state.is_active, state.is_loaded, state.resignations) == (True, False, 1)
    state.check()


def test_broker_that_lost_the_election_knows_who_won() -> None:
    state = ControllerState(broker_id=1)
    assert decide(state, ElectionLost(2)) == []
    assert (state.is_active, state.active_controller_id) == (False, 2)


def test_controller_that_finds_another_in_its_place_resigns() -> None:
    state = active_state([1, 2])
    assert decide(state, ElectionLost(2)) == [CloseChannels()]
    assert (state.is_active, state.active_controller_id, state.brokers) == (False, 2, {})


def test_new_session_registers_before_it_elects() -> None:
    assert decide(ControllerState(1), NewSession()) == [RegisterBroker(), Elect()]


def test_expired_session_makes_the_controller_resign() -> None:
    state = active_state([1], {0: (1,)}, {P0: led_by(1, [1])})
    assert decide(state, SessionExpired()) == [CloseChannels()]
    assert (state.is_active, state.resignations, state.leadership) == (False, 1, {})


def test_controller_whose_epoch_moved_resigns_and_looks_for_the_other() -> None:
    state = active_state([1])
    assert decide(state, ControllerMoved()) == [CloseChannels(), Elect()]
    assert not state.is_active


def test_controller_that_cannot_take_over_steps_down_under_its_epoch() -> None:
    state = active_state([1])
    assert decide(state, FailoverFailed()) == [CloseChannels(), StepDown(epoch_zk_version=7)]


def test_events_on_their_way_when_it_resigned_are_ignored() -> None:
    state = ControllerState(broker_id=1)
    assert decide(state, brokers_changed([1, 2])) == []
    assert decide(state, AssignmentsRead({"t": {0: (1,)}})) == []
    assert state.brokers == {}


# --- topics --------------------------------------------------------------------------------


def test_unknown_topic_is_read() -> None:
    assert decide(active_state([1]), TopicsChanged(("b", "a"))) == [ReadAssignments(("a", "b"))]


def test_new_partition_is_led_by_its_first_live_replica_with_all_live_in_sync() -> None:
    state = active_state([1, 2, 3])
    effects = decide(state, AssignmentsRead({"t": {0: (2, 3, 1), 1: (9, 3, 1)}}))
    assert writes(effects) == {
        P0: (led_by(2, [2, 3, 1]), None),
        P1: (led_by(3, [3, 1]), None),
    }


def test_no_broker_hears_of_a_new_partition_before_it_is_written() -> None:
    state = active_state([1, 2])
    effects = decide(state, AssignmentsRead({"t": {0: (2, 1)}}))
    assert [type(effect) for effect in effects] == [WritePartitionStates]


def test_new_partition_is_announced_to_replicas_as_new_and_then_to_all() -> None:
    state = active_state([1, 2, 3])
    effects = write_succeeds(state, decide(state, AssignmentsRead({"t": {0: (2, 1)}})))
    assert sent_leader_and_isr(effects) == {1: {P0: True}, 2: {P0: True}}
    assert [effect.live_leaders for effect in of_type(effects, SendLeaderAndIsr)] == [
        (broker(2),)
    ] * 2
    metadata = effects[-1]
    assert isinstance(metadata, SendUpdateMetadata)
    assert metadata.broker_ids == (1, 2, 3)
    assert [partition.partition for partition in metadata.partitions] == [P0]
    assert state.leadership == {P0: led_by(2, [2, 1])}


def test_new_partition_without_live_replica_waits_for_one() -> None:
    state = active_state([1])
    assert decide(state, AssignmentsRead({"t": {0: (2,)}})) == []
    assert writes(decide(state, brokers_changed([1, 2]))) == {P0: (led_by(2, [2]), None)}


def test_added_partition_alone_is_elected() -> None:
    state = active_state([1], {0: (1,)}, {P0: led_by(1, [1])})
    effects = decide(state, AssignmentsRead({"t": {0: (1,), 1: (1,)}}))
    assert list(writes(effects)) == [P1]


def test_known_partition_keeps_its_replicas_whatever_the_node_says() -> None:
    state = active_state([1, 2], {0: (1,)}, {P0: led_by(1, [1])})
    assert decide(state, AssignmentsRead({"t": {0: (2,)}})) == []
    assert state.replicas(P0) == (1,)


def test_topic_that_vanished_is_forgotten() -> None:
    state = active_state([1], {0: (1,)}, {P0: led_by(1, [1])})
    assert decide(state, TopicsChanged(())) == []
    assert (state.assignments, state.leadership) == ({}, {})


# --- brokers -------------------------------------------------------------------------------


def test_dead_follower_leaves_the_isr() -> None:
    state = active_state([1, 2, 3], {0: (1, 2, 3)}, {P0: led_by(1, [1, 2, 3], zk_version=4)})
    effects = decide(state, brokers_changed([1, 2]))
    assert effects[0] == CloseChannel(3)
    assert writes(effects) == {P0: (led_by(1, [1, 2], epoch=1), 4)}
    assert sent_leader_and_isr(write_succeeds(state, effects)) == {1: {P0: False}, 2: {P0: False}}


def test_dead_leader_is_followed_by_the_first_replica_in_sync() -> None:
    state = active_state([1, 2, 3], {0: (1, 2, 3)}, {P0: led_by(1, [1, 3], epoch=8)})
    assert writes(decide(state, brokers_changed([2, 3]))) == {P0: (led_by(3, [3], epoch=9), 0)}


def test_last_replica_in_sync_stays_in_the_isr_when_it_dies() -> None:
    state = active_state([1, 2], {0: (1,)}, {P0: led_by(1, [1])})
    assert writes(decide(state, brokers_changed([2]))) == {P0: (led_by(-1, [1], epoch=1), 0)}


def test_whole_isr_dead_at_once_stays_as_it_was() -> None:
    state = active_state([1, 2, 3], {0: (1, 2)}, {P0: led_by(1, [1, 2])})
    assert writes(decide(state, brokers_changed([3]))) == {P0: (led_by(-1, [1, 2], epoch=1), 0)}


def test_partition_without_leader_is_led_again_by_the_replica_in_sync_that_returns() -> None:
    state = active_state([2], {0: (1, 2)}, {P0: led_by(-1, [1], epoch=1)})
    assert writes(decide(state, brokers_changed([1, 2]))) == {P0: (led_by(1, [1], epoch=2), 0)}


def test_only_live_replica_out_of_sync_leads_if_the_topic_allows_it() -> None:
    state = active_state([1, 2], {0: (1, 2)}, {P0: led_by(1, [1])})
    effects = decide(state, brokers_changed([2]))
    assert effects[-1] == ReadUncleanElection((P0,))
    assert writes(effects) == {}
    allowed = decide(state, UncleanElectionRead((P0,), {"t": True}))
    assert writes(allowed) == {P0: (led_by(2, [2], epoch=1), 0)}


def test_only_live_replica_out_of_sync_waits_if_the_topic_forbids_it() -> None:
    state = active_state([1, 2], {0: (1, 2)}, {P0: led_by(1, [1])})
    decide(state, brokers_changed([2]))
    forbidden = decide(state, UncleanElectionRead((P0,), {"t": False}))
    assert writes(forbidden) == {P0: (led_by(-1, [1], epoch=1), 0)}


def test_death_of_a_broker_without_partitions_is_sent_to_live_brokers() -> None:
    state = active_state([1, 2, 3], {0: (1,)}, {P0: led_by(1, [1])})
    assert decide(state, brokers_changed([1, 2])) == [
        CloseChannel(3),
        SendUpdateMetadata((1, 2), (), (broker(1), broker(2))),
    ]


def test_offline_replica_is_published_even_if_it_was_out_of_sync() -> None:
    state = active_state([1, 2], {0: (1, 2)}, {P0: led_by(1, [1])})
    metadata = of_type(decide(state, brokers_changed([1])), SendUpdateMetadata)[-1]
    assert [partition.offline_replicas for partition in metadata.partitions] == [(2,)]


def test_returning_broker_gets_the_cluster_before_its_leader_and_isr() -> None:
    state = active_state([1], {0: (1, 2)}, {P0: led_by(1, [1])})
    effects = decide(state, brokers_changed([1, 2]))
    assert effects[0] == OpenChannel(broker(2))
    assert sent_leader_and_isr(effects) == {2: {P0: False}}
    to_new = [
        type(effect)
        for effect in effects
        if (isinstance(effect, SendLeaderAndIsr) and effect.broker_id == 2)
        or (isinstance(effect, SendUpdateMetadata) and 2 in effect.broker_ids)
    ]
    assert to_new == [SendUpdateMetadata, SendLeaderAndIsr, SendUpdateMetadata]
    assert writes(effects) == {}


def test_bounced_broker_is_dead_first_and_then_new() -> None:
    state = active_state([1, 2], {0: (1, 2)}, {P0: led_by(1, [1, 2])})
    bounce = brokers_changed([1, 2], b1=11)
    effects = decide(state, bounce)
    assert effects[0] == CloseChannel(1)
    assert writes(effects) == {P0: (led_by(2, [2], epoch=1), 0)}
    assert effects[-1] == Repeat(bounce)

    write_succeeds(state, effects)
    again = decide(state, bounce)
    assert again[0] == OpenChannel(broker(1, epoch=11))
    assert sent_leader_and_isr(again) == {1: {P0: False}}


def test_channel_moves_with_a_broker_that_keeps_its_partitions() -> None:
    state = active_state([1, 2], {0: (2,)}, {P0: led_by(2, [2])})
    moved = broker(2, port=9999)
    effects = decide(state, BrokersChanged((broker(1), moved)))
    assert effects == [
        OpenChannel(moved),
        SendUpdateMetadata((1, 2), (), (broker(1), moved)),
    ]


def test_same_brokers_read_again_change_nothing() -> None:
    state = active_state([1, 2], {0: (2,)}, {P0: led_by(2, [2])})
    assert decide(state, brokers_changed([1, 2])) == []


# --- conflicts -----------------------------------------------------------------------------


def test_state_that_changed_meanwhile_is_read_and_decided_again() -> None:
    state = active_state([1, 2, 3], {0: (1, 2, 3)}, {P0: led_by(1, [1, 2, 3])})
    decide(state, brokers_changed([2, 3]))
    assert decide(state, PartitionStatesWritten((), (P0,))) == [ReadPartitionStates((P0,))]
    read = PartitionStatesRead({P0: led_by(1, [1, 3], zk_version=1)})
    assert writes(decide(state, read)) == {P0: (led_by(3, [3], epoch=1), 1)}


def test_state_that_was_there_already_is_announced() -> None:
    state = active_state([1], {0: (1,)})
    effects = decide(state, PartitionStatesRead({P0: led_by(1, [1], epoch=3)}))
    assert sent_leader_and_isr(effects) == {1: {P0: False}}
    assert writes(effects) == {}


def test_state_whose_topic_is_gone_is_not_created_again() -> None:
    state = active_state([1], {0: (1,)}, {P0: led_by(1, [1])})
    assert decide(state, PartitionStatesRead({P0: None})) == []
    assert state.leadership == {}


def test_state_written_by_a_later_controller_makes_it_resign() -> None:
    state = active_state([1], {0: (1,)}, {P0: led_by(1, [1])})
    read = PartitionStatesRead({P0: led_by(1, [1], by=EPOCH + 1)})
    assert decide(state, read) == [CloseChannels(), Elect(beyond=6)]
    assert not state.is_active


# --- failover ------------------------------------------------------------------------------


def test_new_controller_tells_who_lives_and_what_there_is_before_who_leads() -> None:
    state = active_state([])
    told = (
        PartitionMetadata(P0, led_by(1, [1, 2], by=4), (1, 2), ()),
        PartitionMetadata(P1, led_by(3, [3, 2], by=4), (3, 2), (3,)),
    )
    cluster = ClusterRead(
        (broker(1), broker(2)),
        {"t": {0: (1, 2), 1: (3, 2)}},
        {P0: led_by(1, [1, 2], by=4), P1: led_by(3, [3, 2], by=4)},
        (),
    )
    effects = decide(state, cluster)
    assert effects[:3] == [
        OpenChannel(broker(1)),
        OpenChannel(broker(2)),
        SendUpdateMetadata((1, 2), told, (broker(1), broker(2))),
    ]
    assert sent_leader_and_isr(effects) == {1: {P0: False}, 2: {P0: False}}
    assert writes(effects) == {P1: (led_by(2, [2], epoch=1), 0)}
    assert state.is_loaded


def test_new_controller_goes_on_with_a_deletion_and_elects_nobody_for_it() -> None:
    state = active_state([])
    cluster = ClusterRead((broker(1),), {"t": {0: (1,), 1: (1,)}}, {P0: led_by(1, [1])}, ("t",))
    effects = decide(state, cluster)
    assert effects[-1] == SendStopReplica(1, (P0, P1))
    assert (sent_leader_and_isr(effects), writes(effects)) == ({}, {})


def test_new_controller_that_finds_a_later_epoch_in_a_state_resigns() -> None:
    state = active_state([])
    later = {P0: led_by(1, [1], by=EPOCH + 1)}
    effects = decide(state, ClusterRead((broker(1),), {"t": {0: (1,)}}, later, ()))
    assert effects == [CloseChannels(), Elect(beyond=6)]


# --- deletions -----------------------------------------------------------------------------


def two_replicas(brokers: Iterable[int] = (1, 2)) -> ControllerState:
    return active_state(brokers, {0: (1, 2)}, {P0: led_by(1, [1, 2])})


def test_requested_deletion_is_made_to_last_first() -> None:
    assert decide(two_replicas(), DeletionRequested(("t",))) == [MarkForDeletion(("t",))]


def test_marked_topic_is_hidden_before_its_replicas_are_deleted() -> None:
    hide, *stops = decide(two_replicas(), TopicsMarkedForDeletion(("t",)))
    assert isinstance(hide, SendUpdateMetadata)
    assert [partition.is_being_deleted for partition in hide.partitions] == [True]
    assert stops == [SendStopReplica(1, (P0,)), SendStopReplica(2, (P0,))]


def test_nodes_are_deleted_when_all_replicas_are() -> None:
    state = two_replicas()
    decide(state, TopicsMarkedForDeletion(("t",)))
    assert decide(state, StopReplicaResponseReceived(1, deleted=(P0,))) == []
    assert decide(state, StopReplicaResponseReceived(2, deleted=(P0,))) == [DeleteTopicZnodes("t")]
    assert decide(state, TopicDeleted("t")) == []
    assert (state.assignments, state.leadership, state.deletions) == ({}, {}, set())


def test_marker_read_again_asks_nobody_twice() -> None:
    state = two_replicas()
    decide(state, TopicsMarkedForDeletion(("t",)))
    assert decide(state, TopicsMarkedForDeletion(("t",))) == []


def test_replica_on_a_dead_broker_is_deleted_when_it_returns() -> None:
    state = two_replicas(brokers=[1])
    effects = decide(state, TopicsMarkedForDeletion(("t",)))
    assert of_type(effects, SendStopReplica) == [SendStopReplica(1, (P0,))]
    assert decide(state, StopReplicaResponseReceived(1, deleted=(P0,))) == []
    returned = decide(state, brokers_changed([1, 2]))
    assert of_type(returned, SendStopReplica) == [SendStopReplica(2, (P0,))]
    assert sent_leader_and_isr(returned) == {}


def test_broker_that_dies_before_it_answers_is_asked_again() -> None:
    state = two_replicas()
    decide(state, TopicsMarkedForDeletion(("t",)))
    died = decide(state, brokers_changed([1]))
    assert (of_type(died, SendStopReplica), writes(died)) == ([], {})
    returned = decide(state, brokers_changed([1, 2], b2=11))
    assert of_type(returned, SendStopReplica) == [SendStopReplica(2, (P0,))]


def test_failed_deletion_waits_for_the_next_registration() -> None:
    state = two_replicas()
    decide(state, TopicsMarkedForDeletion(("t",)))
    decide(state, StopReplicaResponseReceived(1, deleted=(P0,)))
    assert decide(state, StopReplicaResponseReceived(2, deleted=(), failed=(P0,))) == []
    bounced = decide(state, brokers_changed([1, 2], b2=11))
    assert of_type(bounced, SendStopReplica) == []
    again = decide(state, brokers_changed([1, 2], b2=11))
    assert of_type(again, SendStopReplica) == [SendStopReplica(2, (P0,))]


def test_marker_of_an_unknown_topic_is_deleted_only_after_a_look() -> None:
    state = active_state([1])
    assert decide(state, TopicsMarkedForDeletion(("new",))) == [ReadAssignments(("new",))]
    assert decide(state, AssignmentsRead({"new": None})) == [DeleteMarkers(("new",))]
    assert state.deletions == set()


def test_topic_created_and_marked_at_once_is_deleted_and_never_led() -> None:
    state = active_state([1])
    decide(state, TopicsMarkedForDeletion(("t",)))
    effects = decide(state, AssignmentsRead({"t": {0: (1,)}}))
    assert effects[-1] == SendStopReplica(1, (P0,))
    assert writes(effects) == {}


def test_marker_is_dropped_where_deletion_is_switched_off() -> None:
    state = two_replicas()
    state.delete_topic_enable = False
    assert decide(state, TopicsMarkedForDeletion(("t",))) == [DeleteMarkers(("t",))]
    assert state.deletions == set()


def test_marker_of_a_topic_that_somebody_else_deleted_is_dropped() -> None:
    state = two_replicas()
    decide(state, TopicsMarkedForDeletion(("t",)))
    assert decide(state, TopicsChanged(())) == [DeleteMarkers(("t",))]


def test_answer_from_before_the_broker_bounced_says_nothing_of_what_it_was_asked_since() -> None:
    state = two_replicas()
    decide(state, TopicsMarkedForDeletion(("t",)))
    for _ in range(2):
        decide(state, brokers_changed([1, 2], b2=11))
    decide(state, StopReplicaResponseReceived(2, deleted=(), failed=(P0,), broker_epoch=10))
    decide(state, StopReplicaResponseReceived(1, deleted=(P0,), broker_epoch=10))
    gone = decide(state, StopReplicaResponseReceived(2, deleted=(P0,), broker_epoch=11))
    assert gone == [DeleteTopicZnodes("t")]


def test_very_many_partitions_of_a_broker_that_died_are_settled_some_a_turn() -> None:
    count = 2 * PARTITIONS_A_TURN + 1
    partitions = [TopicPartition("t", index) for index in range(count)]
    # All but the last are led by the broker that dies; that one's leader knows it in sync.
    leaders = {partition: led_by(2, (2, 1)) for partition in partitions[:-1]}
    leaders[partitions[-1]] = led_by(1, (1,))
    state = active_state((1, 2), dict.fromkeys(range(count), (2, 1)), leaders)
    script = ControllerScript(state)

    effects = script.take(brokers_changed([1]))

    written = [len(effect.writes) for effect in effects if isinstance(effect, WritePartitionStates)]
    assert written == [PARTITIONS_A_TURN, PARTITIONS_A_TURN]
    assert {state.leadership[partition].state.leader for partition in partitions} == {1}
    repeated = [effect.event for effect in effects if isinstance(effect, Repeat)]
    assert [type(event) for event in repeated] == [PartitionsAffected, PartitionsAffected]
    assert RefreshLeadership((partitions[-1],)) in effects


def test_very_many_partitions_of_a_broker_that_is_back_are_all_announced_to_it() -> None:
    count = PARTITIONS_A_TURN + 1
    partitions = [TopicPartition("t", index) for index in range(count)]
    leaders = {partition: led_by(1, (1,)) for partition in partitions}
    state = active_state((1,), dict.fromkeys(range(count), (2, 1)), leaders)

    effects = ControllerScript(state).take(brokers_changed([1, 2]))

    announced = [
        led.partition
        for effect in effects
        if isinstance(effect, SendLeaderAndIsr) and effect.broker_id == 2
        for led in effect.partitions
    ]
    assert announced == partitions


def test_very_many_new_partitions_get_their_leaders_some_a_turn() -> None:
    count = 2 * PARTITIONS_A_TURN + 1
    state = active_state((1, 2))
    read = AssignmentsRead({"t": dict.fromkeys(range(count), (2, 1))})

    effects = ControllerScript(state).take(read)

    written = [len(effect.writes) for effect in effects if isinstance(effect, WritePartitionStates)]
    assert written == [PARTITIONS_A_TURN, PARTITIONS_A_TURN, 1]
    assert len(state.leadership) == count


def test_cluster_of_very_many_partitions_is_taken_over_some_of_them_a_turn() -> None:
    count = 2 * PARTITIONS_A_TURN + 1
    partitions = [TopicPartition("t", index) for index in range(count)]
    state = active_state(())
    cluster = ClusterRead(
        (broker(1), broker(2)),
        {"t": dict.fromkeys(range(count), (2, 1))},
        {partition: led_by(2, (2, 1)) for partition in partitions},
        (),
    )

    effects = ControllerScript(state).take(cluster)

    # All brokers know all partitions before any of them is led anew.
    metadata = next(effect for effect in effects if isinstance(effect, SendUpdateMetadata))
    assert len(metadata.partitions) == count
    announced = [
        (effect.broker_id, len(effect.partitions))
        for effect in effects
        if isinstance(effect, SendLeaderAndIsr)
    ]
    parts = [PARTITIONS_A_TURN, PARTITIONS_A_TURN, 1]
    assert announced == [(broker_id, size) for size in parts for broker_id in (1, 2)]
