"""The decisions of a transactional producer, by value."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from clients.errors import (
    InvalidTransactionState,
    ProducerFailed,
    ProducerFenced,
    TransactionAborted,
    TransactionFailed,
)
from clients.group_metadata import ConsumerGroupMetadata
from clients.producer.transactions import effects as do
from clients.producer.transactions import events as on
from clients.producer.transactions.decide import decide
from clients.producer.transactions.requests import (
    AddOffsets,
    AddPartitions,
    CommitOffsets,
    End,
    Identity,
    Initialize,
    Request,
)
from clients.producer.transactions.state import LEGAL_FROM, Failure, Phase, Transaction
from protocol.errors import ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
OFFSETS = CommitOffsets(ConsumerGroupMetadata("g", 3, "m"), {P0: OffsetAndMetadata(7)})
BACKOFF_MS = 100
COMMIT, ABORT = on.EndAsked(commit=True), on.EndAsked(commit=False)


@attrs.define(eq=False)
class Producer:
    """A producer's state, and the effects of what has happened to it last."""

    transaction: Transaction = attrs.field(
        factory=lambda: Transaction(Identity("x"), 60_000, BACKOFF_MS)
    )
    effects: list[do.Effect] = attrs.field(factory=list)

    @property
    def phase(self) -> Phase:
        return self.transaction.phase

    def see(self, *events: on.Event) -> list[do.Effect]:
        """The effects of all these events."""
        self.effects = [effect for event in events for effect in decide(self.transaction, event)]
        return self.effects

    def use(self, *partitions: TopicPartition) -> list[do.Effect]:
        """The effects of batches for partitions, when no others follow."""
        effects = self.see(on.PartitionsUsed(frozenset(partitions)))
        return self.see(on.PauseOver()) if effects == [do.Gather()] else effects

    def sent(self) -> Request | None:
        """The request among the last effects."""
        requests = [effect.request for effect in self.effects if isinstance(effect, do.Send)]
        assert len(requests) <= 1
        return requests[0] if requests else None

    def failure(self) -> Failure | None:
        """The failure among the last effects."""
        failures = [effect.failure for effect in self.effects if isinstance(effect, do.Fail)]
        return failures[-1] if failures else None

    def respond(self, code: ErrorCode = ErrorCode.NONE, **more: Any) -> list[do.Effect]:
        """The effects of a response to the request in flight, with one error for all of it."""
        request = self.transaction.request
        assert request is not None
        codes: dict[TopicPartition | None, ErrorCode] = {None: code} if code else {}
        if code and isinstance(request, AddPartitions):
            codes = dict.fromkeys(request.partitions, code)
        return self.see(on.Responded(request, codes, **more))


def initialized(can_renew: bool = True) -> Producer:
    """A producer that is ready, with the id 7 and the epoch 0."""
    producer = Producer()
    producer.see(on.InitializeAsked())
    producer.respond(producer_id=7, producer_epoch=0, can_renew=can_renew)
    assert producer.phase is Phase.READY
    return producer


def opened(*partitions: TopicPartition, can_renew: bool = True) -> Producer:
    """A producer in a transaction that has these partitions."""
    producer = initialized(can_renew)
    producer.see(on.BeginAsked())
    if partitions:
        producer.use(*partitions)
        producer.respond()
    return producer


def committing(*partitions: TopicPartition) -> Producer:
    """A producer that has asked to commit."""
    producer = opened(*partitions)
    producer.see(COMMIT, on.BatchesDone())
    return producer


# ---- the id


def test_the_id_numbers_batches_and_makes_ready() -> None:
    producer = Producer()
    assert producer.see(on.InitializeAsked()) == [do.Send(Initialize(60_000))]
    effects = producer.respond(producer_id=7, producer_epoch=2, can_renew=True)
    assert effects == [do.UseNumbers(7, 2), do.Initialized()]
    assert producer.transaction.identity == Identity("x", 7, 2)


@pytest.mark.parametrize(
    ("code", "looks_up"),
    [
        (ErrorCode.CONCURRENT_TRANSACTIONS, False),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, False),
        (ErrorCode.NOT_COORDINATOR, True),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, True),
        (ErrorCode.NETWORK_EXCEPTION, True),
    ],
)
def test_the_id_is_asked_for_again_after_a_pause(code: ErrorCode, looks_up: bool) -> None:
    producer = Producer()
    producer.see(on.InitializeAsked())
    look_up = [do.LookUp(Initialize(60_000))] if looks_up else []
    assert producer.respond(code) == [*look_up, do.Pause(BACKOFF_MS)]
    assert producer.see(on.PauseOver()) == [do.Send(Initialize(60_000))]


