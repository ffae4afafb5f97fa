"""The broker's end of fetch sessions: ids, epochs, increments, and which session gives way."""

from __future__ import annotations

import attrs
import pytest

from broker.replication import fetch_sessions
from broker.replication.fetch_sessions import (
    EVICTION_MS,
    MAX_EPOCH,
    MOST_OF_CONNECTION,
    FetchContext,
    FetchSessions,
    next_epoch,
)
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import (
    FetchRequest,
    FetchRequestTopic,
    FetchResponsePartition,
    partition_error,
)
from protocol.topic_partition import TopicPartition
from tests.broker.replication.session_messages import (
    A,
    B,
    C,
    D,
    created,
    part,
    request,
    requested,
    sessions,
)


def names(context: FetchContext) -> list[TopicPartition]:
    return [tp for tp, _ in context.requested]


def answer(context: FetchContext, *parts: FetchResponsePartition) -> list[int]:
    """Return the numbers of the partitions in the response."""
    named = [(TopicPartition("t", part.partition_index), part) for part in parts]
    response = context.build_response(named)
    return [part.partition_index for topic in response.responses for part in topic.partitions]


def refusal(known: FetchSessions, asked: FetchRequest) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        known.open(asked, 0)
    return refused.value.code


# ---- ids and epochs


@pytest.mark.parametrize(("epoch", "then"), [(0, 1), (1, 2), (MAX_EPOCH, 1), (-1, 1)])
def test_epochs_go_up_and_begin_again_at_one(epoch: int, then: int) -> None:
    assert next_epoch(epoch) == then


def test_a_full_request_begins_a_session_and_is_answered_whole() -> None:
    known = sessions()
    context = known.open(request(A, B), 0)
    assert names(context) == [A, B]
    assert context.build_response([(A, part(A)), (B, part(B))]).session_id == 1
    assert answer(known.open(request(A, B), 0), part(A), part(B)) == [0, 1]


def test_an_id_in_use_and_zero_are_not_given() -> None:
    ids = iter([7, 0, 7, 9])
    known = FetchSessions(3, ids.__next__)
    assert [created(known, 1), created(known, 1)] == [7, 9]


def test_who_wants_no_session_gets_none() -> None:
    known = sessions()
    context = known.open(request(A, session=(0, -1)), 0)
    assert context.build_response([(A, part(A))]).session_id == 0
    assert refusal(known, request(session=(1, 1))) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_request_for_nothing_gets_no_session() -> None:
    assert created(sessions(), 0) == 0


def test_an_unknown_id_is_refused() -> None:
    assert refusal(sessions(), request(session=(5, 1))) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [2, 3, MAX_EPOCH])
def test_a_request_out_of_step_is_refused_and_the_session_goes_on(epoch: int) -> None:
    known = sessions()
    known.open(request(A), 0)
    wrong = request(session=(1, epoch))
    assert refusal(known, wrong) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert names(known.open(request(session=(1, 1)), 0)) == [A]


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_request_that_names_a_session_ends_it(epoch: int) -> None:
    known = sessions()
    known.open(request(A), 0)
    context = known.open(request(B, session=(1, epoch)), 0)
    assert names(context) == [B]
    assert context.build_response([]).session_id == (0 if epoch else 2)
    assert refusal(known, request(session=(1, 1))) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


# ---- increments


def test_what_was_asked_before_is_remembered_changed_added_and_forgotten() -> None:
    known = sessions()
    known.open(request(A, B, C), 0)
    context = known.open(request(B, D, session=(1, 1), forgotten=(A,), offset=9), 0)
    assert [(tp, p.fetch_offset) for tp, p in context.requested] == [(B, 9), (C, 0), (D, 9)]


def test_a_session_of_nothing_ends() -> None:
    known = sessions()
    known.open(request(A), 0)
    context = known.open(request(session=(1, 1), forgotten=(A,)), 0)
    assert context.build_response([]).session_id == 0
    assert refusal(known, request(session=(1, 2))) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_only_news_are_told() -> None:
    known = sessions()
    answer(known.open(request(A, B, C, D), 0), part(A), part(B), part(C), part(D))
    context = known.open(request(session=(1, 1)), 0)
    parts = [part(A, records=b"x"), part(B), part(C, high_watermark=1), part(D, log_start=1)]
    assert answer(context, *parts) == [0, 2, 3]
    assert answer(known.open(request(session=(1, 2)), 0), *parts[1:]) == []


