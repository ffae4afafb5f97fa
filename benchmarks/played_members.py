"""Play members of groups by raw requests, the same ones to either broker.

A JoinGroup is parked, and a connection has one request at a time, so most members have a connection
of their own. There is no event loop, as in `load`: the sockets block, epoll says which of them have
responses, and what is due at a time waits in a heap. A member does what a client does: it joins
with the id that it is given, asks for its assignment, sends heartbeats, and joins again when it is
told to. It consumes, if anything, a partition of its own number.
"""

import gc
import heapq
import itertools
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import attrs

from benchmarks.load import Address, LoadError, connect
from protocol.api import key_of
from protocol.api_key import ApiKey
from protocol.consumer_protocol import (
    Assignment,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from protocol.errors import ErrorCode
from protocol.header import encode_request, read_response
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupRequestMember,
    LeaveGroupResponse,
)
from protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from protocol.topic_partition import TopicPartition

VERSIONS = {
    ApiKey.JOIN_GROUP: 5,
    ApiKey.SYNC_GROUP: 3,
    ApiKey.HEARTBEAT: 3,
    ApiKey.LEAVE_GROUP: 3,
    ApiKey.OFFSET_COMMIT: 7,
}
"""The first versions with static members (KIP-345), which both brokers speak."""
CLIENT = "benchmarks"
TOPIC = "consumed"
RANGE = "range"
PATIENCE_S = 120.0
FOUNDING_S = 600.0
FOUNDING_HEARTBEAT_S = 0.02
SESSION_MS = 300_000
"""No session ends while others are measured."""
REBALANCE_MS = 30_000
_RECEIVE_BYTES = 256 * 1024
_SIZE_BYTES = 4
_SUBSCRIPTION = encode_subscription(Subscription((TOPIC,)), 1)
_AGAIN = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)

Then = Callable[[Any], None]


# ---- connections


@attrs.define(eq=False)
class Line:
    """A connection with one request at a time; `then` gets its response."""

    socket: socket.socket
    _asked: ApiKey | None = None
    _then: Then | None = None
    _received: bytearray = attrs.field(factory=bytearray)

    @property
    def is_idle(self) -> bool:
        """Return whether no response is awaited."""
        return self._asked is None

    def ask(self, request: Any, then: Then) -> None:
        """Send a request; its response goes to `then`."""
        assert self.is_idle, "a line has one request at a time"
        self._asked = key_of(request)
        self._then = then
        self.socket.sendall(encode(request))

    def receive(self) -> None:
        """Take bytes; once the response is whole, give it to whom it is for."""
        chunk = self.socket.recv(_RECEIVE_BYTES)
        if not chunk:
            raise LoadError("the broker closed the connection")
        self._received += chunk
        size = int.from_bytes(self._received[:_SIZE_BYTES], "big")
        if len(self._received) < _SIZE_BYTES + max(size, 1):
            return

        assert self._asked is not None
        assert self._then is not None
        frame = bytes(self._received[_SIZE_BYTES:])
        _, response = read_response(self._asked, VERSIONS[self._asked], frame)
        then = self._then

        # Idle first: what follows may ask again.
        self._asked = self._then = None
        self._received.clear()
        then(response)


