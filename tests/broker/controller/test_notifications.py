"""Reports of brokers: changed ISRs, and disks that fail and work again."""

from broker.controller.effects import (
    CloseChannels,
    DeleteNotifications,
    Elect,
    RefreshLeadership,
    SendStopReplica,
    SendUpdateMetadata,
)
from broker.controller.events import (
    IsrChangesRead,
    LeaderAndIsrResponseReceived,
    LeadershipRead,
    LogDirEventsRead,
    StopReplicaResponseReceived,
    TopicsMarkedForDeletion,
)
from broker.controller.replica_states import ReplicaStatus
from protocol.topic_partition import TopicPartition
from tests.broker.controller.script import (
    EPOCH,
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

NODE = "/isr_change_notification/isr_change_0000000001"


def cluster() -> ControllerScript:
    leadership = {P0: led_by(1, [1, 2, 3]), P1: led_by(2, [2, 1, 3])}
    return ControllerScript(active_state([1, 2, 3], {0: (1, 2, 3), 1: (2, 1, 3)}, leadership))


def test_changed_isr_is_read_and_published_and_then_its_notification_goes() -> None:
    script = cluster()
    script.leader_writes(P0, 1, 3)
    effects = script.take(IsrChangesRead((NODE,), (P0,)))
    assert effects[0] == RefreshLeadership((P0,))
    (sent,) = sent_update_metadata(effects)
    assert sent.broker_ids == (1, 2, 3)
    assert [tuple(partition.leadership.state.isr) for partition in sent.partitions] == [(1, 3)]
    assert effects[-1] == DeleteNotifications((NODE,))
    assert sent_leader_and_isr(effects) == []


def test_notification_of_what_is_known_tells_nobody() -> None:
    effects = cluster().take(IsrChangesRead((NODE,), (P0,)))
    assert effects == [RefreshLeadership((P0,)), DeleteNotifications((NODE,))]


def test_notification_that_cannot_be_understood_or_is_of_an_unknown_topic_just_goes() -> None:
    script = cluster()
    unknown = TopicPartition("u", 0)
    assert script.take(IsrChangesRead((NODE,), (unknown,))) == [DeleteNotifications((NODE,))]
    assert script.take(IsrChangesRead((), ())) == []


def test_state_of_a_later_controller_makes_it_resign() -> None:
    script = cluster()
    later = led_by(1, [1], by=EPOCH + 1)
    assert script.take(LeadershipRead({P0: later})) == [CloseChannels(), Elect(beyond=6)]


def test_broker_that_lost_a_disk_is_asked_for_each_of_its_replicas() -> None:
    effects = cluster().take(LogDirEventsRead((NODE,), (2,)))
    assert [(to, led.partition) for to, led in sent_leader_and_isr(effects)] == [(2, P0), (2, P1)]
    assert effects[-1] == DeleteNotifications((NODE,))


def test_leader_on_a_failed_disk_is_replaced_and_stopped() -> None:
    script = cluster()
    effects = script.take(LeaderAndIsrResponseReceived(2, taken=(P0,), failed=(P1,)))
    assert script.leader_isr_epoch(P1) == (1, (1, 3), 1)
    assert script.leader_isr_epoch(P0) == (1, (1, 2, 3), 0)
    assert sent_stop_replicas(effects) == [(2, (P1,), False)]
    assert script.state.replica_states[P1, 2] is ReplicaStatus.OFFLINE
    (sent,) = [effect for effect in effects if isinstance(effect, SendUpdateMetadata)]
    assert [partition.offline_replicas for partition in sent.partitions] == [(2,)]


def test_follower_on_a_failed_disk_leaves_the_isr() -> None:
    script = cluster()
    script.take(LeaderAndIsrResponseReceived(2, taken=(), failed=(P0,)))
    assert script.leader_isr_epoch(P0) == (1, (1, 3), 1)


def test_failure_that_is_known_changes_nothing() -> None:
    script = cluster()
    script.take(LeaderAndIsrResponseReceived(2, taken=(), failed=(P0,)))
    assert script.take(LeaderAndIsrResponseReceived(2, taken=(), failed=(P0,))) == []


def test_replica_on_a_disk_that_works_again_is_online() -> None:
    script = cluster()
    script.take(LeaderAndIsrResponseReceived(2, taken=(), failed=(P0, P1)))
    effects = script.take(LeaderAndIsrResponseReceived(2, taken=(P0,), failed=()))
    assert script.state.replica_states[P0, 2] is ReplicaStatus.ONLINE
    assert {(to, led.partition) for to, led in sent_leader_and_isr(effects)} == {(2, P0)}
    assert script.state.offline_dirs[2] == {P1}


def test_later_registration_forgets_the_failed_disks() -> None:
    script = cluster()
    script.take(LeaderAndIsrResponseReceived(2, taken=(), failed=(P0,)))
    script.take(brokers_changed([1, 2, 3], b2=11))
    assert script.state.offline_dirs == {}
    assert script.state.is_online(P0, 2)


def test_answer_without_failures_is_nothing_new() -> None:
    assert cluster().take(LeaderAndIsrResponseReceived(2, taken=(P0, P1))) == []


def test_replica_on_a_failed_disk_holds_up_the_deletion_of_its_topic() -> None:
    script = cluster()
    script.take(LeaderAndIsrResponseReceived(2, taken=(), failed=(P0,)))
    asked = script.take(TopicsMarkedForDeletion(("t",)))
    assert sent_stop_replicas(asked) == [(1, (P0, P1), True), (2, (P1,), True), (3, (P0, P1), True)]
    script.take(StopReplicaResponseReceived(1, (P0, P1)))
    script.take(StopReplicaResponseReceived(3, (P0, P1)))
    script.take(StopReplicaResponseReceived(2, (P1,)))
    assert "t" in script.state.assignments
    back = script.take(brokers_changed([1, 2, 3], b2=11))
    assert sent_stop_replicas(back) == [(2, (P0,), True)]
    script.take(StopReplicaResponseReceived(2, (P0,)))
    assert script.state.assignments == {}


def test_deletion_that_a_full_disk_has_held_up_goes_on_when_the_disk_has_room() -> None:
    script = cluster()
    script.take(LeaderAndIsrResponseReceived(2, taken=(P1,), failed=(P0,)))
    script.take(TopicsMarkedForDeletion(("t",)))
    for broker_id in (1, 3):
        script.take(StopReplicaResponseReceived(broker_id, deleted=(P0, P1)))
    script.take(StopReplicaResponseReceived(2, deleted=(P1,)))
    assert script.state.replica_status((P0, 2)) is ReplicaStatus.DELETION_INELIGIBLE

    effects = script.take(LogDirEventsRead((NODE,), (2,)))
    (stop,) = [effect for effect in effects if isinstance(effect, SendStopReplica)]
    assert (stop.broker_id, stop.partitions, stop.delete) == (2, (P0,), True)
    script.take(StopReplicaResponseReceived(2, deleted=(P0,)))
    assert script.state.assignments == {}
