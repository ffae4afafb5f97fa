"""Fetch sessions (KIP-227): a reader that fetches the same partitions again names only changes.

Both ends are here. `FetchSessions` is the broker's end: it remembers the partitions of each
session, and leaves partitions without news out of a response. `SessionReader` is the reader's end:
it remembers the partitions that it has sent.

The cost of a round depends on what is new, not on the number of idle partitions. On the broker,
whatever moves in a partition *marks* it in the sessions that have it (`FetchSessions.mark`). A
request looks only at partitions that are marked or named, and a partition that has nothing more to
give loses its mark. The reader keeps the partitions that it wants, and sends what differs from its
last request.

A session has a random id, and counts its requests by an epoch. A request out of step is refused,
and the reader begins a new session with a full request. A broker without room for a session
responds with id 0, and the reader goes on with full requests.

A session ends with the connection on which it began: its reader begins another one on the next.
Consumers may name what is not there, and what they may not read, so what their sessions hold is
bounded, and how many of them a connection has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from itertools import groupby, islice

import attrs

from broker.network.authorization import Permissions
from broker.replication.isr import LastFetch
from protocol.errors import ApiError, ErrorCode
from protocol.frozen import frozen
from protocol.messages.fetch import (
    NOT_DIVERGING,
    FetchRequest,
    FetchRequestForgottenTopic,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
)
from protocol.topic_partition import TopicPartition

CONSUMER = -1
"""The replica id of who follows nothing."""

# Ids and epochs that KIP-227 gives a meaning.
NO_SESSION = 0
INITIAL_EPOCH = 0
NAMED_AT_ONCE = 500
"""Partitions that a follower adds to a session by one request. To read one for the first time takes
the leader up to 40 microseconds, in one turn of the loop for all that a request names."""
FINAL_EPOCH = -1
MAX_EPOCH = 2**31 - 1
MOST_OF_CONNECTION = 4
"""Sessions that a connection has at most; the next one ends its first."""
MOST_OF_CONSUMER = 20_000
"""Partitions of a consumer's session."""
MOST_OF_CLIENT = 50_000
"""Partitions of the sessions of one client: a user, or an address."""
MOST_OF_CONSUMERS = 100_000
"""Partitions of all consumers' sessions, some 600 bytes each."""
EVICTION_MS = 120_000
"""A session that was not used for so long gives way to any other session."""

RequestedPartition = tuple[TopicPartition, FetchRequestPartition]
Part = tuple[TopicPartition, FetchResponsePartition]


def next_epoch(epoch: int) -> int:
    """Return the epoch of a session's next request. Only the first request has epoch 0."""
    return epoch + 1 if 0 <= epoch < MAX_EPOCH else 1


def named_partitions(request: FetchRequest) -> list[RequestedPartition]:
    """Return the partitions that a request names, in its order.

    What is named again counts as it is named last, at its first place, as in Kafka.
    """
    named = [
        (TopicPartition(topic.topic, partition.partition), partition)
        for topic in request.topics
        for partition in topic.partitions
    ]
    # It was read as often as it was named, for seconds (fault strangers-10, was: named).
    return list(dict(named).items())


def group_by_topic(parts: Iterable[Part]) -> list[FetchResponseTopic]:
    """Group the parts of a response by topic, as the protocol does; keep their order."""
    return [
        FetchResponseTopic(topic=topic, partitions=[part for _, part in group])
        for topic, group in groupby(parts, key=lambda part: part[0].topic)
    ]


@attrs.define(eq=False)
class _Remembered:
    """A partition of a session: its last request, and the bounds in its last response."""

    request: FetchRequestPartition
    high_watermark: int = -1
    log_start_offset: int = -1


