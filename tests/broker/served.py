"""A listener on the loopback with handlers of a test's own, and clients that send bytes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from typing import Any

import attrs

from broker.network.dispatch import Dispatcher, Handler
from broker.network.listener import Bind, Listener, bind_socket
from broker.network.listener_tls import ListenerTls
from broker.network.purgatory import Purgatory
from broker.network.request_context import RequestContext
from broker.settings.config import BrokerConfig, load_broker_config
from protocol.api_key import ApiKey
from protocol.header import encode_request, read_response
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.broker.spawning import Spawned

DEADLINE_S = 20.0


@attrs.define(eq=False)
class Client:
    """A socket that is read only when a test says so."""

    sock: socket.socket
    _received: bytearray = attrs.field(factory=bytearray)

    @property
    def name(self) -> str:
        """As the broker's log has it."""
        host, port = self.sock.getsockname()
        return f"{host}:{port}"

    async def send(self, *frames: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, b"".join(frames))

    async def receive(self) -> bytes:
        """The next frame, without its size. Raises ConnectionError when there is none."""
        size = int.from_bytes(await self._exactly(4), "big")
        return await self._exactly(size)

    async def receive_some(self) -> bytes:
        """What one read gives."""
        async with asyncio.timeout(DEADLINE_S):
            return await asyncio.get_running_loop().sock_recv(self.sock, 1 << 20)

    async def answer(self) -> tuple[int, str]:
        """(correlation id, key echoed) of the next answer."""
        correlation_id, response = read_response(ApiKey.FIND_COORDINATOR, 0, await self.receive())
        return correlation_id, response.host

    async def echo(self, correlation_id: int = 0, key: str = "") -> tuple[int, str]:
        """Ask and wait."""
        await self.send(ask(correlation_id, key))
        return await self.answer()

    async def is_closed(self) -> bool:
        """Whether the broker closes it without another byte; waits until it does one of both."""
        try:
            return not self._received and await self.receive_some() == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.sock.close()

    def reset(self) -> None:
        """Vanish: the broker gets a reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    async def _exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            some = await self.receive_some()
            if not some:
                raise ConnectionError(f"closed after {len(self._received)} of {size} bytes")
            self._received += some
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken


@attrs.define(eq=False)
class Server:
    """A listener that serves."""

    config: BrokerConfig
    listener: Listener
    purgatory: Purgatory
    spawned: Spawned
    ports: Mapping[str, int]
    clients: list[Client] = attrs.field(factory=list)

    @property
    def port(self) -> int:
        return self.ports["PLAINTEXT"]

    async def client(
        self, listener: str = "PLAINTEXT", receive_buffer_bytes: int = 0, address: str = "127.0.0.1"
    ) -> Client:
        sock = socket.socket()
        sock.bind((address, 0))
        if receive_buffer_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.ports[listener]))
        self.clients.append(Client(sock))
        return self.clients[-1]


@contextlib.asynccontextmanager
async def serving(
    handlers: Mapping[ApiKey, Handler],
    *,
    tls: Mapping[str, ListenerTls] | None = None,
    open_socket: Bind = bind_socket,
    **settings: str,
) -> AsyncIterator[Server]:
    """Serve `handlers`; settings are named with underscores for dots."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    config, _ = load_broker_config(
        {"zookeeper.connect": "zk:1", "listeners": "PLAINTEXT://127.0.0.1:0"} | given
    )
    purgatory, spawned = Purgatory(), Spawned()
    dispatcher = Dispatcher(handlers, lambda: 0, lambda: 0)
    listener = Listener(config, purgatory, spawned, open_socket, tls=tls or {})
    ports = listener.bind()
    await listener.serve(dispatcher)
    server = Server(config, listener, purgatory, spawned, ports)
    try:
        yield server
    finally:
        for client in server.clients:
            client.close()
        await listener.close()
        await asyncio.gather(*spawned.tasks, return_exceptions=True)


def ask(correlation_id: int, key: str = "") -> bytes:
    """A request that `echo` answers with its key."""
    request = FindCoordinatorRequest(key=key)
    return encode_request(ApiKey.FIND_COORDINATOR, 0, correlation_id, "client", request)


def echo(request: FindCoordinatorRequest, context: RequestContext) -> Any:
    return echoed(request.key)


def echoed(key: str) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(error_code=0, node_id=0, host=key, port=0)


ECHO: dict[ApiKey, Handler] = {ApiKey.FIND_COORDINATOR: echo}
