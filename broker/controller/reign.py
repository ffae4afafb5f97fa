"""From the election of this broker to its resignation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from broker.controller.effects import (
    ClearNotifications,
    CloseChannels,
    Effect,
    Elect,
    ReadCluster,
    RegisterBroker,
    StepDown,
)
from broker.controller.events import (
    ControllerMoved,
    Elected,
    ElectionDue,
    ElectionLost,
    FailoverFailed,
    NewSession,
)
from broker.controller.state import ControllerState, Leadership


def election_due(state: ControllerState, event: ElectionDue) -> list[Effect]:
    """See who reigns."""
    return [Elect()]


def new_session(state: ControllerState, event: NewSession) -> list[Effect]:
    """The broker is registered before it stands for election: a controller that is not among
    the live brokers would lead nothing and reach nobody."""
    return [RegisterBroker(), Elect()]


def elected(state: ControllerState, event: Elected) -> list[Effect]:
    """Notifications of the past are of no use: what they tell of is read anew."""
    state.is_active, state.active_controller_id = True, state.broker_id
    state.epoch, state.epoch_zk_version = event.epoch, event.zk_version
    return [ClearNotifications(), ReadCluster()]


def election_lost(state: ControllerState, event: ElectionLost) -> list[Effect]:
    """Another broker reigns."""
    effects = resign(state, event) if state.is_active else []
    state.active_controller_id = event.controller_id
    return effects


def controller_moved(state: ControllerState, event: ControllerMoved) -> list[Effect]:
    """Another broker was elected, and this one has not heard of it yet."""
    return [*resign(state, event), Elect(event.epoch)]


def failover_failed(state: ControllerState, event: FailoverFailed) -> list[Effect]:
    """What this broker cannot read, another one perhaps can."""
    step_down = StepDown(state.epoch_zk_version)
    return [*resign(state, event), step_down]


def resign(state: ControllerState, event: Any) -> list[Effect]:
    """Whatever this controller knew is out of date from now on."""
    state.resign()
    return [CloseChannels()]


def passed_by(state: ControllerState, found: Iterable[Leadership]) -> list[Effect] | None:
    """The resignation of a controller that finds a state which a later one has written.

    Should /controller_epoch itself have been lost and begun anew, the next epoch is beyond what is
    in the states.
    """
    latest = max((known.state.controller_epoch for known in found), default=0)
    return controller_moved(state, ControllerMoved(latest)) if latest > state.epoch else None