@attrs.define(eq=False)
class FetchSession:
    """The session of one reader.

    `replica_id` is the broker id of a follower; the sessions of consumers give way to those of
    followers. `marked` has the partitions that may have news, in the order in which they are read.
    `fetches` has the time of the last request, which counts for the partitions without a mark too.
    `is_hurried`: the next response is sent at once, with news or without. `connection`: the number
    of that on which it began, 0 for none; `client`: who began it.
    """

    id: int
    replica_id: int
    created_ms: int
    last_used_ms: int
    connection: int = 0
    client: str = ""
    epoch: int = 1
    partitions: dict[TopicPartition, _Remembered] = attrs.field(factory=dict)
    marked: dict[TopicPartition, None] = attrs.field(factory=dict)
    moved: dict[TopicPartition, None] = attrs.field(factory=dict)
    fetches: LastFetch = attrs.field(factory=LastFetch)
    is_hurried: bool = False
    _readable_by: Permissions | None = None
    """Those under which all topics of the session were found readable, and none was added since."""

    @property
    def is_follower(self) -> bool:
        """True if the reader is a broker that follows partitions."""
        return self.replica_id >= 0

    @property
    def requested(self) -> list[RequestedPartition]:
        """The marked partitions, as they were last requested."""
        return [(tp, self.partitions[tp].request) for tp in self.marked]

    def is_readable(self, permissions: Permissions) -> bool:
        """Return whether all topics of the session may be read; the result is kept."""
        if self._readable_by is not permissions:
            names = {topic_partition.topic for topic_partition in self.partitions}
            if permissions.refused(names):
                return False
            self._readable_by = permissions
        return True

    def add(self, topic_partition: TopicPartition, requested: FetchRequestPartition) -> None:
        """Add a partition."""
        self.partitions[topic_partition] = _Remembered(requested)
        self._readable_by = None

    def asks_below(self, tp: TopicPartition, end_offset: int) -> bool:
        """Return whether the reader has not asked up to this offset, as far as is known."""
        known = self.partitions.get(tp)
        return known is None or known.request.fetch_offset < end_offset

    def note(
        self,
        tp: TopicPartition,
        high_watermark: int,
        log_start_offset: int,
        *,
        has_records: bool,
        has_more: bool,
        is_error: bool = False,
    ) -> bool:
        """Note a part of a response; return whether it has news for the reader.

        The part after an error is always news, because a part with an error has no high watermark.
        A log that must be truncated counts as one.
        A partition loses its mark unless it `has_more` to give. A partition that brings records
        moves to the end, so that it does not starve the others.
        """
        known = self.partitions.get(tp)
        if known is None:
            # Another request has removed the partition while this one waited.
            return True

        is_news = (
            has_records
            or is_error
            or high_watermark != known.high_watermark
            or log_start_offset != known.log_start_offset
        )
        known.high_watermark = high_watermark
        known.log_start_offset = log_start_offset

        # Removed and added again, the mark moves to the end.
        if has_records or not has_more:
            self.marked.pop(tp, None)
        if has_more:
            self.marked[tp] = None
        return is_news


@frozen
class FetchContext:
    """One request: the partitions to read, and how to build the response.

    `named` has the partitions of a request without a session, each once. `incremental`: the session
    is not new, so that the response has only news. `refused`: topics that the reader may not read.
    `epoch` is the session's as long as no other request has come after this one.
    """

    named: Sequence[RequestedPartition]
    session: FetchSession | None = None
    incremental: bool = False
    refused: Collection[str] = ()
    epoch: int = attrs.field()

    @epoch.default
    def _epoch_now(self) -> int:
        return FINAL_EPOCH if self.session is None else self.session.epoch

    @property
    def is_overtaken(self) -> bool:
        """True if another request of the session came while this one waited.

        The session now has what that one named, for whomever it came from.
        """
        return self.session is not None and self.session.epoch != self.epoch

    @property
    def requested(self) -> Sequence[RequestedPartition]:
        """The partitions to look at now; of a session those that are marked."""
        requested = self.named if self.session is None else self.session.requested
        if self.refused:
            requested = [entry for entry in requested if entry[0].topic not in self.refused]
        return requested

    @property
    def refused_partitions(self) -> Sequence[RequestedPartition]:
        """The partitions to respond to with a refusal."""
        requested = self.named if self.session is None else self.session.requested
        return [entry for entry in requested if entry[0].topic in self.refused]

    @property
    def is_due(self) -> bool:
        """True if there is nothing to wait for: no partitions, or the session is hurried."""
        if self.session is None:
            return not self.named or (
                bool(self.refused)
                and all(topic_partition.topic in self.refused for topic_partition, _ in self.named)
            )
        # All its partitions are refused: nothing that moves would end the wait.
        if self.refused and all(
            topic_partition.topic in self.refused for topic_partition in self.session.partitions
        ):
            return True
        return self.session.is_hurried or not self.session.partitions

    def build_response(
        self, parts: Sequence[Part], has_more: Callable[[Part], bool] = lambda part: False
    ) -> FetchResponse:
        """Build the response from these parts; for an incremental request, from those with news.

        `has_more(part)` is true for partitions that the next request must look at even if nothing
        moves in them.
        """
        session = self.session
        if session is None:
            return FetchResponse(responses=group_by_topic(parts))

        session.is_hurried = False
        news = [
            (tp, part)
            for tp, part in parts
            if session.note(
                tp,
                part.high_watermark,
                part.log_start_offset,
                # Records are a file range, or empty bytes.
                has_records=bool(getattr(part.records, "size", None) or part.records),
                has_more=has_more((tp, part)),
                is_error=part.error_code != ErrorCode.NONE
                or part.diverging_epoch is not NOT_DIVERGING,
            )
            or not self.incremental
        ]
        return FetchResponse(session_id=session.id, responses=group_by_topic(news))


