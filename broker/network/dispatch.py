"""Turn a frame into a response: read header and body, call the handler, translate its errors.

A request without a possible response (an unknown API or version, a body that cannot be read) raises
`Refused`, and its connection is closed. ApiVersions is the exception: in a version that we do not
speak it gets error 35 in version 0, so that a newer client learns which versions it can use
(KIP-511).

A handler is a plain function that returns an `Outcome`:

| outcome | what the connection does |
|---|---|
| a response message, or one that is encoded already | sends it |
| `Wait` | parks the request, and sends the outcome with which the wait ends |
| `NO_RESPONSE` | sends nothing: a produce request with acks=0 |
| `Close` | closes: where there is no response, nothing else can report an error |

An ApiError that a handler raises becomes the API's error response with that code. Any other
exception is our bug: it is logged, the response is UNKNOWN_SERVER_ERROR, and the connection is
closed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import attrs

from broker.network.authorization import (
    AT_ONCE,
    CLUSTER,
    Authorizer,
    Sender,
    audit_logger,
    host_of,
)
from broker.network.long_answers import AnswerTooLarge
from broker.network.purgatory import Wait
from broker.network.request_context import (
    Bill,
    Origin,
    RefusalLog,
    RequestContext,
    require_authorized,
)
from core_log.storage import FileRange
from protocol.acls import Operation
from protocol.api import Api
from protocol.api_key import ApiKey
from protocol.bounds import (
    MAX_CHANGING_ELEMENTS,
    MAX_FOLLOWED_ELEMENTS,
    MAX_REQUEST_ELEMENTS,
)
from protocol.encoding import Encoded, TooManyElements
from protocol.errors import ApiError, ErrorCode
from protocol.frozen import frozen
from protocol.header import (
    RequestHeader,
    read_correlation_id,
    read_replica_id,
    read_request,
    read_request_header,
)
from protocol.messages.api_versions import ApiVersionsResponse, ApiVersionsResponseKey
from protocol.primitives import WireError
from protocol.registry import API
from protocol.wire import Message

logger = logging.getLogger(__name__)


@frozen
class NoResponse:
    """The outcome of a request whose client waits for no response."""


@frozen
class Close:
    """The outcome of a request that ends its connection without a response."""

    reason: str


NO_RESPONSE = NoResponse()


class FetchedParts(NamedTuple):
    """The whole frame of a response to Fetch, in parts: bytes, and ranges of files.

    `sizes` has the topic and the bytes of each partition in it.
    """

    parts: list[bytes | FileRange]
    sizes: list[tuple[str, int]]


Response = Message | Encoded | bytes | FetchedParts
Outcome = Response | Wait | NoResponse | Close
Handler = Callable[[Any, RequestContext], Outcome]

ShortAnswer = bytes | FetchedParts | Handler | None
ShortWay = Callable[[memoryview, int, Sender | None], ShortAnswer]
"""Serves the usual request of an API from its frame and the wall clock, in one pass.

Asks the sender, if there is one, for what the request needs; what is refused is not usual.
Returns the whole frame of the response; or a handler for what is left to do, such as a wait; or
None, before anything is changed, for a request that the API's handler has to serve.
"""

RunWay = Callable[[Sequence[memoryview], int, Sender | None], Sequence[bytes]]
"""Serves the first of some requests at once, as the short way serves one after another.

