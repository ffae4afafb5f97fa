"""CreatePartitions: refusals, what is written, and when the wait ends."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from broker.cluster.metadata_cache import MetadataCache
from broker.controller.topic_changes import MAX_NEW_REPLICAS
from broker.handlers import create_partitions
from broker.handlers.create_partitions import PARTITIONS_AT_ONCE
from broker.network.fair_line import FairLine, Owner
from broker.network.purgatory import Purgatory
from broker.network.request_context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestAssignment,
    CreatePartitionsRequestTopic,
)
from tests.broker.asked_controller import AskedController, served
from tests.broker.replication.replicas import update_metadata
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import TopicAssignment

PATH = TopicAssignment.path("t")
STORED = (
    b'{"version":2,"partitions":{"0":[2,1]},"key":7,"adding_replicas":{},"removing_replicas":{}}'
)


@attrs.define(eq=False)
class Broker:
    """A broker that knows brokers 1 to 3 and topic "t", whose partition is on 2 and 1."""

    controller: AskedController = attrs.Factory(AskedController)
    cache: MetadataCache = attrs.Factory(MetadataCache)
    zookeeper: MemoryZooKeeper = attrs.Factory(MemoryZooKeeper)
    session: MemorySession = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.session = self.zookeeper.session()
        self.tell(1)

    def tell(self, led: int) -> None:
        """The controller says that so many partitions are led."""
        live = {1: 9092, 2: 9093, 3: 9094}
        self.cache.update(update_metadata("t", led, leader=2, isr=(2,), replicas=(2, 1), live=live))

    def create(
        self,
        *topics: CreatePartitionsRequestTopic,
        validate_only: bool = False,
        timeout_ms: int = 20,
        writing_ms: int = 20,
        then: Any = lambda waiting: None,
        answers: FairLine | None = None,
    ) -> list[tuple[str, int]]:
        request = CreatePartitionsRequest(
            topics=topics, timeout_ms=timeout_ms, validate_only=validate_only
        )
        context = RequestContext(1, "client", "PLAINTEXT", "1", 0)
        response = served(
            lambda deferred: create_partitions.handle(
                self.controller.as_controller(),
                self.session,
                self.cache,
                attrs.evolve(deferred, answers=answers or deferred.answers),
                writing_ms,
                request,
                context,
            ),
            then,
        )
        return [(entry.name, entry.error_code) for entry in response.results]

    def partitions(self) -> Any:
        data = self.zookeeper.tree[PATH].data
        assert data is not None
        return json.loads(data)["partitions"]


@pytest.fixture
def broker() -> Broker:
    broker = Broker()

    async def prepare() -> None:
        await broker.session.start()
        await broker.session.create(PATH, STORED, make_parents=True)

    asyncio.run(prepare())
    return broker


def to(
    count: int, assignments: Sequence[tuple[int, ...]] | None = None, name: str = "t"
) -> CreatePartitionsRequestTopic:
    given = None
    if assignments is not None:
        given = [CreatePartitionsRequestAssignment(broker_ids=entry) for entry in assignments]
    return CreatePartitionsRequestTopic(name=name, count=count, assignments=given)


def test_partitions_are_placed_after_those_there_are(broker: Broker) -> None:
    assert broker.create(to(3)) == [("t", ErrorCode.REQUEST_TIMED_OUT)]
    assert broker.partitions() == {"0": [2, 1], "1": [3, 2], "2": [1, 3]}


@pytest.mark.fault("outside-O9")
def test_client_that_gives_no_time_hears_what_is_refused_or_validated(broker: Broker) -> None:
    at_once = {"timeout_ms": 0, "writing_ms": 10_000}
    assert broker.create(to(1), **at_once) == [("t", ErrorCode.INVALID_PARTITIONS)]
    assert broker.create(to(3), validate_only=True, **at_once) == [("t", ErrorCode.NONE)]
    assert broker.create(to(3), **at_once) == [("t", ErrorCode.REQUEST_TIMED_OUT)]


def test_answer_waits_until_all_have_leaders(broker: Broker) -> None:
    def led(waiting: Purgatory) -> None:
        assert waiting.parked == 1
        broker.tell(2)
        waiting.touch(("topic", "t"))

    assert broker.create(to(2), timeout_ms=10_000, then=led) == [("t", 0)]


def test_partitions_may_be_assigned_by_hand_and_the_rest_of_the_node_stays(
    broker: Broker,
) -> None:
    broker.create(to(2, [(1, 3)]))
    moving = {"adding_replicas": {}, "removing_replicas": {}}
    data = broker.zookeeper.tree[PATH].data
    assert data is not None
    assert json.loads(data) == {
        "version": 2,
        "partitions": {"0": [2, 1], "1": [1, 3]},
        "key": 7,
        **moving,
    }


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        pytest.param(to(1), ErrorCode.INVALID_PARTITIONS, id="as many"),
        pytest.param(to(0), ErrorCode.INVALID_PARTITIONS, id="fewer"),
        pytest.param(to(2, name="u"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="unknown topic"),
        pytest.param(to(2, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="none assigned"),
        pytest.param(
            to(2, [(1, 2), (2, 3)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="more assigned"
        ),
        pytest.param(to(2, [(1,)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="other factor"),
        pytest.param(to(2, [(1, 1)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="a broker twice"),
        pytest.param(to(2, [(1, 9)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="unknown broker"),
    ],
)
def test_what_does_not_fit_is_refused_and_writes_nothing(
    broker: Broker, topic: CreatePartitionsRequestTopic, code: ErrorCode
) -> None:
    assert broker.create(topic) == [(topic.name, code)]
    assert broker.zookeeper.tree[PATH].data == STORED


def test_topic_that_is_being_deleted_grows_no_more(broker: Broker) -> None:
    broker.controller.deleting.add("t")
    assert broker.create(to(2)) == [("t", ErrorCode.INVALID_TOPIC_EXCEPTION)]


def test_topic_on_the_move_does_not_grow(broker: Broker) -> None:
    broker.controller.moving.add("t")
    assert broker.create(to(2)) == [("t", ErrorCode.REASSIGNMENT_IN_PROGRESS)]


def test_topic_named_twice_is_refused(broker: Broker) -> None:
    assert broker.create(to(2), to(3)) == [("t", ErrorCode.INVALID_REQUEST)]


def test_validation_writes_nothing(broker: Broker) -> None:
    assert broker.create(to(2), validate_only=True) == [("t", 0)]
    assert broker.zookeeper.tree[PATH].data == STORED


def test_only_the_controller_adds_partitions(broker: Broker) -> None:
    broker.controller.is_active = False
    assert broker.create(to(2)) == [("t", ErrorCode.NOT_CONTROLLER)]


@pytest.mark.fault("strangers-9")
def test_topics_of_a_request_may_grow_by_a_bounded_number_of_partitions(broker: Broker) -> None:
    names = [f"t{number}" for number in range(7)]

    async def prepare() -> None:
        for name in names:
            await broker.session.create(TopicAssignment.path(name), STORED, make_parents=True)

    asyncio.run(prepare())
    # Of two replicas each.
    codes = dict(broker.create(*(to(40_000, name=name) for name in names), validate_only=True))
    fitting = MAX_NEW_REPLICAS // 2 // 40_000
    assert [codes[name] for name in names] == [
        *[ErrorCode.NONE] * fitting,
        *[ErrorCode.POLICY_VIOLATION] * (7 - fitting),
    ]


@pytest.mark.fault("strangers-9")
@pytest.mark.parametrize("count", [PARTITIONS_AT_ONCE, PARTITIONS_AT_ONCE + 1])
def test_request_for_many_partitions_waits_for_a_place(broker: Broker, count: int) -> None:
    places = FairLine(1, 1)
    place = places.line_up(Owner("another", 1), 0, lambda: None)

    def leave(waiting: Purgatory) -> None:
        assert count > PARTITIONS_AT_ONCE
        assert places.waiting == 1
        place.leave()

    assert broker.create(
        to(count), validate_only=True, timeout_ms=10_000, then=leave, answers=places
    ) == [("t", ErrorCode.NONE)]
    assert place.has_left == (count > PARTITIONS_AT_ONCE)
