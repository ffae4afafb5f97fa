"""The states of a partition and the moves between them (Kafka's PartitionStateMachine)."""

from __future__ import annotations

from enum import Enum
from typing import Final

from broker.controller.state_machine import StateMachine


class PartitionStatus(Enum):
    """Kafka's states of a partition."""

    NEW = 0  # it has replicas, and never had a leader
    ONLINE = 1  # it has a leader that is alive
    OFFLINE = 2  # its leader is dead
    NON_EXISTENT = 3  # it was never created, or is being deleted


NEW, ONLINE, OFFLINE, NON_EXISTENT = PartitionStatus

PARTITION_STATES: Final = StateMachine(
    {
        NEW: frozenset({NON_EXISTENT}),
        ONLINE: frozenset({NEW, ONLINE, OFFLINE}),
        OFFLINE: frozenset({NEW, ONLINE, OFFLINE}),
        NON_EXISTENT: frozenset({OFFLINE}),
    },
    absent=NON_EXISTENT,
)
"""For each state, the states from which it may be entered."""
