"""A replica is new until its broker says that it has its log."""

from __future__ import annotations

import pytest

from broker.controller.events import AssignmentsRead, LeaderAndIsrResponseReceived
from broker.controller.replica_states import ReplicaStatus
from protocol.topic_partition import TopicPartition
from tests.broker.controller.script import (
    ControllerScript,
    active_state,
    brokers_changed,
    sent_leader_and_isr,
)

P0 = TopicPartition("t", 0)


def created(live: list[int], replicas: tuple[int, ...]) -> ControllerScript:
    """Create a topic of one partition, of which no broker has heard yet."""
    script = ControllerScript(active_state(live))
    script.take(AssignmentsRead({"t": {0: replicas}}))
    return script


def confirm(script: ControllerScript, broker_id: int) -> None:
    script.take(LeaderAndIsrResponseReceived(broker_id, taken=(P0,)))


@pytest.mark.fault("core-R8")
def test_broker_that_dies_before_it_made_its_log_may_make_it_when_it_returns() -> None:
    script = created([1, 3], (1, 2))
    script.take(brokers_changed([3]))
    assert script.leader_isr_epoch(P0)[:2] == (-1, (1,))
    requests = sent_leader_and_isr(script.take(brokers_changed([1, 3])))
    assert [(to, led.is_new) for to, led in requests] == [(1, True)]
    assert script.leader_isr_epoch(P0)[:2] == (1, (1,))


def test_broker_that_has_made_its_log_must_have_it_when_it_returns() -> None:
    script = created([1, 3], (1, 2))
    confirm(script, 1)
    script.take(brokers_changed([3]))
    requests = sent_leader_and_isr(script.take(brokers_changed([1, 3])))
    assert [(to, led.is_new) for to, led in requests] == [(1, False)]


def test_response_of_one_broker_says_nothing_of_another() -> None:
    script = created([1, 2], (1, 2))
    confirm(script, 1)
    assert script.state.replica_status((P0, 1)) is ReplicaStatus.ONLINE
    assert script.state.replica_status((P0, 2)) is ReplicaStatus.NEW


@pytest.mark.fault("core-R8")
def test_replica_that_has_its_log_is_elected_before_one_that_may_have_none() -> None:
    script = created([1, 2, 3], (1, 2, 3))
    confirm(script, 1)
    confirm(script, 3)
    script.take(brokers_changed([2, 3]))
    assert script.leader_isr_epoch(P0) == (3, (2, 3), 1)
