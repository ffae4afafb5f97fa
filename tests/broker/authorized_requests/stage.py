"""A broker on a socket, whose authorizer refuses what a test takes away."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import attrs

from broker.network.authorization import Resource
from broker.network.session import ANONYMOUS, Principal
from broker.server import Broker
from clients.transport.connection import Connection
from protocol.acls import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.broker.authorized_requests.requests import create_topics, offset_commit, produce
from tests.stage.authorizer import AskingSender
from tests.stage.broker import Site

TOPIC_FAILED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_FAILED = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_FAILED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TRANSACTION_FAILED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
MISSING = "missing"
OPEN = "open"
"""A transactional id with an open transaction."""


@attrs.define(eq=False)
class Authorizer:
    """Allows everything but `refused`, or nothing but `allowed`; `asked` is what it was asked."""

    allowed: set[tuple[Operation, Resource]] | None = None
    refused: set[tuple[Operation, Resource]] = attrs.field(factory=set)
    asked: set[tuple[Operation, ResourceType]] = attrs.field(factory=set)

    def sender(self, principal: Principal, host: str) -> AskingSender:
        assert (principal, host) == (ANONYMOUS, "127.0.0.1")
        return AskingSender(self._decide, principal)

    def _decide(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        self.asked.add((operation, resource.kind))
        if self.allowed is not None:
            return (operation, resource) in self.allowed
        return (operation, resource) not in self.refused


@attrs.define(eq=False)
class Stage:
    """A running broker, a connection to it, and the loop that both run in."""

    runner: asyncio.Runner
    site: Site
    authorizer: Authorizer
    broker: Broker = attrs.field(init=False)
    producer: InitProducerIdResponse = attrs.field(init=False)
    _numbers: Iterator[int] = attrs.field(factory=itertools.count)

    def start(self) -> None:
        self.broker = self.site.broker(
            1,
            offsets_topic_replication_factor="1",
            offsets_topic_num_partitions="1",
            transaction_state_log_replication_factor="1",
            transaction_state_log_num_partitions="1",
            transaction_state_log_min_isr="1",
        )
        self.runner.run(self.broker.start())
        self.call(FindCoordinatorRequest(key="any"), until=ErrorCode.NONE)
        self.call(FindCoordinatorRequest(key=OPEN, key_type=1), until=ErrorCode.NONE)
        begin = InitProducerIdRequest(transactional_id=OPEN, transaction_timeout_ms=900_000)
        self.producer = self.call(begin, until=ErrorCode.NONE)

    def call(
        self,
        request: Any,
        *refused: tuple[Operation, Resource],
        version: int | None = None,
        until: ErrorCode | None = None,
    ) -> Any:
        """Send a request while some permissions are taken away."""
        self.authorizer.refused.update(refused)
        try:
            return self.runner.run(self._call(request, version, until))
        finally:
            self.authorizer.refused.clear()

    def call_with(
        self, request: Any, *allowed: tuple[Operation, Resource], version: int | None = None
    ) -> Any:
        """Send a request of one who may do nothing else."""
        self.authorizer.allowed = set(allowed)
        try:
            return self.runner.run(self._call(request, version, None))
        finally:
            self.authorizer.allowed = None

    async def _call(self, request: Any, version: int | None, until: ErrorCode | None) -> Any:
        host, _, port = self.broker.bootstrap.rpartition(":")
        connection = await Connection.open(host, int(port))
        try:
            async with asyncio.timeout(10):
                response = await connection.call(request, version=version)
                while until is not None and response.error_code != until:
                    await asyncio.sleep(0.01)
                    response = await connection.call(request, version=version)
                return response
        finally:
            await connection.close()

    def new_topic(self) -> str:
        """Create a topic with one record in it, and a partition in the transaction of OPEN."""
        name = f"topic-{next(self._numbers)}"
        created = self.call(create_topics(name))
        assert set(errors(created).values()) == {ErrorCode.NONE}
        produced = self.call(produce(name))
        assert set(errors(produced).values()) == {ErrorCode.NONE}
        added = self.call(
            AddPartitionsToTxnRequest(
                transactional_id=OPEN,
                producer_id=self.producer.producer_id,
                producer_epoch=self.producer.producer_epoch,
                topics=[AddPartitionsToTxnTopic(name=name, partitions=[0])],
            )
        )
        assert set(errors(added).values()) == {ErrorCode.NONE}
        return name

    def new_group(self, *topics: str) -> str:
        """Commit an offset of each topic for a new group."""
        group_id = f"group-{next(self._numbers)}"
        committed = self.call(offset_commit(*topics, group_id=group_id))
        assert set(errors(committed).values()) == {ErrorCode.NONE}
        return group_id


NAMES = ("name", "topic", "topic_name", "group_id", "resource_name")


def errors(response: Any) -> dict[str, ErrorCode]:
    """Return all error codes of a response by the topic, group or resource they are about.

    That of the whole response is under "".
    """
    codes: dict[str, ErrorCode] = {}

    def walk(part: Any, name: str) -> None:
        for field in NAMES:
            name = getattr(part, field, name)
        if hasattr(part, "error_code"):
            codes[name] = ErrorCode.of(part.error_code)
        for field in attrs.fields(type(part)):
            value = getattr(part, field.name)
            for nested in value if isinstance(value, (list, tuple)) else ():
                if attrs.has(type(nested)):
                    walk(nested, name)

    walk(response, "")
    return codes


def text_of(response: Any, name: str) -> str:
    """Write a response about `name` as text, with MISSING instead of the name."""

    def write(part: Any) -> str:
        if isinstance(part, (list, tuple)):
            return str([write(nested) for nested in part])
        if attrs.has(type(part)):
            return str([write(getattr(part, field.name)) for field in attrs.fields(type(part))])
        return str(bytes(part)) if isinstance(part, memoryview) else str(part)

    return write(response).replace(name, MISSING)
