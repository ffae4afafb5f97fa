"""Serve requests that name very many things, without keeping the others from the event loop.

To read a thing takes a microsecond or two, to answer for it several, and a request may name
250,000. So a request is read in a thread if it has more than `AT_ONCE_ELEMENTS`, and one of those
in `SLICED` is served in parts: its handler is called with a request of some of the things in each
turn of the loop, and the responses are joined. Everything else of the request is the same in all
parts. What is named twice in different parts has two answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from broker.network.deferred import Deferred
from broker.network.dispatch import Close, Dispatched, Handler, Outcome
from broker.network.purgatory import Parked, Wait
from broker.network.request_context import RequestContext
from protocol.api_key import ApiKey
from protocol.encoding import Encoded, EncodedArray, encode_element
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.header import RequestHeader
from protocol.primitives import WireError
from protocol.registry import API

logger = logging.getLogger(__name__)

THINGS_A_TURN = 200
"""Things that a handler answers for in one turn."""
TIMEOUT_MS = 60_000
"""Time for all turns of a request, and before that for reading it."""
LARGE_AT_ONCE = 4
"""Requests of all connections that are read and served in parts at the same time: each takes some
ten times its bytes, 40 MB and more. The others wait in line, as the bytes that they are."""


@frozen
class Things:
    """The array of a request that names its things, perhaps each with arrays of their own.

    `path` has the names of the fields, from the outermost array to the innermost. The response has
    what answers for the outermost in `answers`.
    """

    path: tuple[str, ...]
    answers: str


SLICED: Mapping[ApiKey, Sequence[Things]] = {
    ApiKey.METADATA: [Things(("topics",), "topics")],
    ApiKey.FIND_COORDINATOR: [Things(("coordinator_keys",), "coordinators")],
    ApiKey.DESCRIBE_GROUPS: [Things(("groups",), "groups")],
    # Several groups from version 8 on.
    ApiKey.OFFSET_FETCH: [
        Things(("groups", "topics", "partition_indexes"), "groups"),
        Things(("topics", "partition_indexes"), "topics"),
    ],
    ApiKey.DESCRIBE_CONFIGS: [Things(("resources",), "results")],
    ApiKey.LIST_OFFSETS: [Things(("topics", "partitions"), "topics")],
    ApiKey.OFFSET_FOR_LEADER_EPOCH: [Things(("topics", "partitions"), "topics")],
    ApiKey.DESCRIBE_PRODUCERS: [Things(("topics", "partition_indexes"), "topics")],
    ApiKey.DESCRIBE_TRANSACTIONS: [Things(("transactional_ids",), "transaction_states")],
}
"""The requests that only ask, by the things they ask about: those that have any count."""


@attrs.define(eq=False)
class LargeRequests:
    """Reads and serves large requests; `park` parks a Wait of a handler (`Purgatory.park`)."""

    deferred: Deferred
    park: Callable[[Wait, Callable[[Any], None]], Parked | None]
    _places: asyncio.Semaphore = attrs.field(factory=lambda: asyncio.Semaphore(LARGE_AT_ONCE))

    def read(
        self,
        header: RequestHeader,
        read: Callable[[], Any],
        then: Callable[[Any], Dispatched],
    ) -> Dispatched:
        """Read a request in a thread, then serve it on the loop."""

        async def run() -> Dispatched:
            # More at once would have the memory of all their elements (fault security-5).
            await self._places.acquire()
            leave = partial(_leave, asyncio.get_running_loop(), self._places)
            try:
                request = await self.deferred.in_thread(read)
            except Exception as error:
                leave()
                if not isinstance(error, WireError):
                    logger.exception("a request cannot be read")
                reason = f"{ApiKey(header.api_key).name} version {header.api_version}: {error}"
                return Dispatched(header, Close(reason))

            # What is served in parts has its place until nothing is left of it. Others may be
            # parked for long, and have theirs while they are read.
            if header.api_key in SLICED:
                weakref.finalize(request, leave).atexit = False
            else:
                leave()
            return then(request)

        late = Dispatched(header, Close("a request was not read in time"))
        # The outcome is what the connection takes when a wait has ended: all of a Dispatched.
        wait = self.deferred.respond(run(), TIMEOUT_MS, lambda: late)  # type: ignore[arg-type, return-value]
        return Dispatched(header, wait)

    def sliced(self, key: int, handler: Handler) -> Handler:
        """Return a handler that has `handler` serve a large request in parts, if that can be."""
        choices = SLICED.get(key, ())  # type: ignore[call-overload]

        def handle(request: Any, context: RequestContext) -> Outcome:
            things = next((some for some in choices if getattr(request, some.path[0])), None)
            if things is None:
                return handler(request, context)

            def late() -> Outcome:
                api = API[ApiKey(key)]
                response: Outcome | None = api.error_response(request, ErrorCode.REQUEST_TIMED_OUT)
                assert response is not None, "what only asks has an error response"
                return response

            served = self._serve_parts(things, handler, request, context)
            return self.deferred.respond(served, TIMEOUT_MS, late)

        return handle

    async def _serve_parts(
        self, things: Things, handler: Handler, request: Any, context: RequestContext
    ) -> Outcome:
        chunks: list[Encoded] = []
        answers = 0
        whole: Any = None
        for part in split(request, things.path, THINGS_A_TURN):
            # The other connections come in between.
            await asyncio.sleep(0)
            response: Any = handler(part, context)
            while isinstance(response, Wait):
                response = await self._ended(response)

            # What is encoded already is small, and need not be encoded at the end.
            kind = type(response)
            elements = getattr(response, things.answers)
            encoded = [encode_element(e, kind, context.api_version) for e in elements]
            if encoded:
                chunks.append(Encoded(encoded[0].kind, b"".join(e.body for e in encoded)))
            answers += len(elements)
            # Of all else the first failure counts, or the last response.
            if whole is None or not getattr(whole, "error_code", 0):
                whole = response
        joined: Outcome = attrs.evolve(whole, **{things.answers: EncodedArray(answers, chunks)})
        return joined

    async def _ended(self, wait: Wait) -> Any:
        ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.park(wait, ended.set_result)
        return await ended


def _leave(loop: asyncio.AbstractEventLoop, places: asyncio.Semaphore) -> None:
    """Leave a place, in whatever thread the last of a request was freed."""
    # Nobody waits for a place on a loop that is closed.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(places.release)


def split(request: Any, path: Sequence[str], most: int) -> Iterator[Any]:
    """Yield requests of about `most` things, which together name all that `request` names.

    The last field of `path` has the things. An array that is null or empty counts as one.
    """
    field, *inner = path
    part: list[Any] = []
    room = most
    for element in getattr(request, field):
        for piece in _pieces(element, inner, most):
            part.append(piece)
            room -= _count(piece, inner)
            if room <= 0:
                yield _with(request, field, part)
                part = []
                room = most
    if part:
        yield _with(request, field, part)


def _pieces(element: Any, path: Sequence[str], most: int) -> Iterator[Any]:
    if not path or _count(element, path) <= most:
        yield element
    else:
        yield from split(element, path, most)


def _count(element: Any, path: Sequence[str]) -> int:
    if not path:
        return 1
    field, *inner = path
    elements = getattr(element, field) or ()
    if not inner:
        return max(len(elements), 1)
    return max(sum(_count(of, inner) for of in elements), 1)


def _with(message: Any, field: str, elements: Sequence[Any]) -> Any:
    return attrs.evolve(message, **{field: tuple(elements)})
