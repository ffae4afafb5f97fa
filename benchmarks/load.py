"""A raw load driver sends encoded requests, several in flight a connection, and counts responses.

It must cost less than the broker it drives. So there is no event loop: the sockets block, epoll
says which of them have responses, one `recv_into` takes all bytes into one buffer, frames are
counted by their sizes alone, and as many requests as responses came go out in one write. A request
may block on its way out, since responses to large requests are small.

The driver does not read the responses; each benchmark checks afterwards what the broker did.
"""

import gc
import select
import socket
import struct
import time
from collections.abc import Sequence

import attrs

Address = tuple[str, int]

STALLED_AFTER_S = 30
RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024
_SIZE_BYTES = 4


class LoadError(Exception):
    """The broker did not do what it should; the benchmark has no figure."""


class FrameCounter:
    """A counter of the frames in a stream of responses: a 4-byte size and so many bytes each."""

    def __init__(self) -> None:
        self._head = b""
        self._missing = 0

    def count(self, chunk: memoryview) -> int:
        """Count the frames that end within `chunk`, the next piece of the stream."""
        ended = 0
        position = 0
        size = len(chunk)

        while position < size:
            if not self._missing:
                # The size may be split between two chunks.
                head = self._head + bytes(
                    chunk[position : position + _SIZE_BYTES - len(self._head)]
                )
                position += len(head) - len(self._head)
                if len(head) < _SIZE_BYTES:
                    self._head = head
                    break
                self._head = b""
                self._missing = int.from_bytes(head, "big")

            # The body, as far as the chunk goes.
            taken = min(self._missing, size - position)
            position += taken
            self._missing -= taken
            ended += not self._missing

        return ended


class RequestRing:
    """Requests to be sent over and over; up to `max_count` of them are one piece of memory."""

    def __init__(self, requests: Sequence[bytes], max_count: int) -> None:
        self._count = len(requests)
        self._next = 0

        # Longer than one turn by `max_count`, so that no piece has to wrap around.
        ring = [requests[i % self._count] for i in range(self._count + max_count)]
        self._ends = [0]
        for request in ring:
            self._ends.append(self._ends[-1] + len(request))
        self._bytes = memoryview(b"".join(ring))

    def take(self, number: int) -> memoryview:
        """Return the next `number` requests, at most `max_count`."""
        first = self._next
        self._next = (first + number) % self._count
        return self._bytes[self._ends[first] : self._ends[first + number]]


@attrs.frozen
class LoadResult:
    """Responses and their bytes within `seconds`, and all responses up to the end."""

    responses: int
    bytes_received: int
    seconds: float
    total_responses: int

    @property
    def per_second(self) -> float:
        """Responses a second."""
        return self.responses / self.seconds


def drive(
    address: Address, plans: Sequence[Sequence[bytes]], *, outstanding: int, seconds: float
) -> LoadResult:
    """Keep `outstanding` requests in flight on one connection for each plan, for `seconds`.

    A plan is the requests that its connection sends in turn, again and again. Returns when all have
    their responses. Raises LoadError when the broker closes or stalls.
    """
    return drive_all([address] * len(plans), plans, outstanding=outstanding, seconds=seconds)


def drive_all(
    addresses: Sequence[Address],
    plans: Sequence[Sequence[bytes]],
    *,
    outstanding: int,
    seconds: float,
) -> LoadResult:
    """Do the same with brokers of several addresses, one for each plan."""
    sockets = [connect(address) for address in addresses]

    # A collection would slow the driver, which must outrun the broker.
    gc.collect()
    gc.disable()
    try:
        return _drive(sockets, plans, outstanding, seconds)
    finally:
        gc.enable()
        for connection in sockets:
            connection.close()