Returns the frames of their responses; none, before anything is changed, where that cannot be.
"""
FEWEST_OF_A_RUN = 2
"""Requests that are worth being served at once."""

MOST_TRAILING_NOTED = 100
"""Pairs of client and API of which is logged that they send more than a request has."""

BROKER_APIS = frozenset(
    {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
    }
)
"""The requests that brokers send and clients never do."""


_KEY_BYTES = 2


class Refused(Exception):
    """The request cannot get a response, so its connection must be closed."""


class Dispatched(NamedTuple):
    """The outcome of a request with its header.

    `close`: the connection is closed after the response. `is_from_broker`: a broker has sent the
    request. `throttle_ms`: the connection is not read for so long; the response is sent at once.
    """

    header: RequestHeader
    outcome: Outcome
    close: bool = False
    is_from_broker: bool = False
    throttle_ms: int = 0


class LargeFrame(NamedTuple):
    """A frame that names very many things, `most` at most, and the header that ends at `pos`.

    `is_brokers`: its sender is believed that it is a broker.
    """

    header: RequestHeader
    frame: memoryview
    pos: int
    most: int
    is_brokers: bool


class LargeWay(Protocol):
    """Serves large requests apart (`broker.network.large_requests`)."""

    def read(
        self, frame: LargeFrame, origin: Origin, then: Callable[[Any], Dispatched]
    ) -> Dispatched:
        """Read a request in a thread, then serve it on the loop."""

    def sliced(self, key: int, handler: Handler) -> Handler:
        """Return a handler that serves a large request in parts, if that can be."""


AT_ONCE_ELEMENTS = 2000
"""Most elements of a request that is read and served within the turn in which it arrives."""
AT_ONCE_OF = {ApiKey.DESCRIBE_GROUPS: 1, ApiKey.DESCRIBE_CONFIGS: 20}
"""The same where the answer for one of them may have a megabyte, or hundreds of settings."""


CHANGING = frozenset(
    {
        # Fetches move the places of a session, and wait for all their partitions at once.
        ApiKey.FETCH,
        ApiKey.PRODUCE,
        ApiKey.DELETE_RECORDS,
        # Groups, and what they commit.
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.LEAVE_GROUP,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_DELETE,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        # What administrators do.
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
    }
)
"""The requests that change something, and are served whole: they have a smaller bound."""


class Dispatch(Protocol):
    """Serves the requests of connections: a `Dispatcher`, or what counts before one."""

    def dispatch(self, frame: memoryview, origin: Origin) -> Dispatched:
        """Serve one request. Raises Refused."""

    def dispatch_run(self, frames: Sequence[memoryview], origin: Origin) -> Sequence[bytes]:
        """Serve the first of these requests at once, if they are alike; return their responses.

        Those that have none are left to `dispatch`. Raises Refused.
        """

    def is_from_broker(self, begin: memoryview, origin: Origin) -> bool:
        """Return whether a request is a broker's, by the bytes that are there of its frame."""


@attrs.define(eq=False)
class TrailingBytes:
    """Logs which clients write more than a request has, once for each of them and each API."""

    _noted: set[tuple[str | None, int]] = attrs.field(factory=set)

    def note(self, header: RequestHeader, count: int) -> None:
        """Log that `count` bytes behind a request were ignored."""
        key = (header.client_id, header.api_key)
        if key in self._noted or len(self._noted) == MOST_TRAILING_NOTED:
            return
        self._noted.add(key)
        name = ApiKey(header.api_key).name
        logger.info(
            "%s version %d of client %r: %d bytes behind the request are ignored, here and later",
            name,
            header.api_version,
            header.client_id,
            count,
        )


