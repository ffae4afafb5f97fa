"""Fetch sessions (KIP-227): a reader that asks for the same partitions again names only changes.

Both ends are here. `FetchSessions` is the broker's: it remembers what each session asked for, and
leaves out of an answer every partition that has nothing new. `SessionReader` is the reader's: it
remembers what it told the broker.

A round costs what is new on both sides, however many partitions are idle. On the broker's, what
moves in a partition marks it in the sessions that have it (`FetchSessions.mark`); a request looks
at those that are marked or named, and a partition that has nothing more to give loses its mark. The
reader keeps what it wants and sends what differs from the last request.

A session is known by a random id and counts its requests by an epoch; a request out of step is
refused, and the reader begins anew with a full one. Where the broker has no room for a session it
answers with id 0, and the reader goes on with full requests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from itertools import groupby

import attrs

from broker.replication.isr import LastFetch
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import (
    FetchRequest,
    FetchRequestForgottenTopic,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
)
from protocol.topic_partition import TopicPartition

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_EPOCH = 2**31 - 1
EVICTION_MS = 120_000
"""A session that was not used for so long gives way to any other."""

Asked = tuple[TopicPartition, FetchRequestPartition]
Part = tuple[TopicPartition, FetchResponsePartition]


def next_epoch(epoch: int) -> int:
    """The epoch of a session's next request; 0 is only ever the first."""
    return epoch + 1 if 0 <= epoch < MAX_EPOCH else 1


def asked_of(request: FetchRequest) -> Iterator[Asked]:
    """The partitions a request names, in its order."""
    for topic in request.topics:
        for partition in topic.partitions:
            yield TopicPartition(topic.topic, partition.partition), partition


def by_topic(parts: Iterable[Part]) -> list[FetchResponseTopic]:
    """Parts of an answer as the protocol groups them; their order stays."""
    return [
        FetchResponseTopic(topic=topic, partitions=[part for _, part in group])
        for topic, group in groupby(parts, key=lambda each: each[0].topic)
    ]


@attrs.define(eq=False)
class _Remembered:
    """A partition of a session: how it was last asked for, and what was last said of it."""

    asked: FetchRequestPartition
    high_watermark: int = -1
    log_start_offset: int = -1


@attrs.define(eq=False)
class FetchSession:
    """One reader's. A follower's has the broker's id, and consumers' sessions give way for it.

    `marked`: the partitions that may have something for the reader, in the order in which they are
    read. `fetches` says when it last asked, which is also what the partitions without a mark were
    last asked for. `is_hurried`: the reader is to be answered now, be there news or not.
    """

    id: int
    replica_id: int
    created_ms: int
    last_used_ms: int
    epoch: int = 1
    partitions: dict[TopicPartition, _Remembered] = attrs.field(factory=dict)
    marked: dict[TopicPartition, None] = attrs.field(factory=dict)
    fetches: LastFetch = attrs.field(factory=LastFetch)
    is_hurried: bool = False

    @property
    def is_follower(self) -> bool:
        """Whether a broker reads, for its own replicas."""
        return self.replica_id >= 0

    @property
    def asked(self) -> list[Asked]:
        """What is to be looked at, as it was last asked for."""
        return [(tp, self.partitions[tp].asked) for tp in self.marked]

    def note(self, tp: TopicPartition, part: FetchResponsePartition, has_more: bool) -> bool:
        """Whether the answer says anything the reader has not heard; it has then. What comes after
        an error is news, for with an error there is no high watermark.

        What brings records moves to the end, so that no partition starves the others. The mark goes
        unless the partition `has_more` to give, or to say.
        """
        known = self.partitions.get(tp)
        if known is None:  # forgotten by another request while this one waited
            return True
        has_records = bool(getattr(part.records, "size", None) or part.records)
        news = (
            has_records
            or part.error_code != ErrorCode.NONE
            or part.high_watermark != known.high_watermark
            or part.log_start_offset != known.log_start_offset
        )
        known.high_watermark, known.log_start_offset = part.high_watermark, part.log_start_offset
        if has_records or not has_more:
            self.marked.pop(tp, None)
        if has_more:
            self.marked[tp] = None
        return news


