"""Serve requests that name very many things, without keeping the others from the event loop.

To read a thing takes a microsecond or two, to answer for it several, and a request may name
250,000. So a request is read in a thread if it has more than `AT_ONCE_ELEMENTS`, and one of those
in `SLICED` is served in parts: its handler is called with a request of some of the things in each
turn of the loop, of fewer where their answers are large, and the responses are joined. Everything
else of the request is the same in all parts. What is named twice in different parts has two
answers.

Few are read, or served in parts, at the same time. The rule for the others, which wait:

- There are four lanes, and none waits for another: of brokers, of requests that change something
  or fetch, of those that look up times, in logs and in threads, and of those that only ask.
- In each lane there is a line for each of `SIZES`, so that a request which is just large waits for
  none that is very large. Nobody knows before how large it is: each is tried in the line of the
  least size, where reading as much takes some milliseconds, then in that of the next.
- In each line the turn goes round (`fair_line`): over users, or addresses where nobody logs in,
  each of which has one place at a time; and for each over its connections.
- Who waits gives up when its connection is closed, or after TIMEOUT_MS.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from broker.network.deferred import Deferred, LineFull, enter
from broker.network.dispatch import Close, Dispatched, Handler, LargeFrame, Outcome
from broker.network.fair_line import FairLine, Owner, Place, owner_of
from broker.network.letting_go import let_go_of
from broker.network.long_answers import LongAnswer
from broker.network.purgatory import Purgatory, Wait
from broker.network.request_context import Origin, RequestContext
from protocol.api_key import ApiKey
from protocol.encoding import TooManyElements
from protocol.frozen import frozen
from protocol.header import read_request
from protocol.primitives import WireError

logger = logging.getLogger(__name__)

THINGS_A_TURN = 200
"""Things that a handler answers for in one turn."""
FEW_A_TURN = 20
"""The same where the answer for one thing may have a megabyte, or hundreds of settings."""
BEGIN_WITH = 20
"""A request begins with so many times fewer: nobody knows yet how large the answers are."""
ANSWER_BYTES_A_TURN = 128 * 1024
"""The answers of one turn have about so many bytes: some 4 ms to make them."""
TIMEOUT_MS = 60_000
"""Time for all turns of a request, and before that for reading it."""
SIZES = (4_000, 10_000, 40_000)
"""Elements up to which a request waits for no larger one."""
LARGE_AT_ONCE = 2
"""Requests of a line that are read and served in parts at the same time: each takes some ten times
its bytes, 40 MB and more. The others wait, as the bytes that they are."""
WAITING_PART = 16
"""The part of `queued.max.request.bytes` for those that wait in a line, as a divisor."""
MOST_WAITING_BYTES = 64 * 2**20
"""The same where there is no such setting."""


class Lane(enum.Enum):
    """The kinds of requests that do not wait for each other."""

    BROKERS = enum.auto()
    CHANGING = enum.auto()
    """They change something or fetch, and are served whole."""
    LOOKING_UP = enum.auto()
    """They may have their places for as long as there is."""
    ASKING = enum.auto()


LOOKING_UP = frozenset({ApiKey.LIST_OFFSETS})


@frozen
class Things:
    """The array of a request that names its things, perhaps each with arrays of their own.

    `path` has the names of the fields, from the outermost array to the innermost. The response has
    what answers for the outermost in `answers`.
    """

    path: tuple[str, ...]
    answers: str
    a_turn: int = THINGS_A_TURN
    """How many are answered in one turn."""


SLICED: Mapping[ApiKey, Sequence[Things]] = {
    ApiKey.METADATA: [Things(("topics",), "topics")],
    ApiKey.FIND_COORDINATOR: [Things(("coordinator_keys",), "coordinators")],
    ApiKey.DESCRIBE_GROUPS: [Things(("groups",), "groups", FEW_A_TURN)],
    # Several groups from version 8 on.
    ApiKey.OFFSET_FETCH: [
        Things(("groups", "topics", "partition_indexes"), "groups"),
        Things(("topics", "partition_indexes"), "topics"),
    ],
    ApiKey.DESCRIBE_CONFIGS: [Things(("resources",), "results", FEW_A_TURN)],
    ApiKey.LIST_OFFSETS: [Things(("topics", "partitions"), "topics")],
    ApiKey.OFFSET_FOR_LEADER_EPOCH: [Things(("topics", "partitions"), "topics")],
    ApiKey.DESCRIBE_PRODUCERS: [Things(("topics", "partition_indexes"), "topics")],
    ApiKey.DESCRIBE_TRANSACTIONS: [Things(("transactional_ids",), "transaction_states")],
}
"""The requests that only ask, by the things they ask about: those that have any count."""


@attrs.define(eq=False)
class Turn:
    """How many things are answered in the next turn: `most`, or fewer if answers are large."""

    most: int
    things: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.things = max(1, self.most // BEGIN_WITH)

    def learn(self, answer_bytes: int) -> None:
        """Take note of the answers of one turn."""
        # Twenty groups may have 3,000 members each (fault strangers-14).
        fitting = self.things * ANSWER_BYTES_A_TURN // max(answer_bytes, 1)
        self.things = max(1, min(self.most, 2 * self.things, fitting))


@attrs.define(eq=False)
class LargeRequests:
    """Reads and serves large requests; those that wait in a line hold `most_waiting_bytes`.

    `has_room_for(client)`: another of its responses may be made; if not, call `go_on` when it may.
    """

    deferred: Deferred
    purgatory: Purgatory
    most_waiting_bytes: int = MOST_WAITING_BYTES
    has_room_for: Callable[[str], bool] = lambda client: True
    _lines: dict[tuple[Lane, int], FairLine] = attrs.field(factory=dict)

    def read(
        self, frame: LargeFrame, origin: Origin, then: Callable[[Any], Dispatched]
    ) -> Dispatched:
        """Read a request in a thread, then serve it on the loop."""
        header = frame.header

        async def run() -> Dispatched:
            try:
                request, place = await self._read_in_turn(frame, owner_of(origin))
            except LineFull:
                return Dispatched(header, Close("too many large requests wait"))
            except Exception as error:
                if not isinstance(error, WireError):
                    logger.exception("a request cannot be read")
                reason = f"{ApiKey(header.api_key).name} version {header.api_version}: {error}"
                return Dispatched(header, Close(reason))

            # What is served in parts has its place until nothing is left of it. Others may be
            # parked for long, and have theirs while they are read.
            if header.api_key in SLICED:
                leave = partial(_leave, asyncio.get_running_loop(), place)
                weakref.finalize(request, leave)
            else:
                place.leave()
            return then(request)

        late = Dispatched(header, Close("a request was not read in time"))
        # The outcome is what the connection takes when a wait has ended: all of a Dispatched.
        wait = self.deferred.respond(run(), TIMEOUT_MS, lambda: late, only_asks=True)  # type: ignore[arg-type, return-value]
        return Dispatched(header, wait)

    async def _read_in_turn(self, frame: LargeFrame, owner: Owner) -> tuple[Any, Place]:
        """Read a request when it has a place. Raises LineFull, WireError."""
        # Who has just a large request would wait for all that are larger (fault security-5).
        for most in SIZES:
            with contextlib.suppress(TooManyElements):
                return await self._read_in_line(frame, owner, most)
        return await self._read_in_line(frame, owner, frame.most)

    async def _read_in_line(self, frame: LargeFrame, owner: Owner, most: int) -> tuple[Any, Place]:
        line = self._line(frame, most)
        place = await enter(line, owner, len(frame.frame))
        try:
            read = partial(read_request, frame.header, frame.frame, frame.pos, most)
            return await self.deferred.in_thread(read, owner), place
        except BaseException:
            place.leave()
            raise

    def _line(self, frame: LargeFrame, most: int) -> FairLine:
        lane = Lane.ASKING if frame.header.api_key in SLICED else Lane.CHANGING
        if frame.header.api_key in LOOKING_UP:
            lane = Lane.LOOKING_UP
        if frame.is_brokers:
            # Replication would stand still for as long as strangers ask (fault security-5).
            lane = Lane.BROKERS
        if (lane, most) not in self._lines:
            line = FairLine(LARGE_AT_ONCE, 1, self.most_waiting_bytes)
            if lane is not Lane.BROKERS:
                line.may_enter = self.has_room_for
            self._lines[lane, most] = line
        return self._lines[lane, most]

    def go_on(self) -> None:
        """Serve those for whose responses there is room by now."""
        for line in self._lines.values():
            line.go_on()

    def sliced(self, key: int, handler: Handler) -> Handler:
        """Return a handler that has `handler` serve a large request in parts, if that can be."""
        choices = SLICED.get(key, ())  # type: ignore[call-overload]

        def handle(request: Any, context: RequestContext) -> Outcome:
            things = next((some for some in choices if getattr(request, some.path[0])), None)
            if things is None:
                return handler(request, context)

            # To say so of 250,000 things takes a turn of 0.3 s, and half of them may be gone.
            late = Close("a request was not served in time")
            served = self._serve_parts(things, handler, request, context)
            return self.deferred.respond(served, TIMEOUT_MS, lambda: late, only_asks=True)

        return handle

    async def _serve_parts(
        self, things: Things, handler: Handler, request: Any, context: RequestContext
    ) -> Outcome:
        answer: LongAnswer | None = None
        whole: Any = None
        turn = Turn(things.a_turn)
        for part in split(request, things.path, turn):
            # The other connections come in between.
            await asyncio.sleep(0)
            response: Any = handler(part, context)
            while isinstance(response, Wait):
                response = await self._ended(response)

            # What is encoded already is small, and need not be encoded at the end.
            answer = answer or LongAnswer(type(response), context.api_version)
            before = answer.size.total
            answer.add(getattr(response, things.answers))
            turn.learn(answer.size.total - before)
            # Of all else the first failure counts, or the last response.
            if whole is None or not getattr(whole, "error_code", 0):
                whole = response
        assert answer is not None, "a request in parts has some"
        # To free all that it names would take a turn for itself (fault security-5).
        await let_go_of(request, things.path)
        joined: Outcome = attrs.evolve(whole, **{things.answers: answer.array()})
        return joined

    async def _ended(self, wait: Wait) -> Any:
        ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        parked = self.purgatory.park(wait, partial(_end, ended))
        try:
            return await ended
        except asyncio.CancelledError:
            if parked is not None:
                self.purgatory.cancel(parked)
            raise


def _end(ended: asyncio.Future[Any], outcome: Any) -> None:
    # It may have been given up in this turn.
    if not ended.done():
        ended.set_result(outcome)


def _leave(loop: asyncio.AbstractEventLoop, place: Place) -> None:
    """Leave a place, in whatever thread the last of a request was freed."""
    # Nobody waits for a place on a loop that is closed.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(place.leave)


def split(request: Any, path: Sequence[str], turn: Turn) -> Iterator[Any]:
    """Yield requests for one turn each, which together name all that `request` names.

    The last field of `path` has the things. An array that is null or empty counts as one.
    """
    field, *inner = path
    part: list[Any] = []
    room = turn.things
    for element in getattr(request, field):
        for piece in _pieces(element, inner, turn):
            part.append(piece)
            room -= _count(piece, inner)
            if room <= 0:
                yield _with(request, field, part)
                part = []
                room = turn.things
    if part:
        yield _with(request, field, part)


def _pieces(element: Any, path: Sequence[str], turn: Turn) -> Iterator[Any]:
    if not path or _count(element, path) <= turn.things:
        yield element
    else:
        yield from split(element, path, turn)


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
