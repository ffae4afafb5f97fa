"""The states of a replica and the moves between them (Kafka's ReplicaStateMachine)."""

from __future__ import annotations

from enum import Enum
from typing import Final

from broker.controller.state_machine import StateMachine


class ReplicaStatus(Enum):
    """Kafka's states of a replica."""

    NEW = 1  # its broker may have to create its log
    ONLINE = 2
    OFFLINE = 3  # its broker or its disk is gone, or it was stopped
    DELETION_STARTED = 4  # StopReplica was sent
    DELETION_SUCCESSFUL = 5
    DELETION_INELIGIBLE = 6  # it cannot be deleted until its broker returns
    NON_EXISTENT = 7


(
    NEW,
    ONLINE,
    OFFLINE,
    DELETION_STARTED,
    DELETION_SUCCESSFUL,
    DELETION_INELIGIBLE,
    NON_EXISTENT,
) = ReplicaStatus

REPLICA_STATES: Final = StateMachine(
    {
        NEW: frozenset({NON_EXISTENT}),
        ONLINE: frozenset({NEW, ONLINE, OFFLINE, DELETION_INELIGIBLE}),
        OFFLINE: frozenset({NEW, ONLINE, OFFLINE, DELETION_INELIGIBLE}),
        DELETION_STARTED: frozenset({OFFLINE}),
        DELETION_SUCCESSFUL: frozenset({DELETION_STARTED}),
        DELETION_INELIGIBLE: frozenset({OFFLINE, DELETION_STARTED}),
        NON_EXISTENT: frozenset({DELETION_SUCCESSFUL}),
    },
    absent=NON_EXISTENT,
)
"""For each state, the states from which it may be entered."""