def test_an_error_is_told_each_time_and_so_is_its_end() -> None:
    known = sessions()
    answer(known.open(request(A), 0), part(A))
    told = [
        answer(known.open(request(session=(1, epoch)), 0), each)
        for epoch, each in enumerate(
            [partition_error(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)] * 2 + [part(A)] * 2, start=1
        )
    ]
    assert told == [[0], [0], [0], []]


def test_a_partition_is_looked_at_once_and_then_when_it_is_marked_or_named() -> None:
    known = sessions()
    opened = known.open(request(A, B, C), 0)
    assert names(opened) == [A, B, C]
    answer(opened, part(A), part(B), part(C))
    assert names(known.open(request(session=(1, 1)), 0)) == []
    assert [session.id for session in known.mark(B)] == [1]
    context = known.open(request(C, session=(1, 2), offset=5), 0)
    assert names(context) == [B, C]
    answer(context, part(B), part(C))
    assert names(known.open(request(session=(1, 3)), 0)) == []


def test_a_mark_that_comes_while_a_request_waits_is_seen_by_it() -> None:
    known = sessions()
    answer(known.open(request(A, B), 0), part(A), part(B))
    waiting = known.open(request(session=(1, 1)), 0)
    known.mark(A)
    assert names(waiting) == [A]


def test_what_has_more_stays_marked_and_is_read_last_if_it_brought_records() -> None:
    known = sessions()
    first = known.open(request(A, B, C), 0)
    has_more = {A, B}
    parts = [(A, part(A, records=b"x")), (B, part(B)), (C, part(C))]
    first.build_response(parts, lambda each: each[0] in has_more)
    assert names(known.open(request(session=(1, 1)), 0)) == [B, A]


def test_a_session_that_ends_is_marked_no_more() -> None:
    known = sessions()
    created(known, 3)
    known.open(request(session=(1, 1), forgotten=(A,)), 0)
    assert [len(known.mark(tp)) for tp in (A, B)] == [0, 1]
    known.open(request(C, session=(1, -1)), 0)
    assert [len(known.mark(tp)) for tp in (A, B, C)] == [0, 0, 0]


def test_who_asks_in_another_leader_epoch_is_told_the_watermark_again() -> None:
    known = sessions()
    answer(known.open(request(A), 0), part(A, high_watermark=4))
    anew = request(session=(1, 1))
    in_epoch = attrs.evolve(requested(A), current_leader_epoch=3)
    anew = attrs.evolve(anew, topics=[FetchRequestTopic(topic="t", partitions=[in_epoch])])
    assert answer(known.open(anew, 0), part(A, high_watermark=4)) == [0]


def test_a_request_that_waited_is_answered_though_another_has_forgotten_its_partition() -> None:
    known = sessions()
    known.open(request(A, B), 0)
    waited = known.open(request(session=(1, 1)), 0)
    known.open(request(session=(1, 2), forgotten=(A,)), 0)
    assert answer(waited, part(A, records=b"x"), part(B, records=b"y")) == [0, 1]


# ---- who gives way


def test_where_there_is_no_room_a_newcomer_goes_without() -> None:
    known = sessions(2)
    assert [created(known, 5) for _ in range(3)] == [1, 2, 0]


def test_without_slots_there_are_no_sessions() -> None:
    assert created(sessions(0), 5, replica=1) == 0


def test_a_session_that_was_silent_for_long_gives_way_to_any() -> None:
    known = sessions(2)
    created(known, 5)
    created(known, 5)
    known.open(request(session=(1, 1)), 1)
    assert created(known, 1, EVICTION_MS + 1) == 3
    assert refusal(known, request(session=(2, 1))) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_request_out_of_step_keeps_no_session_alive() -> None:
    known = sessions(2)
    created(known, 5)
    created(known, 5)
    known.open(request(session=(2, 1)), EVICTION_MS)
    refusal(known, request(session=(1, 9)))
    assert created(known, 1, EVICTION_MS + 1) == 3
    assert refusal(known, request(session=(1, 1))) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_follower_takes_the_place_of_the_smallest_session_of_a_consumer() -> None:
    known = sessions(3)
    created(known, 9)
    created(known, 2)
    created(known, 1, replica=4)
    assert created(known, 1, replica=5) == 4
    assert refusal(known, request(session=(2, 1))) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_young_session_of_a_follower_gives_way_to_no_other() -> None:
    known = sessions(1)
    created(known, 1, replica=4)
    assert created(known, 9, replica=5) == 0


