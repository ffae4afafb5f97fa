"""Brokers that no client should meet: they refuse, fall silent, hang up, or send nonsense.

A `LyingBroker` serves like a ScriptedBroker's cluster of one, but each response is a `Lie`: a
function of the request's header and the request. It returns a response, bytes to put behind the
correlation id, SILENCE or HANG_UP. TRUTH is an honest broker's answer about itself and its topics.
"""

import asyncio
import random
import struct
from collections.abc import Callable, Iterator
from typing import Any, Self

import attrs

from protocol.api import find_api
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.frames import FrameCutter
from protocol.header import RequestHeader, encode_response, read_request, read_request_header
from protocol.wire import BYTES, INT16, RECORDS, STRING, UUID, Array, WireField
from tests.clients.scripted_broker import HANG_UP, SILENCE, ScriptedBroker
from tests.protocol.bits import BITS

Lie = Callable[[RequestHeader, Any], Any]

TRUTH = object()

_NONSENSE = random.Random(7)


def silent(header: RequestHeader, request: Any) -> Any:
    """Accept connections, and send nothing."""
    return SILENCE


def hanging_up(header: RequestHeader, request: Any) -> Any:
    """Close the connection at every request."""
    return HANG_UP


def hanging_up_later(header: RequestHeader, request: Any) -> Any:
    """Close the connection at requests beyond the first questions about the broker."""
    return TRUTH if header.api_key in HONEST else HANG_UP


def garbage(header: RequestHeader, request: Any) -> Any:
    """Send nonsense, under the right correlation id."""
    return _NONSENSE.randbytes(_NONSENSE.randrange(60))


def garbage_later(header: RequestHeader, request: Any) -> Any:
    """Send nonsense to requests beyond the first questions about the broker."""
    return TRUTH if header.api_key in HONEST else _NONSENSE.randbytes(_NONSENSE.randrange(60))


def refusing(code: ErrorCode) -> Lie:
    """Send an error to all but questions about the broker and its topics."""

    def refuse(header: RequestHeader, request: Any) -> Any:
        if header.api_key in HONEST:
            return TRUTH
        return find_api(header.api_key).error_response(request, code)

    return refuse


def refusing_all(code: ErrorCode) -> Lie:
    """Send an error to every request."""

    def refuse(header: RequestHeader, request: Any) -> Any:
        if header.api_key == ApiKey.API_VERSIONS:
            return TRUTH
        return find_api(header.api_key).error_response(request, code)

    return refuse


def empty(header: RequestHeader, request: Any) -> Any:
    """Send responses that have nothing in them."""
    if header.api_key in HONEST:
        return TRUTH
    return _instance(_Nothing(), find_api(header.api_key).response, header.api_version)


def inventing(seed: int, honest: frozenset[ApiKey]) -> Lie:
    """Send well-formed, invented responses, with the names of the request."""
    rng = random.Random(seed)

    def invent(header: RequestHeader, request: Any) -> Any:
        if header.api_key in honest:
            return TRUTH
        known = list(_strings(request)) or ["t"]
        fancy = _Fancy(rng, known)
        return _instance(fancy, find_api(header.api_key).response, header.api_version)

    return invent


HONEST = frozenset({ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.FIND_COORDINATOR})
"""The questions of a client about the broker and its topics, before its own requests."""


@attrs.define(eq=False)
class LyingBroker:
    """A broker that serves while its `async with` block runs."""

    lie: Lie
    truth: ScriptedBroker
    correlation_shift: int = 0
    port: int = 0
    num_requests: int = 0
    own_faults: list[Exception] = attrs.field(factory=list)
    """What failed here; a client would take it for a broker that hangs up."""
    _server: asyncio.Server | None = None
    _transports: list[asyncio.Transport] = attrs.field(factory=list)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Peer(self), "127.0.0.1", 0)
        self.port = self.truth.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        for transport in self._transports:
            transport.abort()
        self._server.close()
        await self._server.wait_closed()
        assert not self.own_faults


