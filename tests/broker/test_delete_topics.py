"""DeleteTopics: refusals, requests to the controller, and when the wait ends."""

from collections.abc import Iterable
from typing import cast

import attrs
import pytest

from broker.cluster.metadata_cache import MetadataCache
from broker.controller.controller import Controller
from broker.handlers import delete_topics
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tests.broker.replication.replicas import update_metadata

DELETED = -2


@attrs.define(eq=False)
class NotedController:
    is_active: bool = True
    requested: list[tuple[str, ...]] = attrs.Factory(list)

    def request_deletion(self, topics: Iterable[str]) -> None:
        self.requested.append(tuple(topics))


@attrs.define(eq=False)
class Handler:
    """The handler of a broker that knows the topics "a" and "b"."""

    controller: NotedController = attrs.Factory(NotedController)
    cache: MetadataCache = attrs.Factory(MetadataCache)
    delete_topic_enable: bool = True

    def handle(self, *names: str, version: int = 3) -> DeleteTopicsResponse | Wait:
        return delete_topics.handle(
            cast(Controller, self.controller),
            self.cache,
            self.delete_topic_enable,
            DeleteTopicsRequest(topic_names=names, timeout_ms=1000),
            RequestContext(version, "client", "PLAINTEXT", "1", 0),
        )

    def tell(self, topic: str, leader: int) -> None:
        """The controller says who leads the topic's only partition."""
        self.cache.update(update_metadata(topic, leader=leader, isr=(1,), replicas=(1,)))


@pytest.fixture
def handler() -> Handler:
    handler = Handler()
    handler.tell("a", 1)
    handler.tell("b", 1)
    return handler


def codes(response: object) -> dict[str, int]:
    assert isinstance(response, DeleteTopicsResponse)
    return {entry.name: entry.error_code for entry in response.responses}


def test_broker_that_is_not_the_controller_says_so(handler: Handler) -> None:
    handler.controller.is_active = False
    assert codes(handler.handle("a")) == {"a": ErrorCode.NOT_CONTROLLER}
    assert handler.controller.requested == []


def test_answer_comes_when_the_topics_have_left_the_metadata(handler: Handler) -> None:
    wait = handler.handle("a", "b", "nowhere")
    assert isinstance(wait, Wait)
    assert handler.controller.requested == [("a", "b")]
    assert (wait.keys, wait.timeout_ms) == ((("topic", "a"), ("topic", "b")), 1000)
    handler.tell("a", DELETED)
    assert wait.try_complete(False) is None
    handler.tell("b", DELETED)
    assert codes(wait.try_complete(False)) == {
        "a": ErrorCode.NONE,
        "b": ErrorCode.NONE,
        "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_topic_that_is_still_there_at_the_end_has_timed_out(handler: Handler) -> None:
    wait = handler.handle("a", "b")
    assert isinstance(wait, Wait)
    handler.tell("a", DELETED)
    assert codes(wait.try_complete(True)) == {
        "a": ErrorCode.NONE,
        "b": ErrorCode.REQUEST_TIMED_OUT,
    }


def test_unknown_topics_are_answered_at_once(handler: Handler) -> None:
    assert codes(handler.handle("x")) == {"x": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert handler.controller.requested == []


@pytest.mark.parametrize(
    ("version", "code"),
    [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)],
)
def test_deletion_switched_off_is_told_as_the_version_can(
    handler: Handler, version: int, code: ErrorCode
) -> None:
    handler.delete_topic_enable = False
    assert codes(handler.handle("a", version=version)) == {"a": code}
    assert handler.controller.requested == []