@attrs.frozen
class FetchContext:
    """One request: the partitions to read, and how what was read becomes the answer."""

    named: Sequence[Asked]
    session: FetchSession | None = None
    incremental: bool = False

    @property
    def asked(self) -> Sequence[Asked]:
        """The partitions to look at now: of a session those that are marked."""
        return self.named if self.session is None else self.session.asked

    @property
    def is_to_be_answered(self) -> bool:
        """Whether there is nothing to wait for: nothing is asked for, or the reader hurried."""
        if self.session is None:
            return not self.named
        return self.session.is_hurried or not self.session.partitions

    def answer(
        self, parts: Sequence[Part], has_more: Callable[[Part], bool] = lambda part: False
    ) -> FetchResponse:
        """The response that has these parts, or of an old session what is new in them.

        `has_more` says which partitions are to be looked at again though nothing moves in them.
        """
        session = self.session
        if session is None:
            return FetchResponse(responses=by_topic(parts))
        session.is_hurried = False
        news = [
            (tp, part)
            for tp, part in parts
            if session.note(tp, part, has_more((tp, part))) or not self.incremental
        ]
        return FetchResponse(session_id=session.id, responses=by_topic(news))


_NO_SESSIONS: dict[FetchSession, None] = {}


@attrs.define(eq=False)
class FetchSessions:
    """The broker's sessions, at most `slots` of them; `any_id()` draws a positive number."""

    slots: int
    any_id: Callable[[], int]
    _sessions: dict[int, FetchSession] = attrs.field(factory=dict)  # least recently used first
    _holders: dict[TopicPartition, dict[FetchSession, None]] = attrs.field(factory=dict)

    def mark(self, tp: TopicPartition) -> Collection[FetchSession]:
        """Something has moved in the partition: have the sessions that have it look; which those
        are."""
        sessions = self._holders.get(tp, _NO_SESSIONS)
        for session in sessions:
            session.marked[tp] = None
        return sessions

    def hurry(self, replicas: Container[int]) -> Collection[FetchSession]:
        """Have the sessions of these brokers be answered now; which those are."""
        sessions = [each for each in self._sessions.values() if each.replica_id in replicas]
        for session in sessions:
            session.is_hurried = session.is_follower
        return sessions

    def open(self, request: FetchRequest, monotonic_ms: int) -> FetchContext:
        """What the request is about.

        Raises ApiError FETCH_SESSION_ID_NOT_FOUND or INVALID_FETCH_SESSION_EPOCH.
        """
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._close(request.session_id)
            asked = tuple(asked_of(request))
            if request.session_epoch == FINAL_EPOCH or not asked:
                return FetchContext(asked)
            return FetchContext(asked, self._create(request, asked, monotonic_ms))
        return self._resume(request, monotonic_ms)

    def _resume(self, request: FetchRequest, monotonic_ms: int) -> FetchContext:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, str(request.session_id))
        if request.session_epoch != session.epoch:
            raise ApiError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"session {session.id} expects {session.epoch}, not {request.session_epoch}",
            )
        session.epoch, session.last_used_ms = next_epoch(session.epoch), monotonic_ms
        self._sessions[session.id] = self._sessions.pop(session.id)
        self._update(session, request)
        if not session.partitions:
            self._close(session.id)
            return FetchContext(())
        return FetchContext((), session, incremental=True)

    def _update(self, session: FetchSession, request: FetchRequest) -> None:
        """Take in what a request adds, changes and forgets."""
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                tp = TopicPartition(topic.topic, index)
                if session.partitions.pop(tp, None) is not None:
                    session.marked.pop(tp, None)
                    self._part(session, tp)

        for tp, asked in asked_of(request):
            known = session.partitions.get(tp)
            if known is None:
                session.partitions[tp] = _Remembered(asked)
                self._holders.setdefault(tp, {})[session] = None
            else:
                if known.asked.current_leader_epoch != asked.current_leader_epoch:
                    known.high_watermark = -1  # who begins anew is told how far the leader is
                known.asked = asked
            session.marked[tp] = None

    def _part(self, session: FetchSession, tp: TopicPartition) -> None:
        sessions = self._holders[tp]
        del sessions[session]
        if not sessions:
            del self._holders[tp]

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        for tp in session.partitions if session is not None else ():
            assert session is not None
            self._part(session, tp)

    def _create(
        self, request: FetchRequest, asked: Sequence[Asked], monotonic_ms: int
    ) -> FetchSession | None:
        is_follower = request.replica_id >= 0
        if len(self._sessions) >= self.slots and not self._evict(
            is_follower, len(asked), monotonic_ms
        ):
            return None
        new_id = NO_SESSION
        while new_id == NO_SESSION or new_id in self._sessions:
            new_id = self.any_id()
        session = FetchSession(new_id, request.replica_id, monotonic_ms, monotonic_ms)
        self._update(session, request)
        self._sessions[new_id] = session
        return session

    def _evict(self, is_follower: bool, size: int, monotonic_ms: int) -> bool:
        """Make room, if someone must give way: who was silent long, or the smallest session of
        lower standing than the new one (a young session gives way to a follower's alone)."""
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if monotonic_ms - oldest.last_used_ms > EVICTION_MS:
            self._close(oldest.id)
            return True
        evictable = [
            each
            for each in self._sessions.values()
            if (is_follower and not each.is_follower)
            or monotonic_ms - each.created_ms > EVICTION_MS
        ]
        lowest = min(
            evictable, key=lambda each: (each.is_follower, len(each.partitions)), default=None
        )
        if lowest is None or (lowest.is_follower, len(lowest.partitions)) >= (is_follower, size):
            return False
        self._close(lowest.id)
        return True