def test_a_request_that_could_not_be_sent_is_sent_later_to_whoever_coordinates_then() -> None:
    producer = Producer()
    producer.see(on.InitializeAsked())
    request = Initialize(60_000)
    assert producer.see(on.NotSent(request)) == [do.LookUp(request), do.Pause(BACKOFF_MS)]
    assert producer.see(on.PauseOver()) == [do.Send(request)]


# ---- what is added


def test_partitions_that_wait_are_added_together_one_request_at_a_time() -> None:
    producer = opened()
    assert producer.see(on.PartitionsUsed(frozenset({P0}))) == [do.Gather()]
    assert producer.see(on.PartitionsUsed(frozenset({P0, P1}))) == []
    assert producer.see(on.PauseOver()) == [do.Send(AddPartitions(frozenset({P0, P1})))]

    # What is used meanwhile goes with the next one, and at once.
    assert producer.use(P1, P2) == []
    assert producer.respond() == [do.SendBatches(), do.Send(AddPartitions(frozenset({P2})))]
    assert producer.transaction.added == {P0, P1}
    assert producer.respond() == [do.SendBatches()]
    assert producer.transaction.added == {P0, P1, P2}


def test_the_first_partition_waits_only_briefly_for_the_end_of_the_last_transaction() -> None:
    producer = opened()
    producer.use(P0)
    assert producer.respond(ErrorCode.CONCURRENT_TRANSACTIONS) == [do.Pause(20)]
    # What comes meanwhile goes with it.
    producer.use(P1)
    producer.see(on.PauseOver())
    assert producer.sent() == AddPartitions(frozenset({P0, P1}))
    producer.respond()

    producer.use(P2)
    assert producer.respond(ErrorCode.CONCURRENT_TRANSACTIONS) == [do.Pause(BACKOFF_MS)]


def test_offsets_follow_their_group_which_is_added_once() -> None:
    producer = opened()
    assert producer.see(on.OffsetsAsked(OFFSETS)) == [do.Send(AddOffsets("g"))]
    assert producer.respond() == [do.Send(OFFSETS)]
    assert producer.respond() == [do.OffsetsCommitted()]
    assert producer.see(on.OffsetsAsked(OFFSETS)) == [do.Send(OFFSETS)]


def test_only_the_offsets_that_are_not_committed_are_sent_again() -> None:
    producer = opened()
    two = attrs.evolve(OFFSETS, offsets={P0: OffsetAndMetadata(7), P1: OffsetAndMetadata(8)})
    producer.see(on.OffsetsAsked(two))
    producer.respond()
    producer.see(on.Responded(two, {P1: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}), on.PauseOver())
    again = producer.sent()
    assert isinstance(again, CommitOffsets)
    assert again.offsets == {P1: OffsetAndMetadata(8)}
    assert producer.respond() == [do.OffsetsCommitted()]


# ---- the end


def test_a_commit_waits_for_batches_and_offsets() -> None:
    producer = opened(P0)
    producer.see(on.OffsetsAsked(OFFSETS))
    assert producer.see(COMMIT, on.BatchesDone()) == [do.SendBatches()]
    producer.respond()
    assert producer.respond() == [do.OffsetsCommitted(), do.Send(End(commit=True))]
    assert producer.respond() == [do.Ended()]
    assert producer.phase is Phase.READY


def test_batches_that_were_done_before_the_commit_do_not_count() -> None:
    producer = opened(P0)
    producer.see(on.BatchesDone())
    assert producer.see(COMMIT) == [do.SendBatches()]
    assert producer.see(on.BatchesDone()) == [do.Send(End(commit=True))]


@pytest.mark.parametrize("end", [COMMIT, ABORT])
def test_a_transaction_with_nothing_in_it_ends_without_the_coordinator(end: on.EndAsked) -> None:
    producer = opened()
    producer.see(end, on.BatchesDone())
    assert do.Ended() in producer.effects
    assert producer.sent() is None


