"""InitProducerId: who gets which id and epoch, and who is fenced (KIP-98, KIP-360)."""

from __future__ import annotations

import attrs
import pytest

from groups.transactions.events import TimeoutCheck
from groups.transactions.state import (
    COMPLETE_ABORT,
    EMPTY,
    LAST_EPOCH,
    ONGOING,
    PREPARE_ABORT,
)
from protocol.errors import ErrorCode
from tests.groups.transactions.played import HELD, NAME, TIMEOUT_MS, Played

NONE = ErrorCode.NONE
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
EXHAUSTED = LAST_EPOCH - 1


def set_epoch(played: Played, epoch: int) -> None:
    """Store the id with another epoch, as its log may have it."""
    stored = attrs.evolve(played.stored, epoch=epoch)
    played.shard.replay(played.shard.encode([(NAME, stored)]))


def test_a_new_id_gets_a_producer_id_and_epoch_0() -> None:
    played = Played()
    assert played.init() == (NONE, 4000, 0)
    assert played.stored.state is EMPTY
    assert played.stored.timeout_ms == TIMEOUT_MS


def test_each_producer_that_begins_gets_the_next_epoch() -> None:
    played = Played()
    assert [played.init()[2] for _ in range(3)] == [0, 1, 2]
    assert played.stored.producer_id == 4000


def test_a_producer_of_an_id_that_expired_begins_anew() -> None:
    assert Played().init(77, 5) == (NONE, 4000, 0)


def test_only_one_producer_at_a_time_is_given_an_id() -> None:
    played = Played(appends=[HELD])
    assert played.init() is None
    assert played.init() == (BUSY, -1, -1)
    played.release()
    assert played.replies[1].producer_id == 4000


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_was_not_written_did_not_happen(error: ErrorCode, told: ErrorCode) -> None:
    played = Played(appends=[error])
    assert played.init() == (told, -1, -1)
    assert NAME not in played.shard.transactions
    assert played.init() == (NONE, 4001, 0)


# ---- KIP-360


def test_a_producer_asks_for_its_next_epoch() -> None:
    played = Played()
    played.init()
    assert played.init(4000, 0) == (NONE, 4000, 1)


def test_a_lost_response_is_given_again() -> None:
    played = Played()
    played.init()
    assert played.init(4000, 0) == (NONE, 4000, 1)
    assert played.init(4000, 0) == (NONE, 4000, 1)


def test_a_lost_response_is_given_again_where_too_few_replicas_were_in_sync_afterwards() -> None:
    played = Played()
    played.init()
    played.appends.append(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    assert played.init(4000, 0)[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert played.init(4000, 0) == (NONE, 4000, 1)


def test_a_producer_that_was_replaced_gets_no_epoch() -> None:
    played = Played()
    played.init()
    played.init()
    assert played.init(4000, 0)[0] is FENCED


def test_a_producer_of_another_id_gets_no_epoch() -> None:
    played = Played()
    played.init()
    assert played.init(4711, 0)[0] is FENCED


def test_after_a_move_of_the_coordinator_nothing_is_known_of_the_last_epoch() -> None:
    played = Played()
    played.init()
    played.init(4000, 0)
    assert played.reloaded().init(4000, 0)[0] is FENCED


# ---- epochs end


@pytest.mark.parametrize("epoch", [-1, EXHAUSTED])
def test_after_the_last_epoch_comes_another_producer_id(epoch: int) -> None:
    played = Played()
    played.init()
    set_epoch(played, EXHAUSTED)
    assert played.init(4000 if epoch >= 0 else -1, epoch) == (NONE, 4001, 0)


def test_a_lost_response_with_another_producer_id_is_given_again() -> None:
    played = Played()
    played.init()
    set_epoch(played, EXHAUSTED)
    assert played.init(4000, EXHAUSTED) == (NONE, 4001, 0)
    assert played.init(4000, EXHAUSTED) == (NONE, 4001, 0)
    assert played.init(4000, EXHAUSTED - 1)[0] is FENCED


def test_the_very_last_epoch_fences_and_is_given_to_nobody() -> None:
    played = Played()
    played.begun(0)
    set_epoch(played, EXHAUSTED)
    assert played.init()[0] is BUSY
    assert played.stored.epoch == LAST_EPOCH
    played.write_markers()
    assert played.init() == (NONE, 4001, 0)


# ---- an open transaction


def test_who_takes_over_aborts_what_is_open_and_asks_again() -> None:
    played = Played()
    producer_id, epoch = played.begun(0, 1)
    assert played.init() == (BUSY, -1, -1)
    assert (played.stored.state, played.stored.epoch) == (PREPARE_ABORT, epoch + 1)
    assert not played.sent[0].marker.is_commit

    # The one before is fenced, also while the markers are on their way.
    assert played.add(producer_id, epoch, 2) is FENCED
    assert played.end(producer_id, epoch) is FENCED
    assert played.init() == (BUSY, -1, -1)

    played.write_markers()
    assert played.stored.state is COMPLETE_ABORT
    assert played.init() == (NONE, producer_id, epoch + 2)


def test_a_producer_is_fenced_before_that_is_written() -> None:
    played = Played()
    producer_id, epoch = played.begun(0)
    played.appends.append(HELD)
    assert played.init() is None
    assert played.end(producer_id, epoch) is FENCED
    assert played.add(producer_id, epoch, 0) is FENCED
    played.release()
    assert played.stored.state is PREPARE_ABORT


def test_attempts_that_are_not_written_raise_the_epoch_once() -> None:
    played = Played()
    producer_id, epoch = played.begun(0)
    played.appends += [ErrorCode.NOT_ENOUGH_REPLICAS] * 3
    for _ in range(3):
        assert played.init()[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert played.stored.state is ONGOING
        assert played.end(producer_id, epoch) is FENCED
    assert played.init()[0] is BUSY
    assert played.stored.epoch == epoch + 1


def test_a_transaction_that_timed_out_fences_its_producer() -> None:
    played = Played()
    producer_id, epoch = played.begun(0)
    played.now_ms += TIMEOUT_MS
    played.decide(TimeoutCheck([NAME]))
    assert played.stored.state is ONGOING

    played.now_ms += 1
    played.decide(TimeoutCheck([NAME]))
    assert (played.stored.state, played.stored.epoch) == (PREPARE_ABORT, epoch + 1)
    assert played.end(producer_id, epoch) is FENCED
    played.write_markers()
    assert played.init(producer_id, epoch)[0] is FENCED
    assert played.init() == (NONE, producer_id, epoch + 2)
