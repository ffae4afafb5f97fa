"""The group coordinator: it hands each request to the shard that keeps the group.

The runtime (`groups.runtime`) loads shards, writes and replays. The rules of groups are `decide`.
This module finds the partition of a group. It also does the work on all groups: the sessions of
their members begin when they are loaded, and the offsets of deleted partitions and of what has
expired are deleted. That work goes a slice at a time, and no faster than it is replicated, so that
no commit waits long behind it.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from functools import partial
from itertools import islice
from typing import Any

import attrs

from groups.coordinator import listing
from groups.coordinator.commits import may_commit_plainly
from groups.coordinator.config import GroupConfig
from groups.coordinator.decide import decide
from groups.coordinator.events import (
    BeginDeletion,
    CommitInTransaction,
    CommitOffsets,
    DeletedPartitionsSlice,
    DeleteGroup,
    DeleteOffsets,
    DeletionSlice,
    EndDeletion,
    EndTransaction,
    GroupsLoaded,
    OffsetEvent,
    OffsetsOutdated,
    PartitionsDeleted,
    PartitionsSwept,
    RetryDeletions,
)
from groups.coordinator.expiry import retention_checks
from groups.coordinator.group_deletion import DELETED_AT_ONCE
from groups.coordinator.listing import GroupDetails, GroupOverview
from groups.coordinator.membership.events import Disconnected, Heartbeat, Join, Leave, Sync
from groups.coordinator.membership.history import Rebalanced
from groups.coordinator.membership.rebalance import restart_session
from groups.coordinator.shard import GroupShard
from groups.runtime.effects import RequestId
from groups.runtime.led_partition import LedPartition
from groups.runtime.partition_log import PartitionLog
from groups.runtime.runtime import CoordinatorRuntime, Pending
from offsets.config import OffsetsConfig
from offsets.records import LAST_VERSIONS, OFFSET_VALUE_VERSION, OffsetKey, ValueVersions
from offsets.requests import Committer
from offsets.topic import partition_for
from protocol.errors import ApiError, ErrorCode
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.printable import one_line
from protocol.records.compression import Codec
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

COMPRESSED = 8
"""What offsets.topic.compression.codec may make of the record of a group, at best."""

MemberRequest = CommitOffsets | CommitInTransaction | Join | Sync | Heartbeat | Leave

MINUTE_MS = 60_000
MAX_CLIENT_CHARACTERS = 255
"""Characters of a client's id in a member's id. With 32 KB of them it would be too long for a
response, and for the group's record; and ids that are handed out are kept for their clients."""
LOADING_SLICE = 100
"""Groups whose members get a session between two turns of the loop."""
LOADING_BYTES = 100_000
"""Bytes of their records, roughly: those of some hundred members. A larger one is read alone."""
DELETION_SLICE = 500
"""Groups and partitions examined, and tombstones written, between two turns of the loop."""


