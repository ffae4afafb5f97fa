"""The reader's end of a fetch session, alone and against the broker's end."""

from __future__ import annotations

import random
from collections.abc import Mapping

import attrs
import pytest

from broker.replication.fetch_sessions import (
    EVICTION_MS,
    NAMED_AT_ONCE,
    FetchContext,
    FetchSessions,
    SessionReader,
)
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import (
    FetchRequest,
    FetchRequestForgottenTopic,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)
from protocol.topic_partition import TopicPartition
from tests.broker.replication.session_messages import (
    TEMPLATE,
    A,
    B,
    C,
    D,
    created,
    part,
    requested,
    sessions,
)

# ---- the reader's end


def wanted(**offsets: int) -> dict[TopicPartition, FetchRequestPartition]:
    """Request partitions from offsets on: A=5 requests partition A from offset 5 on."""
    by_name = {"A": A, "B": B, "C": C, "D": D}
    return {by_name[name]: requested(by_name[name], at) for name, at in offsets.items()}


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


def test_many_partitions_are_named_some_a_request_and_none_of_these_waits() -> None:
    """Else the leader reads all of them in one turn of its loop."""
    reader = SessionReader(most_named=2)
    waits = []
    for named in ([(0, 1), (1, 2)], [(2, 3), (3, 4)], []):
        made = ask(reader, wanted(A=1, B=2, C=3, D=4))
        assert said(made)[2:] == (named, [])
        waits.append(made.max_wait_ms)
        reader.handle_response(replied(7))
    assert waits == [0, TEMPLATE.max_wait_ms, TEMPLATE.max_wait_ms] != [0, 0, 0]


def test_partition_that_was_not_named_yet_is_changed_and_forgotten_without_a_word() -> None:
    reader = SessionReader(most_named=1)
    ask(reader, wanted(A=1, B=2, C=3))
    reader.handle_response(replied(7))
    assert said(ask(reader, wanted(A=9, C=4))) == (7, 1, [(0, 9), (2, 4)], [])
    reader.handle_response(replied(7))
    assert said(ask(reader, wanted(C=4))) == (7, 2, [], [0])


def test_broker_without_room_for_a_session_is_asked_for_all() -> None:
    reader = SessionReader(most_named=1)
    assert said(ask(reader, wanted(A=1, B=2))) == (0, 0, [(0, 1)], [])
    for _ in range(2):
        reader.handle_response(replied(0))
        assert said(ask(reader, wanted(A=1, B=2))) == (0, 0, [(0, 1), (1, 2)], [])
    reader.handle_response(replied(7))
    assert said(ask(reader, wanted(A=1, B=2))) == (7, 1, [], [])


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
    reader.want(A, requested(A))
    request = reader.request(template)

    own = {
        "session_id": 0,
        "session_epoch": 0,
        "topics": [FetchRequestTopic(topic="t", partitions=[requested(A)])],
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
        asks = {tp: requested(tp, at) for tp, at in offsets.items()}
        request = ask(self.reader, asks)
        if self.rng.random() < 0.1:  # not heard by the broker
            self.reader.restart()
            return False
        try:
            context = self.known.open(request, now_ms)
        except ApiError as error:
            self.reader.handle_response(replied(error=error.code))
            return False
        named = {tp: at for tp, at in offsets.items() if tp not in self.reader._unnamed}
        assert self.remembered(context) == named
        parts = [(tp, self.part(tp, state)) for tp, _ in context.requested]
        response = context.build_response(parts)
        if self.rng.random() < 0.1:  # not heard by the reader
            self.reader.restart()
            return False
        self.reader.handle_response(response)
        if request.session_epoch == 0:
            self.heard.clear()
        for topic in response.responses:
            for partition in topic.partitions:
                tp = TopicPartition(topic.topic, partition.partition_index)
                self.heard[tp] = (partition.high_watermark, partition.log_start_offset)
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


@pytest.mark.parametrize("most_named", [2, NAMED_AT_ONCE])
@pytest.mark.parametrize("seed", range(40))
def test_after_any_sequence_a_reader_knows_what_the_broker_has(seed: int, most_named: int) -> None:
    """Requests and responses get lost, sessions give way to others, partitions come and go."""
    rng = random.Random(seed)
    pair = Pair(rng, sessions(2), SessionReader(most_named))
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
            named = offsets.keys() - pair.reader._unnamed.keys()
            assert {tp: pair.heard[tp] for tp in named} == {tp: state[tp] for tp in named}
    assert answered > 40