def test_an_abort_drops_what_waits_and_lets_the_batches_in_flight_end() -> None:
    producer = opened(P0)
    producer.see(on.OffsetsAsked(OFFSETS), ABORT)
    failure = producer.failure()
    assert failure is not None
    assert failure.kind is TransactionAborted
    # The group may be added by now.
    assert producer.respond() == []
    assert producer.see(on.BatchesDone()) == [do.Send(End(commit=False))]
    assert producer.respond() == [do.Ended()]


def test_an_abort_learns_first_whether_partitions_were_added() -> None:
    producer = opened()
    producer.use(P0)
    producer.see(ABORT, on.BatchesDone())
    producer.respond(ErrorCode.NETWORK_EXCEPTION)
    producer.see(on.PauseOver())
    assert producer.sent() == AddPartitions(frozenset({P0}))
    assert producer.respond() == [do.SendBatches(), do.Send(End(commit=False))]


def test_an_abort_of_partitions_that_were_refused_ends_without_the_coordinator() -> None:
    producer = opened()
    producer.use(P0)
    producer.respond(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    producer.see(ABORT, on.BatchesDone())
    assert producer.sent() is None
    assert producer.phase is Phase.READY


# ---- failures


def test_a_batch_that_was_refused_can_only_be_aborted_and_costs_no_epoch() -> None:
    producer = opened(P0)
    producer.see(on.BatchFailed("t-0: too large", ErrorCode.MESSAGE_TOO_LARGE, False))
    failure = producer.failure()
    assert failure is not None
    assert failure.kind is TransactionFailed
    assert failure.text == (
        "transactional.id x: t-0: too large. Abort the transaction: it fails each time, until that "
        "is changed"
    )
    assert producer.phase is Phase.MUST_ABORT
    producer.see(ABORT, on.BatchesDone())
    assert producer.sent() == End(commit=False)
    assert producer.respond() == [do.Ended()]


def test_after_a_batch_that_may_be_written_the_producer_gets_another_epoch() -> None:
    producer = opened(P0)
    producer.see(on.BatchFailed("t-0: lost", ErrorCode.NETWORK_EXCEPTION, True))
    producer.see(ABORT, on.BatchesDone())
    assert producer.respond() == [do.Send(Initialize(60_000, renews=True))]
    effects = producer.respond(producer_id=7, producer_epoch=1, can_renew=True)
    assert effects == [do.UseNumbers(7, 1), do.Ended()]
    assert producer.phase is Phase.READY


def test_brokers_without_renewals_end_the_transaction_and_the_producer() -> None:
    producer = opened(P0, can_renew=False)
    producer.see(on.BatchFailed("t-0: lost", ErrorCode.NETWORK_EXCEPTION, True))
    producer.see(ABORT, on.BatchesDone())
    assert producer.sent() == End(commit=False)
    producer.respond()
    failure = producer.failure()
    assert failure is not None
    assert failure.kind is ProducerFailed
    assert "Kafka 2.5" in failure.text


def test_a_batch_lost_while_aborting_needs_another_epoch_too() -> None:
    producer = opened(P0)
    producer.see(ABORT, on.BatchFailed("t-0", ErrorCode.NETWORK_EXCEPTION, True), on.BatchesDone())
    assert producer.sent() == End(commit=False)
    assert producer.respond() == [do.Send(Initialize(60_000, renews=True))]


def test_a_coordinator_that_has_forgotten_the_producer_is_not_asked_to_abort() -> None:
    producer = opened(P0)
    producer.use(P1)
    producer.respond(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    producer.see(ABORT, on.BatchesDone())
    assert producer.sent() == Initialize(60_000, renews=True)


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_fenced_producer_does_nothing_more(code: ErrorCode) -> None:
    producer = opened()
    producer.use(P0)
    producer.respond(code)
    failure = producer.failure()
    assert failure is not None
    assert failure.kind is ProducerFenced
    assert "another producer has this id" in failure.text
    assert producer.see(on.BatchesDone(), on.PauseOver(), on.PartitionsUsed(frozenset({P1}))) == []
    assert producer.transaction.refusal(Phase.ABORTING, "abort_transaction") is not None


def test_a_produce_with_an_old_epoch_is_aborted_and_the_coordinator_says_who_is_fenced() -> None:
    producer = opened(P0)
    producer.see(on.BatchFailed("t-0", ErrorCode.INVALID_PRODUCER_EPOCH, True))
    assert producer.phase is Phase.MUST_ABORT
    producer.see(ABORT, on.BatchesDone())
    producer.respond(ErrorCode.PRODUCER_FENCED)
    assert producer.phase is Phase.FAILED


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ErrorCode.ILLEGAL_GENERATION, "rebalanced since the messages were read"),
        (ErrorCode.UNKNOWN_MEMBER_ID, "not a member"),
        (ErrorCode.FENCED_INSTANCE_ID, "group.instance.id"),
    ],
)
def test_a_consumer_that_is_out_of_its_group_aborts_the_transaction(
    code: ErrorCode, words: str
) -> None:
    producer = opened()
    producer.see(on.OffsetsAsked(OFFSETS))
    producer.respond()
    producer.see(on.Responded(OFFSETS, {P0: code}))
    failure = producer.failure()
    assert failure is not None
    assert failure.kind is TransactionFailed
    assert f"TxnOffsetCommit of group g, t-0: {code.name}" in failure.text
    assert words in failure.text


