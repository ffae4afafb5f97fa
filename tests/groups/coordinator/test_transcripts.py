"""Golden transcripts of the group coordinator's decisions, in `testdata/`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest

from groups.coordinator import events as on
from groups.coordinator.decide import decide
from groups.coordinator.shard import GroupShard
from groups.runtime.effects import Append
from offsets.records import (
    CommittedOffset,
    GroupKey,
    GroupMember,
    GroupMetadata,
    OffsetKey,
    Record,
)
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition
from tests.stage.transcript import Shorthands, Writer

TRANSCRIPTS = sorted((Path(__file__).parent / "testdata").glob("*.txt"))
GROUP = "orders"
SUBSCRIBED_TO_T = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"
WRITTEN_ALL_THE_SAME = {ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}


@attrs.frozen
class AppendEnds:
    """The oldest append in flight ends, as the runtime would let it end."""

    error: ErrorCode = ErrorCode.NONE


def offset_in_words(offset: CommittedOffset) -> str:
    expires = "" if offset.expire_timestamp_ms is None else f" until {offset.expire_timestamp_ms}"
    return f"{offset.offset} at {offset.commit_timestamp_ms}{expires}"


class CoordinatorMachine:
    """One shard, its appends in flight, and a clock that `at` sets."""

    shorthands: ClassVar[Shorthands] = {
        OffsetKey: lambda key: f"{key.group}/{key.topic}-{key.partition}",
        GroupKey: lambda key: f"group {key.group}",
        CommittedOffset: offset_in_words,
    }

    def __init__(self) -> None:
        self.now_ms = 1000
        self.shard = GroupShard()
        self.in_flight: list[Append] = []

    def names(self) -> Mapping[str, Any]:
        events = {name: kind for name, kind in vars(on).items() if isinstance(kind, type)}
        return {
            **events,
            "at": self.at,
            "stored": self.stored,
            "members": self.members,
            "commit": self.commit,
            "key": lambda partition, topic="t": OffsetKey(GROUP, topic, partition),
            "replicated": AppendEnds,
            "failed": lambda name: AppendEnds(ErrorCode[name]),
            "tp": TopicPartition,
        }

    def take(self, event: Any) -> list[Any]:
        if isinstance(event, AppendEnds):
            return self._end_append(event.error)

        effects = decide(self.shard, event, self.now_ms)
        self.shard.check([append.records for append in self.in_flight])
        for effect in effects:
            if isinstance(effect, Append):
                self.shard.begin_write(effect.records)
                self.in_flight.append(effect)
        return [*effects]

    def summary(self) -> str:
        offsets = {
            f"{topic}-{partition}": value.offset
            for topic, of_topic in self.shard.offsets.of_group(GROUP).items()
            for partition, value in of_topic.items()
        }
        listed = ", ".join(f"{name}: {offset}" for name, offset in sorted(offsets.items()))
        group = ", and the group" if GROUP in self.shard.groups else ""
        in_flight = f"{len(self.in_flight)} appends in flight"
        stale = f", {len(self.shard.stale)} stale" if self.shard.stale else ""
        return f"keeps {listed or 'no offsets'}{group}; {in_flight}{stale}"

    def _end_append(self, error: ErrorCode) -> list[Any]:
        append = self.in_flight.pop(0)
        if error in WRITTEN_ALL_THE_SAME:
            self.shard.replay(self.shard.encode(append.records))
        self.shard.end_write(append.records)

        event = attrs.evolve(append.then, error=error)
        return [f"-> {Writer(self.shorthands).write(event)}", *self.take(event)]

    # ---- shorthands of the scenarios

    def at(self, now_ms: int) -> None:
        """Set the clock."""
        self.now_ms = now_ms

    def stored(self, **offsets: int) -> None:
        """Have the log hold these offsets: `t0=42` is partition 0 of topic t."""
        records: list[Record] = [
            (OffsetKey(GROUP, name[0], int(name[1:])), CommittedOffset(offset, -1, "", self.now_ms))
            for name, offset in offsets.items()
        ]
        self.shard.replay(self.shard.encode(records))

    def members(self, *member_ids: str, generation: int = 3) -> None:
        """Have the log hold the group's record: consumers that subscribe to topic t."""
        members = tuple(
            GroupMember(
                member_id=member_id,
                client_id="c",
                client_host="/h",
                rebalance_timeout_ms=60_000,
                session_timeout_ms=10_000,
                subscription=SUBSCRIBED_TO_T,
                assignment=b"",
            )
            for member_id in member_ids
        )
        metadata = GroupMetadata(
            protocol_type="consumer",
            generation_id=generation,
            protocol="range" if members else None,
            leader=member_ids[0] if members else None,
            state_timestamp_ms=self.now_ms,
            members=members,
        )
        self.shard.replay(self.shard.encode([(GroupKey(GROUP), metadata)]))

    def commit(
        self, request_id: int, *, member: str = "", generation: int = -1, **offsets: int
    ) -> on.CommitOffsets:
        """Return a commit of these offsets: `t0=42` is partition 0 of topic t."""
        records: list[Record] = [
            (OffsetKey(GROUP, name[0], int(name[1:])), CommittedOffset(offset, -1, "", self.now_ms))
            for name, offset in offsets.items()
        ]
        return on.CommitOffsets(request_id, GROUP, generation, member, None, records)


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_coordinator_decides_as_its_transcript_says(
    path: Path, compare_transcript: Callable[..., None]
) -> None:
    compare_transcript(path, CoordinatorMachine)