@attrs.define(eq=False)
class Dispatcher:
    """A dispatcher has the table of handlers, and calls them.

    Without `authorizer` everything is allowed. `open_bill()` returns the bill of a request,
    by the quotas of its client; None while nobody has a quota. `now_ns` is the clock of what a
    request takes. `large` serves large requests; without it they are like others.
    `broker_listeners` returns those by which brokers come.
    """

    handlers: Mapping[ApiKey, Handler]
    now_ms: Callable[[], int]
    monotonic_ms: Callable[[], int]
    authorizer: Authorizer | None = None
    open_bill: Callable[[], Bill] | None = None
    now_ns: Callable[[], int] = lambda: 0
    large: LargeWay | None = None
    broker_listeners: Callable[[], Collection[str]] = tuple
    short_ways: Mapping[int, ShortWay] = attrs.field(factory=dict)
    run_ways: Mapping[int, RunWay] = attrs.field(factory=dict)
    trailing: TrailingBytes = attrs.field(factory=TrailingBytes)

    def dispatch(self, frame: memoryview, origin: Origin) -> Dispatched:
        """Serve one request. Raises Refused."""
        try:
            key, version, correlation_id = read_correlation_id(frame)
        except WireError as error:
            raise Refused(str(error)) from error

        sender, is_audited = (
            (None, False) if self.authorizer is None else self._find_sender(self.authorizer, origin)
        )

        # Most requests are usual ones.
        rest = None
        short_way = self.short_ways.get(key)
        if short_way is not None and self.open_bill is None and not is_audited:
            answer = _try_short_way(short_way, frame, self.now_ms(), sender)
            if isinstance(answer, (bytes, FetchedParts)):
                return Dispatched(RequestHeader(key, version, correlation_id, None), answer)
            rest = answer

        # Find the API and its handler.
        api = API.get(key)
        handler = self.handlers.get(key)  # type: ignore[call-overload]
        if api is None or handler is None:
            raise Refused(f"API key {key} is not served")

        # A version that we do not serve.
        if not api.served.first <= version <= api.served.last:
            # A client that is newer than us can read this response alone (KIP-511).
            if key == ApiKey.API_VERSIONS:
                return _unsupported_api_versions(correlation_id)
            raise Refused(f"{ApiKey(key).name} version {version} is not served")

        # Read the rest of the header, and the body.
        most = MAX_REQUEST_ELEMENTS
        if key in CHANGING:
            # What is served whole must fit into one turn (fault security-5).
            most = MAX_CHANGING_ELEMENTS
        serve = partial(self._serve, api, origin, sender, len(frame))
        try:
            header, pos = read_request_header(frame)
            is_follower = _is_followers_fetch(header, frame, pos) and self._may_be_brokers(
                sender, origin
            )
            if is_follower:
                # Or a follower of very many partitions is closed for ever (fault security-5).
                most = MAX_FOLLOWED_ELEMENTS
            if key in BROKER_APIS and self._may_be_brokers(sender, origin):
                # A controller tells a broker about all partitions at once.
                request = read_request(header, frame, pos, None, self.trailing.note)
            else:
                at_once = most
                if self.large is not None:
                    at_once = AT_ONCE_ELEMENTS
                    # 1,900 of them may take 2 GB, and seconds (fault security-5).
                    at_once = AT_ONCE_OF.get(ApiKey(key), at_once)
                request = read_request(header, frame, pos, at_once, self.trailing.note)
        except TooManyElements as error:
            if self.large is None:
                raise Refused(f"{ApiKey(key).name} version {version}: {error}") from error
            sliced = self.large.sliced(key, handler)
            is_brokers = is_follower or self._is_brokers(sender, origin)
            large = LargeFrame(header, frame, pos, most, is_brokers)
            return self.large.read(large, origin, partial(serve, header, rest or sliced))
        except WireError as error:
            raise Refused(f"{ApiKey(key).name} version {version}: {error}") from error
        return serve(header, rest or handler, request)

    def _serve(
        self,
        api: Api,
        origin: Origin,
        sender: Sender | None,
        size: int,
        header: RequestHeader,
        handler: Handler,
        request: Any,
    ) -> Dispatched:
        """Call the handler, if the client may send this request of `size` bytes."""
        key = header.api_key
        listener, connection_id, connection, principal = origin
        bill = None if self.open_bill is None else self.open_bill()
        refusals = None if sender is None else RefusalLog()
        context = RequestContext(
            header.api_version,
            header.client_id or "",
            listener,
            connection_id,
            self.now_ms(),
            connection,
            self.monotonic_ms(),
            principal,
            sender,
            bill,
            refusals,
        )
        if sender is not None and key in AT_ONCE:
            handler = _require_authorization(key, handler)
        handle = partial(handler, request, context)
        if bill is None:
            dispatched = call_handler(api, header, request, handle)
        else:
            charge = partial(bill.charge, context=context, size=size)
            timed = _Timed(charge, self.now_ns, request)
            dispatched = timed.serve(lambda: call_handler(api, header, request, handle))

        # Note what the connection must know.
        if _is_from_broker(key, request) and self._may_be_brokers(sender, origin):
            dispatched = dispatched._replace(is_from_broker=True)
        return dispatched if refusals is None else _note_end(dispatched, refusals.end)

    def _is_brokers(self, sender: Sender | None, origin: Origin) -> bool:
        """Return whether a sender is known to be a broker: by ACLs, or else by its listener."""
        if sender is None:
            return origin.listener in self.broker_listeners()
        return sender.permissions(Operation.CLUSTER_ACTION, CLUSTER.kind).allows(CLUSTER.name)

    def _may_be_brokers(self, sender: Sender | None, origin: Origin) -> bool:
        """Return whether a sender that says so is believed to be a broker.

        Without ACLs, and where brokers have no listener of their own, nobody can tell.
        """
        if sender is None and not self.broker_listeners():
            return True
        # What is read for a broker has no bound (fault strangers-4, was: True).
        return self._is_brokers(sender, origin)

    def is_from_broker(self, begin: memoryview, origin: Origin) -> bool:
        """Return whether a request is a broker's, by the bytes that are there of its frame."""
        try:
            header, pos = read_request_header(begin)
            says_so = header.api_key in BROKER_APIS or _is_followers_fetch(header, begin, pos)
        except WireError:
            return False
        sender = None
        if self.authorizer is not None:
            sender, _ = self._find_sender(self.authorizer, origin)
        return says_so and self._may_be_brokers(sender, origin)

    @staticmethod
    def _find_sender(authorizer: Authorizer, origin: Origin) -> tuple[Sender, bool]:
        """Return the sender, and whether what it may do is logged, which no short way does."""
        sender = authorizer.sender(origin.principal, host_of(origin.connection_id))
        return sender, audit_logger.isEnabledFor(logging.DEBUG)

    def dispatch_run(self, frames: Sequence[memoryview], origin: Origin) -> Sequence[bytes]:
        """Serve the first of these requests at once, if they are alike. Raises Refused."""
        run_way = self.run_ways.get(int.from_bytes(frames[0][:_KEY_BYTES]))
        if run_way is None or self.open_bill is not None:
            return ()
        sender, is_audited = (
            (None, False) if self.authorizer is None else self._find_sender(self.authorizer, origin)
        )
        if is_audited:
            return ()
        try:
            return run_way(frames, self.now_ms(), sender)
        except Exception as error:
            # They must not be served again: some may have been.
            logger.exception("requests that were served at once failed")
            raise Refused("requests failed unexpectedly; the error is logged above") from error