PASSING = {
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
}


def failures_by(code: ErrorCode) -> list[Failure]:
    """Return the failures that an error leads to, in each place where there may be one."""
    asked = opened()
    asked.see(on.OffsetsAsked(OFFSETS))
    asked.see(on.Responded(AddOffsets("g"), {None: code}))

    committed = opened()
    committed.see(on.OffsetsAsked(OFFSETS))
    committed.respond()
    committed.see(on.Responded(OFFSETS, {P0: code}))

    used = opened()
    used.see(on.PartitionsUsed(frozenset({P0})), on.PauseOver())
    used.see(on.Responded(AddPartitions(frozenset({P0})), {P0: code}))

    batch = opened(P0)
    batch.see(on.BatchFailed("t-0: refused", code, False))
    failures = [producer.failure() for producer in (asked, committed, used, batch)]
    return [failure for failure in failures if failure is not None]


@pytest.mark.fault("tool-F17")
@pytest.mark.parametrize("code", ErrorCode)
def test_a_transaction_is_to_be_run_again_only_if_its_error_can_pass(code: ErrorCode) -> None:
    for failure in failures_by(code):
        error = failure.error()
        if isinstance(error, TransactionFailed):
            can_pass = code.retriable or code in PASSING
            assert error.can_be_run_again == can_pass
            assert ("run it again" in failure.text) == can_pass
        else:
            assert "run it again" not in failure.text


def test_the_partition_that_was_refused_is_named_not_those_that_were_not_tried() -> None:
    producer = opened()
    producer.use(P0, P1)
    codes = {
        P0: ErrorCode.OPERATION_NOT_ATTEMPTED,
        P1: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    producer.see(on.Responded(AddPartitions(frozenset({P0, P1})), codes))
    failure = producer.failure()
    assert failure is not None
    assert failure.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "AddPartitionsToTxn of t-1: TOPIC_AUTHORIZATION_FAILED" in failure.text


@pytest.mark.parametrize(
    ("call", "code", "right"),
    [
        (
            AddPartitions(frozenset({P0})),
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "WRITE on the topic",
        ),
        (
            AddPartitions(frozenset({P0})),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "WRITE on the transactional id",
        ),
        (AddOffsets("g"), ErrorCode.GROUP_AUTHORIZATION_FAILED, "READ on the group"),
    ],
)
def test_who_lacks_a_right_is_told_which_one_to_ask_for(
    call: Request, code: ErrorCode, right: str
) -> None:
    producer = opened()
    producer.see(on.Responded(call, {None: code}))
    failure = producer.failure()
    assert failure is not None
    assert f"; ask for {right}." in failure.text


# ---- commits of which nobody knows


def test_a_commit_without_a_response_is_repeated_with_the_same_decision() -> None:
    producer = committing(P0)
    effects = producer.respond(ErrorCode.NETWORK_EXCEPTION)
    assert effects == [do.LookUp(End(commit=True)), do.Pause(BACKOFF_MS)]
    assert producer.see(on.PauseOver()) == [do.Send(End(commit=True))]
    # The decision is written, and its markers are not.
    producer.respond(ErrorCode.CONCURRENT_TRANSACTIONS)
    producer.see(on.PauseOver())
    assert producer.respond()[0] == do.Ended()
    assert producer.phase is Phase.READY


@pytest.mark.parametrize(
    ("before", "in_doubt"),
    [
        (None, False),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, False),
        (ErrorCode.NETWORK_EXCEPTION, True),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, True),
    ],
)
def test_a_fenced_commit_is_in_doubt_if_an_earlier_attempt_may_have_been_written(
    before: ErrorCode | None, in_doubt: bool
) -> None:
    producer = committing(P0)
    if before is not None:
        producer.respond(before)
        producer.see(on.PauseOver())
    producer.respond(ErrorCode.PRODUCER_FENCED)
    failure = producer.failure()
    assert failure is not None
    assert failure.transaction_in_doubt == in_doubt
    assert ("is not known" in failure.text) == in_doubt


