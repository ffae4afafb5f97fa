"""The transaction coordinator's decision function: (shard, event, now_ms) -> effects.

Every change of an id goes the same way: nothing else may be pending; the next state is written;
once it is replicated, `replay` has made it the stored one, and the end of the append goes on from
there. While a change is pending others get CONCURRENT_TRANSACTIONS and are tried again. If a write
takes long the id stays blocked until the log has decided, for what is in the log is what holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import attrs

from groups.runtime.append_errors import TRY_AGAIN
from groups.runtime.effects import Append, Effect, Publish, Reply, RequestId, SetTimer
from groups.runtime.events import Unloaded
from groups.transactions.events import (
    AddPartitions,
    CompletionDue,
    CompletionStored,
    DecisionStored,
    Done,
    EndTransaction,
    ExpiryCheck,
    IdsLoaded,
    InitProducer,
    Marker,
    MarkersWritten,
    PartitionsStored,
    ProducerGiven,
    ProducerStored,
    RemovalStored,
    SendMarkers,
    TimeoutCheck,
    TransactionEvent,
)
from groups.transactions.shard import LiveId, TransactionShard
from groups.transactions.state import (
    AT_REST,
    COMPLETED,
    DEAD,
    DECIDED,
    EMPTY,
    LAST_EPOCH,
    MAY_FOLLOW,
    NO_EPOCH,
    NO_PRODUCER_ID,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    Transaction,
    TransactionState,
)
from protocol.errors import ErrorCode

Event = TransactionEvent | Unloaded

FIRST_EPOCH = 0
LAST_EPOCH_OF_PRODUCERS = LAST_EPOCH - 1
"""The largest epoch that a producer is given; after it comes another producer id."""
RETRY_MS = 500
"""Time after which a completion that could not be written is tried again."""


def decide(shard: TransactionShard, event: Event, now_ms: int) -> Sequence[Effect]:
    """Return the effects of `event`.

    Stored state does not change: that is left to replay. `now_ms` is the wall clock.
    """
    return DECIDE[type(event)](shard, event, now_ms)


# ---- InitProducerId


def needs_producer_id(shard: TransactionShard, event: InitProducer) -> bool:
    """Return whether the producer is to be given an id that nobody has had."""
    current = shard.transactions.get(event.transactional_id)
    if current is None:
        return True
    return current.state in AT_REST and _is_exhausted(current, event)


def init_producer(shard: TransactionShard, event: InitProducer, now_ms: int) -> list[Effect]:
    """Give the producer an epoch that fences whoever had the id; abort what that one left open."""
    transactional_id = event.transactional_id
    current = shard.transactions.get(transactional_id)
    live = shard.live_id(transactional_id)

    error = _refusal_of_init(current, live, event)
    if error:
        return [Reply(event.request_id, ProducerGiven(error))]
    if current is not None and current.state is ONGOING:
        return _fence(shard, transactional_id, current, event.request_id, now_ms)

    given = _give(current, live, event)
    if given is None:
        return [Reply(event.request_id, ProducerGiven(ErrorCode.PRODUCER_FENCED))]
    producer_id, epoch, last_epoch = given
    stored = Transaction(producer_id, epoch, event.timeout_ms, EMPTY, updated_ms=now_ms)
    last_producer_id = producer_id if current is None else current.producer_id
    then = ProducerStored(event.request_id, transactional_id, stored, last_producer_id, last_epoch)
    return [_change(shard, transactional_id, stored, then)]


def _refusal_of_init(current: Transaction | None, live: LiveId, event: InitProducer) -> ErrorCode:
    if live.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if current is None:
        return ErrorCode.NONE
    if event.producer_id != NO_PRODUCER_ID and not _had_the_id(current, live, event):
        return ErrorCode.PRODUCER_FENCED
    # The transaction before it is being ended.
    is_decided = current.state in DECIDED
    return ErrorCode.CONCURRENT_TRANSACTIONS if is_decided else ErrorCode.NONE


def _had_the_id(current: Transaction, live: LiveId, event: InitProducer) -> bool:
    if event.producer_id == current.producer_id:
        return True
    # It had the producer id before this one, with its last epoch.
    return event.producer_id == live.last_producer_id and event.epoch >= LAST_EPOCH_OF_PRODUCERS


def _is_exhausted(current: Transaction, event: InitProducer) -> bool:
    is_current = event.epoch in (NO_EPOCH, current.epoch)
    return is_current and current.epoch >= LAST_EPOCH_OF_PRODUCERS


def _give(
    current: Transaction | None, live: LiveId, event: InitProducer
) -> tuple[int, int, int] | None:
    """Return (producer id, epoch, epoch to be remembered as the last one); None if it is fenced."""
    if current is None:
        return event.new_producer_id, FIRST_EPOCH, NO_EPOCH
    if _is_exhausted(current, event):
        return event.new_producer_id, FIRST_EPOCH, event.epoch

    # A producer that begins, or one that asks for the next epoch (KIP-360).
    if event.epoch in (NO_EPOCH, current.epoch):
        return current.producer_id, current.epoch + 1, event.epoch
    # The response to that was lost, and it asks again.
    if event.epoch == live.last_epoch:
        return current.producer_id, current.epoch, live.last_epoch
    return None


def end_init(shard: TransactionShard, event: ProducerStored, now_ms: int) -> list[Effect]:
    """Respond to InitProducerId."""
    live = _end_change(shard, event.transactional_id)
    given = event.stored
    # It may be stored although too few replicas were in sync afterwards.
    if shard.transactions.get(event.transactional_id) == given:
        live.last_producer_id = event.last_producer_id
        live.last_epoch = event.last_epoch

    if event.error:
        return [Reply(event.request_id, ProducerGiven(_error_of(event.error)))]
    return [Reply(event.request_id, ProducerGiven(ErrorCode.NONE, given.producer_id, given.epoch))]


# ---- AddPartitionsToTxn, AddOffsetsToTxn


def add_partitions(shard: TransactionShard, event: AddPartitions, now_ms: int) -> list[Effect]:
    """Add partitions, and begin the transaction with the first of them."""
    transactional_id = event.transactional_id
    current = shard.transactions.get(transactional_id)
    error = _refusal(shard, current, event)
    if error:
        return [Reply(event.request_id, Done(error))]

    assert current is not None
    is_open = current.state is ONGOING
    if is_open and event.partitions <= current.partitions:
        return [Reply(event.request_id, Done())]

    stored = attrs.evolve(
        current,
        state=ONGOING,
        partitions=current.partitions | event.partitions,
        updated_ms=now_ms,
        start_ms=current.start_ms if is_open else now_ms,
    )
    then = PartitionsStored(event.request_id, transactional_id)
    return [_change(shard, transactional_id, stored, then)]


def end_add(shard: TransactionShard, event: PartitionsStored, now_ms: int) -> list[Effect]:
    """Respond to AddPartitionsToTxn."""
    _end_change(shard, event.transactional_id)
    return [Reply(event.request_id, Done(_error_of(event.error)))]


def _refusal(
    shard: TransactionShard, current: Transaction | None, event: AddPartitions | EndTransaction
) -> ErrorCode:
    """Return why a producer may not change its transaction now; NONE if it may.

    A fenced producer is told so, also while something is pending.
    """
    if current is None or event.producer_id != current.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if event.epoch != shard.epoch_of(event.transactional_id, current):
        return ErrorCode.PRODUCER_FENCED
    is_decided = current.state in DECIDED
    if is_decided and isinstance(event, EndTransaction):
        return _refusal_to_end(current, event)
    if is_decided or shard.pending_of(event.transactional_id) is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.NONE


# ---- EndTxn


def end_transaction(shard: TransactionShard, event: EndTransaction, now_ms: int) -> list[Effect]:
    """Decide the transaction."""
    current = shard.transactions.get(event.transactional_id)
    error = _refusal(shard, current, event)
    if error:
        return [Reply(event.request_id, Done(error))]

    assert current is not None
    if current.state is not ONGOING:
        return [Reply(event.request_id, Done(_refusal_to_end(current, event)))]
    state = PREPARE_COMMIT if event.is_commit else PREPARE_ABORT
    stored = attrs.evolve(current, state=state, updated_ms=now_ms)
    then = DecisionStored(event.request_id, event.transactional_id)
    return [_change(shard, event.transactional_id, stored, then)]


def _refusal_to_end(current: Transaction, event: EndTransaction) -> ErrorCode:
    """Return the error for a transaction that is not open; NONE if it has ended as asked."""
    if current.state is EMPTY or current.is_commit != event.is_commit:
        return ErrorCode.INVALID_TXN_STATE
    if current.state in DECIDED:
        return ErrorCode.CONCURRENT_TRANSACTIONS  # until its markers are written
    return ErrorCode.NONE


def end_decision(shard: TransactionShard, event: DecisionStored, now_ms: int) -> list[Effect]:
    """Respond, and have the markers written. The transaction is decided, and that is visible soon.

    Where too few replicas were in sync afterwards the decision stands all the same.
    """
    live = _end_change(shard, event.transactional_id)
    effects: list[Effect] = []
    if event.request_id is not None:
        error = _error_of(event.error) or event.response
        effects.append(Reply(event.request_id, _response_of(event, error)))

    current = shard.transactions.get(event.transactional_id)
    if event.error is ErrorCode.NOT_COORDINATOR or current is None or current.state not in DECIDED:
        return effects
    # The stored epoch is the one that fences.
    live.fence_epoch = NO_EPOCH
    return effects + _send_markers(shard, event.transactional_id, current, now_ms)


def _response_of(event: DecisionStored, error: ErrorCode) -> ProducerGiven | Done:
    return ProducerGiven(error) if event.response else Done(error)


# ---- fencing


def _fence(
    shard: TransactionShard,
    transactional_id: str,
    current: Transaction,
    request_id: RequestId | None,
    now_ms: int,
) -> list[Effect]:
    """Abort an open transaction with a higher epoch, which its producer does not have."""
    live = shard.live_id(transactional_id)
    if live.fence_epoch == NO_EPOCH:
        live.fence_epoch = min(current.epoch + 1, LAST_EPOCH)
        live.last_epoch = NO_EPOCH

    stored = attrs.evolve(current, epoch=live.fence_epoch, state=PREPARE_ABORT, updated_ms=now_ms)
    # Whoever fences asks again, when the transaction is ended.
    then = DecisionStored(request_id, transactional_id, ErrorCode.CONCURRENT_TRANSACTIONS)
    return [_change(shard, transactional_id, stored, then)]


def abort_timed_out(shard: TransactionShard, event: TimeoutCheck, now_ms: int) -> list[Effect]:
    """Abort the transactions that are open for longer than their producers wanted."""
    effects: list[Effect] = []
    for transactional_id, current in _unchanging(shard, event.transactional_ids):
        is_late = current.start_ms + current.timeout_ms < now_ms
        if current.state is ONGOING and is_late:
            effects += _fence(shard, transactional_id, current, None, now_ms)
    return effects


# ---- markers


def _send_markers(
    shard: TransactionShard, transactional_id: str, current: Transaction, now_ms: int
) -> list[Effect]:
    """Have the markers of a decided transaction written, and write then that they are."""
    live = shard.live_id(transactional_id)
    live.pending = COMPLETED[current.state]
    live.unwritten = set(current.partitions)
    if not live.unwritten:
        return _complete(shard, transactional_id, current, now_ms)

    marker = Marker(transactional_id, current.producer_id, current.epoch, current.is_commit)
    return [Publish(SendMarkers(marker, current.partitions))]


def note_markers(shard: TransactionShard, event: MarkersWritten, now_ms: int) -> list[Effect]:
    """Note markers that are written; after the last one the transaction is complete."""
    transactional_id = event.transactional_id
    # Another coordinator, or another transaction, may have come between.
    if not shard.wants(transactional_id, event.producer_id, event.epoch):
        return []
    live = shard.live_id(transactional_id)
    live.unwritten.difference_update(event.partitions)
    if live.unwritten:
        return []
    return _complete(shard, transactional_id, shard.transactions[transactional_id], now_ms)


def _complete(
    shard: TransactionShard, transactional_id: str, current: Transaction, now_ms: int
) -> list[Effect]:
    stored = attrs.evolve(
        current, state=COMPLETED[current.state], partitions=frozenset(), updated_ms=now_ms
    )
    # `pending` is set since the decision.
    _check_transition(current, stored.state)
    return [Append([(transactional_id, stored)], then=CompletionStored(transactional_id))]


def end_completion(shard: TransactionShard, event: CompletionStored, now_ms: int) -> list[Effect]:
    """Let the next transaction begin, or try to write again that this one has ended."""
    transactional_id = event.transactional_id
    current = shard.transactions.get(transactional_id)
    if current is None or current.state not in DECIDED:
        _end_change(shard, transactional_id)
        return []
    if event.error is ErrorCode.NOT_COORDINATOR:
        return []  # the next coordinator sends the markers again
    return [SetTimer(CompletionDue(transactional_id), RETRY_MS)]


def complete_again(shard: TransactionShard, event: CompletionDue, now_ms: int) -> list[Effect]:
    """Write again that all markers are written."""
    current = shard.transactions.get(event.transactional_id)
    if current is None or current.state not in DECIDED:
        return []
    if shard.live_id(event.transactional_id).unwritten:
        return []
    return _complete(shard, event.transactional_id, current, now_ms)


def resume(shard: TransactionShard, event: IdsLoaded, now_ms: int) -> list[Effect]:
    """Send the markers of transactions that were decided by an earlier coordinator."""
    effects: list[Effect] = []
    for transactional_id, current in _unchanging(shard, event.transactional_ids):
        if current.state in DECIDED:
            effects += _send_markers(shard, transactional_id, current, now_ms)
    return effects


# ---- expiry


def expire(shard: TransactionShard, event: ExpiryCheck, now_ms: int) -> list[Effect]:
    """Write tombstones for ids that nobody used for long; an open transaction keeps its id."""
    effects: list[Effect] = []
    for transactional_id, current in _unchanging(shard, event.transactional_ids):
        is_unused = current.updated_ms <= now_ms - event.expiration_ms
        if current.state in AT_REST and is_unused:
            _check_transition(current, DEAD)
            shard.live_id(transactional_id).pending = DEAD
            removal = RemovalStored(transactional_id)
            effects.append(Append([(transactional_id, None)], then=removal))
    return effects


def end_removal(shard: TransactionShard, event: RemovalStored, now_ms: int) -> list[Effect]:
    """Forget an id whose tombstone is written; one that is left is found by the next check."""
    _end_change(shard, event.transactional_id)
    if event.transactional_id not in shard.transactions:
        shard.live.pop(event.transactional_id, None)
    return []


# ---- all changes


def _unchanging(
    shard: TransactionShard, transactional_ids: Iterable[str]
) -> Iterator[tuple[str, Transaction]]:
    """Go through those of the ids that are known, and of which no change is pending."""
    for transactional_id in transactional_ids:
        current = shard.transactions.get(transactional_id)
        if current is not None and shard.pending_of(transactional_id) is None:
            yield transactional_id, current


def _change(
    shard: TransactionShard, transactional_id: str, stored: Transaction, then: Any
) -> Append:
    """Write the next state of an id, which is pending until that has ended."""
    _check_transition(shard.transactions.get(transactional_id), stored.state)
    live = shard.live_id(transactional_id)
    assert live.pending is None, "one change at a time"
    live.pending = stored.state
    return Append([(transactional_id, stored)], then=then)


def _end_change(shard: TransactionShard, transactional_id: str) -> LiveId:
    live = shard.live_id(transactional_id)
    live.pending = None
    return live


def _check_transition(current: Transaction | None, state: TransactionState) -> None:
    before = EMPTY if current is None else current.state
    assert before in MAY_FOLLOW[state], f"{state.title} may not follow {before.title}"


def _error_of(error: ErrorCode) -> ErrorCode:
    """Return the error of an append as a producer knows it."""
    return APPEND_ERRORS.get(error, error)


APPEND_ERRORS = {
    **TRY_AGAIN,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    # Clients know no such error of a transaction.
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def unload(shard: TransactionShard, event: Unloaded, now_ms: int) -> list[Effect]:
    """Do nothing: requests wait for appends alone, which end with NOT_COORDINATOR."""
    return []


DECIDE: dict[type[Event], Callable[[TransactionShard, Any, int], Sequence[Effect]]] = {
    # Requests, and the ends of their appends.
    InitProducer: init_producer,
    ProducerStored: end_init,
    AddPartitions: add_partitions,
    PartitionsStored: end_add,
    EndTransaction: end_transaction,
    DecisionStored: end_decision,
    # Markers.
    MarkersWritten: note_markers,
    CompletionStored: end_completion,
    CompletionDue: complete_again,
    # Times.
    TimeoutCheck: abort_timed_out,
    ExpiryCheck: expire,
    RemovalStored: end_removal,
    # The shard as a whole.
    IdsLoaded: resume,
    Unloaded: unload,
}