@attrs.define(eq=False)
class GroupCoordinator:
    """Groups, their members and offsets.

    `num_partitions()` is that of the existing topic, 0 while none is known. `spawn` runs a
    coroutine for as long as the broker lives. `on_response` is called when a request that was
    pending got its response, `on_rebalanced` with each rebalance that ended, `on_served` when a
    partition of the topic is loaded. `find_deleted(topics)` returns those of these topics that do
    not exist, or are being deleted. `load_stages` is the runtime's. Values are written as
    `value_versions` say.
    """

    log: PartitionLog
    config: OffsetsConfig
    num_partitions: Callable[[], int]
    now_ms: Callable[[], int]
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    value_versions: ValueVersions = LAST_VERSIONS
    group_config: GroupConfig = attrs.field(factory=GroupConfig)
    # Brokers before 2.3 would lose the instance ids of a group that they coordinate next.
    serves_static_members: bool = True
    new_uuid: Callable[[], str] = lambda: str(uuid.uuid4())
    on_response: Callable[[Pending], None] = lambda pending: None
    on_rebalanced: Callable[[Rebalanced], None] = lambda rebalanced: None
    on_served: Callable[[TopicPartition], None] = lambda topic_partition: None
    find_deleted: Callable[[Set[str]], Awaitable[Set[str]]] | None = None
    load_stages: Callable[[int, GroupShard], AsyncGenerator[int, None]] | None = None
    runtime: CoordinatorRuntime[GroupShard] = attrs.field(init=False)
    _deleted: dict[int, set[TopicPartition]] = attrs.field(factory=dict)
    """Partition of the offsets topic -> partitions deleted while it was not served yet."""

    def __attrs_post_init__(self) -> None:
        self.runtime = CoordinatorRuntime(
            OFFSETS_TOPIC,
            self.log,
            new_shard=partial(
                GroupShard, self.value_versions, self.group_config, self.config.commit_timeout_ms
            ),
            decide=decide,
            now_ms=self.now_ms,
            spawn=self.spawn,
            codec=Codec(self.config.topic_compression_codec),
            load_buffer_bytes=self.config.load_buffer_bytes,
            on_response=self.on_response,
            on_served=self._begin_serving,
            on_published=self.on_rebalanced,
        )
        if self.load_stages is not None:
            self.runtime.load_stages = self.load_stages

    # ---- requests

    def next_request_id(self) -> RequestId:
        """Return an id for a request that is to be submitted."""
        return self.runtime.next_request_id()

    def submit(self, event: MemberRequest) -> Pending:
        """Decide a request of a member. Raises ApiError if its group is not coordinated here."""
        pending = self.runtime.submit(self._serving(event.group_id), event)

        # A response at once is a refusal, or nothing is waited for.
        if pending.response is not None and pending.response.error:
            logger.debug(
                "group %s: %s of member %r is refused: %s",
                event.group_id,
                type(event).__name__,
                getattr(event, "member_id", ""),
                pending.response.error.name,
            )
        return pending

    def end_parked(self, event: Disconnected) -> None:
        """Wait no longer for what the client of a parked request wanted."""
        # A partition that is no longer served has no requests.
        with contextlib.suppress(ApiError):
            self.runtime.write(self._serving(event.group_id), event)

    def commits_at_once(self, group_id: str) -> bool:
        """Return whether commits wait for no replica. Raises ApiError as above."""
        return self.runtime.log.commits_at_once(self._serving(group_id).partition)

    def commit_at_once(
        self,
        group_id: str,
        committer: Committer,
        keys: Sequence[bytes],
        values: Sequence[bytes],
        now_ms: int,
    ) -> bool:
        """Commit encoded offsets if nothing has to be waited for; otherwise change nothing.

        Return whether they are committed: `submit` serves the same commit too, or refuses it. The
        records are those of one topic, and values are BARE_VALUE. Raises ApiError as above.
        """
        led = self._serving(group_id)
        shard = led.shard
        is_written_so = shard.versions.offset == OFFSET_VALUE_VERSION
        if not is_written_so or not may_commit_plainly(shard, group_id, committer):
            return False
        if not self.runtime.write_at_once(led, keys, values, now_ms):
            return False

        # A commit shows that the member is alive (KAFKA-3470).
        group = shard.live.get(group_id)
        if group is not None and committer.generation_id >= 0:
            session = restart_session(group.members[committer.member_id])
            led.timers.set(session.event, session.after_ms)
        return True

    def new_member_id(self, client: str) -> str:
        """Return an id for a new member, which begins with its client id or instance id."""
        return f"{client[:MAX_CLIENT_CHARACTERS]}-{self.new_uuid()}"

    def require_group_id(self, group_id: str) -> None:
        """Raise ApiError without a group id: members need one, offsets do not."""
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")

    def require_static_members(self, group_instance_id: str | None) -> None:
        """Raise ApiError if an instance id is given that not every broker of the cluster keeps."""
        if group_instance_id is not None and not self.serves_static_members:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "inter.broker.protocol.version below 2.3")

    def record_max_bytes(self, group_id: str) -> int:
        """Return the largest record of the group's partition. Raises ApiError as above.

        Before it is compressed: members of a group have much the same metadata.
        """
        largest = self.log.max_batch_bytes(self._serving(group_id).partition)
        is_compressed = Codec(self.config.topic_compression_codec) is not Codec.NONE
        return largest * (COMPRESSED if is_compressed else 1)

    def delete_group(self, group_id: str) -> Pending:
        """Delete a group and its offsets. Raises ApiError when this is not its coordinator."""
        led = self._serving(group_id)

        # The others have their turns in between (fault groups-8).
        if led.shard.offsets.count_of(group_id) > DELETED_AT_ONCE:
            return self._delete_in_slices(led, group_id, None)
        pending = self.runtime.submit(led, DeleteGroup(self.next_request_id(), group_id))
        self._log_removed(led, pending.written, f"of group {one_line(group_id)}, which is deleted")
        return pending

    def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> Pending:
        """Delete what a group has committed for `partitions`. Raises ApiError as above."""
        led = self._serving(group_id)

        # The others have their turns in between (fault groups-8).
        if len(partitions) > DELETED_AT_ONCE:
            return self._delete_in_slices(led, group_id, partitions)
        event = DeleteOffsets(self.next_request_id(), group_id, partitions)
        pending = self.runtime.submit(led, event)
        reason = f"of group {group_id}, whose offsets are deleted"
        self._log_removed(led, pending.written, reason)
        return pending

    def _delete_in_slices(
        self,
        led: LedPartition[GroupShard],
        group_id: str,
        partitions: Sequence[TopicPartition] | None,
    ) -> Pending:
        """Delete many offsets of a group; without partitions all, and the group."""
        event = BeginDeletion(self.next_request_id(), group_id, is_whole=partitions is None)
        pending = self.runtime.submit(led, event)
        if pending.response is None:
            self.spawn(self._delete_slices(led, event, partitions))
        return pending

    async def _delete_slices(
        self,
        led: LedPartition[GroupShard],
        event: BeginDeletion,
        partitions: Sequence[TopicPartition] | None,
    ) -> None:
        request_id, group_id = event.request_id, event.group_id
        named = iter(partitions) if partitions is not None else led.shard.partitions_of(group_id)
        is_done = False

        def events() -> Generator[OffsetEvent, int, None]:
            nonlocal is_done
            while part := list(islice(named, DELETED_AT_ONCE)):
                yield DeletionSlice(request_id, group_id, part)
            is_done = True

        # One after the other: a request may name many groups, and each step is a turn.
        removed = await self.runtime.sweep_in_line(led, events())
        self._log_removed(led, removed, f"of group {group_id}, which are deleted")
        if self.runtime.is_served(led):
            error = ErrorCode.NONE if is_done else ErrorCode.REQUEST_TIMED_OUT
            self.runtime.write(led, EndDeletion(request_id, group_id, error))

    def end_transaction(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        *,
        is_committed: bool,
        coordinator_epoch: int,
    ) -> Pending:
        """Write the marker of a transaction into a partition of the topic.

        Raises ApiError if the partition is not served here.
        """
        event = EndTransaction(
            self.next_request_id(), producer_id, producer_epoch, is_committed, coordinator_epoch
        )
        return self.runtime.submit(self.runtime.serving(partition), event)

    def shard(self, group_id: str) -> GroupShard:
        """Return the shard that keeps a group, to read it. Raises ApiError as above."""
        return self._serving(group_id).shard

    def describe(self, group_id: str) -> GroupDetails:
        """Describe a group as it is now. Raises ApiError when this is not its coordinator."""
        return listing.describe(self._serving(group_id).shard, group_id)

    def overviews(self) -> tuple[ErrorCode, Iterator[GroupOverview]]:
        """Go through the groups of all partitions led here, as they are when their turn comes.

        With them comes the error of the partitions not served.
        """
        led_partitions = self.runtime.led_partitions()
        refusals = (led.refusal for led in led_partitions if led.refusal)
        error = min(refusals, default=ErrorCode.NONE)  # loading before failed
        groups = (group for led in led_partitions for group in listing.overviews(led.shard))
        return error, groups

    def _serving(self, group_id: str) -> LedPartition[GroupShard]:
        # Without the topic no broker coordinates anything.
        partitions = self.num_partitions()
        if not partitions:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"group {group_id}")
        try:
            return self.runtime.serving(partition_for(group_id, partitions))
        except ApiError as error:
            raise ApiError(error.code, f"group {group_id}") from error

    # ---- leadership

    @property
    def leads_any(self) -> bool:
        """Return whether any partition of the topic is led here."""
        return self.runtime.leads_any

    def on_leadership(self, leaders: Collection[int], followers: Collection[int]) -> None:
        """Load the partitions now led here, and unload those that are no longer."""
        # UpdateMetadata goes to every broker: the next leader knows of the deletions too.
        for partition in followers:
            self._deleted.pop(partition, None)
        self.runtime.on_leadership(leaders, followers)

    def _begin_serving(self, led: LedPartition[GroupShard]) -> None:
        """Take up the groups of a partition that is loaded."""
        self._delete_missed(led)
        # The log says otherwise to whoever loads it next (fault core-R4).
        self._delete_hidden(led)
        # A deletion is told to the brokers that coordinate then (fault core-R4).
        if self.find_deleted is not None:
            self.spawn(self._delete_unheard(led, self.find_deleted))
        sizes = led.shard.groups.sizes_with_members()
        if sizes:
            self.spawn(self._load_groups(led, sizes))
        self.on_served(self.runtime.partition_of(led.partition))

    async def _load_groups(self, led: LedPartition[GroupShard], sizes: Mapping[str, int]) -> None:
        # Members must have sessions whatever becomes of the appends of others.
        await self.runtime.decide_in_turns(led, _loaded(sizes))

    # ---- offsets of deleted partitions

    def on_deleted(self, partitions: Iterable[TopicPartition]) -> None:
        """Delete what groups have committed for partitions that are being deleted."""
        deleted = frozenset(partitions)
        for led in self.runtime.led_partitions():
            if led.refusal:
                # It is loading: `_delete_missed` goes on when it is served.
                self._deleted.setdefault(led.partition, set()).update(deleted)
            else:
                self._delete(led, deleted)

    def _delete_missed(self, led: LedPartition[GroupShard]) -> None:
        """Delete the offsets of partitions that were deleted before this one was served."""
        missed = self._deleted.pop(led.partition, None)
        if missed:
            self._delete(led, frozenset(missed))

    def _delete_hidden(self, led: LedPartition[GroupShard]) -> None:
        """Delete by records what was left out when the partition was loaded."""
        keys = iter(list(led.shard.hidden))
        slices = iter(lambda: dict.fromkeys(islice(keys, DELETION_SLICE)), {})
        first = next(slices, None)
        if first is not None:
            # Before any commit, so that whoever loads the log next finds it so.
            removed = self.runtime.write(led, OffsetsOutdated(first))
            self.spawn(self.delete_outdated(led, slices, removed))

    async def delete_outdated(
        self,
        led: LedPartition[GroupShard],
        slices: Iterable[Mapping[OffsetKey, bytes | None]],
        removed: int = 0,
    ) -> None:
        """Delete offsets of earlier topics, of the same names as those that exist."""

        def events() -> Generator[OffsetEvent, int, None]:
            for values in slices:
                yield OffsetsOutdated(values)

        removed += await self.runtime.sweep(led, events(), stops_at_failure=False)
        self._log_removed(led, removed, "of topics that were created again since")

    async def _delete_unheard(
        self,
        led: LedPartition[GroupShard],
        find_deleted: Callable[[Set[str]], Awaitable[Set[str]]],
    ) -> None:
        """Delete the offsets of topics that were deleted while nobody coordinated the groups.

        A topic made again under the name would be read from the offsets of the earlier one.
        """
        topics = led.shard.offsets.topics()
        deleted = await find_deleted(topics) if topics else frozenset()
        if deleted and self.runtime.is_served(led):
            self._delete(led, frozenset(led.shard.offsets.partitions_of(deleted)))

    def _delete(self, led: LedPartition[GroupShard], deleted: frozenset[TopicPartition]) -> None:
        """Delete what is in flight, and a first slice, now; the rest between turns of the loop."""
        # Commits that arrive from now on are for a topic that was created again.
        slices = led.shard.offsets.slices_of(deleted, DELETION_SLICE)
        removed = self.runtime.write(led, PartitionsDeleted(deleted))
        removed += self.runtime.write(led, DeletedPartitionsSlice(next(slices)))
        self.spawn(self._delete_rest(led, deleted, slices, removed))

    async def _delete_rest(
        self,
        led: LedPartition[GroupShard],
        deleted: frozenset[TopicPartition],
        slices: Iterator[list[OffsetKey]],
        removed: int,
    ) -> None:
        def events() -> Generator[OffsetEvent, int, None]:
            for keys in slices:
                yield DeletedPartitionsSlice(keys)

        try:
            # A failed append leaves its keys in `stale`, for the next `expire_offsets`.
            removed += await self.runtime.sweep(led, events(), stops_at_failure=False)
            self._log_removed(led, removed, "of partitions that are deleted")
        finally:
            # Also if it ended early: a sweep that never ends would spare commits for ever.
            self.runtime.write(led, PartitionsSwept(deleted))

    def _log_removed(self, led: LedPartition[GroupShard], removed: int, reason: str) -> None:
        if removed:
            name = self.runtime.partition_of(led.partition)
            logger.info("%s: removing %d records, %s", name, removed, reason)

    # ---- expiry

    async def expire_offsets(self) -> None:
        """Go once through the partitions served here, and remove what has expired (KIP-211).

        The next call finds again what could not be written.
        """
        for led in self.runtime.led_partitions():
            if not self.runtime.is_served(led):
                continue

            # Deletions that could not be written, then what has expired.
            removed = await self.runtime.sweep(led, _retries(led.shard))
            self._log_removed(led, removed, "of partitions that were deleted")

            removed = await self.runtime.sweep(led, self._retention_checks(led.shard))
            self._log_removed(led, removed, "of what has expired")

    def _retention_checks(self, shard: GroupShard) -> Generator[OffsetEvent, int, None]:
        retention_ms = self.config.retention_minutes * MINUTE_MS
        yield from retention_checks(shard, retention_ms)


def _loaded(sizes: Mapping[str, int]) -> Iterator[GroupsLoaded]:
    """Go through groups, given with the sizes of their records, some of them a turn."""
    part: list[str] = []
    part_bytes = 0
    for group_id, size in sizes.items():
        if len(part) >= LOADING_SLICE or (part and part_bytes + size > LOADING_BYTES):
            yield GroupsLoaded(part)
            part, part_bytes = [], 0
        part.append(group_id)
        part_bytes += size
    if part:
        yield GroupsLoaded(part)


def _retries(shard: GroupShard) -> Generator[OffsetEvent, int, None]:
    while shard.stale:
        yield RetryDeletions(DELETION_SLICE)