@attrs.define(eq=False)
class _Timed:
    """A request with a bill: the time that is spent on it, before and after it was parked."""

    charge: Callable[..., Dispatched]
    now_ns: Callable[[], int]
    request: Any
    spent_ns: int = 0

    def serve(self, serve: Callable[[], Dispatched]) -> Dispatched:
        """Serve the request, and charge it now or when its wait ends."""
        began_ns = self.now_ns()
        dispatched = serve()
        self.spent_ns += self.now_ns() - began_ns

        wait = dispatched.outcome
        if not isinstance(wait, Wait):
            return self.charge(dispatched, request=self.request, spent_ns=self.spent_ns)
        self.request = _kept_of(self.request, wait)

        def try_complete(expired: bool) -> Dispatched | None:
            began_ns = self.now_ns()
            ended: Dispatched | None = wait.try_complete(expired)
            if ended is None:
                return None
            self.spent_ns += self.now_ns() - began_ns
            return self.serve(lambda: ended)

        return dispatched._replace(outcome=attrs.evolve(wait, try_complete=try_complete))


def _note_end(dispatched: Dispatched, end: Callable[[], None]) -> Dispatched:
    """Call `end` when the request has its response."""
    wait = dispatched.outcome
    if not isinstance(wait, Wait):
        end()
        return dispatched

    def try_complete(expired: bool) -> Dispatched | None:
        ended: Dispatched | None = wait.try_complete(expired)
        return None if ended is None else _note_end(ended, end)

    return dispatched._replace(outcome=attrs.evolve(wait, try_complete=try_complete))


