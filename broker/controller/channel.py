"""The controller's channel to one broker: a queue of requests, sent one after the other.

The requests make sense only in their order. So one is in flight, and it is sent again, on a new
connection if need be, until the broker responds or is gone. A request that is refused as a whole
changes nothing (the broker follows a later controller). The results of deletions, and the replicas
that a broker can serve, become events.

The queue has no bound of its own. It ends with the broker's registration, and a broker that does
not respond while its session lives gets one request for each change of the cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from broker.controller.effects import SendLeaderAndIsr, SendStopReplica
from broker.controller.events import (
    Event,
    LeaderAndIsrResponseReceived,
    StopReplicaResponseReceived,
)
from broker.controller.requests import (
    HIGHEST_VERSION,
    ControlEffect,
    ControllerIdentity,
    render_request,
)
from broker.controller.state import RegisteredBroker
from clients.transport.connection import ConnectionFailed
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

# As long as in Kafka's RequestSendThread.
RETRY_DELAY_S = 0.1
EXPECTED = {ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH}  # the second: seen before


class BrokerConnection(Protocol):
    """The part of `clients.transport.connection.Connection` that a channel uses."""

    @property
    def closed(self) -> bool: ...
    def version_of(self, api_key: ApiKey) -> int: ...
    async def call(self, request: Any, *, version: int) -> Any: ...
    def abort(self, reason: str) -> None: ...


Connect = Callable[[str, int], Awaitable[BrokerConnection]]


class Channel:
    """Sends effects to `broker`, under one registration of it, in the order of `send`.

    `on_response` gets an event for the response to each LeaderAndIsr, and to each StopReplica that
    deletes.
    """

    def __init__(
        self,
        broker: RegisteredBroker,
        sender: ControllerIdentity,
        connect: Connect,
        on_response: Callable[[Event], None],
    ) -> None:
        self._broker = broker
        self._sender = sender
        self._connect = connect
        self._on_response = on_response
        self._connection: BrokerConnection | None = None
        self._queue: asyncio.Queue[ControlEffect] = asyncio.Queue()
        self._runner = asyncio.create_task(self._run(), name=f"channel to broker {broker.id}")

    def send(self, effect: ControlEffect) -> None:
        """Send this after all earlier effects."""
        self._queue.put_nowait(effect)

    def move(self, broker: RegisteredBroker) -> None:
        """Send to another address of the broker from now on, also what is being sent."""
        self._broker = broker
        if self._connection is not None:
            self._connection.abort("the broker has another address")

    def close(self) -> None:
        """Stop sending at once."""
        self._runner.cancel()

    @property
    def queued(self) -> int:
        """Number of effects that wait to be sent."""
        return self._queue.qsize()

    async def _run(self) -> None:
        try:
            while True:
                effect = await self._queue.get()
                try:
                    response = await self._deliver(effect)
                except Exception:
                    # Another try would fail in the same way: the broker lacks the listener, say.
                    logger.exception("cannot send %s to broker %s", effect, self._broker.id)
                    response = None

                # Also without a response: a deletion has failed then.
                self._handle_response(effect, response)
        finally:
            if self._connection is not None:
                self._connection.abort("the controller has closed the channel")

    async def _deliver(self, effect: ControlEffect) -> Any:
        """Send the request until there is a response, and return that."""
        failures = 0
        while True:
            try:
                connection = await self._open_connection()

                # Render for each try: a new connection may speak another version.
                api_key, highest = HIGHEST_VERSION[type(effect)]
                version = min(highest, connection.version_of(api_key))
                request = render_request(effect, self._sender, self._broker.epoch, version)
                return await connection.call(request, version=version)
            except ConnectionFailed as failure:
                # One warning is enough: a dead broker fails for as long as it is registered.
                level = logging.DEBUG if failures else logging.WARNING
                logger.log(level, "broker %s: %s; trying again", self._broker.id, failure)
                failures += 1
            await asyncio.sleep(RETRY_DELAY_S)

    async def _open_connection(self) -> BrokerConnection:
        if self._connection is None or self._connection.closed:
            listener = self._sender.controller_listener
            endpoint = self._broker.endpoint(listener)
            if endpoint is None:
                raise LookupError(f"broker {self._broker.id} has no listener {listener}")
            self._connection = await self._connect(endpoint.host, endpoint.port)
        return self._connection

    def _handle_response(self, effect: ControlEffect, response: Any) -> None:
        # Refused as a whole: nothing has changed at the broker.
        if response is not None and response.error_code not in EXPECTED:
            name = ErrorCode.of(response.error_code).name
            logger.warning("broker %s refused %s: %s", self._broker.id, type(effect).__name__, name)

        # Which logs are deleted, and which are left.
        if isinstance(effect, SendStopReplica) and effect.delete:
            failed = _failed_partitions(effect, response)
            deleted = tuple(partition for partition in effect.partitions if partition not in failed)
            self._on_response(
                StopReplicaResponseReceived(
                    self._broker.id,
                    deleted,
                    tuple(sorted(failed)),
                    broker_epoch=self._broker.epoch,
                )
            )
        elif isinstance(effect, SendLeaderAndIsr) and response is not None:
            self._handle_partition_errors(response)

    def _handle_partition_errors(self, response: Any) -> None:
        codes = {
            TopicPartition(error.topic_name, error.partition_index): error.error_code
            for error in response.partition_errors
        }
        for partition, code in codes.items():
            if code not in EXPECTED:
                name = ErrorCode.of(code).name
                logger.error("broker %s on %s: %s", self._broker.id, partition, name)

        def having(*expected: ErrorCode) -> tuple[TopicPartition, ...]:
            return tuple(partition for partition, code in codes.items() if code in expected)

        # Served, since now or since an earlier request with the same epoch.
        taken = having(*EXPECTED)

        # On a disk that has failed.
        failed = having(ErrorCode.KAFKA_STORAGE_ERROR)

        # Without a log, or with a part of one. Kafka's brokers never send these codes here.
        damaged = having(ErrorCode.CORRUPT_MESSAGE)
        lost = (*having(ErrorCode.LOG_DIR_NOT_FOUND), *damaged)
        if taken or failed or lost:
            epoch = self._broker.epoch
            self._on_response(
                LeaderAndIsrResponseReceived(
                    self._broker.id, taken, failed, lost, damaged, broker_epoch=epoch
                )
            )


def _failed_partitions(effect: SendStopReplica, response: Any) -> set[TopicPartition]:
    # Without a response nothing is known to be deleted.
    if response is None or response.error_code:
        return set(effect.partitions)
    return {
        TopicPartition(error.topic_name, error.partition_index)
        for error in response.partition_errors
        if error.error_code
    }
