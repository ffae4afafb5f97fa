"""Markers on their way to the leaders of partitions: queues, results, and brokers that are away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from typing import Any

import attrs
import pytest

from broker.coordinators.broker_connection import BrokerConnections
from broker.coordinators.marker_sender import (
    LONGEST_RETRY_S,
    MOST_WRITTEN,
    NO_LEADER,
    PLACED_A_SECOND,
    PLACED_A_TURN,
    MarkerSender,
)
from clients.transport.connection import ConnectionFailed
from groups.transactions.events import Marker, SendMarkers
from protocol.errors import ErrorCode
from protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.topic_partition import TopicPartition
from tests.stage.clock import VirtualTimeLoop

COORDINATOR_EPOCH = 7
ANSWER_S = 0.01
"""Time in which a broker answers."""

Codes = Callable[[int, TopicPartition], ErrorCode]


def part(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def marker(number: int) -> Marker:
    return Marker(f"id-{number}", number, 0, is_commit=True)


@attrs.define(eq=False)
class ScriptedBroker:
    """Answers each request with the codes of the stage; refuses to connect while it is away."""

    codes: Codes
    requests: list[WriteTxnMarkersRequest] = attrs.field(factory=list)
    is_away: bool = False
    closed: bool = False

    async def call(self, request: WriteTxnMarkersRequest) -> Any:
        await asyncio.sleep(ANSWER_S)
        if self.is_away:
            raise ConnectionFailed("broker", -1, "it is away")
        self.requests.append(request)
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index,
                                    error_code=self.codes(
                                        marker.producer_id, TopicPartition(topic.name, index)
                                    ),
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )


@attrs.define(eq=False)
class Stage:
    """A sender, its brokers, and a coordinator that wants all that was not written yet."""

    loop: VirtualTimeLoop
    leaders: dict[TopicPartition, int] = attrs.field(factory=dict)
    code: ErrorCode = ErrorCode.NONE
    unwanted: set[Marker] = attrs.field(factory=set)
    written: list[tuple[int, TopicPartition]] = attrs.field(factory=list)
    brokers: dict[int, ScriptedBroker] = attrs.field(factory=dict)
    sender: MarkerSender = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.sender = MarkerSender(
            leader_of=self.leaders.get,
            epoch_of=lambda marker: COORDINATOR_EPOCH,
            connections=BrokerConnections(self.connect),
            spawn=self.loop.create_task,
        )
        self.sender.coordinator = self

    async def connect(self, broker_id: int) -> ScriptedBroker:
        broker = self.broker(broker_id)
        if broker.is_away:
            raise ConnectionFailed("broker", -1, "it is away")
        return broker

    def broker(self, broker_id: int) -> ScriptedBroker:
        if broker_id not in self.brokers:
            self.brokers[broker_id] = ScriptedBroker(lambda *_: self.code)
        return self.brokers[broker_id]

    # ---- the coordinator

    def wants(self, marker: Marker) -> bool:
        return marker not in self.unwanted

    def note_markers(self, marker: Marker, partitions: Collection[TopicPartition]) -> None:
        self.written += [(marker.producer_id, partition) for partition in partitions]

    # ---- what a test does

    def send(self, number: int, *partitions: int) -> None:
        decided = SendMarkers(marker(number), frozenset(map(part, partitions)))

        async def send() -> None:
            self.sender.send(decided)

        self.loop.run_until_complete(send())

    def run(self, seconds: float = 0.05) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))


@pytest.fixture
def stage() -> Iterator[Stage]:
    loop = VirtualTimeLoop()
    yield Stage(loop, {part(0): 1, part(1): 1, part(2): 2})
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def test_each_leader_gets_its_partitions(stage: Stage) -> None:
    stage.send(5, 0, 1, 2)
    stage.run()
    assert sorted(stage.written) == [(5, part(0)), (5, part(1)), (5, part(2))]
    (of_1,) = stage.broker(1).requests
    (sent,) = of_1.markers
    assert (sent.producer_id, sent.producer_epoch, sent.transaction_result) == (5, 0, True)
    assert sent.coordinator_epoch == COORDINATOR_EPOCH
    assert [(topic.name, topic.partition_indexes) for topic in sent.topics] == [("t", [0, 1])]


def test_a_broker_has_one_request_at_a_time_with_all_that_waits(stage: Stage) -> None:
    for number in range(10):
        stage.send(number, 0)
    stage.run()
    assert [len(request.markers) for request in stage.broker(1).requests] == [1, 9]
    assert len(stage.written) == 10


def sent(stage: Stage) -> list[int]:
    """The number of markers in each request to broker 1, by partition."""
    return [
        sum(len(topic.partition_indexes) for marker in request.markers for topic in marker.topics)
        for request in stage.broker(1).requests
    ]


@pytest.mark.fault("strangers-47")
def test_a_request_has_no_more_markers_than_can_be_written_in_its_time(stage: Stage) -> None:
    many = range(10, 10 + MOST_WRITTEN)
    stage.leaders.update(dict.fromkeys(map(part, many), 1))
    for number in range(3):
        stage.send(number, *many)
    stage.run(1)
    assert sum(sent(stage)) == len(set(stage.written)) == 3 * MOST_WRITTEN
    assert max(sent(stage)) == MOST_WRITTEN
    assert len(sent(stage)) <= 5


@pytest.mark.fault("strangers-47")
def test_what_waits_behind_a_failed_request_is_placed_again(stage: Stage) -> None:
    many = range(10, 10 + 3 * MOST_WRITTEN)
    stage.leaders.update(dict.fromkeys(map(part, many), 1))
    stage.broker(1).is_away = True
    stage.send(5, *many)
    stage.run(0.05)
    assert stage.sender.count_unplaced() == 1
    stage.leaders.update(dict.fromkeys(map(part, many), 2))
    stage.run(1)
    assert sorted(stage.written) == [(5, part(number)) for number in many]
    assert stage.broker(1).requests == []


def test_markers_find_their_leaders_some_in_a_turn(stage: Stage) -> None:
    many = range(10, 10 + 4 * PLACED_A_TURN)
    asked: list[TopicPartition] = []
    turns: list[int] = []

    def leader_of(partition: TopicPartition) -> int:
        asked.append(partition)
        return NO_LEADER

    async def count() -> None:
        for _ in range(10):
            turns.append(len(asked))
            asked.clear()
            await asyncio.sleep(0)

    stage.sender.leader_of = leader_of
    stage.send(5, *many)
    stage.loop.run_until_complete(count())
    # Two turns are over when it begins to count.
    assert turns[1:4] == [PLACED_A_TURN, PLACED_A_TURN, 0]
    assert sum(turns) == len(many)
    assert stage.sender.count_unplaced() == 1


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ],
)
def test_what_was_not_written_goes_to_the_leader_of_then(stage: Stage, code: ErrorCode) -> None:
    stage.code = code
    stage.send(5, 0)
    stage.run()
    assert stage.written == []

    stage.leaders[part(0)] = 2
    stage.code = ErrorCode.NONE
    stage.run(0.2)
    assert stage.written == [(5, part(0))]
    assert stage.broker(2).requests


@pytest.mark.fault("strangers-51")
@pytest.mark.parametrize(
    ("code", "written"),
    [
        # Another coordinator ends the transaction.
        (ErrorCode.TRANSACTION_COORDINATOR_FENCED, []),
        # Nobody can end it there any more: the id goes on, and what is left there hangs.
        (ErrorCode.INVALID_PRODUCER_EPOCH, [(5, part(0))]),
    ],
)
def test_a_marker_that_a_partition_will_never_take_is_given_up(
    stage: Stage,
    code: ErrorCode,
    written: list[tuple[int, TopicPartition]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage.code = code
    stage.send(5, 0)
    stage.run(2)
    assert stage.written == written
    assert len(stage.broker(1).requests) == 1
    assert f"does not write the marker of producer 5 epoch 0 to t-0: {code.name}" in caplog.text


def test_a_partition_in_an_old_format_counts_as_written(stage: Stage) -> None:
    stage.code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    stage.send(5, 0)
    stage.run()
    assert stage.written == [(5, part(0))]


def test_a_deleted_partition_counts_as_written(stage: Stage) -> None:
    stage.send(5, 0, 9)
    stage.run()
    assert sorted(stage.written) == [(5, part(0)), (5, part(9))]


def test_a_marker_waits_for_a_leader(stage: Stage) -> None:
    stage.leaders[part(0)] = NO_LEADER
    stage.send(5, 0)
    stage.run(30)
    assert stage.sender.count_unplaced() == 1
    stage.leaders[part(0)] = 2
    stage.run(0.2)
    assert stage.written == [(5, part(0))]
    assert stage.sender.count_unplaced() == 0


@pytest.mark.fault("groups-S3")
def test_very_many_markers_that_wait_for_a_leader_are_looked_at_less_often(stage: Stage) -> None:
    asked = 0

    def leader_of(partition: TopicPartition) -> int | None:
        nonlocal asked
        asked += 1
        return stage.leaders[partition]

    stage.sender.leader_of = leader_of
    number = PLACED_A_SECOND
    stage.leaders |= {part(index): NO_LEADER for index in range(number)}
    for index in range(number):
        stage.send(index, index)
    stage.run(10)
    assert asked <= 12 * PLACED_A_SECOND

    stage.leaders |= {part(index): 1 for index in range(number)}
    stage.run(LONGEST_RETRY_S + 1)
    assert len(stage.written) == number


def test_one_broker_that_is_away_keeps_no_other_waiting(stage: Stage) -> None:
    stage.broker(1).is_away = True
    stage.send(5, 0, 2)
    stage.run(30)
    assert stage.written == [(5, part(2))]
    stage.broker(1).is_away = False
    stage.run(0.3)
    assert sorted(stage.written) == [(5, part(0)), (5, part(2))]


def test_a_fault_of_ours_loses_no_marker(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    def fail(producer_id: int, partition: TopicPartition) -> ErrorCode:
        raise AssertionError("a bug")

    stage.broker(1).codes = fail
    stage.send(5, 0)
    stage.run()
    assert "sending markers to broker 1 failed" in caplog.text
    stage.broker(1).codes = lambda *_: ErrorCode.NONE
    stage.run(0.3)
    assert stage.written == [(5, part(0))]


def test_nothing_is_sent_that_is_no_longer_wanted(stage: Stage) -> None:
    stage.broker(1).is_away = True
    stage.send(5, 0)
    stage.run(1)
    stage.unwanted.add(marker(5))
    stage.broker(1).is_away = False
    stage.run(1)
    assert stage.broker(1).requests == []
    assert stage.sender.count_unplaced() == 0
