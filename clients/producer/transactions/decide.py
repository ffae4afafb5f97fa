"""The decisions of a transactional producer: a function of state and event (KIP-98, KIP-360). Pure.

The theory. A coordinator keeps the id and its epoch, and the partitions of its open transaction.
Requests to it go one at a time:

    InitProducerId                         an id; another producer that had it is fenced
      -> AddPartitionsToTxn                before the first batch of each partition
      -> AddOffsetsToTxn, TxnOffsetCommit  positions of a group
      -> EndTxn                            when no batch is queued or in flight

What fails makes the transaction one that can only be aborted. If then the next number of a
partition is unknown, because a batch may be written or not, the coordinator gives another epoch
before the next transaction; it refuses if another producer has come since. Before Kafka 2.5 it
cannot, and the producer has failed.

A request to add something is repeated until it is known whether it was added, also while the
transaction is aborted: the coordinator refuses to end a transaction that has nothing in it. So are
offsets whose response was lost: behind the marker they would belong to the next transaction.

A request that was repeated may still arrive, by the connection that was lost, when its transaction
is over. So after such a transaction the producer takes another epoch, in which coordinators refuse
it; and ends an empty transaction where it had sent batches or offsets, whose marker drops what has
arrived behind the last one, and tells the log of the new epoch. Brokers before 2.5 give none.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from clients.errors import (
    ProducerFailed,
    ProducerFenced,
    TransactionAborted,
    TransactionFailed,
)
from clients.producer.transactions import effects as do
from clients.producer.transactions import events as on
from clients.producer.transactions.reactions import FIRST_RETRY_MS, OF_BATCHES, Reaction, react
from clients.producer.transactions.requests import (
    API_KEYS,
    API_NAMES,
    AddOffsets,
    AddPartitions,
    CommitOffsets,
    End,
    Identity,
    Initialize,
    Request,
)
from clients.producer.transactions.state import Failure, Phase, Transaction
from protocol.errors import ErrorCode
from protocol.needs import missing_right

_WORKING = (Phase.OPEN, Phase.COMMITTING)
_MOST_NAMED = 5
"""Most partitions that an error names."""


def decide(transaction: Transaction, event: on.Event) -> list[do.Effect]:
    """Change the state by an event, and return the effects to perform."""
    # A failed producer has told so, and does nothing more.
    if transaction.phase is Phase.FAILED:
        return []
    return [*DECIDE[type(event)](transaction, event), *_next_request(transaction)]


# ---- the application's calls


def _initialize_asked(transaction: Transaction, event: on.InitializeAsked) -> list[do.Effect]:
    transaction.enter(Phase.INITIALIZING)
    return []


def _begin_asked(transaction: Transaction, event: on.BeginAsked) -> list[do.Effect]:
    transaction.enter(Phase.OPEN)
    transaction.may_be_committed = False
    return []


def _offsets_asked(transaction: Transaction, event: on.OffsetsAsked) -> list[do.Effect]:
    transaction.offsets.append(event.commit)
    return []


def _offsets_foreign(transaction: Transaction, event: on.OffsetsForeign) -> list[do.Effect]:
    return _must_abort(transaction, event.text, ErrorCode.ILLEGAL_GENERATION)


def _end_asked(transaction: Transaction, event: on.EndAsked) -> list[do.Effect]:
    transaction.are_batches_done = False
    if event.commit:
        transaction.enter(Phase.COMMITTING)
        return [do.SendBatches()]

    # Nothing more is added; what is in flight ends first.
    transaction.enter(Phase.ABORTING)
    transaction.waiting.clear()
    transaction.offsets.clear()
    if transaction.failure is None:
        text = _named(transaction, "not sent, because the transaction is aborted")
        transaction.failure = Failure(TransactionAborted, text)
    return [do.Fail(transaction.failure), do.SendBatches()]


# ---- batches


def _partitions_used(transaction: Transaction, event: on.PartitionsUsed) -> list[do.Effect]:
    if transaction.phase not in _WORKING:
        return []
    transaction.waiting |= event.partitions - transaction.added - transaction.adding
    if not transaction.waiting or transaction.request is not None or transaction.is_pausing:
        return []

    # Others follow at once, when an application sends to many.
    transaction.is_pausing = True
    return [do.Gather()]


def _batches_done(transaction: Transaction, event: on.BatchesDone) -> list[do.Effect]:
    transaction.are_batches_done = True
    return []


def _batch_failed(transaction: Transaction, event: on.BatchFailed) -> list[do.Effect]:
    if event.may_be_written:
        transaction.lost_partitions |= event.partitions
    reaction = OF_BATCHES.get(event.code, Reaction.ABORT)
    if reaction is Reaction.ABORT and event.may_be_written:
        reaction = Reaction.RENEW
    return _give_up(transaction, reaction, event.text, event.code)


# ---- responses


def _responded(transaction: Transaction, event: on.Responded) -> list[do.Effect]:
    request = event.request
    transaction.request = None
    transaction.last_refusal = ""
    if transaction.fences:
        return _fence_responded(transaction, event)
    if not event.codes:
        return SUCCEED[type(request)](transaction, event)

    reaction = react(request, event.codes.values())
    if reaction <= Reaction.LOOK_UP:
        _note_lost(transaction, event)
        return _repeat(transaction, event, reaction)

    # What was refused is not added.
    if isinstance(request, AddPartitions):
        transaction.adding = frozenset()
    elif isinstance(request, AddOffsets):
        transaction.adding_group = None
    elif isinstance(request, CommitOffsets):
        transaction.lost_offsets = None

    code = _worst_code(request, event.codes.values(), reaction)
    effects = _give_up(transaction, reaction, _describe(request, event, code), code)

    # A coordinator that has forgotten the producer has nothing to abort, and would say so for ever
    # (fault groups-7).
    if isinstance(request, End) and transaction.phase is Phase.ABORTING:
        effects += _aborted(transaction)
    return effects


def _not_sent(transaction: Transaction, event: on.NotSent) -> list[do.Effect]:
    transaction.request = None
    transaction.last_refusal = f"{API_NAMES[type(event.request)]}: {event.reason}"
    transaction.is_pausing = True
    return [do.LookUp(event.request), do.Pause(transaction.retry_backoff_ms)]


def _pause_over(transaction: Transaction, event: on.PauseOver) -> list[do.Effect]:
    transaction.is_pausing = False
    return []


def _note_lost(transaction: Transaction, event: on.Responded) -> None:
    """Take note of a request without a response, which may still be on its way."""
    request = event.request
    if ErrorCode.NETWORK_EXCEPTION not in event.codes.values() or isinstance(request, Initialize):
        return
    transaction.has_lost = True
    if isinstance(request, CommitOffsets):
        transaction.lost_offsets = request
        transaction.lost_groups.add(request.group.group_id)


def _fence_responded(transaction: Transaction, event: on.Responded) -> list[do.Effect]:
    """Go on with the next fence. One that is refused is left out."""
    request = event.request
    codes = event.codes.values()
    if not codes:
        transaction.fences.popleft()
        return [_take_identity(transaction, event)] if isinstance(request, Initialize) else []

    reaction = react(request, codes)
    # A topic that is deleted has nothing to be kept out of.
    if reaction <= Reaction.LOOK_UP and ErrorCode.UNKNOWN_TOPIC_OR_PARTITION not in codes:
        # A fence that comes late would be as bad, so another epoch keeps it out.
        if ErrorCode.NETWORK_EXCEPTION in codes and not isinstance(
            transaction.fences[-1], Initialize
        ):
            transaction.fences.append(_renewal(transaction))
        return _repeat(transaction, event, reaction)

    transaction.fences.popleft()
    if reaction is not Reaction.FENCE:
        return []
    code = _worst_code(request, codes, reaction)
    return _fenced(transaction, _describe(request, event, code), code)


def _repeat(transaction: Transaction, event: on.Responded, reaction: Reaction) -> list[do.Effect]:
    """Pause, after which the request is made again if it is still wanted."""
    request = event.request
    pause_ms = transaction.retry_backoff_ms
    code = _worst_code(request, event.codes.values(), reaction)
    transaction.last_refusal = _describe(request, event, code)
    codes = event.codes.values()

    # The coordinator writes the markers of the last transaction, which takes milliseconds.
    is_first = not transaction.added and not transaction.groups
    adds = isinstance(request, AddPartitions | AddOffsets)
    if adds and is_first and ErrorCode.CONCURRENT_TRANSACTIONS in codes:
        pause_ms = min(pause_ms, FIRST_RETRY_MS)

    # Any response but this may come after the decision was written.
    is_refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS in codes
    if request == End(commit=True) and not is_refusal:
        transaction.may_be_committed = True

    # What was committed of the offsets needs no repetition.
    if isinstance(request, CommitOffsets) and transaction.offsets and None not in event.codes:
        rest = {p: offset for p, offset in request.offsets.items() if p in event.codes}
        if rest:
            transaction.offsets[0] = attrs.evolve(request, offsets=rest)

    transaction.is_pausing = True
    look_up: list[do.Effect] = [do.LookUp(request)] if reaction is Reaction.LOOK_UP else []
    return [*look_up, do.Pause(pause_ms)]


def _initialized(transaction: Transaction, event: on.Responded) -> list[do.Effect]:
    numbers = _take_identity(transaction, event)
    # What was lost of the epoch before is refused.
    transaction.has_lost = False
    was_renewed = isinstance(event.request, Initialize) and event.request.renews
    # A renewal is the last step of an abort.
    return [numbers, *_rest(transaction, do.Ended() if was_renewed else do.Initialized())]


def _take_identity(transaction: Transaction, event: on.Responded) -> do.UseNumbers:
    transaction.identity = Identity(
        transaction.identity.transactional_id, event.producer_id, event.producer_epoch
    )
    transaction.can_renew = event.can_renew
    transaction.needs_renewal = False
    return do.UseNumbers(event.producer_id, event.producer_epoch)


def _partitions_added(transaction: Transaction, event: on.Responded) -> list[do.Effect]:
    transaction.added |= transaction.adding
    transaction.adding = frozenset()
    return [do.SendBatches()]


def _offsets_added(transaction: Transaction, event: on.Responded) -> list[do.Effect]:
    assert transaction.adding_group is not None
    transaction.groups.add(transaction.adding_group)
    transaction.adding_group = None
    return []


def _offsets_committed(transaction: Transaction, event: on.Responded) -> list[do.Effect]:
    transaction.lost_offsets = None
    # An abort has cleared them, and told so.
    if not transaction.offsets:
        return []
    transaction.offsets.popleft()
    return [do.OffsetsCommitted()]


def _ended(transaction: Transaction, event: on.Responded) -> list[do.Effect]:
    if transaction.phase is Phase.ABORTING:
        return _aborted(transaction)
    return _rest(transaction, do.Ended())


def _aborted(transaction: Transaction) -> list[do.Effect]:
    if not transaction.needs_renewal:
        return _rest(transaction, do.Ended())

    # The producer goes on in another epoch, if the broker gives one.
    if transaction.can_renew:
        transaction.enter(Phase.INITIALIZING)
        return []
    text = (
        "the transaction is aborted, but the next numbers of its partitions are not known, and "
        "brokers before Kafka 2.5 give no new epoch. Close this producer, and make another"
    )
    return _failed(transaction, ProducerFailed, text, ErrorCode.UNSUPPORTED_VERSION)


def _rest(transaction: Transaction, news: do.Effect) -> list[do.Effect]:
    """Be ready for the next transaction."""
    transaction.enter(Phase.READY)
    transaction.added.clear()
    transaction.groups.clear()
    transaction.waiting.clear()
    transaction.failure = None
    transaction.may_be_committed = False

    # What was sent and not answered must not arrive in the next transaction (fault groups-2).
    transaction.fences.extend(_fences(transaction))
    transaction.has_lost = False
    transaction.lost_partitions.clear()
    transaction.lost_groups.clear()
    return [news]


def _fences(transaction: Transaction) -> list[Request]:
    """Return the requests between two transactions that keep out what was lost in the first."""
    if not transaction.can_renew:
        return []
    fences: list[Request] = []
    if transaction.has_lost:
        fences.append(_renewal(transaction))

    # Logs learn of the epoch by its marker.
    if transaction.lost_partitions:
        fences.append(AddPartitions(frozenset(transaction.lost_partitions)))
    fences += map(AddOffsets, sorted(transaction.lost_groups))
    if transaction.lost_partitions or transaction.lost_groups:
        fences.append(End(commit=False))
    return fences


def _renewal(transaction: Transaction) -> Initialize:
    return Initialize(transaction.timeout_ms, renews=True)


# ---- the next request


def _next_request(transaction: Transaction) -> list[do.Effect]:
    """Return the next request in the order of the theory, if none is in flight."""
    if transaction.request is not None or transaction.is_pausing:
        return []

    request = _choose_request(transaction)
    if request is not None:
        transaction.request = request
        return [do.Send(request)]

    # Without anything in it a transaction ends here: the coordinator does not know of it.
    if _is_ending(transaction):
        if transaction.phase is Phase.COMMITTING:
            return _rest(transaction, do.Ended())
        return [*_aborted(transaction), *_next_request(transaction)]
    return []


def _choose_request(transaction: Transaction) -> Request | None:
    if transaction.fences:
        return transaction.fences[0]

    phase = transaction.phase
    if phase is Phase.INITIALIZING:
        return Initialize(transaction.timeout_ms, renews=transaction.needs_renewal)

    if phase in _WORKING:
        transaction.adding |= transaction.waiting
        transaction.waiting.clear()
    if transaction.adding:
        return AddPartitions(transaction.adding)

    offsets = transaction.offsets[0] if phase in _WORKING and transaction.offsets else None
    if offsets is not None and offsets.group.group_id not in transaction.groups:
        transaction.adding_group = offsets.group.group_id
    if transaction.adding_group is not None:
        return AddOffsets(transaction.adding_group)

    # What was sent may still arrive: if behind the marker, the next commit would count it
    # (fault groups-2).
    if offsets is None:
        offsets = transaction.lost_offsets
    if offsets is not None:
        return offsets

    if _is_ending(transaction) and transaction.is_begun and not _is_forgotten(transaction):
        return End(commit=phase is Phase.COMMITTING)
    return None


def _is_ending(transaction: Transaction) -> bool:
    return transaction.is_ending and transaction.are_batches_done


def _is_forgotten(transaction: Transaction) -> bool:
    """Return whether the coordinator does not know the producer, so that it has nothing to end."""
    failure = transaction.failure
    return failure is not None and failure.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING


# ---- failures


def _give_up(
    transaction: Transaction, reaction: Reaction, text: str, code: ErrorCode
) -> list[do.Effect]:
    if reaction is Reaction.FENCE:
        return _fenced(transaction, text, code)

    if reaction is Reaction.RENEW:
        transaction.needs_renewal = True
    if reaction is Reaction.FAIL:
        return _failed(transaction, ProducerFailed, f"{text}. Close this producer", code)
    return _must_abort(transaction, text, code)


def _must_abort(transaction: Transaction, text: str, code: ErrorCode) -> list[do.Effect]:
    # An abort goes on, whatever else fails.
    if transaction.phase not in _WORKING:
        return []
    transaction.enter(Phase.MUST_ABORT)
    transaction.waiting.clear()
    transaction.offsets.clear()
    advice = "Abort the transaction, and run it again"
    if not TransactionFailed(text, code).can_be_run_again:
        # A loop that believes the first sentence never ends (fault tool-F17, was: advice).
        advice = "Abort the transaction: it fails each time, until that is changed"
    transaction.failure = Failure(
        TransactionFailed,
        f"{_named(transaction, text)}. {advice}",
        code,
        transaction.may_be_committed,
    )
    return [do.Fail(transaction.failure)]


def _fenced(transaction: Transaction, text: str, code: ErrorCode) -> list[do.Effect]:
    why = (
        f"{text}: another producer has this id now, or the transaction was open for longer than "
        f"transaction.timeout.ms ({transaction.timeout_ms}). Close this producer"
    )
    return _failed(transaction, ProducerFenced, why, code)


def _failed(
    transaction: Transaction,
    kind: type[ProducerFailed] | type[ProducerFenced],
    text: str,
    code: ErrorCode,
) -> list[do.Effect]:
    if transaction.may_be_committed:
        text += "; whether its last transaction is committed is not known"
    transaction.enter(Phase.FAILED)
    transaction.fences.clear()
    transaction.failure = Failure(
        kind, _named(transaction, text), code, transaction.may_be_committed
    )
    return [do.Fail(transaction.failure)]


def _named(transaction: Transaction, text: str) -> str:
    return f"transactional.id {transaction.identity.transactional_id}: {text}"


def _worst_code(request: Request, codes: Iterable[ErrorCode], reaction: Reaction) -> ErrorCode:
    """Return the error that led to a reaction; one that says more than OPERATION_NOT_ATTEMPTED."""
    leading = [code for code in codes if react(request, [code]) is reaction]
    leading.sort(key=lambda code: (code is ErrorCode.OPERATION_NOT_ATTEMPTED, code))
    return leading[0]


def _describe(request: Request, event: on.Responded, code: ErrorCode) -> str:
    """Say which request failed, of what, and why."""
    partitions = [p for p, its in event.codes.items() if its is code and p is not None]
    named = ", ".join(map(str, sorted(partitions)[:_MOST_NAMED]))
    if len(partitions) > _MOST_NAMED:
        named += f" and {len(partitions) - _MOST_NAMED} more"
    if isinstance(request, AddOffsets | CommitOffsets):
        group_id = _group_of(request)
        named = f"group {group_id}" + (f", {named}" if named else "")

    of_what = f" of {named}" if named else ""
    why = WORDS.get(code) or event.detail or code.meaning
    text = f"{API_NAMES[type(request)]}{of_what}: {code.name}: {why.rstrip('.')}"
    right = missing_right(API_KEYS[type(request)], code)
    return f"{text}; ask for {right}" if right else text


def _group_of(request: AddOffsets | CommitOffsets) -> str:
    return request.group.group_id if isinstance(request, CommitOffsets) else request.group_id


WORDS: Mapping[ErrorCode, str] = {
    ErrorCode.ILLEGAL_GENERATION: "the group has rebalanced since the messages were read",
    ErrorCode.UNKNOWN_MEMBER_ID: "the consumer is not a member of its group any more",
    ErrorCode.FENCED_INSTANCE_ID: "another consumer has the same group.instance.id",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "transaction.timeout.ms is above transaction.max.timeout.ms of the brokers"
    ),
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: (
        "the coordinator has forgotten the id (transactional.id.expiration.ms)"
    ),
}
"""Text for errors whose meaning in Kafka does not say what to look at."""


Decider = Callable[[Transaction, Any], list[do.Effect]]

SUCCEED: Mapping[type[Request], Decider] = {
    Initialize: _initialized,
    AddPartitions: _partitions_added,
    AddOffsets: _offsets_added,
    CommitOffsets: _offsets_committed,
    End: _ended,
}

DECIDE: Mapping[type[on.Event], Decider] = {
    on.InitializeAsked: _initialize_asked,
    on.BeginAsked: _begin_asked,
    on.OffsetsAsked: _offsets_asked,
    on.OffsetsForeign: _offsets_foreign,
    on.EndAsked: _end_asked,
    on.PartitionsUsed: _partitions_used,
    on.BatchesDone: _batches_done,
    on.BatchFailed: _batch_failed,
    on.Responded: _responded,
    on.NotSent: _not_sent,
    on.PauseOver: _pause_over,
}