# ---- calls


def test_calls_are_refused_in_words_that_say_which_fits() -> None:
    ready, working, ending = initialized(), opened(P0), committing(P0)
    refusals = [
        Producer().transaction.refusal(Phase.OPEN, "begin_transaction"),
        ready.transaction.refusal(Phase.COMMITTING, "commit_transaction"),
        working.transaction.refusal(Phase.OPEN, "begin_transaction"),
        ending.transaction.refusal(Phase.ABORTING, "abort_transaction"),
    ]
    for refusal, words in zip(
        refusals,
        ["call init_transactions", "call begin_transaction", "commit or abort it", "again"],
        strict=True,
    ):
        assert isinstance(refusal, InvalidTransactionState)
        assert words in str(refusal)


def test_every_phase_can_fail_and_none_follows_a_failure() -> None:
    assert LEGAL_FROM[Phase.FAILED] == frozenset(Phase) - {Phase.FAILED}
    assert all(Phase.FAILED not in before for before in LEGAL_FROM.values())
    assert LEGAL_FROM.keys() == set(Phase) - {Phase.UNINITIALIZED}


# ---- offsets whose response was lost


def offsets_lost() -> Producer:
    """A producer whose offsets were sent, and whose response was lost."""
    producer = opened(P0)
    producer.see(on.OffsetsAsked(OFFSETS))
    producer.respond()
    producer.respond(ErrorCode.NETWORK_EXCEPTION)
    return producer


@pytest.mark.fault("groups-2")
@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION])
def test_an_abort_repeats_lost_offsets_until_they_are_taken_or_refused(code: ErrorCode) -> None:
    producer = offsets_lost()
    producer.see(ABORT, on.BatchesDone())
    producer.see(on.PauseOver())
    assert producer.sent() == OFFSETS

    # A coordinator that moves, or cannot be reached, says nothing of the first one.
    producer.respond(ErrorCode.NOT_COORDINATOR)
    producer.see(on.PauseOver())
    assert producer.sent() == OFFSETS
    producer.see(on.NotSent(OFFSETS), on.PauseOver())
    assert producer.sent() == OFFSETS

    producer.respond(code)
    assert producer.sent() == End(commit=False)
    producer.respond()
    assert producer.phase is Phase.READY
    assert do.Ended() in producer.effects


@pytest.mark.fault("groups-2")
def test_offsets_lost_while_the_transaction_is_aborted_are_repeated_too() -> None:
    producer = opened(P0)
    producer.see(on.OffsetsAsked(OFFSETS))
    producer.respond()
    producer.see(ABORT, on.BatchesDone())
    producer.respond(ErrorCode.NETWORK_EXCEPTION)
    producer.see(on.PauseOver())
    assert producer.sent() == OFFSETS


@pytest.mark.fault("groups-2")
def test_lost_offsets_are_repeated_when_a_batch_fails_meanwhile() -> None:
    producer = offsets_lost()
    producer.see(on.BatchFailed("t-0: too large", ErrorCode.MESSAGE_TOO_LARGE, False))
    producer.see(on.PauseOver())
    assert producer.sent() == OFFSETS
    producer.respond()
    producer.see(ABORT, on.BatchesDone())
    assert producer.sent() == End(commit=False)


def test_offsets_that_were_never_sent_keep_no_abort_waiting() -> None:
    producer = opened(P0)
    producer.see(on.OffsetsAsked(OFFSETS))
    producer.respond()
    producer.see(on.NotSent(OFFSETS), ABORT, on.BatchesDone(), on.PauseOver())
    assert producer.sent() == End(commit=False)


# ---- what may arrive when its transaction is over

RENEWAL = Initialize(60_000, renews=True)


