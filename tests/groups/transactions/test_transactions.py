"""A transaction from its first partition to its last marker, by value."""

from __future__ import annotations

import attrs
import pytest

from groups.transactions.events import CompletionDue, ExpiryCheck, IdsLoaded, TimeoutCheck
from groups.transactions.state import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    MAY_FOLLOW,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
)
from protocol.errors import ErrorCode
from tests.groups.transactions.played import HELD, NAME, START_MS, TIMEOUT_MS, Played, part

NONE = ErrorCode.NONE
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
UNKNOWN = ErrorCode.INVALID_PRODUCER_ID_MAPPING
ILLEGAL = ErrorCode.INVALID_TXN_STATE
DAY_MS = 86_400_000


def test_a_state_follows_only_those_that_the_table_names() -> None:
    assert MAY_FOLLOW.keys() == set(TransactionState)
    ends = {state for state in TransactionState if all(state not in f for f in MAY_FOLLOW.values())}
    assert ends == {DEAD}


# ---- partitions


def test_the_first_partition_begins_the_transaction() -> None:
    played = Played()
    producer_id, epoch = played.begun(0)
    assert played.stored.state is ONGOING
    assert played.stored.start_ms == START_MS

    played.now_ms += 5
    assert played.add(producer_id, epoch, 1, 2) is NONE
    assert played.stored.partitions == {part(0), part(1), part(2)}
    assert (played.stored.start_ms, played.stored.updated_ms) == (START_MS, START_MS + 5)


def test_partitions_that_are_in_it_are_not_written_again() -> None:
    played = Played()
    producer_id, epoch = played.begun(0, 1)
    before = len(played.written)
    assert played.add(producer_id, epoch, 1) is NONE
    assert len(played.written) == before


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"producer_id": 4711}, UNKNOWN),
        ({"name": "another"}, UNKNOWN),
        ({"epoch": 4}, FENCED),
        ({"epoch": -1}, FENCED),
        ({"producer_id": 4711, "epoch": 4}, UNKNOWN),
    ],
)
def test_who_is_not_the_producer_changes_nothing(change: dict, error: ErrorCode) -> None:  # type: ignore[type-arg]
    played = Played()
    producer_id, epoch = played.begun(0)
    asked = {"producer_id": producer_id, "epoch": epoch} | change
    name = asked.pop("name", NAME)
    assert played.add(asked["producer_id"], asked["epoch"], 1, name=name) is error
    assert played.end(asked["producer_id"], asked["epoch"], name=name) is error
    assert played.stored.partitions == {part(0)}


def test_a_fenced_producer_is_told_so_also_while_something_is_pending() -> None:
    played = Played()
    producer_id, epoch = played.begun(0)
    played.appends.append(HELD)
    assert played.add(producer_id, epoch, 1) is None
    assert played.add(producer_id, epoch - 1, 1) is FENCED
    assert played.add(producer_id, epoch, 2) is BUSY
    assert played.end(producer_id, epoch) is BUSY