class _Peer(asyncio.Protocol):
    def __init__(self, broker: LyingBroker) -> None:
        self._broker = broker
        self._cutter = FrameCutter(64 * 1024 * 1024)

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._broker._transports.append(transport)

    def data_received(self, data: bytes) -> None:
        self._cutter.feed(data)
        try:
            while (frame := self._cutter.cut()) is not None and not self._transport.is_closing():
                self._respond(bytes(frame))
        except Exception as error:
            self._broker.own_faults.append(error)
            raise

    def _respond(self, frame: bytes) -> None:
        self._broker.num_requests += 1
        header, pos = read_request_header(frame)
        request = read_request(header, frame, pos)
        answer = self._broker.lie(header, request)
        if answer is TRUTH:
            answer = self._broker.truth.answers[ApiKey(header.api_key)](request)
        if answer is HANG_UP:
            self._transport.abort()
        elif answer is not SILENCE:
            self._transport.write(self._framed(header, answer))

    def _framed(self, header: RequestHeader, answer: Any) -> bytes:
        correlation_id = header.correlation_id + self._broker.correlation_shift
        if isinstance(answer, bytes):
            return struct.pack(">ii", len(answer) + 4, correlation_id) + answer
        out, _ = encode_response(header.api_key, header.api_version, correlation_id, answer)
        return bytes(out)


# --- what is made up


class _Nothing:
    """A source of the smallest value of each field."""

    def length(self) -> int:
        return 0

    def null(self) -> bool:
        return False

    def value(self, kind: Any, name: str) -> Any:
        if kind in (STRING,):
            return ""
        if kind in (BYTES, RECORDS):
            return b""
        return bytes(16) if kind == UUID else 0


class _Fancy:
    """A source of small and large numbers, and of names that the client knows among others."""

    def __init__(self, rng: random.Random, known: list[str]) -> None:
        self._rng = rng
        self._known = known

    def length(self) -> int:
        return self._rng.choice((0, 1, 1, 2, 3))

    def null(self) -> bool:
        return self._rng.random() < 0.2

    def value(self, kind: Any, name: str) -> Any:
        rng = self._rng
        if kind == STRING:
            return rng.choice([*self._known, *self._known, "", "a..b", "no\0host", "x" * 300])
        if kind in (BYTES, RECORDS):
            return rng.randbytes(rng.randrange(80))
        if kind == UUID:
            return rng.randbytes(16)
        if kind not in BITS:
            return rng.random() < 0.5
        if kind == INT16 and "error" in name:
            return rng.choice((0, 0, 0, rng.choice(list(ErrorCode)), 999))
        most = (1 << BITS[kind]) - 1
        return rng.choice((0, 0, 1, -1, rng.randrange(100), most, -most - 1))


def _instance(source: _Nothing | _Fancy, cls: type, version: int) -> Any:
    values = {}
    for attribute in attrs.fields(cls):
        field: WireField = attribute.metadata["wire"]
        if field.since <= version <= field.until and field.tag is None:
            if field.may_be_null(version) and source.null():
                values[attribute.name] = None
            else:
                values[attribute.name] = _value(source, field.type, attribute.name, version)
    return cls(**values)


def _value(source: _Nothing | _Fancy, kind: Any, name: str, version: int) -> Any:
    if isinstance(kind, Array):
        return [_value(source, kind.of, name, version) for _ in range(source.length())]
    if isinstance(kind, type):
        return _instance(source, kind, version)
    return source.value(kind, name)


def _strings(message: Any) -> Iterator[str]:
    """Yield every text in a request."""
    if isinstance(message, str):
        yield message
    elif isinstance(message, list | tuple):
        for item in message:
            yield from _strings(item)
    elif attrs.has(type(message)):
        for attribute in attrs.fields(type(message)):
            yield from _strings(getattr(message, attribute.name))
