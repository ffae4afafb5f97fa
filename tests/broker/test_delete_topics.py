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
from protocol.errors import ApiError, ErrorCode
from protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsRequestTopic,
    DeleteTopicsResponse,
)
from tests.broker.replication.replicas import update_metadata

DELETED = -2


@attrs.define(eq=False)
class NotedController:
    is_active: bool = True
    requested: list[tuple[str, ...]] = attrs.Factory(list)
    denied: frozenset[str] = frozenset()
    """The topics that it knows not to exist."""

    def denies(self, topic: str) -> bool:
        return topic in self.denied

    def request_deletion(self, topics: Iterable[str]) -> None:
        self.requested.append(tuple(topics))


@attrs.define(eq=False)
class Handler:
    """The handler of a broker that knows the topics "a" and "b"."""

    controller: NotedController = attrs.Factory(NotedController)
    cache: MetadataCache = attrs.Factory(MetadataCache)
    delete_topic_enable: bool = True

    def handle(self, *names: str, version: int = 3) -> DeleteTopicsResponse | Wait:
        return self.respond(DeleteTopicsRequest(topic_names=names, timeout_ms=1000), version)

    def respond(self, request: DeleteTopicsRequest, version: int) -> DeleteTopicsResponse | Wait:
        return delete_topics.handle(
            cast(Controller, self.controller),
            self.cache,
            self.delete_topic_enable,
            request,
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


def codes(response: object) -> dict[str | None, int]:
    assert isinstance(response, DeleteTopicsResponse)
    return {entry.name: entry.error_code for entry in response.responses}


@pytest.mark.fault("core-R4")
def test_topic_that_only_this_brokers_metadata_shows_does_not_exist(handler: Handler) -> None:
    handler.controller.denied = frozenset({"a"})
    assert codes(handler.handle("a")) == {"a": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert handler.controller.requested == []


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


def test_an_error_has_a_message_and_success_has_none(handler: Handler) -> None:
    wait = handler.handle("a", "nowhere", version=5)
    assert isinstance(wait, Wait)
    handler.tell("a", DELETED)
    response = wait.try_complete(False)
    assert {entry.name: entry.error_message for entry in response.responses} == {
        "a": None,
        "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.meaning,
    }


def test_no_topic_has_an_id_and_those_named_are_deleted(handler: Handler) -> None:
    topics = [
        DeleteTopicsRequestTopic(name=None, topic_id=b"i" * 16),
        DeleteTopicsRequestTopic(name="a"),
    ]
    wait = handler.respond(DeleteTopicsRequest(topics=topics, timeout_ms=1000), 6)
    assert isinstance(wait, Wait)
    assert handler.controller.requested == [("a",)]
    handler.tell("a", DELETED)
    response = wait.try_complete(False)
    assert codes(response) == {None: ErrorCode.UNKNOWN_TOPIC_ID, "a": ErrorCode.NONE}
    assert response.responses[0].topic_id == b"i" * 16


@pytest.mark.parametrize(("name", "topic_id"), [("a", b"i" * 16), (None, bytes(16))])
def test_a_topic_with_a_name_and_an_id_or_with_neither_is_refused(
    handler: Handler, name: str | None, topic_id: bytes
) -> None:
    topic = DeleteTopicsRequestTopic(name=name, topic_id=topic_id)
    with pytest.raises(ApiError) as refused:
        handler.respond(DeleteTopicsRequest(topics=[topic], timeout_ms=1000), 6)
    assert refused.value.code == ErrorCode.INVALID_REQUEST
    assert handler.controller.requested == []