_NO_SESSIONS: dict[FetchSession, None] = {}


@attrs.define(eq=False)
class FetchSessions:
    """The broker's sessions, at most `slots` of them; `draw_id()` returns a random id."""

    slots: int
    draw_id: Callable[[], int]
    _sessions: dict[int, FetchSession] = attrs.field(factory=dict)  # least recently used first
    _holders: dict[TopicPartition, dict[FetchSession, None]] = attrs.field(factory=dict)
    _of_connections: dict[int, dict[int, None]] = attrs.field(factory=dict)
    """The ids of each connection's sessions, the oldest first."""
    _consumers_count: int = 0
    """Partitions of all consumers' sessions."""
    _count_of: Counter[str] = attrs.field(factory=Counter)
    """Those of each client."""

    @property
    def open_count(self) -> int:
        """Number of sessions."""
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """Number of partitions of all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def mark(self, tp: TopicPartition) -> Collection[FetchSession]:
        """Mark a partition in which something has moved; return the sessions that have it."""
        sessions = self._holders.get(tp, _NO_SESSIONS)
        for session in sessions:
            session.marked[tp] = None
            session.moved[tp] = None
        return sessions

    def hurry(self, replicas: Container[int]) -> Collection[FetchSession]:
        """Hurry the sessions of these brokers; return the sessions."""
        sessions = [s for s in self._sessions.values() if s.replica_id in replicas]
        for session in sessions:
            session.is_hurried = session.is_follower
        return sessions

    def open(
        self,
        request: FetchRequest,
        monotonic_ms: int,
        connection: int = 0,
        client: str = "",
        most_followed: int = MAX_EPOCH,
    ) -> FetchContext:
        """Find, create or close the session of a request; return the request's context.

        `connection` is the number of its connection, `client` who has it. `most_followed`: the
        partitions that a session of it may have if it is a follower's; 0 for who is believed to be
        none. Raises ApiError FETCH_SESSION_ID_NOT_FOUND or INVALID_FETCH_SESSION_EPOCH.
        """
        # A full request ends the session before, and begins another unless it is the final one.
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._close(request.session_id)
            requested = named_partitions(request)
            if request.session_epoch == FINAL_EPOCH or not requested:
                return FetchContext(requested)
            # A replica id is a claim (fault strangers-39, was: request.replica_id).
            replica_id = request.replica_id if most_followed else CONSUMER
            new = FetchSession(
                NO_SESSION, replica_id, monotonic_ms, monotonic_ms, connection, client
            )
            is_begun = self._begin(new, requested, most_followed)
            return FetchContext(requested, new if is_begun else None)
        return self._resume(request, monotonic_ms, most_followed)

    def _resume(self, request: FetchRequest, monotonic_ms: int, most_followed: int) -> FetchContext:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, str(request.session_id))
        if request.session_epoch != session.epoch:
            raise ApiError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"session {session.id} expects {session.epoch}, not {request.session_epoch}",
            )

        self._step(session, monotonic_ms)
        self._forget(session, request.forgotten_topics_data)
        named = named_partitions(request)
        new = sum(topic_partition not in session.partitions for topic_partition, _ in named)
        # It would grow by requests of any size (fault strangers-39).
        if not self._has_room(session, new, most_followed):
            self._close(session.id)
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"session {session.id} is full")
        self._request(session, named)
        # A session without partitions has nothing to remember.
        if not session.partitions:
            self._close(session.id)
            return FetchContext(())
        return FetchContext((), session, incremental=True)

    def find(self, session_id: int, epoch: int) -> FetchSession | None:
        """Return the session whose next request this is, if it is in step and has partitions."""
        session = self._sessions.get(session_id)
        if session is None or session.epoch != epoch or not session.partitions:
            return None
        return session

    def go_on(
        self, session: FetchSession, named: Iterable[RequestedPartition], monotonic_ms: int
    ) -> None:
        """Take the next request of a session that `find` returned, which removes no partition."""
        self._step(session, monotonic_ms)
        self._request(session, named)

    def _step(self, session: FetchSession, monotonic_ms: int) -> None:
        """Count a request. The session becomes the most recently used one."""
        session.epoch = next_epoch(session.epoch)
        session.last_used_ms = monotonic_ms
        self._sessions[session.id] = self._sessions.pop(session.id)

    def _forget(
        self, session: FetchSession, forgotten: Iterable[FetchRequestForgottenTopic]
    ) -> None:
        """Remove partitions from a session."""
        for topic in forgotten:
            for index in topic.partitions:
                tp = TopicPartition(topic.topic, index)
                if session.partitions.pop(tp, None) is not None:
                    session.marked.pop(tp, None)
                    self._count(session, -1)
                    self._remove_holder(session, tp)

    def _request(self, session: FetchSession, named: Iterable[RequestedPartition]) -> None:
        """Add and change partitions. Each has a mark, so that the response looks at it."""
        for tp, requested in named:
            known = session.partitions.get(tp)
            if known is None:
                session.add(tp, requested)
                self._count(session, 1)
                self._holders.setdefault(tp, {})[session] = None
            else:
                # In a new leader epoch the reader gets the high watermark again.
                if known.request.current_leader_epoch != requested.current_leader_epoch:
                    known.high_watermark = -1
                known.request = requested
            session.marked[tp] = None

    def _remove_holder(self, session: FetchSession, tp: TopicPartition) -> None:
        sessions = self._holders[tp]
        del sessions[session]
        if not sessions:
            del self._holders[tp]

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        self._count(session, -len(session.partitions))
        for tp in session.partitions:
            self._remove_holder(session, tp)
        if (ids := self._of_connections.get(session.connection)) is not None:
            ids.pop(session_id, None)

    def end_connection(self, connection: int) -> None:
        """Close the sessions of a connection that is lost."""
        # They would stay for good (fault strangers-39).
        for session_id in list(self._of_connections.get(connection, ())):
            self._close(session_id)
        self._of_connections.pop(connection, None)

    def _count(self, session: FetchSession, more: int) -> None:
        if not session.is_follower:
            self._consumers_count += more
            self._count_of[session.client] += more
            if not self._count_of[session.client]:
                del self._count_of[session.client]

    def _has_room(self, session: FetchSession, more: int, most_followed: int) -> bool:
        """Return whether a session may get so many partitions more."""
        count = len(session.partitions) + more
        if session.is_follower:
            return not more or count <= most_followed
        return not more or (
            count <= MOST_OF_CONSUMER
            and self._count_of[session.client] + more <= MOST_OF_CLIENT
            and self._consumers_count + more <= MOST_OF_CONSUMERS
        )

    def _begin(
        self,
        session: FetchSession,
        requested: Sequence[RequestedPartition],
        most_followed: int,
    ) -> bool:
        """Begin a session with the partitions of a request; return False if there is no room."""
        of_connection = self._of_connections.get(session.connection, ())
        if len(of_connection) >= MOST_OF_CONNECTION:
            self._close(next(iter(of_connection)))
        # What a full one names is looked at in turns with other clients (fault strangers-39).
        if not self._has_room(session, len(requested), most_followed):
            return False
        if len(self._sessions) >= self.slots and not self._evict(
            session.is_follower, len(requested), session.created_ms
        ):
            return False

        # Id 0 says that there is no session.
        while session.id == NO_SESSION or session.id in self._sessions:
            session.id = self.draw_id()
        self._request(session, requested)
        self._sessions[session.id] = session
        if session.connection:
            self._of_connections.setdefault(session.connection, {})[session.id] = None
        return True

    def _evict(self, is_follower: bool, size: int, monotonic_ms: int) -> bool:
        """Close one session to make room for a new one of `size` partitions, if one must give way.

        That is a session that was long unused, or else the lowest in rank if the new one ranks
        above it. Followers rank above consumers, large sessions above small ones. A young session
        gives way only if it is a consumer's and the new one a follower's.
        """
        # max.incremental.fetch.session.cache.slots may be 0.
        if not self._sessions:
            return False

        # The session that was not used for the longest time.
        oldest = next(iter(self._sessions.values()))
        if monotonic_ms - oldest.last_used_ms > EVICTION_MS:
            self._close(oldest.id)
            return True

        # The lowest of those that are old enough, or of lower rank.
        evictable = [
            session
            for session in self._sessions.values()
            if (is_follower and not session.is_follower)
            or monotonic_ms - session.created_ms > EVICTION_MS
        ]
        lowest = min(
            evictable,
            key=lambda session: (session.is_follower, len(session.partitions)),
            default=None,
        )
        if lowest is None or (lowest.is_follower, len(lowest.partitions)) >= (is_follower, size):
            return False
        self._close(lowest.id)
        return True


@attrs.define(eq=False)
class SessionReader:
    """The reader's end of a session: the partitions that it wants, and the requests for them.

    A request names `most_named` partitions at most that the session does not have yet.
    """

    most_named: int = NAMED_AT_ONCE
    session_id: int = NO_SESSION
    epoch: int = INITIAL_EPOCH
    wanted: dict[TopicPartition, FetchRequestPartition] = attrs.field(factory=dict)
    _unnamed: dict[TopicPartition, None] = attrs.field(factory=dict)
    """Those that are wanted, and were not named in this session."""
    _changed: dict[TopicPartition, None] = attrs.field(factory=dict)
    _forgotten: dict[TopicPartition, None] = attrs.field(factory=dict)
    _has_no_room: bool = False
    """True while the broker keeps no session for us."""

    def want(self, tp: TopicPartition, requested: FetchRequestPartition) -> None:
        """Request the partition like this from now on, after all others."""
        before = self.wanted.get(tp)
        if before == requested:
            return
        # Removed and added again, the partition moves to the end.
        self.wanted.pop(tp, None)
        self.wanted[tp] = requested
        is_new = tp in self._unnamed or (before is None and tp not in self._forgotten)
        if is_new:
            self._unnamed[tp] = None
        else:
            self._changed[tp] = None
            self._forgotten.pop(tp, None)

    def forget(self, tp: TopicPartition) -> None:
        """Stop requesting the partition."""
        if self.wanted.pop(tp, None) is None:
            return
        self._changed.pop(tp, None)
        if tp in self._unnamed:
            del self._unnamed[tp]
        else:
            self._forgotten[tp] = None

    def request(self, template: FetchRequest) -> FetchRequest:
        """Return `template` with the session's own fields: its id, its epoch and its partitions.

        It names those that differ from the last request, so that partitions at rest cost nothing,
        and some that are new. While more of these are left it waits for nothing. Without a session
        it names all.
        """
        # The first fetch of 20,000 partitions took the leader a turn of 0.7 s.
        most = None if self._has_no_room else self.most_named
        new = list(islice(self._unnamed, most))
        requested = self.wanted if self._has_no_room else [*self._changed, *new]
        forgotten = () if self.epoch == INITIAL_EPOCH else self._forgotten
        has_more = len(new) < len(self._unnamed)

        request = attrs.evolve(  # type: ignore[misc]  # mypy sees no attrs class in a message
            template,
            session_id=self.session_id,
            session_epoch=self.epoch,
            max_wait_ms=0 if has_more else template.max_wait_ms,
            topics=[
                FetchRequestTopic(topic=topic, partitions=[self.wanted[tp] for tp in group])
                for topic, group in groupby(requested, key=lambda tp: tp.topic)
            ],
            forgotten_topics_data=[
                FetchRequestForgottenTopic(topic=topic, partitions=[tp.partition for tp in group])
                for topic, group in groupby(forgotten, key=lambda tp: tp.topic)
            ],
        )

        # The broker remembers these from now on.
        for tp in new:
            del self._unnamed[tp]
        self._changed = {}
        self._forgotten = {}
        return request

    def handle_response(self, response: FetchResponse) -> None:
        """Go on with the session; after an error begin a new one."""
        if response.error_code != ErrorCode.NONE:
            # The broker has no such session, or counts its requests otherwise.
            self.restart()
        elif response.session_id == NO_SESSION:
            # No room at the broker: go on with full requests.
            self.session_id = NO_SESSION
            self.restart()
            self._has_no_room = True
        else:
            self.session_id = response.session_id
            self.epoch = next_epoch(self.epoch)
            self._has_no_room = False

    def restart(self) -> None:
        """Begin a new session with the next request: the broker may not have got the last one."""
        # The id stays: with epoch 0 it lets the broker close the old session.
        self.epoch = INITIAL_EPOCH
        self._unnamed = dict.fromkeys(self.wanted)
        self._changed = {}
        self._forgotten = {}
