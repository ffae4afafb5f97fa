"""The controller's way to one broker: a queue of requests, sent one after the other.

The order is what makes the requests mean something, so there is one in flight, and the same one
is sent again, on a new connection if need be, until the broker answers it or is gone. A request
that is refused as a whole changes nothing (the broker is following a later controller); the fate
of replicas to delete, and which replicas a broker has a disk for, are events.

The queue has no bound of its own: it ends with the broker's registration, and a broker that does
not answer while its session lives gets one request for each change of the cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from broker.controller.effects import SendLeaderAndIsr, SendStopReplica
from broker.controller.events import Event, LeaderAndIsrAnswered, StopReplicaAnswered
from broker.controller.requests import HIGHEST_VERSION, Send, Sender, request_for
from broker.controller.state import LiveBroker
from clients.transport.connection import ConnectionFailed
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.1
EXPECTED = {ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH}  # the second: heard before


class BrokerConnection(Protocol):
    """What a channel uses of `clients.transport.connection.Connection`."""

    @property
    def closed(self) -> bool: ...
    def version_of(self, api_key: ApiKey) -> int: ...
    async def call(self, request: Any, *, version: int) -> Any: ...
    def abort(self, reason: str) -> None: ...


Connect = Callable[[str, int], Awaitable[BrokerConnection]]


class Channel:
    """Sends to `broker`, under one registration of it, in the order of `send`.

    `answered` hears what came of each LeaderAndIsr, and of each StopReplica that deletes.
    """

    def __init__(
        self,
        broker: LiveBroker,
        sender: Sender,
        connect: Connect,
        answered: Callable[[Event], None],
    ) -> None:
        self._broker = broker
        self._sender = sender
        self._connect = connect
        self._answered = answered
        self._connection: BrokerConnection | None = None
        self._queue: asyncio.Queue[Send] = asyncio.Queue()
        self._runner = asyncio.create_task(self._run(), name=f"channel to broker {broker.id}")

    def send(self, send: Send) -> None:
        """Send it after what was given before."""
        self._queue.put_nowait(send)

    def close(self) -> None:
        """Send no more, at once."""
        self._runner.cancel()

    async def _run(self) -> None:
        try:
            while True:
                send = await self._queue.get()
                try:
                    response = await self._deliver(send)
                except Exception:
                    logger.exception("cannot send %s to broker %s", send, self._broker.id)
                    response = None
                self._take(send, response)
        finally:
            if self._connection is not None:
                self._connection.abort("the controller has closed the channel")

    async def _deliver(self, send: Send) -> Any:
        """The answer to the request, however often it must be sent."""
        tries = 0
        while True:
            try:
                connection = await self._connected()
                api_key, highest = HIGHEST_VERSION[type(send)]
                version = min(highest, connection.version_of(api_key))
                request = request_for(send, self._sender, self._broker.epoch, version)
                return await connection.call(request, version=version)
            except ConnectionFailed as failure:
                level = logging.DEBUG if tries else logging.WARNING
                logger.log(level, "broker %s: %s; trying on", self._broker.id, failure)
                tries += 1
            await asyncio.sleep(RETRY_SECONDS)

    async def _connected(self) -> BrokerConnection:
        if self._connection is None or self._connection.closed:
            at = self._broker.endpoint(self._sender.inter_broker_listener)
            if at is None:
                listener = self._sender.inter_broker_listener
                raise LookupError(f"broker {self._broker.id} has no listener {listener}")
            self._connection = await self._connect(at.host, at.port)
        return self._connection

    def _take(self, send: Send, response: Any) -> None:
        if response is not None and response.error_code not in EXPECTED:
            name = ErrorCode.of(response.error_code).name
            logger.warning("broker %s refused %s: %s", self._broker.id, type(send).__name__, name)
        if isinstance(send, SendStopReplica) and send.delete:
            failed = _failed(send, response)
            deleted = tuple(each for each in send.partitions if each not in failed)
            self._answered(
                StopReplicaAnswered(
                    self._broker.id,
                    deleted,
                    tuple(sorted(failed)),
                    broker_epoch=self._broker.epoch,
                )
            )
        elif isinstance(send, SendLeaderAndIsr) and response is not None:
            self._take_errors(response)

    def _take_errors(self, response: Any) -> None:
        codes = {
            TopicPartition(each.topic_name, each.partition_index): each.error_code
            for each in response.partition_errors
        }
        for partition, code in codes.items():
            if code not in EXPECTED:
                name = ErrorCode.of(code).name
                logger.error("broker %s on %s: %s", self._broker.id, partition, name)
        taken = tuple(each for each, code in codes.items() if code in EXPECTED)
        failed = tuple(e for e, code in codes.items() if code == ErrorCode.KAFKA_STORAGE_ERROR)
        damaged = tuple(e for e, code in codes.items() if code == ErrorCode.CORRUPT_MESSAGE)
        absent = tuple(e for e, code in codes.items() if code == ErrorCode.LOG_DIR_NOT_FOUND)
        lost = (*absent, *damaged)
        if taken or failed or lost:
            epoch = self._broker.epoch
            self._answered(
                LeaderAndIsrAnswered(
                    self._broker.id, taken, failed, lost, damaged, broker_epoch=epoch
                )
            )


def _failed(send: SendStopReplica, response: Any) -> set[TopicPartition]:
    if response is None or response.error_code:
        return set(send.partitions)
    return {
        TopicPartition(each.topic_name, each.partition_index)
        for each in response.partition_errors
        if each.error_code
    }
