"""Which control requests are obeyed: those of the present controller, to this broker as it is.

A controller's epoch grows with each election, and a request of a smaller one than was ever heard
comes from a controller that has been replaced and does not know it. One epoch counts for all kinds
of requests: who was deposed must not be obeyed in one because its successor has only sent another.

A controller has one connection to a broker, under its own client id. What comes on an earlier one
than was heard is a request it has given up, and has repeated or overtaken since.

A broker's epoch grows with each registration (KIP-380): a request for an earlier one was meant for
this broker before it bounced. Where brokers have a listener among themselves, control requests are
taken there alone.
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
    """What LeaderAndIsr, UpdateMetadata and StopReplica have in common."""

    @property
    def controller_id(self) -> int: ...
    @property
    def controller_epoch(self) -> int: ...
    @property
    def broker_epoch(self) -> int: ...


@attrs.define(eq=False)
class ControlGate:
    """`broker_epoch()` is this broker's; `listener` where controllers call, None for anywhere."""

    broker_epoch: Callable[[], int] = lambda: UNKNOWN_EPOCH
    listener: str | None = None
    controller_epoch: int = UNKNOWN_EPOCH
    _channel: tuple[str, int] = ("", 0)

    def is_controller(self, connection: int) -> bool:
        """Whether the controller that is obeyed has this connection."""
        return connection == self._channel[1]

    def refusal(self, request: ControlRequest, context: RequestContext) -> ErrorCode | None:
        """Why the request is not obeyed; None when it is."""
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
        if self.listener is not None and context.listener != self.listener:
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if UNKNOWN_EPOCH != request.broker_epoch < self.broker_epoch():
            return ErrorCode.STALE_BROKER_EPOCH
        if request.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        client_id, newest = self._channel
        if context.client_id == client_id and context.connection < newest:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = request.controller_epoch
        self._channel = (context.client_id, context.connection)
        return None
