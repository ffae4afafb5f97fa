"""Fetch sessions (KIP-227): a reader that asks for the same partitions again names only changes.

Both ends are here. `FetchSessions` is the broker's: it remembers what each session asked for, and
leaves out of an answer every partition that has nothing new. `SessionReader` is the reader's: it
remembers what it told the broker.

A session is known by a random id and counts its requests by an epoch; a request out of step is
refused, and the reader begins anew with a full one. Where the broker has no room for a session it
answers with id 0, and the reader goes on with full requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import attrs

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
    """One reader's. `privileged` is a follower's, for which consumers' sessions give way."""

    id: int
    privileged: bool
    created_ms: int
    last_used_ms: int
    epoch: int = 1
    partitions: dict[TopicPartition, _Remembered] = attrs.field(factory=dict)

    def update(self, request: FetchRequest) -> None:
        """Take in what a request adds, changes and forgets."""
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                self.partitions.pop(TopicPartition(topic.topic, index), None)
        for tp, asked in asked_of(request):
            known = self.partitions.get(tp)
            if known is None:
                self.partitions[tp] = _Remembered(asked)
            else:
                known.asked = asked

    def note(self, tp: TopicPartition, part: FetchResponsePartition) -> bool:
        """Whether the answer says anything the reader has not heard; it has then. What comes after
        an error is news, for with an error there is no high watermark.

        What brings records moves to the end, so that no partition starves the others.
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
        if has_records:
            self.partitions[tp] = self.partitions.pop(tp)
        return news


@attrs.frozen
class FetchContext:
    """One request: the partitions to read, and how what was read becomes the answer."""

    asked: Sequence[Asked]
    session: FetchSession | None = None
    incremental: bool = False

    def answer(self, parts: Sequence[Part]) -> FetchResponse:
        """The response that has these parts, or of an old session what is new in them."""
        session = self.session
        if session is None:
            return FetchResponse(responses=by_topic(parts))
        news = [(tp, part) for tp, part in parts if session.note(tp, part) or not self.incremental]
        return FetchResponse(session_id=session.id, responses=by_topic(news))


@attrs.define(eq=False)
class FetchSessions:
    """The broker's sessions, at most `slots` of them; `any_id()` draws a positive number."""

    slots: int
    any_id: Callable[[], int]
    _sessions: dict[int, FetchSession] = attrs.field(factory=dict)  # least recently used first

    def open(self, request: FetchRequest, now_ms: int) -> FetchContext:
        """What the request is about.

        Raises ApiError FETCH_SESSION_ID_NOT_FOUND or INVALID_FETCH_SESSION_EPOCH.
        """
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            asked = tuple(asked_of(request))
            if request.session_epoch == FINAL_EPOCH or not asked:
                return FetchContext(asked)
            return FetchContext(asked, self._create(request, asked, now_ms))
        return self._resume(request, now_ms)

    def _resume(self, request: FetchRequest, now_ms: int) -> FetchContext:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, str(request.session_id))
        if request.session_epoch != session.epoch:
            raise ApiError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"session {session.id} expects {session.epoch}, not {request.session_epoch}",
            )
        session.epoch, session.last_used_ms = next_epoch(session.epoch), now_ms
        self._sessions[session.id] = self._sessions.pop(session.id)
        session.update(request)
        asked = [(tp, known.asked) for tp, known in session.partitions.items()]
        if not asked:
            del self._sessions[session.id]
            return FetchContext(())
        return FetchContext(asked, session, incremental=True)

    def _create(
        self, request: FetchRequest, asked: Sequence[Asked], now_ms: int
    ) -> FetchSession | None:
        privileged = request.replica_id >= 0
        if len(self._sessions) >= self.slots and not self._evict(privileged, len(asked), now_ms):
            return None
        new_id = NO_SESSION
        while new_id == NO_SESSION or new_id in self._sessions:
            new_id = self.any_id()
        session = FetchSession(new_id, privileged, now_ms, now_ms)
        session.update(request)
        self._sessions[new_id] = session
        return session

    def _evict(self, privileged: bool, size: int, now_ms: int) -> bool:
        """Make room, if someone must give way: who was silent long, or the smallest session of
        lower standing than the new one (a young session gives way to a follower's alone)."""
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            del self._sessions[oldest.id]
            return True
        evictable = [
            each
            for each in self._sessions.values()
            if (privileged and not each.privileged) or now_ms - each.created_ms > EVICTION_MS
        ]
        lowest = min(
            evictable, key=lambda each: (each.privileged, len(each.partitions)), default=None
        )
        if lowest is None or (lowest.privileged, len(lowest.partitions)) >= (privileged, size):
            return False
        del self._sessions[lowest.id]
        return True


@attrs.define(eq=False)
class SessionReader:
    """A reader's end: builds its requests, and learns from the answers."""

    session_id: int = NO_SESSION
    epoch: int = INITIAL_EPOCH
    _told: dict[TopicPartition, FetchRequestPartition] = attrs.field(factory=dict)

    def request(
        self, wanted: Mapping[TopicPartition, FetchRequestPartition], template: FetchRequest
    ) -> FetchRequest:
        """`template` asking for `wanted`: all of it, or what differs from the last request."""
        forgotten: list[TopicPartition] = []
        asked = wanted
        if self.epoch != INITIAL_EPOCH:
            asked = {tp: each for tp, each in wanted.items() if self._told.get(tp) != each}
            forgotten = [tp for tp in self._told if tp not in wanted]
        self._told = dict(wanted)
        return FetchRequest(
            replica_id=template.replica_id,
            max_wait_ms=template.max_wait_ms,
            min_bytes=template.min_bytes,
            max_bytes=template.max_bytes,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[
                FetchRequestTopic(topic=topic, partitions=[asked[tp] for tp in group])
                for topic, group in groupby(asked, key=lambda tp: tp.topic)
            ],
            forgotten_topics_data=[
                FetchRequestForgottenTopic(topic=topic, partitions=[tp.partition for tp in group])
                for topic, group in groupby(forgotten, key=lambda tp: tp.topic)
            ],
        )

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
