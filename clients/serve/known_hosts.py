"""Respond to requests for this server's own names, whatever they ask for.

A page of another site must not read what is served here by a name of its own (DNS rebinding). A
scraper may reach a server that is open to a network by any name: /metrics is for it.
"""

from __future__ import annotations

import attrs
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from clients.serve.envelope import envelope
from clients.serve.write_access import Refused, check_host

METRICS = "/metrics"


@attrs.define(eq=False)
class KnownHosts:
    """An application behind the check. `hosts` are the names, in lower case.

    `is_local`: the server listens for its own machine alone, and /metrics is checked too.
    """

    app: ASGIApp
    hosts: frozenset[str]
    is_local: bool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request. The server calls this."""
        if scope["type"] == "http" and (self.is_local or scope["path"] != METRICS):
            # Who sends none, in HTTP/1.0, is no browser.
            host = Request(scope).headers.get("host")
            try:
                if host is not None:
                    # Any name may resolve to an address (fault security-9).
                    check_host(host, self.hosts)
            except Refused as refused:
                response = envelope("request", (), [refused.failure], status=refused.status)
                await response(scope, receive, send)
                return
        await self.app(scope, receive, send)
