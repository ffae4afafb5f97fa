"""The controller's election, takeover and resignation."""

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


def handle_election_due(state: ControllerState, event: ElectionDue) -> list[Effect]:
    """Look who the controller is, and stand for election if there is none."""
    return [Elect()]


def handle_new_session(state: ControllerState, event: NewSession) -> list[Effect]:
    """Register the broker before it stands for election.

    A controller that is not among the live brokers would lead nothing and reach nobody.
    """
    return [RegisterBroker(), Elect()]


def handle_elected(state: ControllerState, event: Elected) -> list[Effect]:
    """Become the active controller and read the cluster.

    Old notifications are deleted unread, because the whole cluster is read anyway. A controller
    that is elected again, because somebody deleted /controller, resigns first: what it knew may be
    old.
    """
    effects = resign(state, event) if state.is_active else []

    # Every write from now on is checked against this version.
    state.is_active = True
    state.active_controller_id = state.broker_id
    state.epoch = event.epoch
    state.epoch_zk_version = event.zk_version

    # Clear before the cluster is read: a notification after that is news.
    return [*effects, ClearNotifications(), ReadCluster()]


def handle_election_lost(state: ControllerState, event: ElectionLost) -> list[Effect]:
    """Note that another broker is the controller, and resign if this one was."""
    effects = resign(state, event) if state.is_active else []
    state.active_controller_id = event.controller_id
    return effects


def handle_controller_moved(state: ControllerState, event: ControllerMoved) -> list[Effect]:
    """Resign: another broker was elected, and this one had not seen it yet."""
    # Elect finds the other controller, or stands again above its epoch.
    return [*resign(state, event), Elect(event.epoch)]


def handle_failover_failed(state: ControllerState, event: FailoverFailed) -> list[Effect]:
    """Step down: another broker may be able to read what this one cannot."""
    # Take the version before the resignation clears it.
    step_down = StepDown(state.epoch_zk_version)
    return [*resign(state, event), step_down]


def resign(state: ControllerState, event: Any) -> list[Effect]:
    """Clear the state and close all channels."""
    state.resign()
    return [CloseChannels()]


def resign_if_superseded(
    state: ControllerState, leaderships: Iterable[Leadership]
) -> list[Effect] | None:
    """Resign if a later controller wrote one of these states; return None if none did.

    If /controller_epoch itself was lost and starts again, the next epoch must be larger than any in
    the states.
    """
    epochs = (leadership.state.controller_epoch for leadership in leaderships)
    latest_epoch = max(epochs, default=0)
    if latest_epoch <= state.epoch:
        return None
    return handle_controller_moved(state, ControllerMoved(latest_epoch))
