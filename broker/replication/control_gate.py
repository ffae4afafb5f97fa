"""Decide which control requests are obeyed: those of the active controller to this registration.

The controller epoch grows with each election. A request of an earlier epoch than the highest seen
comes from a controller that was replaced and does not know it. The highest epoch counts for all
kinds of control requests: a replaced controller must be refused even if its successor has sent only
requests of another kind.

A controller has one connection to a broker, under its own client id. A request on an earlier
connection is one that the controller has given up, and has repeated or replaced since.

The broker epoch grows with each registration (KIP-380). A request for an earlier broker epoch was
meant for this broker before it bounced.

Control requests are taken on all listeners, as in Kafka: a controller comes by the one that its own
settings name, and while the listener between brokers is changed these are not yet, or no longer,
ours. Whether the sender may control brokers at all, the authorizer decides.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

import attrs

from broker.network.request_context import RequestContext
from protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

UNKNOWN_EPOCH = -1


class ControlRequest(Protocol):
    """The common fields of LeaderAndIsr, UpdateMetadata and StopReplica."""

    @property
    def controller_id(self) -> int: ...
    @property
    def controller_epoch(self) -> int: ...
    @property
    def broker_epoch(self) -> int: ...


@attrs.define(eq=False)
class ControlGate:
    """Knows the active controller, by its highest epoch and its newest connection.

    `broker_epoch()` returns the epoch of this broker.
    """

    broker_epoch: Callable[[], int] = lambda: UNKNOWN_EPOCH
    controller_epoch: int = UNKNOWN_EPOCH
    # Client id and number of the newest connection of the controller.
    _channel: tuple[str, int] = ("", 0)

    def is_controller(self, connection: int) -> bool:
        """Return whether this is the connection of the active controller."""
        return connection == self._channel[1]

    def refusal(self, request: ControlRequest, context: RequestContext) -> ErrorCode | None:
        """Return the error with which a request must be refused; None if it must be obeyed."""
        code = self._refusal(request, context)
        if code is not None:
            logger.warning(
                "refused %s of controller %s, epoch %s, from %s: %s",
                type(request).__name__,
                request.controller_id,
                request.controller_epoch,
                context.connection_id,
                code.name,
            )
        return code

    def _refusal(self, request: ControlRequest, context: RequestContext) -> ErrorCode | None:
        # Epochs of this broker (a controller before 2.2 names none) and of the controller.
        if UNKNOWN_EPOCH != request.broker_epoch < self.broker_epoch():
            return ErrorCode.STALE_BROKER_EPOCH
        if request.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH

        # An older connection of the same controller.
        client_id, newest = self._channel
        if context.client_id == client_id and context.connection < newest:
            return ErrorCode.STALE_CONTROLLER_EPOCH

        # The highest epoch counts for all kinds of control requests.
        self.controller_epoch = request.controller_epoch
        self._channel = (context.client_id, context.connection)
        return None
