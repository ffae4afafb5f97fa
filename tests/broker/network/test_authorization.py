"""What handlers ask about the sender of a request."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.network.authorization import CLUSTER, Resource, group, host_of, topic, transactional_id
from broker.network.request_context import (
    RequestContext,
    authorize,
    refused_topics,
    require_authorized,
)
from broker.network.session import Principal
from protocol.acls import Operation
from protocol.errors import ApiError, ErrorCode
from tests.stage.authorizer import AskingAuthorizer

ALICE = Principal("User", "alice")
READ, WRITE = Operation.READ, Operation.WRITE


def context(*allowed: tuple[Operation, Resource]) -> RequestContext:
    """Build the context of a request of alice, who may do nothing but this."""

    def allows(principal: Principal, operation: Operation, resource: Resource) -> bool:
        assert principal == ALICE
        return (operation, resource) in allowed

    sender = AskingAuthorizer(allows).sender(ALICE, "h")
    return RequestContext(0, "client", "SASL", "h:1", 0, principal=ALICE, sender=sender)


@pytest.mark.parametrize(
    ("connection_id", "host"),
    [
        ("127.0.0.1:9092", "127.0.0.1"),
        ("::1:9092", "0:0:0:0:0:0:0:1"),
        ("[2001:db8::00ff]:9092", "2001:db8:0:0:0:0:0:ff"),
        ("::ffff:10.0.0.1:9092", "10.0.0.1"),
        ("fe80::1%eth0:9092", "fe80:0:0:0:0:0:0:1%eth0"),
        ("?:0", "?"),
    ],
)
def test_hosts_are_written_as_java_writes_them(connection_id: str, host: str) -> None:
    assert host_of(connection_id) == host


OPEN = RequestContext(0, "client", "PLAINTEXT", "h:1", 0)


def test_operations_are_allowed_one_by_one() -> None:
    request_context = context((READ, topic("a")))
    assert authorize(request_context, READ, topic("a"))
    assert not authorize(request_context, WRITE, topic("a"))
    assert not authorize(request_context, READ, group("a"))


def test_without_an_authorizer_everything_is_allowed_and_no_name_is_looked_at() -> None:
    def names() -> Iterator[str]:
        raise AssertionError("a name was looked at")
        yield

    assert authorize(OPEN, WRITE, CLUSTER)
    require_authorized(OPEN, WRITE, CLUSTER)
    assert not refused_topics(OPEN, WRITE, names())


def test_topics_are_refused_by_name() -> None:
    request_context = context((READ, topic("a")))
    assert refused_topics(request_context, READ, iter(["a", "b", "c", "b"])) == {"b", "c"}
    assert refused_topics(request_context, WRITE, ["a"]) == {"a"}
    assert not refused_topics(request_context, READ, ["a"])


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        (topic("x"), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (group("x"), ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (transactional_id("x"), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
def test_refusal_has_the_error_of_the_resource(resource: Resource, code: ErrorCode) -> None:
    with pytest.raises(ApiError, match=f"User:alice on {resource.name}") as refused:
        require_authorized(context(), READ, resource)
    assert refused.value.code is code
    require_authorized(context((READ, resource)), READ, resource)