def _drive(
    sockets: list[socket.socket], plans: Sequence[Sequence[bytes]], outstanding: int, seconds: float
) -> LoadResult:
    lines = {
        connection.fileno(): (connection, RequestRing(plan, outstanding), FrameCounter())
        for connection, plan in zip(sockets, plans, strict=True)
    }
    buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
    counted = bytes_received = late = 0
    in_flight = outstanding * len(lines)

    with select.epoll() as ready:
        for descriptor in lines:
            ready.register(descriptor, select.EPOLLIN)
        begins = now = time.perf_counter()
        ends = begins + seconds

        # From the start each connection has all its requests in flight.
        for connection, requests, _ in lines.values():
            connection.sendall(requests.take(outstanding))

        # Until the time is over each response makes room for a request; then the rest is awaited.
        while in_flight:
            events = ready.poll(STALLED_AFTER_S)
            if not events:
                raise LoadError(f"no response for {STALLED_AFTER_S} s")
            for descriptor, _ in events:
                connection, requests, frames = lines[descriptor]
                received = connection.recv_into(buffer)
                if not received:
                    raise LoadError("the broker closed the connection")
                responses = frames.count(buffer[:received])
                if now < ends:
                    counted += responses
                    bytes_received += received
                    if responses:
                        connection.sendall(requests.take(responses))
                else:
                    # Awaited so that the log can be checked, but too late to count.
                    late += responses
                    in_flight -= responses
            if now < ends:
                now = last = time.perf_counter()
    return LoadResult(counted, bytes_received, last - begins, counted + late)


def pace(address: Address, request: bytes, *, per_second: float, seconds: float) -> list[float]:
    """Send a request so often, without waiting for responses; return each response's seconds.

    Raises LoadError when the broker closes or stalls.
    """
    connection = connect(address)

    # A collection would look like a slow response.
    gc.collect()
    gc.disable()
    try:
        return _pace(connection, request, per_second, round(per_second * seconds))
    finally:
        gc.enable()
        connection.close()


def _pace(connection: socket.socket, request: bytes, per_second: float, number: int) -> list[float]:
    frames = FrameCounter()
    buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
    sent_at: list[float] = []
    times_s: list[float] = []
    begins = time.perf_counter()

    while len(times_s) < number:
        # Send what is due.
        wait_s = float(STALLED_AFTER_S)
        if len(sent_at) < number:
            wait_s = begins + len(sent_at) / per_second - time.perf_counter()
            if wait_s <= 0:
                sent_at.append(time.perf_counter())
                connection.sendall(request)
                continue

        # epoll would round the wait up to a millisecond.
        readable, _, _ = select.select([connection], [], [], wait_s)
        if readable:
            received = connection.recv_into(buffer)
            if not received:
                raise LoadError("the broker closed the connection")
            now = time.perf_counter()
            for _ in range(frames.count(buffer[:received])):
                # Responses come in the order of the requests.
                times_s.append(now - sent_at[len(times_s)])
        elif len(sent_at) == number:
            raise LoadError(f"no response for {STALLED_AFTER_S} s")
    return times_s


def connect(address: Address) -> socket.socket:
    """Connect; writes give up after STALLED_AFTER_S."""
    connection = socket.create_connection(address)

    # Nagle's algorithm would hold back a small request while another is in flight.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    # A struct timeval: seconds and microseconds.
    give_up = struct.pack("ll", STALLED_AFTER_S, 0)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, give_up)
    return connection


def ask(connection: socket.socket, request: bytes) -> bytes:
    """Send one request; return its response without the size. Raises LoadError, OSError."""
    (response,) = ask_all([connection], [request])
    return response


def ask_all(connections: Sequence[socket.socket], requests: Sequence[bytes]) -> list[bytes]:
    """Send a request on each connection, and then receive all responses. Raises as `ask` does."""
    for connection, request in zip(connections, requests, strict=True):
        connection.sendall(request)
    return [
        receive_exactly(connection, int.from_bytes(receive_exactly(connection, _SIZE_BYTES), "big"))
        for connection in connections
    ]


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    """Receive the next `size` bytes. Raises LoadError, OSError."""
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise LoadError("the broker closed the connection")
        received += chunk
    return bytes(received)
