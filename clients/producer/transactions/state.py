"""The states of a transactional producer, and what is legal in each. Pure."""

from collections import deque
from collections.abc import Mapping
from enum import Enum

import attrs

from clients.errors import InvalidTransactionState, TransactionError
from clients.producer.transactions.requests import CommitOffsets, Identity, Request
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition


class Phase(Enum):
    """The state of the producer; the value ends the sentence "the producer …"."""

    UNINITIALIZED = "has no id yet: call init_transactions"
    INITIALIZING = "gets its id: wait for init_transactions"
    READY = "has no open transaction: call begin_transaction"
    OPEN = "has an open transaction: commit or abort it"
    MUST_ABORT = "must abort its transaction: call abort_transaction"
    COMMITTING = "commits its transaction: call commit_transaction again, which waits for the end"
    ABORTING = "aborts its transaction: call abort_transaction again, which waits for the end"
    FAILED = "has failed: close it"


LEGAL_FROM: Mapping[Phase, frozenset[Phase]] = {
    Phase.INITIALIZING: frozenset({Phase.UNINITIALIZED, Phase.ABORTING}),
    Phase.READY: frozenset({Phase.INITIALIZING, Phase.COMMITTING, Phase.ABORTING}),
    Phase.OPEN: frozenset({Phase.READY}),
    Phase.COMMITTING: frozenset({Phase.OPEN}),
    Phase.MUST_ABORT: frozenset({Phase.OPEN, Phase.COMMITTING}),
    Phase.ABORTING: frozenset({Phase.OPEN, Phase.MUST_ABORT}),
    Phase.FAILED: frozenset(Phase) - {Phase.FAILED},
}
"""The phases from which each can be entered, by a call or by a response."""


@frozen
class Failure:
    """A failure, for any number of callers; each gets an exception of its own."""

    kind: type[TransactionError]
    text: str
    code: ErrorCode = ErrorCode.NONE
    transaction_in_doubt: bool = False

    def error(self) -> TransactionError:
        """Return the exception."""
        return self.kind(self.text, self.code, transaction_in_doubt=self.transaction_in_doubt)


@attrs.define(eq=False)
class Transaction:
    """The state of a producer's transactions, which `decide` changes."""

    identity: Identity
    timeout_ms: int
    retry_backoff_ms: int
    phase: Phase = Phase.UNINITIALIZED
    can_renew: bool = False
    """True if the coordinator gives a new epoch to a producer that names the one it has."""
    failure: Failure | None = None
    """Why the transaction must be aborted, or the producer has failed."""
    needs_renewal: bool = False
    """True if the next numbers of a partition are not known."""

    # ---- what belongs to the transaction
    added: set[TopicPartition] = attrs.field(factory=set)
    groups: set[str] = attrs.field(factory=set)
    """Groups whose offsets have been added."""

    # ---- what is to be added, and done
    waiting: set[TopicPartition] = attrs.field(factory=set)
    """Partitions with batches that wait until they are added."""
    adding: frozenset[TopicPartition] = frozenset()
    """Partitions that the coordinator was asked to add: repeated until it is known."""
    adding_group: str | None = None
    """The same of a group's offsets."""
    offsets: deque[CommitOffsets] = attrs.field(factory=deque)
    """Offsets to commit; `decide` returns OffsetsCommitted for each in turn."""
    lost_offsets: CommitOffsets | None = None
    """Offsets that were sent and not answered: repeated until they are, also before an abort."""

    # ---- what was sent and not answered, and may arrive when the transaction is over
    has_lost: bool = False
    """True if a request to a coordinator had no response, whether it was repeated or not."""
    lost_partitions: set[TopicPartition] = attrs.field(factory=set)
    """Partitions with a batch that was given up, and may be written yet."""
    lost_groups: set[str] = attrs.field(factory=set)
    """Groups of lost offsets."""
    fences: deque[Request] = attrs.field(factory=deque)
    """Requests that keep it out of the next transaction, and go before all of that."""

    # ---- the end
    are_batches_done: bool = False
    """True if no batch has been queued or in flight since the end was asked for."""
    may_be_committed: bool = False
    """True if the coordinator has been asked to commit, and has not refused."""

    last_refusal: str = ""
    """Why the last request is to be repeated, for those who wait; "" if it is not."""
    request: Request | None = None
    """The request in flight, one at a time."""
    is_pausing: bool = False
    """True until the pause before the next request is over."""

    @property
    def is_begun(self) -> bool:
        """True if the coordinator may know of the transaction, and has to end it."""
        return bool(self.added or self.groups or self.adding or self.adding_group is not None)

    @property
    def is_ending(self) -> bool:
        """True if the end waits until all batches are done."""
        return self.phase in (Phase.COMMITTING, Phase.ABORTING)

    @property
    def drops_batches(self) -> bool:
        """True if no batch is sent, or sent again: its transaction will not be committed."""
        return self.phase in (Phase.MUST_ABORT, Phase.ABORTING, Phase.FAILED)

    def enter(self, phase: Phase) -> None:
        """Enter a phase, which must be legal."""
        assert self.phase in LEGAL_FROM[phase], f"{phase} cannot follow {self.phase}"
        self.phase = phase

    def refusal(self, phase: Phase, call: str) -> TransactionError | None:
        """Return the error of a call that enters a phase; None if it may."""
        if self.phase in LEGAL_FROM[phase]:
            return None
        return self.misuse(call)

    def misuse(self, call: str) -> TransactionError:
        """Return the error of a call that the phase does not allow."""
        # The reason says what to do.
        if self.phase in (Phase.MUST_ABORT, Phase.FAILED):
            assert self.failure is not None, "such a phase has a reason"
            return self.failure.error()
        return InvalidTransactionState(
            f"transactional.id {self.identity.transactional_id}: {call} is refused: the producer "
            f"{self.phase.value}"
        )
