"""Fetch by the short way and by the general one: the same responses, waits and sessions."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import attrs
import pytest

from broker.handlers import fetch
from broker.handlers.short_fetch import MAX_PARTITIONS, ShortFetch
from broker.network.authorization import topic
from broker.network.dispatch import Dispatched, Dispatcher, FetchedParts, Refused
from broker.network.purgatory import Wait
from broker.network.request_context import Origin
from broker.network.response_parts import read_part, split_at_holes
from broker.replication.fetch_sessions import FetchSession, FetchSessions
from core_log.config import LogConfig
from core_log.log import AppendLater
from protocol.acls import Operation
from protocol.api_key import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.header import encode_request, encode_response, read_response
from protocol.messages.fetch import (
    FetchRequest,
    FetchRequestForgottenTopic,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
)
from protocol.records.control_record import ABORT, COMMIT, encode_marker
from protocol.special_values import READ_COMMITTED
from protocol.topic_partition import TopicPartition
from tests.broker.broken_frames import broken
from tests.broker.replication.replicas import NOW_MS, Replicas, batch, follower_at
from tests.broker.transactions import in_transaction
from tests.stage.authorizer import REFUSING, AskingAuthorizer, allowing

ORIGIN = Origin("PLAINTEXT", "127.0.0.1:1")
FETCH_MAX_BYTES = 5000
FETCH = b"\0\1\0"
"""What every frame begins with, broken or not: the key of the API, in no version of old formats."""

CONFIGS = {
    "Kafka's defaults": LogConfig(),
    "kept in zstd": LogConfig(compression_type="zstd"),
    "short segments": LogConfig(segment_bytes=3000, index_interval_bytes=100),
}
FOLLOWED = TopicPartition("followed", 0)
WRITTEN = [*(TopicPartition("alone", index) for index in range(3)), FOLLOWED]


@attrs.define(eq=False)
class Twin:
    """A broker's replicas and sessions, and the dispatcher in front of them."""

    replicas: Replicas
    dispatcher: Dispatcher
    short: int = 0
    """Requests that the short way has answered."""

    @classmethod
    def of(cls, config: LogConfig, now_ms: Callable[[], int], *, short: bool) -> Twin:
        replicas = Replicas(
            config=config, monotonic_ms=now_ms, sessions=FetchSessions(4, count(1).__next__)
        )
        replicas.lead("alone", 3)
        replicas.lead("followed", isr=(0, 1), replicas=(0, 1))
        replicas.lead("elsewhere", leader=1, isr=(1,), replicas=(0, 1))
        parts = replicas.manager, replicas.cache, replicas.sessions, FETCH_MAX_BYTES
        handle = partial(fetch.handle, *parts, replicas.deferred, replicas.leader_quota)
        way = ShortFetch(*parts, replicas.leader_quota)
        return cls(
            replicas,
            Dispatcher(
                {ApiKey.FETCH: handle},
                now_ms,
                now_ms,
                short_ways={ApiKey.FETCH: way} if short else {},
            ),
        )

    def begin(self, frame: bytes) -> Dispatched | str:
        """Dispatch a request; return what has become of it, or why it is refused."""
        try:
            dispatched = self.dispatcher.dispatch(memoryview(frame), ORIGIN)
        except Refused as error:
            return str(error)
        self.short += isinstance(dispatched.outcome, FetchedParts)
        return dispatched

    def state(self) -> list[Any]:
        """Return what the sessions know, the least recently used first."""
        self.replicas.check()
        return [
            (
                session.id,
                session.epoch,
                session.last_used_ms,
                session.is_hurried,
                [
                    (tp, known.request, known.high_watermark, known.log_start_offset)
                    for tp, known in session.partitions.items()
                ],
                list(session.marked),
            )
            for session in self.replicas.sessions._sessions.values()
        ]


def shown(begun: Dispatched | str) -> Any:
    """Return what a request waits for, or the bytes of its response."""
    if isinstance(begun, str):
        return begun
    wait = begun.outcome
    if isinstance(wait, Wait):
        keys = [key.id if isinstance(key, FetchSession) else key for key in wait.keys]
        return keys, wait.timeout_ms, wait.offsets
    return written(begun), begun.close, begun.is_from_broker


def written(dispatched: Dispatched) -> bytes:
    """Return the frame of a response with the bytes of its ranges."""
    header, outcome = dispatched.header, dispatched.outcome
    if isinstance(outcome, FetchedParts):
        sent = b"".join(map(read_part, outcome.parts))
        response = response_in(sent, header.api_version)
        assert outcome.sizes == [
            (topic.topic, len(part.records))
            for topic in response.responses
            for part in topic.partitions
        ]
        return sent
    encoded, holes = encode_response(
        header.api_key, header.api_version, header.correlation_id, outcome
    )
    return b"".join(map(read_part, split_at_holes(encoded, holes)))


