"""The states of a transactional id, and the ways between them (KIP-98).

    EMPTY ──► ONGOING ──► PREPARE_COMMIT ──► COMPLETE_COMMIT ─┐
      ▲          │  └───► PREPARE_ABORT ───► COMPLETE_ABORT ──┤
      └──────────┴────────────────────────────────────────────┘

A producer that takes over, or a transaction that is open for too long, ends by PREPARE_ABORT with a
higher epoch, which fences the producer that had it. DEAD is an id that expires; it is not stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME_MS = -1
LAST_EPOCH = 2**15 - 1
"""The largest epoch. A producer never has it: it is only there to fence the one below."""


class TransactionState(IntEnum):
    """The state of a transactional id, by its number in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def title(self) -> str:
        """The name that clients know: "PrepareCommit"."""
        return self.name.title().replace("_", "")


EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT
DEAD = TransactionState.DEAD

STATE_NAMES = (*(state.title for state in TransactionState), "PrepareEpochFence")
"""The names of states by their number. The last one is never stored, nor is an id ever Dead."""

AT_REST = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
"""No transaction is open, and none is being ended."""
DECIDED = (PREPARE_COMMIT, PREPARE_ABORT)
"""The transaction is decided, and its markers are not all written."""

MAY_FOLLOW: Mapping[TransactionState, tuple[TransactionState, ...]] = {
    EMPTY: AT_REST,
    ONGOING: (ONGOING, *AT_REST),
    PREPARE_COMMIT: (ONGOING,),
    PREPARE_ABORT: (ONGOING,),
    COMPLETE_COMMIT: (PREPARE_COMMIT,),
    COMPLETE_ABORT: (PREPARE_ABORT,),
    DEAD: AT_REST,
}
"""State -> the states that it may follow."""

COMPLETED = {PREPARE_COMMIT: COMPLETE_COMMIT, PREPARE_ABORT: COMPLETE_ABORT}
"""A decision -> what the transaction is once all its markers are written."""


@frozen
class Transaction:
    """A transactional id with its last transaction, as it is stored.

    `timeout_ms` is that of its producer. `start_ms` is the time of the first partition of the
    transaction, -1 for an id that had none. Times are the coordinator's clock.
    """

    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState = EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    updated_ms: int = NO_TIME_MS
    start_ms: int = NO_TIME_MS

    @property
    def is_commit(self) -> bool:
        """Return whether the transaction is, or is being, committed."""
        return self.state in (PREPARE_COMMIT, COMPLETE_COMMIT)
