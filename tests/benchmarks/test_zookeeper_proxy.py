"""The proxy forwards all bytes, and counts requests."""

import asyncio
from collections import Counter

from benchmarks.zookeeper_proxy import CREATE, PING, CountingProxy
from broker.kbroker.local_cluster import HOST

GET = 4
CLOSE = -11


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def request(request_type: int, path: str = "") -> bytes:
    return frame(b"\0\0\0\x01" + request_type.to_bytes(4, "big", signed=True) + path.encode())


async def send_through(proxy: CountingProxy, chroot: str, *frames: bytes) -> bytes:
    """Send frames through the proxy to an echo server; return what that server receives."""
    received = bytearray()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(1024):
            received.extend(chunk)
            writer.write(chunk)
        writer.close()

    async with await asyncio.start_server(echo, HOST, 0) as server:
        proxy.server = f"{HOST}:{server.sockets[0].getsockname()[1]}{chroot}"
        async with proxy.serve() as address:
            host_and_port, slash, rest = address.partition("/")
            assert slash + rest == chroot
            reader, writer = await asyncio.open_connection(HOST, int(host_and_port.split(":")[1]))
            writer.write(b"".join(frames))
            response = await reader.readexactly(sum(map(len, frames)))
            assert response == b"".join(frames)
            writer.close()
            assert await reader.read() == b""
    return bytes(received)


def test_requests_count_from_a_creation_on_and_pings_and_the_handshake_never() -> None:
    async def play() -> None:
        proxy = CountingProxy("", "/ids/newcomer")
        frames = [
            frame(b"handshake /ids/newcomer"),
            request(GET, "/ids/newcomer"),
            request(CREATE, "/ids/another"),
            request(CREATE, "/ids/newcomer"),
            request(PING),
            request(GET, "/owners"),
            request(CLOSE),
        ]
        assert await send_through(proxy, "/chroot", *frames) == b"".join(frames)
        assert +proxy.requests == Counter({CREATE: 1, GET: 1, CLOSE: 1})
        assert proxy.last_at > 0

    asyncio.run(play())