def response_in(frame: bytes, version: int = 12) -> FetchResponse:
    _, response = read_response(ApiKey.FETCH, version, frame[4:])
    assert isinstance(response, FetchResponse)
    return response


def made(chance: random.Random, version: int, sessions: list[Any]) -> bytes:
    """Make a request: mostly a usual one, often almost one, sometimes nearly anything."""

    def some(most: int) -> range:
        return range(1 if chance.random() < 0.7 else chance.randrange(most))

    def topic() -> str:
        usual = ["alone", "alone", "alone", "followed", "elsewhere"]
        return chance.choice([*usual, "unknown", "Tür"])

    def partition() -> FetchRequestPartition:
        return FetchRequestPartition(
            partition=chance.choice([0, 0, 0, 1, 2, 7, -1]),
            current_leader_epoch=chance.choice([-1, 0, 0, 1]) if version >= 9 else -1,
            fetch_offset=chance.choice([0, 0, chance.randrange(100), -1, 10_000]),
            last_fetched_epoch=chance.choice([-1, -1, -1, 0, 1]) if version >= 12 else -1,
            log_start_offset=chance.choice([-1, 0]) if version >= 5 else -1,
            partition_max_bytes=chance.choice([0, 10, 300, 300, 1 << 20]),
        )

    request = FetchRequest(
        replica_id=chance.choice([-1] * 12 + [-2, 1, 5]),
        max_wait_ms=chance.choice([0, 500, 500]),
        min_bytes=chance.choice([0, 1, 1, 1, 200, 2000]),
        max_bytes=chance.choice([0, 100, 1000, 1 << 20]),
        isolation_level=chance.choice([0] * 6 + [1] * 5 + [2]),
        topics=[
            FetchRequestTopic(topic=topic(), partitions=[partition() for _ in some(4)])
            for _ in some(4)
        ],
    )
    if version >= 7:
        session_id, epoch = chance.choice([(0, -1), (0, 0), (0, 1), *sessions, *sessions])
        forgotten = FetchRequestForgottenTopic(topic=topic(), partitions=[0, 1])
        request = attrs.evolve(  # type: ignore[misc]  # mypy sees no attrs class in a message
            request,
            session_id=session_id,
            session_epoch=chance.choice([epoch] * 12 + [0, -1, 3]),
            topics=request.topics if chance.random() < 0.6 else [],
            forgotten_topics_data=[forgotten] if chance.random() < 0.05 else [],
            rack_id=chance.choice(["", "räck"]) if version >= 11 else "",
        )

    client_id = chance.choice([None, "", "client", "kläger"])
    frame = encode_request(ApiKey.FETCH, version, chance.getrandbits(31), client_id, request)
    return frame[4:]