@attrs.define(eq=False)
class SessionReader:
    """A reader's end: keeps what it wants, builds its requests, and learns from the answers."""

    session_id: int = NO_SESSION
    epoch: int = INITIAL_EPOCH
    wanted: dict[TopicPartition, FetchRequestPartition] = attrs.field(factory=dict)
    _changed: dict[TopicPartition, None] = attrs.field(factory=dict)
    _forgotten: dict[TopicPartition, None] = attrs.field(factory=dict)

    def want(self, tp: TopicPartition, asked: FetchRequestPartition) -> None:
        """Ask for the partition so from now on, after all others."""
        if self.wanted.get(tp) != asked:
            self.wanted.pop(tp, None)
            self.wanted[tp] = asked
            self._changed[tp] = None
            self._forgotten.pop(tp, None)

    def forget(self, tp: TopicPartition) -> None:
        """Ask for the partition no more."""
        if self.wanted.pop(tp, None) is not None:
            self._changed.pop(tp, None)
            self._forgotten[tp] = None

    def request(self, template: FetchRequest) -> FetchRequest:
        """`template` asking for what is wanted: all of it, or what differs from the last request.

        Lists grow with what differs alone, so that partitions at rest cost nothing.
        """
        is_full = self.epoch == INITIAL_EPOCH
        asked = self.wanted if is_full else self._changed
        forgotten = () if is_full else self._forgotten
        request = FetchRequest(
            replica_id=template.replica_id,
            max_wait_ms=template.max_wait_ms,
            min_bytes=template.min_bytes,
            max_bytes=template.max_bytes,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[
                FetchRequestTopic(topic=topic, partitions=[self.wanted[tp] for tp in group])
                for topic, group in groupby(asked, key=lambda tp: tp.topic)
            ],
            forgotten_topics_data=[
                FetchRequestForgottenTopic(topic=topic, partitions=[tp.partition for tp in group])
                for topic, group in groupby(forgotten, key=lambda tp: tp.topic)
            ],
        )
        self._changed, self._forgotten = {}, {}
        return request

    def answered(self, response: FetchResponse) -> None:
        """Go on with the session, or begin anew after an error."""
        if response.error_code != ErrorCode.NONE:
            self.lost()
        elif response.session_id == NO_SESSION:
            self.session_id, self.epoch = NO_SESSION, INITIAL_EPOCH
        else:
            self.session_id, self.epoch = response.session_id, next_epoch(self.epoch)

    def lost(self) -> None:
        """A request may or may not have been heard: the next is a full one, for a new session."""
        self.epoch = INITIAL_EPOCH