def ended_with_lost_offsets() -> Producer:
    """A producer that has aborted, and whose offsets may still be on their way."""
    producer = ended(offsets_lost(), ABORT)
    producer.see(on.PauseOver())
    producer.respond()
    assert producer.sent() == End(commit=False)
    producer.respond()
    return producer


@pytest.mark.fault("groups-2")
def test_after_a_lost_commit_the_next_transaction_waits_for_another_epoch() -> None:
    producer = committing(P0)
    producer.respond(ErrorCode.NETWORK_EXCEPTION)
    producer.see(on.PauseOver())
    assert producer.respond() == [do.Ended(), do.Send(RENEWAL)]

    # A late EndTxn would end it in its middle.
    assert producer.see(on.BeginAsked()) == []
    assert producer.use(P0) == []
    effects = producer.respond(producer_id=7, producer_epoch=1, can_renew=True)
    assert effects == [do.UseNumbers(7, 1), do.Send(AddPartitions(frozenset({P0})))]


@pytest.mark.fault("groups-2")
def test_after_lost_offsets_a_marker_of_another_epoch_drops_those_that_come_late() -> None:
    producer = ended_with_lost_offsets()
    assert producer.effects == [do.Ended(), do.Send(RENEWAL)]
    effects = producer.respond(producer_id=7, producer_epoch=1, can_renew=True)
    assert effects == [do.UseNumbers(7, 1), do.Send(AddOffsets("g"))]
    assert producer.respond() == [do.Send(End(commit=False))]
    assert producer.respond() == []

    # The next transaction has nothing in it yet.
    producer.see(on.BeginAsked(), on.OffsetsAsked(OFFSETS))
    assert producer.sent() == AddOffsets("g")


@pytest.mark.fault("groups-2")
def test_after_a_lost_batch_a_marker_of_another_epoch_ends_what_it_would_open() -> None:
    producer = opened(P0, P1)
    lost = on.BatchFailed("t-0: lost", ErrorCode.NETWORK_EXCEPTION, True, frozenset({P0}))
    producer.see(lost, ABORT, on.BatchesDone())
    assert producer.respond() == [do.Send(RENEWAL)]
    effects = producer.respond(producer_id=7, producer_epoch=1, can_renew=True)
    fence = do.Send(AddPartitions(frozenset({P0})))
    assert effects == [do.UseNumbers(7, 1), do.Ended(), fence]
    assert producer.respond() == [do.Send(End(commit=False))]
    assert producer.respond() == []


def test_an_abort_that_waits_for_nothing_lost_asks_for_nothing_more() -> None:
    producer = ended(committing_offsets(), ABORT)
    producer.respond()
    assert producer.respond() == [do.Ended()]


def test_a_fence_whose_response_is_lost_is_repeated_and_kept_out_too() -> None:
    producer = ended_with_lost_offsets()
    producer.respond(producer_id=7, producer_epoch=1, can_renew=True)
    producer.respond()
    for _ in range(2):
        assert producer.transaction.request == End(commit=False)
        producer.respond(ErrorCode.NETWORK_EXCEPTION)
        producer.see(on.PauseOver())
    assert producer.respond() == [do.Send(RENEWAL)]
    effects = producer.respond(producer_id=7, producer_epoch=2, can_renew=True)
    assert effects == [do.UseNumbers(7, 2)]


@pytest.mark.parametrize(
    "code",
    [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
)
def test_a_fence_that_is_refused_keeps_no_transaction_waiting(code: ErrorCode) -> None:
    producer = ended_with_lost_offsets()
    producer.respond(producer_id=7, producer_epoch=1, can_renew=True)
    assert producer.respond(code) == [do.Send(End(commit=False))]
    assert producer.respond(ErrorCode.INVALID_TXN_STATE) == []
    assert producer.phase is Phase.READY


def test_a_producer_whose_renewal_is_fenced_says_so_at_the_next_call() -> None:
    producer = ended_with_lost_offsets()
    producer.respond(ErrorCode.PRODUCER_FENCED)
    failure = producer.failure()
    assert failure is not None
    assert failure.kind is ProducerFenced


def test_brokers_that_give_no_epoch_are_asked_for_none() -> None:
    producer = opened(P0, can_renew=False)
    producer.see(COMMIT, on.BatchesDone())
    producer.respond(ErrorCode.NETWORK_EXCEPTION)
    producer.see(on.PauseOver())
    assert producer.respond() == [do.Ended()]


# ---- a coordinator that has forgotten the producer


@pytest.mark.fault("groups-7")
@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_PRODUCER_ID]
)
def test_an_abort_of_a_producer_that_is_forgotten_ends_with_another_epoch(code: ErrorCode) -> None:
    producer = opened(P0)
    producer.see(ABORT, on.BatchesDone())
    assert producer.respond(code) == [do.Send(Initialize(60_000, renews=True))]
    effects = producer.respond(producer_id=8, producer_epoch=0, can_renew=True)
    assert effects == [do.UseNumbers(8, 0), do.Ended()]