@attrs.define(eq=False)
class Lines:
    """All connections to one broker, and what is to be done when."""

    address: Address
    _lines: dict[int, Line] = attrs.field(factory=dict)
    _ready: select.epoll = attrs.field(factory=select.epoll)
    _timers: list[tuple[float, int, Callable[[], None]]] = attrs.field(factory=list)
    _numbers: Iterator[int] = attrs.field(factory=itertools.count)

    def open(self) -> Line:
        """Open a connection."""
        line = Line(connect(self.address))
        self._lines[line.socket.fileno()] = line
        self._ready.register(line.socket, select.EPOLLIN)
        return line

    def close(self, line: Line) -> None:
        """Close a connection, whatever it waits for."""
        self._ready.unregister(line.socket)
        del self._lines[line.socket.fileno()]
        line.socket.close()

    def at(self, when_s: float, act: Callable[[], None]) -> None:
        """Do something at a time of `time.monotonic`."""
        heapq.heappush(self._timers, (when_s, next(self._numbers), act))

    def run(self, is_done: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
        """Go on until something is so. Raises LoadError when that is late."""
        ends = time.monotonic() + within_s
        while not is_done():
            now = time.monotonic()
            if now > ends:
                raise LoadError(f"the members are not done after {within_s:.0f} s")

            # What is due, then what has come.
            while self._timers and self._timers[0][0] <= now:
                heapq.heappop(self._timers)[2]()
            wait_s = min(self._timers[0][0], ends) - time.monotonic() if self._timers else 1.0
            for descriptor, _ in self._ready.poll(max(wait_s, 0)):
                # An earlier response may have closed it.
                if descriptor in self._lines:
                    self._lines[descriptor].receive()

    def close_all(self) -> None:
        """Close all connections."""
        for line in [*self._lines.values()]:
            self.close(line)
        self._ready.close()


@contextmanager
def open_lines(address: Address) -> Iterator[Lines]:
    """Play until the end of the block, without pauses of a garbage collection."""
    lines = Lines(address)
    gc.collect()
    gc.disable()
    try:
        yield lines
    finally:
        gc.enable()
        lines.close_all()


def encode(request: Any) -> bytes:
    """Encode a request in the version that all have here."""
    key = key_of(request)
    return encode_request(key, VERSIONS[key], 0, CLIENT, request)


# ---- members


@attrs.define(eq=False)
class PlayedGroup:
    """A group and its members.

    `generation_id` is the newest one in which a member got its assignment. `is_silent` ends the
    heartbeats.
    """

    name: str
    lines: Lines
    heartbeat_s: float
    members: list["PlayedMember"] = attrs.field(factory=list)
    generation_id: int = -1
    is_silent: bool = False
    _synced: set[int] = attrs.field(factory=set)
    """Numbers of the members that have it."""
    _began_s: float = attrs.field(factory=time.monotonic)

    @property
    def is_whole(self) -> bool:
        """Return whether all members have the assignments of one generation."""
        return len(self._synced) == len(self.members)

    def add(self, *, line: Line | None = None, instance_id: str | None = None) -> "PlayedMember":
        """Add a member, which has not joined so far, on a line of its own if none is given."""
        line = line or self.lines.open()
        member = PlayedMember(self, len(self.members), line, instance_id)
        self.members.append(member)
        return member

    def note_synced(self, member: "PlayedMember") -> None:
        """Note that a member got its assignment."""
        if member.generation_id > self.generation_id:
            self.generation_id = member.generation_id
            self._synced.clear()
        if member.generation_id == self.generation_id:
            self._synced.add(member.number)

    def next_beat_s(self, number: int) -> float:
        """Return when a member's next heartbeat is due: each has a phase, the same in any round."""
        now = time.monotonic()
        phase_s = self._began_s + self.heartbeat_s * number / len(self.members)
        return now + self.heartbeat_s - (now - phase_s) % self.heartbeat_s

    def leave(self) -> None:
        """Remove all members at once, so that nothing of them disturbs others."""
        self.is_silent = True
        self.lines.run(lambda: all(member.line.is_idle for member in self.members))
        leavers = [
            LeaveGroupRequestMember(
                member_id=member.member_id, group_instance_id=member.instance_id
            )
            for member in self.members
        ]
        request = LeaveGroupRequest(group_id=self.name, members=leavers)
        left: list[LeaveGroupResponse] = []
        line = self.lines.open()
        line.ask(request, left.append)
        self.lines.run(lambda: bool(left))
        if left[0].error_code:
            raise LoadError(f"{self.name} cannot be left: {ErrorCode.of(left[0].error_code)}")


@attrs.define(eq=False)
class PlayedMember:
    """A member. `idle_s` adds up the time in which it had no right to consume.

    `stopped_s` is since when it has none; None while it has.
    """

    group: PlayedGroup
    number: int
    line: Line
    instance_id: str | None = None
    member_id: str = ""
    generation_id: int = -1
    stopped_s: float | None = attrs.field(factory=time.monotonic)
    idle_s: float = 0.0

    @property
    def is_consuming(self) -> bool:
        """Return whether it has its assignment, and was not told to join again."""
        return self.stopped_s is None

    def join(self) -> None:
        """Join, or join again: eagerly, so that nothing is consumed meanwhile."""
        self._stop()
        self.line.ask(join_request(self.group.name, self.member_id, self.instance_id), self._joined)

    def _joined(self, response: JoinGroupResponse) -> None:
        error = ErrorCode.of(response.error_code)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self.join()
        elif error in _AGAIN:
            self.join()
        elif error:
            raise LoadError(f"a member cannot join: {error}")
        else:
            self.member_id = response.member_id
            self.generation_id = response.generation_id
            self.line.ask(sync_request(self.group.name, response, self.instance_id), self._synced)

    def _synced(self, response: SyncGroupResponse) -> None:
        error = ErrorCode.of(response.error_code)
        if error in _AGAIN:
            self.join()
        elif error:
            raise LoadError(f"a member gets no assignment: {error}")
        else:
            self._start()
            self.group.note_synced(self)
            self._beat_later()

    def _beat_later(self) -> None:
        beat = partial(self._beat, self.line, self.generation_id)
        self.group.lines.at(self.group.next_beat_s(self.number), beat)

    def _beat(self, line: Line, generation_id: int) -> None:
        # The client may have restarted, or joined again.
        is_current = line is self.line and generation_id == self.generation_id
        if is_current and line.is_idle and not self.group.is_silent:
            line.ask(self.heartbeat(), self._has_beaten)

    def _has_beaten(self, response: HeartbeatResponse) -> None:
        error = ErrorCode.of(response.error_code)
        if error in _AGAIN:
            self.join()
        elif error:
            raise LoadError(f"a heartbeat is refused: {error}")
        else:
            self._beat_later()

    def heartbeat(self) -> HeartbeatRequest:
        """Return a heartbeat of its generation."""
        return HeartbeatRequest(
            group_id=self.group.name,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )

    def shut_down(self) -> None:
        """End the client: one with an instance id without a word, another one leaves first."""
        self._stop()
        lines = self.group.lines
        lines.run(lambda: self.line.is_idle)
        if self.instance_id is None:
            left: list[LeaveGroupResponse] = []
            leaver = LeaveGroupRequestMember(member_id=self.member_id)
            self.line.ask(
                LeaveGroupRequest(group_id=self.group.name, members=[leaver]), left.append
            )
            lines.run(lambda: bool(left))
        lines.close(self.line)
        self.generation_id = -1

    def start_again(self) -> None:
        """Start the client again, which remembers nothing."""
        self.line = self.group.lines.open()
        self.member_id = ""
        self.join()

    def _stop(self) -> None:
        if self.stopped_s is None:
            self.stopped_s = time.monotonic()

    def _start(self) -> None:
        if self.stopped_s is not None:
            self.idle_s += time.monotonic() - self.stopped_s
            self.stopped_s = None


# ---- many groups


def check_alive(lines: Lines, members: Sequence[PlayedMember]) -> None:
    """Raise LoadError unless a heartbeat of each member is accepted."""
    errors: list[int] = []
    line = lines.open()

    def ask(number: int) -> None:
        line.ask(members[number].heartbeat(), partial(note, number + 1))

    def note(number: int, response: HeartbeatResponse) -> None:
        errors.append(response.error_code)
        if number < len(members):
            ask(number)

    ask(0)
    lines.run(lambda: len(errors) == len(members))
    lines.close(line)
    if any(errors):
        raise LoadError(f"{sum(map(bool, errors))} of {len(members)} members are gone")


def found_groups(
    lines: Lines, names: Sequence[str], pairs: int, on_founded: Callable[[PlayedGroup], None]
) -> None:
    """Found groups of two members each, which stay and send no heartbeats from then on.

    Groups are founded one after another on each pair of lines.
    """
    todo = iter(names)
    founding = [_Pair(lines, lines.open(), lines.open()) for _ in range(pairs)]

    def is_done() -> bool:
        # Each has to go on, whatever the others say.
        is_over = [pair.go_on(todo, on_founded) for pair in founding]
        return all(is_over)

    lines.run(is_done, FOUNDING_S)
    for pair in founding:
        lines.close(pair.first)
        lines.close(pair.second)


@attrs.define(eq=False)
class _Pair:
    """Two lines, and the group whose members they serve now."""

    lines: Lines
    first: Line
    second: Line
    group: PlayedGroup | None = None

    def go_on(self, todo: Iterator[str], on_founded: Callable[[PlayedGroup], None]) -> bool:
        """Do what comes next, if anything; return whether there is no group left."""
        if self.group is not None and not self.group.is_whole:
            return False
        if self.group is not None and len(self.group.members) == 1:
            self.group.add(line=self.second).join()
            return False

        # A heartbeat may be on its way.
        if self.group is not None:
            self.group.is_silent = True
            if not (self.first.is_idle and self.second.is_idle):
                return False
            on_founded(self.group)
            self.group = None
        name = next(todo, None)
        if name is None:
            return True
        self.group = PlayedGroup(name, self.lines, FOUNDING_HEARTBEAT_S)
        self.group.add(line=self.first).join()
        return False


# ---- requests


def join_request(group: str, member_id: str, instance_id: str | None = None) -> JoinGroupRequest:
    """Return the JoinGroup of a consumer of one topic."""
    protocol = JoinGroupRequestProtocol(name=RANGE, metadata=_SUBSCRIPTION)
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[protocol],
    )


def sync_request(
    group: str, joined: JoinGroupResponse, instance_id: str | None
) -> SyncGroupRequest:
    """Return a member's SyncGroup; the leader assigns a partition to each member."""
    assignments: Sequence[SyncGroupRequestAssignment] = ()
    if joined.leader == joined.member_id:
        assignments = [
            SyncGroupRequestAssignment(
                member_id=member.member_id,
                assignment=encode_assignment(Assignment((TopicPartition(TOPIC, partition),)), 1),
            )
            for partition, member in enumerate(joined.members)
        ]
    return SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=instance_id,
        assignments=assignments,
    )
