"""Golden transcripts of whole lives of a group with members, in `testdata/`.

A request has the number that its response is named by: `join(1, "a")` is request 1 of client a,
which gets the member id a-1. Timers end when `after` lets so much time pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest

from groups.coordinator.config import GroupConfig
from groups.coordinator.decide import decide
from groups.coordinator.events import CommitOffsets, GroupsLoaded
from groups.coordinator.membership import events as on
from groups.coordinator.membership.group import Member
from groups.coordinator.membership.responses import Joined, Left, Synced
from groups.coordinator.responses import Done
from groups.coordinator.shard import GroupShard
from groups.runtime.effects import Append, Effect, Publish, Reply, SetTimer
from groups.runtime.events import Unloaded
from groups.runtime.shard import EncodedRecord
from offsets.records import CommittedOffset, GroupMetadata, OffsetKey, Record
from protocol.errors import ErrorCode
from tests.stage.transcript import Shorthands

TRANSCRIPTS = sorted((Path(__file__).parent / "testdata").glob("*.txt"))
GROUP = "orders"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
WRITTEN_ALL_THE_SAME = {ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}


@attrs.frozen
class TimePasses:
    """So much time passes: timers end in order."""

    duration_ms: int


@attrs.frozen
class AppendEnds:
    """The oldest append in flight ends, as the runtime would let it end."""

    error: ErrorCode = ErrorCode.NONE


# ---- effects in words


def timer_in_words(timer: SetTimer) -> str:
    return f"timer {event_in_words(timer.event)} in {timer.after_ms} ms"


def event_in_words(event: Any) -> str:
    fields = attrs.asdict(event, recurse=False, filter=lambda field, _: field.name != "group_id")
    return f"{type(event).__name__}({', '.join(map(str, fields.values()))})"


def reply_in_words(reply: Reply) -> str:
    return f"reply {reply.request_id}: {response_in_words(reply.response)}"


def response_in_words(response: Any) -> str:
    if isinstance(response, Left):
        return ", ".join(error.name for error in response.errors)
    if response.error is not ErrorCode.NONE:
        taken = response.member_id if isinstance(response, Joined) else ""
        return f"{response.error.name} {taken}".rstrip()
    if isinstance(response, Synced):
        return f"assigned [{response.assignment.decode()}]"
    if isinstance(response, Done):
        return "done"

    assert isinstance(response, Joined)
    words = f"{response.member_id} joined generation {response.generation_id}"
    words += f" {response.protocol_name}, {response.leader_id} leads"
    if response.members:
        words += f" {' '.join(member.member_id for member in response.members)}"
    return words + (", skips the assignment" if response.skip_assignment else "")


def append_in_words(append: Append) -> str:
    return f"append {', '.join(record_in_words(record) for record in append.records)}"


def record_in_words(record: Record) -> str:
    key, value = record
    if isinstance(key, OffsetKey):
        assert isinstance(value, CommittedOffset)
        return f"{key.topic}{key.partition}={value.offset}"

    assert isinstance(value, GroupMetadata)
    members = [f"{member.member_id} [{member.assignment.decode()}]" for member in value.members]
    return f"generation {value.generation_id}: {' '.join(members) or 'no members'}"


def publish_in_words(publish: Publish) -> str:
    ended = publish.value
    words = f"publish {ended.trigger.cause.value} {ended.trigger.member_id}".rstrip()
    words += f": generation {ended.generation_before} to {ended.generation_after}"
    words += "" if ended.is_assigned else ", not assigned"
    return words + (f", late: {' '.join(ended.timed_out)}" if ended.timed_out else "")


def member_in_words(member: Member, leader_id: str | None) -> str:
    words = [member.member_id]
    words += ["(leads)"] if member.member_id == leader_id else []
    words += ["(join parked)"] if member.parked_join is not None else []
    words += ["(sync parked)"] if member.parked_sync is not None else []
    return " ".join(words)


class GroupMachine:
    """A group, its timers, its appends in flight, and a clock that begins at 0."""

    shorthands: ClassVar[Shorthands] = {
        SetTimer: timer_in_words,
        Reply: reply_in_words,
        Append: append_in_words,
        Publish: publish_in_words,
    }

    def __init__(self) -> None:
        self.now_ms = 0
        self.shard = GroupShard(config=GroupConfig(max_size=3))
        self.is_loaded = True
        self.in_flight: list[Append] = []
        self.log: list[EncodedRecord] = []
        self.timers: dict[Any, tuple[int, int]] = {}
        self._timers_set = 0
        self._parked: set[int] = set()

    def names(self) -> Mapping[str, Any]:
        return {
            "join": self.join,
            "rejoin": self.rejoin,
            "sync": self.sync,
            "beat": self.beat,
            "leave": self.leave,
            "commit": self.commit,
            "leaver": on.Leaver,
            "after": TimePasses,
            "replicated": AppendEnds(),
            "failed": lambda name: AppendEnds(ErrorCode[name]),
            "unload": Unloaded(),
            "load": GroupsLoaded([GROUP]),
            "two": self.two,
        }

    # ---- deciding

    def take(self, event: Any) -> list[Any]:
        if isinstance(event, TimePasses):
            return self._pass_time(event.duration_ms)
        if isinstance(event, AppendEnds):
            return self._end_append(event.error)
        if isinstance(event, Unloaded):
            return self._unload(event)
        if isinstance(event, GroupsLoaded):
            self.is_loaded = True
        return self._decide(event)

    def _decide(self, event: Any) -> list[Any]:
        request_id = getattr(event, "request_id", None)
        # A written record names the request that waits for it.
        if request_id is not None and not hasattr(event, "error"):
            self._parked.add(request_id)

        effects = decide(self.shard, event, self.now_ms)
        for effect in effects:
            self._perform(effect)
        self.shard.check([append.records for append in self.in_flight])
        return [*effects]

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, Reply):
            # Each request has one response: the second one finds nothing to remove.
            self._parked.remove(effect.request_id)
        elif isinstance(effect, SetTimer):
            self._timers_set += 1
            self.timers[effect.event] = (self.now_ms + effect.after_ms, self._timers_set)
        elif isinstance(effect, Append):
            self.shard.begin_write(effect.records)
            self.in_flight.append(effect)

    def _pass_time(self, duration_ms: int) -> list[Any]:
        until_ms = self.now_ms + duration_ms
        lines: list[Any] = []
        while self.timers:
            event, (due_ms, _) = min(self.timers.items(), key=lambda timer: timer[1])
            if due_ms > until_ms:
                break
            del self.timers[event]
            self.now_ms = due_ms
            effects = self._decide(event)
            lines += [f"at {due_ms} {event_in_words(event)}" + ("" if effects else ": nothing")]
            lines += effects
        self.now_ms = until_ms
        return lines

    def _end_append(self, error: ErrorCode) -> list[Any]:
        append = self.in_flight.pop(0)
        if error in WRITTEN_ALL_THE_SAME:
            encoded = self.shard.encode(append.records)
            self.log += encoded
            self.shard.replay(encoded)
        self.shard.end_write(append.records)
        return self._decide(attrs.evolve(append.then, error=error))

    def _unload(self, event: Unloaded) -> list[Any]:
        self.timers.clear()
        effects = self._decide(event)
        while self.in_flight:
            effects += self._end_append(ErrorCode.NOT_COORDINATOR)
        assert not self._parked, "whoever unloads has responded to all"

        # The next coordinator has what was replicated.
        self.shard = GroupShard(config=self.shard.config)
        self.shard.replay(self.log)
        self.is_loaded = False
        return effects

    def summary(self) -> str:
        if not self.is_loaded:
            return "not loaded"
        group = self.shard.live.get(GROUP)
        if group is None:
            return self._summary_of_record()

        words = [f"{group.state.value} {group.generation_id}"]
        words += [member_in_words(member, group.leader_id) for member in group.members.values()]
        words += [f"{member_id} handed out" for member_id in sorted(group.handed_out)]
        words += ["held"] if group.held_by is not None else []
        words += [f"{len(self.in_flight)} in flight"] if self.in_flight else []
        return ", ".join(words)

    def _summary_of_record(self) -> str:
        record = self.shard.groups.get(GROUP)
        if record is None:
            return "no group"
        return f"a record of generation {record.generation_id}, {len(record.members)} members"

    # ---- requests

    def join(self, request_id: int, client: str, member_id: str = "", **options: Any) -> on.Join:
        """Return the JoinGroup of a client that has no member id."""
        instance = options.get("instance")
        return on.Join(
            request_id,
            GROUP,
            member_id,
            instance,
            f"{client}-{request_id}",
            client,
            "/h",
            SESSION_MS,
            options.get("rebalance_ms", REBALANCE_MS),
            "consumer",
            (("range", options.get("topics", "t").encode()),),
            needs_member_id=options.get("version", 5) >= 4,
            can_skip_assignment=options.get("version", 5) >= 9,
            reason=options.get("reason"),
            connection=ord(client[0]),
        )

    def rejoin(self, request_id: int, member_id: str, **options: Any) -> on.Join:
        """Return the JoinGroup of a member."""
        return self.join(request_id, member_id.partition("-")[0], member_id, **options)

    @staticmethod
    def sync(
        request_id: int,
        member_id: str,
        generation_id: int,
        *,
        instance: str | None = None,
        **of: str,
    ) -> on.Sync:
        """Return a SyncGroup: `a_1="t0 t1"` is what the leader assigns to a-1."""
        given = [(name.replace("_", "-"), bytes(text, "ascii")) for name, text in of.items()]
        return on.Sync(
            request_id, GROUP, generation_id, member_id, instance, assignments=tuple(given)
        )

    @staticmethod
    def beat(
        request_id: int, member_id: str, generation_id: int, instance: str | None = None
    ) -> on.Heartbeat:
        """Return a Heartbeat."""
        return on.Heartbeat(request_id, GROUP, generation_id, member_id, instance)

    @staticmethod
    def leave(request_id: int, *leavers: on.Leaver, client: str = "a") -> on.Leave:
        """Return a LeaveGroup."""
        return on.Leave(request_id, GROUP, leavers, client, ord(client))

    def commit(
        self, request_id: int, member_id: str, generation_id: int, client: str = "a", **offsets: int
    ) -> CommitOffsets:
        """Return an OffsetCommit: `t0=42` is partition 0 of topic t."""
        records: list[Record] = [
            (OffsetKey(GROUP, name[0], int(name[1:])), CommittedOffset(offset, -1, "", self.now_ms))
            for name, offset in offsets.items()
        ]
        return CommitOffsets(
            request_id, GROUP, generation_id, member_id, None, records, ord(client)
        )

    # ---- scenes

    def two(self, *, instances: bool = False, **options: Any) -> None:
        """Form a stable group: a-1 leads, b-2 follows."""
        for request_id, client in ((1, "a"), (2, "b")):
            instance = client if instances else None
            self.take(self.join(request_id, client, instance=instance, version=3, **options))
        self.take(TimePasses(6000))
        self.take(self.sync(3, "b-2", 1, instance="b" if instances else None))
        given = {"a_1": "t0 t1", "b_2": "t2"}
        self.take(self.sync(4, "a-1", 1, instance="a" if instances else None, **given))
        self.take(AppendEnds())


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_group_lives_as_its_transcript_says(
    path: Path, compare_transcript: Callable[..., None]
) -> None:
    compare_transcript(path, GroupMachine)