# ---- all errors of all requests


def adding() -> Producer:
    producer = opened()
    producer.use(P0)
    return producer


def adding_offsets() -> Producer:
    producer = opened(P0)
    producer.see(on.OffsetsAsked(OFFSETS))
    return producer


def committing_offsets() -> Producer:
    producer = adding_offsets()
    producer.respond()
    return producer


def ended(producer: Producer, end: on.EndAsked) -> Producer:
    producer.see(end, on.BatchesDone())
    return producer


def initializing() -> Producer:
    producer = Producer()
    producer.see(on.InitializeAsked())
    return producer


def failed() -> Producer:
    producer = opened(P0)
    producer.see(on.BatchFailed("t-0: too large", ErrorCode.MESSAGE_TOO_LARGE, False))
    return ended(producer, ABORT)


def renewing() -> Producer:
    producer = opened(P0)
    producer.see(on.BatchFailed("t-0: lost", ErrorCode.NETWORK_EXCEPTION, True))
    ended(producer, ABORT).respond()
    return producer


def in_another_epoch() -> Producer:
    producer = ended_with_lost_offsets()
    producer.respond(producer_id=7, producer_epoch=1, can_renew=True)
    return producer


def repeating_offsets() -> Producer:
    producer = ended(offsets_lost(), ABORT)
    producer.see(on.PauseOver())
    return producer


WITH_A_REQUEST: dict[str, Callable[[], Producer]] = {
    "initializing": initializing,
    "adding": adding,
    "adding, committing": lambda: ended(adding(), COMMIT),
    "adding, aborting": lambda: ended(adding(), ABORT),
    "adding offsets": adding_offsets,
    "adding offsets, committing": lambda: ended(adding_offsets(), COMMIT),
    "adding offsets, aborting": lambda: ended(adding_offsets(), ABORT),
    "committing offsets": committing_offsets,
    "committing offsets, committing": lambda: ended(committing_offsets(), COMMIT),
    "committing offsets, aborting": lambda: ended(committing_offsets(), ABORT),
    "repeating lost offsets": repeating_offsets,
    "committing": lambda: committing(P0),
    "aborting": lambda: ended(opened(P0), ABORT),
    "aborting after a failure": failed,
    "renewing": renewing,
    "keeping out": ended_with_lost_offsets,
    "keeping out in another epoch": in_another_epoch,
}
NEWS = (do.Fail, do.Ended, do.Initialized, do.OffsetsCommitted, do.UseNumbers)
"""Effects by which the application, or the sender, learns that something has ended."""


@pytest.mark.fault("groups-7")
@pytest.mark.parametrize("state", WITH_A_REQUEST)
def test_no_error_is_repeated_without_a_pause_or_ends_in_silence(state: str) -> None:
    """The same error is the response to all that follows, up to a pause or the end."""
    for code in set(ErrorCode) - {ErrorCode.NONE}:
        producer = WITH_A_REQUEST[state]()
        # Between two transactions nobody waits for what is asked.
        is_known = producer.transaction.failure is not None or producer.phase is Phase.READY
        requests: list[type[Request]] = []
        news: list[do.Effect] = []
        while producer.transaction.request is not None and len(requests) < 10:
            requests.append(type(producer.transaction.request))
            effects = producer.respond(code)
            news += [effect for effect in effects if isinstance(effect, NEWS)]

        # A request is answered once; what then comes is another, or a pause, or an end.
        assert len(requests) == len(set(requests)), f"{code.name}: {requests}"
        is_waiting = producer.transaction.is_pausing
        has_ended = producer.phase in (Phase.READY, Phase.MUST_ABORT, Phase.FAILED)
        assert is_waiting or has_ended, f"{code.name} ends in silence while {producer.phase}"
        assert is_waiting or news or is_known, f"{code.name}: nobody learns of it"