def _try_short_way(
    short_way: ShortWay, frame: memoryview, now_ms: int, sender: Sender | None
) -> ShortAnswer:
    """Serve a request the short way. A bug in it is met like one of a handler."""
    try:
        return short_way(frame, now_ms, sender)
    except Exception as error:
        # The handler must not do again what may be done already.
        failure = error

    def fail(request: Any, context: RequestContext) -> Outcome:
        raise failure

    return fail


def _require_authorization(key: int, handler: Handler) -> Handler:
    """Return a handler that first checks the one resource which the request concerns."""
    operation, resource_of = AT_ONCE[key]

    def handle(request: Any, context: RequestContext) -> Outcome:
        require_authorized(context, operation, resource_of(request))
        return handler(request, context)

    return handle


def _is_from_broker(key: int, request: Any) -> bool:
    """Return whether a broker sent the request: the controller, a follower, or one that stops."""
    return key in BROKER_APIS or getattr(request, "replica_id", -1) >= 0


def _is_followers_fetch(header: RequestHeader, frame: memoryview, pos: int) -> bool:
    """Return whether a request says that it is a follower's fetch. Raises WireError."""
    return header.api_key == ApiKey.FETCH and read_replica_id(header, frame, pos) >= 0


def call_handler(
    api: Api, header: RequestHeader, request: Any, handle: Callable[[], Outcome | None]
) -> Dispatched:
    """Call a handler. A Wait that it returns ends with a Dispatched too.

    An error is a response, whether it is the handler's or the Wait's.
    """
    dispatched = _call_guarded(api, header, request, handle)
    wait = dispatched.outcome
    if not isinstance(wait, Wait):
        return dispatched
    kept = _kept_of(request, wait)

    def try_complete(expired: bool) -> Dispatched | None:
        # The wait may end with another wait, which is wrapped like this one.
        attempt = call_handler(api, header, kept, partial(wait.try_complete, expired))
        return None if attempt.outcome is None else attempt

    return Dispatched(header, attrs.evolve(wait, try_complete=try_complete))


def _kept_of(request: Any, wait: Wait) -> Any:
    """Return what is kept of a request while it waits."""
    # All that is named would be held for as long as it says (fault strangers-44, was: request).
    return request if wait.request is None else wait.request


def _call_guarded(
    api: Api, header: RequestHeader, request: Any, handle: Callable[[], Any]
) -> Dispatched:
    """Call a handler, and turn an exception into a response."""
    close = False
    try:
        return Dispatched(header, handle())
    except AnswerTooLarge as error:
        return Dispatched(header, Close(str(error)))
    except ApiError as error:
        # An error of the protocol has a response, and the connection goes on.
        code = error.code
    except Exception:
        # Our bug: nothing is known of the state it left, so the connection ends.
        logger.exception("%s version %s failed", ApiKey(header.api_key).name, header.api_version)
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        close = True

    # A produce request with acks=0 has no error response either.
    response = api.error_response(request, code)
    return Dispatched(header, NO_RESPONSE if response is None else response, close)


def _unsupported_api_versions(correlation_id: int) -> Dispatched:
    """Respond in version 0 with the versions of ApiVersions that we serve."""
    api = API[ApiKey.API_VERSIONS]
    key = ApiVersionsResponseKey(
        api_key=ApiKey.API_VERSIONS,
        min_version=api.served.first,
        max_version=api.served.last,
    )
    response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[key])
    return Dispatched(RequestHeader(ApiKey.API_VERSIONS, 0, correlation_id, None), response)