def happen(chance: random.Random, number: int) -> Callable[[Replicas], None]:
    """Choose what happens beside the requests; it is done to both twins."""
    tp = chance.choice(WRITTEN)
    data = batch(*(chance.randbytes(chance.choice([1, 50, 400])) for _ in range(3)))
    kind = chance.randrange(15)
    producer_id, marker = chance.randrange(3), chance.choice([ABORT, ABORT, COMMIT])

    def do(replicas: Replicas) -> None:
        partition = replicas.manager.partition(tp)
        end = partition.log.log_end_offset
        if kind < 8:
            replicas.write(tp, data)
        elif kind < 10:
            follower_at(replicas, FOLLOWED, replicas.manager.log(FOLLOWED).log_end_offset)
        elif kind >= 12:
            # A producer's transaction begins, or ends.
            producer = partition.log.producers.producers.get(producer_id)
            if producer is not None and producer.transaction_start >= 0 and kind > 12:
                end_marker = encode_marker(
                    marker,
                    producer_id=producer_id,
                    producer_epoch=0,
                    coordinator_epoch=0,
                    timestamp_ms=NOW_MS,
                )
                with contextlib.suppress(ApiError, AppendLater):
                    replicas.manager.append_local(tp, end_marker, NOW_MS)
            else:
                sequence = 0 if producer is None else producer.next_sequence
                batch_of_it = in_transaction(b"v", producer_id=producer_id, sequence=sequence)
                replicas.write(tp, batch_of_it)
        elif kind == 10:
            partition.log.increment_log_start_offset(
                min(number // 100, partition.high_watermark, end)
            )
            replicas.manager.notify_log_start(tp)
        else:
            replicas.sessions.mark(tp)

    return do


@pytest.mark.parametrize("name", CONFIGS)
def test_both_ways_give_the_same_responses_waits_and_sessions(name: str) -> None:
    chance = random.Random(name)
    now_ms = NOW_MS

    def clock() -> int:
        return now_ms

    twins = [Twin.of(CONFIGS[name], clock, short=is_short) for is_short in (True, False)]
    for number in range(2500):
        now_ms += chance.choice([0, 1, 1000])
        if chance.random() < 0.2:
            event = happen(chance, number)
            for twin in twins:
                event(twin.replicas)

        # Readers with a session ask again, mostly in step.
        open_sessions = [
            (session.id, session.epoch) for session in twins[1].replicas.sessions._sessions.values()
        ]
        version = chance.choice([12, 12, 12, 12, 11, 11, 10, 9, 8, 7, 7, 6, 5, 4, 4, 3, 0])
        frame = made(chance, version, open_sessions)
        if chance.random() < 0.3:
            offset = chance.choice([20, 20, 30, 1000])
            tps = WRITTEN[: chance.randrange(1, 4)]
            version = chance.choice([12, 11, max(version, 4)])
            isolation = chance.choice([0, 0, 1])
            frame = asked(*tps, offset=offset, version=version, isolation_level=isolation)
        elif chance.random() < 0.1:
            frame = broken(chance, frame, FETCH)

        begun = [twin.begin(frame) for twin in twins]
        assert shown(begun[0]) == shown(begun[1]), f"request {number}: {frame!r}"
        assert twins[0].state() == twins[1].state(), f"after request {number}: {frame!r}"

        # Something happens while they wait, and they end alike.
        if not isinstance(begun[0], str) and isinstance(begun[0].outcome, Wait):
            event = happen(chance, number)
            ended: list[Any] = []
            for twin, waiting in zip(twins, begun, strict=True):
                event(twin.replicas)
                assert isinstance(waiting, Dispatched)
                wait: Any = waiting.outcome
                ended.append(shown(wait.try_complete(False) or wait.try_complete(True)))
            assert ended[0] == ended[1], f"request {number} after its wait: {frame!r}"
            assert twins[0].state() == twins[1].state(), f"after the wait of {number}"

    # Otherwise nothing was compared.
    assert twins[0].short > 200


def asked(*partitions: TopicPartition, version: int = 12, offset: int = 0, **fields: Any) -> bytes:
    """Encode a usual request."""
    topics = [
        FetchRequestTopic(
            topic=tp.topic,
            partitions=[
                FetchRequestPartition(
                    partition=tp.partition, fetch_offset=offset, partition_max_bytes=1000
                )
            ],
        )
        for tp in partitions
    ]
    usual = {"max_wait_ms": 500, "min_bytes": 1, **fields}
    request = FetchRequest(topics=topics, **usual)
    return encode_request(ApiKey.FETCH, version, 1, "c", request)[4:]


def filled(config: LogConfig | None = None) -> Twin:
    twin = Twin.of(config or LogConfig(), lambda: NOW_MS, short=True)
    for tp in WRITTEN[:3]:
        twin.replicas.write(tp, batch(b"v"))
    return twin


@pytest.mark.parametrize("isolation", [0, READ_COMMITTED])
@pytest.mark.parametrize("version", range(4, 13))
def test_a_usual_request_takes_the_short_way(version: int, isolation: int) -> None:
    twin = filled()
    begun = twin.begin(asked(*WRITTEN[:2], version=version, isolation_level=isolation))
    assert isinstance(begun, Dispatched)
    assert isinstance(begun.outcome, FetchedParts)
    assert [name for name, _ in begun.outcome.sizes] == ["alone", "alone"]


@pytest.mark.parametrize("version", [4, 7, 11, 12])
def test_the_short_way_names_aborted_transactions(version: int) -> None:
    twin = filled()
    replicas = twin.replicas
    for producer_id in range(2):
        replicas.write(WRITTEN[0], in_transaction(b"v", producer_id=producer_id))
    for producer_id in range(2):
        end_marker = encode_marker(
            ABORT,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=NOW_MS,
        )
        replicas.manager.append_local(WRITTEN[0], end_marker, NOW_MS)

    fields = {"offset": 1, "isolation_level": READ_COMMITTED}
    begun = twin.begin(asked(WRITTEN[0], version=version, **fields))
    assert isinstance(begun, Dispatched)
    assert twin.short == 1
    (part,) = response_in(written(begun), version).responses[0].partitions
    assert part.aborted_transactions is not None
    assert [(a.producer_id, a.first_offset) for a in part.aborted_transactions] == [(0, 1), (1, 2)]


def test_a_session_is_served_the_short_way_and_only_what_is_new_is_in_the_response() -> None:
    twin = filled()
    twin.begin(asked(*WRITTEN[:3], session_epoch=0))
    begun = twin.begin(asked(WRITTEN[1], session_id=1, session_epoch=1))
    assert isinstance(begun, Dispatched)
    response = response_in(written(begun))
    assert twin.short == 1
    assert response.session_id == 1
    assert {part.partition_index for part in response.responses[0].partitions} == {0, 1, 2}
    assert twin.replicas.sessions.find(1, 2) is not None


def test_a_session_out_of_step_is_refused_and_stays_as_it_was() -> None:
    twin = filled()
    twin.begin(asked(*WRITTEN[:3], session_epoch=0))
    before = twin.state()
    begun = twin.begin(asked(WRITTEN[1], session_id=1, session_epoch=5))
    assert isinstance(begun, Dispatched)
    assert response_in(written(begun)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert twin.state() == before


def test_more_partitions_than_a_few_go_the_general_way() -> None:
    twin = filled()
    twin.replicas.lead("many", MAX_PARTITIONS + 1)
    every = [TopicPartition("many", index) for index in range(MAX_PARTITIONS + 1)]
    twin.begin(asked(*every[1:], max_wait_ms=0))
    assert twin.short == 1
    twin.begin(asked(*every, max_wait_ms=0))
    assert twin.short == 1


@pytest.mark.fault("strangers-10")
@pytest.mark.parametrize("version", [4, 11, 12])
def test_what_is_named_again_goes_the_general_way(version: int) -> None:
    twin = filled()
    begun = twin.begin(asked(*WRITTEN[:2], WRITTEN[0], version=version))
    assert isinstance(begun, Dispatched)
    parts = [
        (topic.topic, part.partition_index)
        for topic in response_in(written(begun), version).responses
        for part in topic.partitions
    ]
    assert (twin.short, parts) == (0, [("alone", 0), ("alone", 1)])


READABLE = allowing((Operation.READ, topic("alone")))


def test_a_client_who_may_read_takes_the_short_way_with_an_authorizer_too() -> None:
    twin = filled()
    twin.dispatcher.authorizer = READABLE
    twin.begin(asked(WRITTEN[0]))
    assert twin.short == 1


def test_a_session_with_a_topic_that_may_not_be_read_goes_the_general_way() -> None:
    other = next(tp for tp in WRITTEN if tp.topic != "alone")
    twin = filled()
    twin.begin(asked(WRITTEN[0], other, session_epoch=0))
    short = twin.short
    # The request names neither: the session has both.
    twin.dispatcher.authorizer = READABLE
    twin.begin(asked(session_id=1, session_epoch=1))
    assert twin.short == short
    twin.dispatcher.authorizer = None
    twin.begin(asked(session_id=1, session_epoch=2))


def test_a_client_who_may_not_is_told_so_the_general_way() -> None:
    twin = filled()
    twin.dispatcher.authorizer = REFUSING
    begun = twin.begin(asked(WRITTEN[0]))
    assert isinstance(begun, Dispatched)
    (topic,) = response_in(written(begun)).responses
    assert topic.partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert twin.short == 0


@pytest.mark.fault("security-1")
def test_a_fetch_that_waits_the_short_way_reads_nothing_that_another_request_added() -> None:
    other = next(tp for tp in WRITTEN if tp.topic != "alone")
    twin = filled()
    twin.replicas.lead("quiet")
    quiet = TopicPartition("quiet", 0)
    twin.dispatcher.authorizer = allowing((Operation.READ, topic("quiet")))
    twin.begin(asked(quiet, session_epoch=0))
    waiting = twin.begin(asked(session_id=1, session_epoch=1, max_wait_ms=500))
    assert isinstance(waiting, Dispatched)
    assert isinstance(waiting.outcome, Wait)

    twin.begin(asked(other, session_id=1, session_epoch=2))
    twin.replicas.write(quiet, batch(b"news"))

    late = waiting.outcome.try_complete(False).outcome
    assert (late.error_code, late.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])


@pytest.mark.fault("security-1")
def test_a_permission_that_was_taken_away_while_a_short_fetch_waits_counts() -> None:
    twin = filled()
    twin.replicas.lead("quiet")
    quiet = TopicPartition("quiet", 0)
    may = {(Operation.READ, topic("quiet"))}
    twin.dispatcher.authorizer = AskingAuthorizer(lambda _, *wanted: wanted in may)
    waiting = twin.begin(asked(quiet, max_wait_ms=500))
    assert isinstance(waiting, Dispatched)
    assert isinstance(waiting.outcome, Wait)

    may.clear()
    twin.replicas.write(quiet, batch(b"news"))

    (fetched,) = waiting.outcome.try_complete(False).outcome.responses
    assert fetched.partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
