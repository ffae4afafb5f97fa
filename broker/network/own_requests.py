"""Requests of a broker to itself, which pass no connection, and need no permission."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from broker.network.dispatch import Dispatched, Handler, call_handler
from broker.network.purgatory import Purgatory, Wait
from broker.network.request_context import RequestContext
from protocol.api import find_api
from protocol.api_key import ApiKey
from protocol.frozen import frozen
from protocol.header import RequestHeader


@frozen
class OwnRequests:
    """The requests of one API, for those who would have a connection to another broker."""

    key: ApiKey
    handler: Handler
    purgatory: Purgatory
    now_ms: Callable[[], int]
    closed: bool = False

    async def call(self, request: Any) -> Any:
        """Serve a request, and return its response when there is one."""
        api = find_api(self.key)
        header = RequestHeader(self.key, api.served.last, 0, None)
        context = RequestContext(api.served.last, "", "", "", self.now_ms())
        dispatched = call_handler(api, header, request, partial(self.handler, request, context))

        loop = asyncio.get_running_loop()
        while isinstance(dispatched.outcome, Wait):
            ended: asyncio.Future[Dispatched] = loop.create_future()
            self.purgatory.park(dispatched.outcome, ended.set_result)
            dispatched = await ended
        return dispatched.outcome
