"""The two ends of fetch sessions, alone and together."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import count

import attrs
import pytest

from broker.replication.fetch_sessions import (
    EVICTION_MS,
    MAX_EPOCH,
    FetchContext,
    FetchSessions,
    SessionReader,
    next_epoch,
)
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import (
    FetchRequest,
    FetchRequestForgottenTopic,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
    partition_error,
)
from protocol.topic_partition import TopicPartition

A, B, C, D = (TopicPartition("t", number) for number in range(4))
TEMPLATE = FetchRequest(max_wait_ms=1, min_bytes=1, topics=())


def sessions(slots: int = 3) -> FetchSessions:
    """Make sessions whose ids are 1, 2, 3 …"""
    return FetchSessions(slots, count(1).__next__)


def asked(tp: TopicPartition, offset: int = 0) -> FetchRequestPartition:
    return FetchRequestPartition(
        partition=tp.partition, fetch_offset=offset, log_start_offset=0, partition_max_bytes=100
    )


def request(
    *partitions: TopicPartition,
    session: tuple[int, int] = (0, 0),
    forgotten: tuple[TopicPartition, ...] = (),
    replica: int = -1,
    offset: int = 0,
) -> FetchRequest:
    return FetchRequest(
        replica_id=replica,
        max_wait_ms=1,
        min_bytes=1,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchRequestTopic(topic="t", partitions=[asked(tp, offset) for tp in partitions])],
        forgotten_topics_data=[
            FetchRequestForgottenTopic(topic="t", partitions=[tp.partition for tp in forgotten])
        ],
    )


def part(
    tp: TopicPartition, *, high_watermark: int = 0, log_start: int = 0, records: bytes = b""
) -> FetchResponsePartition:
    return FetchResponsePartition(
        partition_index=tp.partition,
        error_code=ErrorCode.NONE,
        high_watermark=high_watermark,
        log_start_offset=log_start,
        records=records,
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


def created(known: FetchSessions, size: int, now_ms: int = 0, replica: int = -1) -> int:
    """Return the id of a new session of so many partitions; 0 if there was no room."""
    partitions = [TopicPartition("t", number) for number in range(size)]
    context = known.open(request(*partitions, replica=replica), now_ms)
    return context.build_response([]).session_id


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
    in_epoch = attrs.evolve(asked(A), current_leader_epoch=3)
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


# ---- the reader's end


def wanted(**offsets: int) -> dict[TopicPartition, FetchRequestPartition]:
    """Request partitions from offsets on: A=5 requests partition A from offset 5 on."""
    by_name = {"A": A, "B": B, "C": C, "D": D}
    return {by_name[name]: asked(by_name[name], at) for name, at in offsets.items()}


def said(made: FetchRequest) -> tuple[int, int, list[tuple[int, int]], list[int]]:
    """Return (session, epoch, [(partition, offset)], forgotten)."""
    return (
        made.session_id,
        made.session_epoch,
        [(p.partition, p.fetch_offset) for topic in made.topics for p in topic.partitions],
        [index for topic in made.forgotten_topics_data for index in topic.partitions],
    )


def replied(session: int = 0, error: ErrorCode = ErrorCode.NONE) -> FetchResponse:
    return FetchResponse(error_code=error, session_id=session, responses=[])


def ask(
    reader: SessionReader, wanted: Mapping[TopicPartition, FetchRequestPartition]
) -> FetchRequest:
    """Return the request of a reader that wants these partitions and no others."""
    for tp in reader.wanted.keys() - wanted.keys():
        reader.forget(tp)
    for tp, asked in wanted.items():
        reader.want(tp, asked)
    return reader.request(TEMPLATE)


def test_a_reader_names_all_then_what_differs() -> None:
    reader = SessionReader()
    assert said(ask(reader, wanted(A=1, B=2))) == (0, 0, [(0, 1), (1, 2)], [])
    reader.handle_response(replied(7))
    assert said(ask(reader, wanted(A=1, B=3, C=0))) == (7, 1, [(1, 3), (2, 0)], [])
    reader.handle_response(replied(7))
    assert said(ask(reader, wanted(B=3, C=0))) == (7, 2, [], [0])


def test_without_a_session_a_reader_goes_on_naming_all() -> None:
    reader = SessionReader()
    for _ in range(2):
        assert said(ask(reader, wanted(A=1))) == (0, 0, [(0, 1)], [])
        reader.handle_response(replied(0))


@pytest.mark.parametrize("how", ["error", "lost", "closed"])
def test_after_a_session_ends_a_reader_names_all_again(how: str) -> None:
    reader = SessionReader()
    ask(reader, wanted(A=1))
    reader.handle_response(replied(7))
    ask(reader, wanted(A=1))
    if how == "lost":
        reader.restart()
    elif how == "error":
        reader.handle_response(replied(error=ErrorCode.INVALID_FETCH_SESSION_EPOCH))
    else:
        reader.handle_response(replied(0))
    _, epoch, named, forgotten = said(ask(reader, wanted(A=1)))
    assert (epoch, named, forgotten) == (0, [(0, 1)], [])


def test_a_reader_that_begins_anew_has_the_broker_forget_the_session_before() -> None:
    reader, known = SessionReader(), sessions(1)
    for number in (1, 2, 3):
        opened = known.open(ask(reader, wanted(A=1)), 0)
        response = opened.build_response([(A, part(A))])
        assert response.session_id == number
        reader.handle_response(response)
        reader.restart()


@pytest.mark.parametrize("field", [field.name for field in attrs.fields(FetchRequest)])
def test_every_field_of_the_template_survives_but_the_session_s_own(field: str) -> None:
    """A new request field must not get lost when a reader builds its requests."""
    template = FetchRequest(
        replica_id=1,
        max_wait_ms=2,
        min_bytes=3,
        max_bytes=4,
        isolation_level=1,
        session_id=5,
        session_epoch=6,
        topics=[FetchRequestTopic(topic="u", partitions=[])],
        forgotten_topics_data=[FetchRequestForgottenTopic(topic="u", partitions=[7])],
        rack_id="rack",
    )
    reader = SessionReader()
    reader.want(A, asked(A))
    request = reader.request(template)

    own = {
        "session_id": 0,
        "session_epoch": 0,
        "topics": [FetchRequestTopic(topic="t", partitions=[asked(A)])],
        "forgotten_topics_data": [],
    }
    default = attrs.fields_dict(FetchRequest)[field].default
    assert getattr(template, field) != default, "a default would survive in any case"
    assert getattr(request, field) == own.get(field, getattr(template, field))


# ---- both ends


State = Mapping[TopicPartition, tuple[int, int]]
"""The high watermark and log start of each partition."""


@attrs.define(eq=False)
class Pair:
    """A reader and its broker; `heard` has the bounds that the reader got in all responses."""

    rng: random.Random
    known: FetchSessions
    reader: SessionReader = attrs.field(factory=SessionReader)
    heard: dict[TopicPartition, tuple[int, int]] = attrs.field(factory=dict)

    def fetch(self, offsets: Mapping[TopicPartition, int], state: State, now_ms: int) -> bool:
        """Fetch; return whether the response came back without an error."""
        asks = {tp: asked(tp, at) for tp, at in offsets.items()}
        request = ask(self.reader, asks)
        if self.rng.random() < 0.1:  # not heard by the broker
            self.reader.restart()
            return False
        try:
            context = self.known.open(request, now_ms)
        except ApiError as error:
            self.reader.handle_response(replied(error=error.code))
            return False
        assert self.remembered(context) == dict(offsets)
        parts = [(tp, self.part(tp, state)) for tp, _ in context.requested]
        response = context.build_response(parts)
        if self.rng.random() < 0.1:  # not heard by the reader
            self.reader.restart()
            return False
        self.reader.handle_response(response)
        if request.session_epoch == 0:
            self.heard.clear()
        for topic in response.responses:
            for part in topic.partitions:
                tp = TopicPartition(topic.topic, part.partition_index)
                self.heard[tp] = (part.high_watermark, part.log_start_offset)
        return True

    def remembered(self, context: FetchContext) -> dict[TopicPartition, int]:
        """Return the offsets that the broker knows from this request and earlier ones."""
        if context.session is None:
            return {tp: p.fetch_offset for tp, p in context.requested}
        return {tp: known.request.fetch_offset for tp, known in context.session.partitions.items()}

    def part(self, tp: TopicPartition, state: State) -> FetchResponsePartition:
        watermark, start = state[tp]
        records = b"x" if self.rng.random() < 0.3 else b""
        return part(tp, high_watermark=watermark, log_start=start, records=records)


@pytest.mark.parametrize("seed", range(40))
def test_after_any_sequence_a_reader_knows_what_the_broker_has(seed: int) -> None:
    """Requests and responses get lost, sessions give way to others, partitions come and go."""
    rng = random.Random(seed)
    pair = Pair(rng, sessions(2))
    now_ms = 0
    answered = 0
    everything = [TopicPartition(topic, number) for topic in "tu" for number in range(4)]
    state = dict.fromkeys(everything, (0, 0))
    offsets: dict[TopicPartition, int] = {}
    for _ in range(120):
        now_ms += rng.choice([1, 1, 1, EVICTION_MS // 2])
        for tp in rng.sample(everything, 3):
            state[tp] = rng.choice([state[tp], (state[tp][0] + 1, state[tp][1]), (9, 3)])
            pair.known.mark(tp)
            match rng.randrange(3):
                case 0:
                    offsets.pop(tp, None)
                case 1:
                    offsets[tp] = rng.randrange(5)
        if rng.random() < 0.2:
            created(pair.known, rng.randrange(1, 9), now_ms, replica=rng.choice([-1, 5]))
        if pair.fetch(offsets, state, now_ms):
            answered += 1
            assert {tp: pair.heard[tp] for tp in offsets} == {tp: state[tp] for tp in offsets}
    assert answered > 40