def test_partitions_that_were_not_written_are_not_in_it() -> None:
    played = Played()
    producer_id, epoch = played.begun(0)
    played.appends.append(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert played.add(producer_id, epoch, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert played.stored.partitions == {part(0)}
    assert played.add(producer_id, epoch, 1) is NONE


# ---- the end


@pytest.mark.parametrize(
    ("is_commit", "prepared", "completed"),
    [(True, PREPARE_COMMIT, COMPLETE_COMMIT), (False, PREPARE_ABORT, COMPLETE_ABORT)],
)
def test_it_is_decided_and_then_completed(
    is_commit: bool, prepared: TransactionState, completed: TransactionState
) -> None:
    played = Played()
    producer_id, epoch = played.begun(0, 1)
    assert played.end(producer_id, epoch, is_commit) is NONE
    assert played.stored.state is prepared
    (sent,) = played.sent
    assert (sent.marker.is_commit, sent.partitions) == (is_commit, {part(0), part(1)})

    # Until all markers are written.
    played.write_markers(0)
    assert played.stored.state is prepared
    assert played.add(producer_id, epoch, 0) is BUSY
    assert played.end(producer_id, epoch, is_commit) is BUSY
    assert played.end(producer_id, epoch, not is_commit) is ILLEGAL

    played.write_markers(1)
    assert played.stored.state is completed
    assert not played.stored.partitions
    assert played.stored.start_ms == START_MS
    assert played.end(producer_id, epoch, is_commit) is NONE
    assert played.end(producer_id, epoch, not is_commit) is ILLEGAL


def test_the_next_transaction_begins_after_it() -> None:
    played = Played()
    producer_id, epoch = played.begun(0)
    played.end(producer_id, epoch)
    played.write_markers()
    played.now_ms += 7
    assert played.add(producer_id, epoch, 3) is NONE
    assert played.stored.partitions == {part(3)}
    assert played.stored.start_ms == START_MS + 7


@pytest.mark.parametrize("is_commit", [True, False])
def test_nothing_that_was_begun_can_be_ended(is_commit: bool) -> None:
    played = Played()
    _, producer_id, epoch = played.init()
    assert played.end(producer_id, epoch, is_commit) is ILLEGAL


def test_a_decision_that_was_not_written_may_be_made_again() -> None:
    played = Played()
    producer_id, epoch = played.begun(0)
    played.appends.append(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert played.end(producer_id, epoch) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (played.stored.state, played.sent) == (ONGOING, [])
    assert played.end(producer_id, epoch, False) is NONE
    assert played.stored.state is PREPARE_ABORT


def test_a_decision_stands_where_too_few_replicas_were_in_sync_afterwards() -> None:
    played = Played()
    producer_id, epoch = played.begun(0)
    played.appends.append(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    assert played.end(producer_id, epoch) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert played.end(producer_id, epoch, False) is ILLEGAL
    played.write_markers()
    assert played.end(producer_id, epoch) is NONE


def test_a_decision_that_takes_long_keeps_the_id_until_the_log_has_decided() -> None:
    played = Played()
    producer_id, epoch = played.begun(0)
    played.appends.append(HELD)
    assert played.end(producer_id, epoch) is None
    # The producer gave up waiting, and would abort.
    assert played.end(producer_id, epoch, False) is BUSY
    played.now_ms += 10 * TIMEOUT_MS
    played.decide(TimeoutCheck([NAME]))
    played.release()
    assert played.stored.state is PREPARE_COMMIT
    assert played.stored.epoch == epoch


# ---- markers


def test_markers_of_another_transaction_do_not_count() -> None:
    played = Played()
    producer_id, epoch = played.begun(0)
    played.end(producer_id, epoch)
    marker = played.sent[0].marker
    played.note(attrs.evolve(marker, epoch=epoch - 1), [part(0)])
    played.note(attrs.evolve(marker, producer_id=1), [part(0)])
    played.note(attrs.evolve(marker, transactional_id="another"), [part(0)])
    assert played.stored.state is PREPARE_COMMIT
    played.note(marker, [part(0)])
    assert played.stored.state is COMPLETE_COMMIT


def test_markers_that_are_written_twice_complete_once() -> None:
    played = Played()
    producer_id, epoch = played.begun(0)
    played.end(producer_id, epoch)
    played.appends.append(HELD)
    played.write_markers()
    played.write_markers()
    assert len(played.held) == 1
    played.release()
    played.write_markers()
    assert [transaction.state for _, transaction in played.written if transaction][-2:] == [
        PREPARE_COMMIT,
        COMPLETE_COMMIT,
    ]


def test_a_completion_that_was_not_written_is_written_later() -> None:
    played = Played()
    producer_id, epoch = played.begun(0)
    played.end(producer_id, epoch)
    played.appends.append(ErrorCode.NOT_ENOUGH_REPLICAS)
    played.write_markers()
    assert played.stored.state is PREPARE_COMMIT
    assert played.add(producer_id, epoch, 0) is BUSY
    assert played.timers == [CompletionDue(NAME)]
    played.decide(played.timers.pop())
    assert played.stored.state is COMPLETE_COMMIT
    assert played.add(producer_id, epoch, 0) is NONE


def test_the_next_coordinator_sends_the_markers_again() -> None:
    played = Played()
    producer_id, epoch = played.begun(0, 1)
    played.end(producer_id, epoch)
    played.write_markers(0)

    other = played.reloaded()
    assert other.add(producer_id, epoch, 0) is BUSY
    assert other.init()[0] is BUSY
    other.decide(IdsLoaded([NAME]))
    assert other.sent == played.sent
    other.write_markers()
    assert other.stored.state is COMPLETE_COMMIT


def test_the_next_coordinator_goes_on_with_what_is_open() -> None:
    played = Played()
    producer_id, epoch = played.begun(0)
    other = played.reloaded()
    other.decide(IdsLoaded([NAME]))
    assert other.sent == []
    assert other.add(producer_id, epoch, 1) is NONE
    assert other.end(producer_id, epoch) is NONE


# ---- expiry


def expired(played: Played) -> bool:
    played.decide(ExpiryCheck([NAME], DAY_MS))
    return NAME not in played.shard.transactions


def test_an_id_expires_when_it_was_not_used_for_long() -> None:
    played = Played()
    played.init()
    played.now_ms += DAY_MS - 1
    assert not expired(played)
    played.now_ms += 1
    assert expired(played)
    assert NAME not in played.shard.live
    assert NAME not in played.reloaded().shard.transactions


@pytest.mark.parametrize("is_decided", [False, True])
def test_an_id_with_a_transaction_does_not_expire(is_decided: bool) -> None:
    played = Played()
    producer_id, epoch = played.begun(0)
    if is_decided:
        played.end(producer_id, epoch)
    played.now_ms += 2 * DAY_MS
    assert not expired(played)


def test_an_id_whose_tombstone_is_not_written_is_kept_and_works() -> None:
    played = Played()
    _, producer_id, epoch = played.init()
    played.now_ms += DAY_MS
    played.appends.append(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert not expired(played)
    assert played.add(producer_id, epoch, 0) is NONE


def test_nobody_gets_an_id_while_it_expires() -> None:
    played = Played()
    _, producer_id, epoch = played.init()
    played.now_ms += DAY_MS
    played.appends.append(HELD)
    assert not expired(played)
    assert played.add(producer_id, epoch, 0) is BUSY
    assert played.init()[0] is BUSY
    played.release()
    assert played.add(producer_id, epoch, 0) is UNKNOWN
    assert played.init(producer_id, epoch) == (NONE, 4001, 0)
