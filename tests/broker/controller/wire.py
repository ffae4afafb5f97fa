"""A network between brokers that records every request and responds that all is well."""

from typing import Any

import attrs

from clients.transport.connection import ConnectionFailed
from protocol.api_key import ApiKey
from protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

RESPONSES: dict[type, Any] = {
    LeaderAndIsrRequest: LeaderAndIsrResponse(error_code=0, partition_errors=()),
    UpdateMetadataRequest: UpdateMetadataResponse(error_code=0),
    StopReplicaRequest: StopReplicaResponse(error_code=0, partition_errors=()),
}


@attrs.define(eq=False)
class Wire:
    """The requests that arrived, each with the receiver's port."""

    received: list[tuple[int, Any]] = attrs.Factory(list)
    unreachable: set[int] = attrs.Factory(set)

    async def connect(self, host: str, port: int) -> "WireConnection":
        if port in self.unreachable:
            raise ConnectionFailed(host, port, "unreachable")
        return WireConnection(self, host, port)

    def requests(self, broker_id: int, kind: type) -> list[Any]:
        return [
            request
            for to, request in self.received
            if to == broker_id and isinstance(request, kind)
        ]


@attrs.define(eq=False)
class WireConnection:
    wire: Wire
    host: str
    port: int
    closed: bool = False

    def version_of(self, api_key: ApiKey) -> int:
        return 99

    async def call(self, request: Any, *, version: int) -> Any:
        if self.port in self.wire.unreachable:
            self.closed = True
            raise ConnectionFailed(self.host, self.port, "unreachable")
        self.wire.received.append((self.port, request))
        return RESPONSES[type(request)]

    def abort(self, reason: str) -> None:
        self.closed = True