@pytest.mark.parametrize(("size", "given"), [(5, 0), (6, 2)])
def test_an_old_session_gives_way_to_a_larger_one(size: int, given: int) -> None:
    known = sessions(1)
    created(known, 5)
    known.open(request(session=(1, 1)), EVICTION_MS)
    assert created(known, size, EVICTION_MS + 1) == given


def test_an_old_session_of_a_follower_gives_way_to_no_consumer() -> None:
    known = sessions(1)
    created(known, 1, replica=4)
    known.open(request(session=(1, 1), replica=4), EVICTION_MS)
    assert created(known, 9, EVICTION_MS + 1) == 0
    assert created(known, 9, EVICTION_MS + 1, replica=5) == 2


# ---- bounds


@pytest.mark.fault("strangers-39")
def test_sessions_of_consumers_hold_so_many_partitions_and_not_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_sessions, "MOST_OF_CONSUMER", 3)
    monkeypatch.setattr(fetch_sessions, "MOST_OF_CONSUMERS", 5)
    known = sessions(slots=10)
    # Neither is one too large at first, nor does it become so.
    assert created(known, 4) == 0
    assert created(known, 2) == 1
    known.open(request(C, session=(1, 1)), 0)
    assert refusal(known, request(D, session=(1, 2))) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (known.open_count, known.partition_count) == (0, 0)

    # All of them share a bound, and what is given up is free again.
    assert (created(known, 3), created(known, 3), created(known, 2)) == (2, 0, 3)
    known.open(request(session=(3, 1), forgotten=(A,)), 0)
    assert created(known, 1) == 4
    known.open(request(A, session=(2, 0)), 0)
    assert known.partition_count == 3

    # Brokers follow as many as there are.
    assert created(known, 9, replica=2) == 6


@pytest.mark.fault("strangers-39")
def test_a_client_has_its_share_of_what_all_consumers_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_sessions, "MOST_OF_CLIENT", 3)
    known = sessions(slots=10)
    assert known.open(request(A, B), 0, 1, "one").session is not None
    assert known.open(request(A, B), 0, 2, "one").session is None
    assert known.open(request(A, B), 0, 3, "two").session is not None
    known.end_connection(1)
    assert known.open(request(A, B, C), 0, 2, "one").session is not None


@pytest.mark.fault("strangers-39")
def test_a_replica_id_is_a_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MOST_OF_CONSUMER", 2)
    known = sessions(slots=10)
    # Of a sender that may not act for the cluster.
    claimed = known.open(request(A, B, replica=99), 0, most_followed=0).session
    assert claimed is not None
    assert not claimed.is_follower
    more = request(C, session=(claimed.id, 1), replica=99)
    with pytest.raises(ApiError):
        known.open(more, 0, most_followed=0)

    # Nor does a broker follow more than there is.
    followed = known.open(request(A, B, C, replica=2), 0, most_followed=3).session
    assert followed is not None
    with pytest.raises(ApiError):
        known.open(request(D, session=(followed.id, 1), replica=2), 0, most_followed=3)
    assert known.open_count == 0


@pytest.mark.fault("strangers-39")
def test_sessions_end_with_their_connection_which_has_a_few() -> None:
    known = sessions(slots=10)
    for _ in range(MOST_OF_CONNECTION + 1):
        known.open(request(A, B), 0, 7)
    known.open(request(B), 0, 8)
    # The first has given way to the last.
    assert refusal(known, request(session=(1, 1))) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert known.open_count == MOST_OF_CONNECTION + 1

    known.end_connection(7)
    assert (known.open_count, known.partition_count) == (1, 1)
    assert [session.id for session in known.mark(B)] == [MOST_OF_CONNECTION + 2]
    known.end_connection(8)
    known.end_connection(9)
    assert (known.open_count, list(known.mark(B))) == (0, [])
