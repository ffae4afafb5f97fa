"""The coordinator's shell: it owns the shards of the partitions this broker leads.

It decides nothing. A request goes to `decide`; of the effects, an `Append` goes to the journal and
on to the log, and once it is replicated its records are replayed and its `then` is decided in its
turn; a `Reply` ends the request it names. With nobody to wait for, all that happens inside
`submit`, and the answer is there when it returns.

Becoming the leader of a partition starts to load it, one partition at a time, a slice per turn of
the event loop, up to the log's end: of what lies beyond the high watermark some may have been
acknowledged. Until all of it is loaded, and replicated, the groups of the partition are answered
COORDINATOR_LOAD_IN_PROGRESS: a position that is told may not be lost with this leader. If it failed
they hear COORDINATOR_NOT_AVAILABLE, and it is tried again: half of a partition is never served.

From time to time what has expired is removed, likewise slice by slice, and no faster than it is
replicated, so that no commit waits long behind it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from groups.coordinator import listing
from groups.coordinator.decide import decide
from groups.coordinator.effects import Append, DropLater, Effect, Reply
from groups.coordinator.events import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    Ended,
    Event,
    PartitionsDeleted,
    Request,
    RequestId,
    RetentionCheck,
    StaleOffsets,
)
from groups.coordinator.expiry import EXPIRY_SLICE, group_slices
from groups.coordinator.listing import GroupDescription, GroupOverview
from groups.coordinator.offsets_log import NotYet, OffsetsLog
from groups.coordinator.owned import Owned
from groups.coordinator.shard import Shard
from offsets.committed import CommittedOffsets
from offsets.config import OffsetsConfig
from offsets.journal import Journal
from offsets.loader import Loader, LoadError
from offsets.records import OFFSET_VALUE_VERSION, OffsetKey
from offsets.topic import offsets_partition, partition_for
from protocol.errors import ApiError, ErrorCode
from protocol.records.compression import Codec
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

MINUTE_MS = 60_000
FIRST_BACKOFF_MS = 1000
MAX_BACKOFF_MS = 60_000
NAMED_GROUPS = 10
"""How many groups a line of the log names."""
EXPIRY_PAUSE_S = 0.01
"""Left to others after each slice of which something was written."""
FAILED_PAUSE_S = 1.0
"""Left to the log after a slice that it did not take."""
DROP_SLICE = 500
"""Groups and partitions looked at, and tombstones written, between two turns of the loop."""
EXPIRY_BACKLOG_BYTES = 256 * 1024
"""With more than this waiting to be written, nothing is added that may as well come later."""


@attrs.define(eq=False)
class Pending:
    """A request whose answer, `error`, may be still to come; `refused` has its exceptions.

    It comes while the partition of the offsets topic is being touched: when its high watermark
    moves, or its leadership.
    """

    partition: int
    error: ErrorCode | None = None
    refused: Mapping[TopicPartition, ErrorCode] = attrs.field(factory=dict)


@attrs.define(eq=False)
class GroupCoordinator:
    """Groups and their offsets.

    `num_partitions()` is that of the existing topic, 0 while none is known; `spawn` runs a
    coroutine for as long as the broker lives; offsets are written as `value_version`.
    """

    log: OffsetsLog
    config: OffsetsConfig
    num_partitions: Callable[[], int]
    now_ms: Callable[[], int]
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    value_version: int = OFFSET_VALUE_VERSION
    request_ids: Iterator[RequestId] = attrs.field(factory=lambda: itertools.count(1))
    _owned: dict[int, Owned] = attrs.field(factory=dict)
    _pending: dict[RequestId, Pending] = attrs.field(factory=dict)
    _one_load: asyncio.Lock = attrs.field(factory=asyncio.Lock)

    # ---- requests

    def submit(self, event: CommitOffsets) -> Pending:
        """Give a request to its group. Raises ApiError when this is not its coordinator."""
        pending, _ = self._begin(self._serving(event.group_id), event)
        if pending.error:
            logger.debug("a commit of group %s is refused: %s", event.group_id, pending.error.name)
        return pending

    def delete_group(self, group_id: str) -> Pending:
        """Remove all that is kept of a group. Raises ApiError when this is not its coordinator."""
        owned, request_id = self._serving(group_id), next(self.request_ids)
        event = DeleteGroup(request_id, group_id, owned.group_under_way(group_id))
        pending, removed = self._begin(owned, event)
        self._log_removed(owned, removed, f"of group {group_id}, which is deleted")
        return pending

    def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> Pending:
        """Remove what a group has committed for these. Raises ApiError as above."""
        owned, request_id = self._serving(group_id), next(self.request_ids)
        under_way = owned.group_under_way(group_id)
        event = DeleteOffsets(request_id, group_id, partitions, under_way)
        pending, removed = self._begin(owned, event)
        self._log_removed(owned, removed, f"of group {group_id}, whose offsets are deleted")
        return pending

    def offsets(self, group_id: str) -> CommittedOffsets:
        """Where a group's offsets are. Raises ApiError when this is not its coordinator."""
        return self._serving(group_id).shard.offsets

    def describe(self, group_id: str) -> GroupDescription:
        """A group as it is now. Raises ApiError when this is not its coordinator."""
        return listing.describe(self._serving(group_id).shard, group_id)

    def overviews(self) -> tuple[ErrorCode, list[GroupOverview]]:
        """The groups of all partitions led here, and what is wrong with those not served."""
        refusals = (owned.refusal for owned in self._owned.values() if owned.refusal)
        error = min(refusals, default=ErrorCode.NONE)  # loading before failed
        return error, [g for o in self._owned.values() for g in listing.overviews(o.shard)]

    def _serving(self, group_id: str) -> Owned:
        partitions = self.num_partitions()
        owned = self._owned.get(partition_for(group_id, partitions)) if partitions else None
        refusal = ErrorCode.NOT_COORDINATOR if owned is None else owned.refusal
        if owned is None or refusal:
            raise ApiError(refusal, f"group {group_id}")
        return owned

    # ---- writing

    def _begin(self, owned: Owned, request: Request) -> tuple[Pending, int]:
        """Give a request to its group; gives what waits, and how many records it writes."""
        pending = self._pending[request.request_id] = Pending(owned.partition)
        try:
            return pending, self._write(owned, request)
        except BaseException:
            self._pending.pop(request.request_id, None)  # nobody will answer it
            raise

    def _write(self, owned: Owned, event: Event) -> int:
        """Put into effect what `event` leads to; how many records that is to write."""
        effects = decide(owned.shard, event)
        self._perform(owned, effects)
        self._advance(owned)
        return sum(len(each.records) for each in effects if isinstance(each, Append))

    def _perform(self, owned: Owned, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                pending = self._pending.pop(effect.request_id, None)
                if pending is not None:
                    pending.error, pending.refused = effect.error, effect.refused
            elif isinstance(effect, DropLater):
                owned.stale.update(effect.values)
            elif owned.journal.full:
                self._refuse(owned, effect.then, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            else:
                owned.journal.add(effect.records, effect.then)
                owned.note_recommitted(effect.records)

    def _refuse(self, owned: Owned, then: Ended, error: ErrorCode) -> None:
        self._perform(owned, decide(owned.shard, attrs.evolve(then, error=error)))

    def _advance(self, owned: Owned) -> None:
        """Settle what is replicated and write what waits, until the log has to be waited for."""
        while owned.in_flight_until is None or self._settle(owned, owned.in_flight_until):
            if not owned.journal.waiting or owned.is_held_up:
                return
            self._append(owned)

    def _append(self, owned: Owned) -> None:
        now_ms = self.now_ms()
        batch = owned.journal.next_batch(self.log.max_batch_bytes(owned.partition), now_ms)
        try:
            owned.in_flight_until = self.log.append(owned.partition, batch, now_ms) + 1
        except NotYet:
            owned.journal.put_back()
            owned.is_held_up = True
        except ApiError as error:
            owned.failed_appends += 1
            entries = owned.journal.take()
            groups = sorted({entry.then.group_id for entry in entries})
            more = f" and {len(groups) - NAMED_GROUPS} more" if len(groups) > NAMED_GROUPS else ""
            logger.error(
                "%s: writing for group %s failed: %s",
                offsets_partition(owned.partition),
                ", ".join(groups[:NAMED_GROUPS]) + more,
                error,
            )
            for entry in entries:
                self._refuse(owned, entry.then, error.code)

    def _settle(self, owned: Owned, until: int) -> bool:
        if self.log.committed_end(owned.partition) < until:
            return False
        owned.in_flight_until = None
        shard, error = owned.shard, ErrorCode.NONE
        if not self.log.is_enough_in_sync(owned.partition):
            error = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND  # it is written all the same
        for entry in owned.journal.take():
            shard.replay(entry.encoded)
            self._perform(owned, decide(shard, attrs.evolve(entry.then, error=error)))
        return True

    def _log_moved(self, partition: int) -> None:
        owned = self._owned.get(partition)
        if owned is None:
            return
        if owned.loaded_until is not None:
            self._serve(owned, owned.loaded_until)
        # The log also calls from within the append that moved it: nothing is in flight then yet.
        elif owned.in_flight_until is not None or owned.is_held_up:
            owned.is_held_up = False
            self._advance(owned)

    # ---- deletions

    def on_deleted(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop what groups have committed for these: they are being deleted."""
        deleted = frozenset(partitions)
        for owned in list(self._owned.values()):
            if owned.refusal:
                owned.deleted |= deleted
            else:
                self._drop(owned, deleted)

    def _drop(self, owned: Owned, deleted: frozenset[TopicPartition]) -> None:
        """Drop what is under way and a first slice now, the rest between turns of the loop."""
        slices = owned.shard.offsets.slices_of(deleted, DROP_SLICE)
        under_way = [key for key in owned.offsets_under_way() if key[1:] in deleted]
        first = [*under_way, *next(slices)]
        removed = self._write(owned, PartitionsDeleted(first, frozenset()))

        owned.recommitted -= {key for key in owned.recommitted if key[1:] in deleted}
        owned.dropping.append(deleted)
        self.spawn(self._drop_rest(owned, deleted, slices, removed))

    async def _drop_rest(
        self,
        owned: Owned,
        deleted: frozenset[TopicPartition],
        slices: Iterator[list[OffsetKey]],
        removed: int,
    ) -> None:
        try:
            keys = next(slices, None)
            while keys is not None and self._is_served(owned):
                if owned.journal.waiting_bytes > EXPIRY_BACKLOG_BYTES:
                    await asyncio.sleep(EXPIRY_PAUSE_S)
                    continue
                failed_before = owned.failed_appends
                if keys:
                    spared = owned.offsets_under_way() | owned.recommitted
                    removed += self._write(owned, PartitionsDeleted(keys, spared))
                pause_s = EXPIRY_PAUSE_S if keys else 0
                await asyncio.sleep(
                    FAILED_PAUSE_S if owned.failed_appends > failed_before else pause_s
                )
                keys = next(slices, None)
            self._log_removed(owned, removed, "of partitions that are deleted")
        finally:
            owned.dropping.remove(deleted)
            if not owned.dropping:
                owned.recommitted.clear()

    async def _drop_stale(self, owned: Owned) -> None:
        failed_before, removed = owned.failed_appends, 0
        while owned.stale and self._is_served(owned) and owned.failed_appends == failed_before:
            some = dict(itertools.islice(owned.stale.items(), DROP_SLICE))
            for key in some:
                del owned.stale[key]
            removed += self._write(owned, StaleOffsets(some, owned.offsets_under_way()))
            await asyncio.sleep(EXPIRY_PAUSE_S)
        self._log_removed(owned, removed, "of partitions that were deleted")

    def _log_removed(self, owned: Owned, removed: int, what: str) -> None:
        if removed:
            logger.info(
                "%s: removing %d records, %s", offsets_partition(owned.partition), removed, what
            )

    # ---- expiry

    async def expire_offsets(self) -> None:
        """Look once through all that is served here, and remove what has expired (KIP-211).

        What could not be written is found again with the next call.
        """
        for owned in list(self._owned.values()):
            if self._is_served(owned):
                await self._drop_stale(owned)
                await self._expire(owned)

    async def _expire(self, owned: Owned) -> None:
        failed_before, removed = owned.failed_appends, 0
        slices = group_slices(owned.shard)
        group_ids = next(slices, None)
        while group_ids and self._is_served(owned) and owned.failed_appends == failed_before:
            if owned.journal.waiting_bytes > EXPIRY_BACKLOG_BYTES:
                await asyncio.sleep(EXPIRY_PAUSE_S)
                continue
            count = self._write(owned, self._retention_check(owned, group_ids))
            removed += count
            if count < EXPIRY_SLICE:
                group_ids = next(slices, None)
            await asyncio.sleep(EXPIRY_PAUSE_S if count else 0)
        self._log_removed(owned, removed, "of what has expired")

    def _retention_check(self, owned: Owned, group_ids: list[str]) -> RetentionCheck:
        return RetentionCheck(
            group_ids,
            self.now_ms(),
            self.config.retention_minutes * MINUTE_MS,
            EXPIRY_SLICE,
            frozenset(owned.journal.keys_under_way()),
        )

    # ---- leadership

    @property
    def leads_any(self) -> bool:
        """Whether any partition of the topic is led here."""
        return bool(self._owned)

    def on_leadership(self, leaders: Collection[int], followers: Collection[int]) -> None:
        """Load the partitions now led here, and forget those that are no longer.

        One that was led here all along keeps its state: nobody else can have written to it.
        """
        for partition in followers:
            self._forget(partition)
        for partition in leaders:
            if partition not in self._owned:
                codec = Codec(self.config.topic_compression_codec)
                owned = Owned(partition, Journal(codec, self.value_version))
                self._owned[partition] = owned
                self.log.on_committed(partition, partial(self._log_moved, partition))
                self.spawn(self._load_until_done(owned))

    def _forget(self, partition: int) -> None:
        owned = self._owned.pop(partition, None)
        if owned is None:
            return
        groups = len(listing.overviews(owned.shard))
        logger.info("%s: unloaded %d groups", offsets_partition(partition), groups)
        for entry in owned.journal.take_all():
            self._refuse(owned, entry.then, ErrorCode.NOT_COORDINATOR)

    async def _load_until_done(self, owned: Owned) -> None:
        for attempt in itertools.count():
            try:
                async with self._one_load:
                    await self._load(owned)
                return
            except (LoadError, ApiError, OSError) as error:
                reason: object = error
            except Exception:
                logger.exception("loading %s failed", offsets_partition(owned.partition))
                reason = "see above"
            owned.refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
            backoff_ms = min(FIRST_BACKOFF_MS << min(attempt, 16), MAX_BACKOFF_MS)
            if self._is_current(owned):
                logger.error(
                    "%s is not served, loading it again in %d ms: %s",
                    offsets_partition(owned.partition),
                    backoff_ms,
                    reason,
                )
                await asyncio.sleep(backoff_ms / 1000)

    async def _load(self, owned: Owned) -> None:
        """Read the whole partition into a new shard; does nothing for one no longer led."""
        partition, started_ms = owned.partition, self.now_ms()
        shard = Shard()
        if not self._is_current(owned):
            return
        loader = Loader(partition, shard.replay, self.log.start_offset(partition))
        while chunk := self.log.read(partition, loader.next_offset, self.config.load_buffer_bytes):
            for _ in loader.feed(chunk):
                await asyncio.sleep(0)
                if not self._is_current(owned):
                    return
        owned.shard, owned.refusal = shard, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        owned.loaded_until = loader.next_offset
        logger.info(
            "%s: loaded %d offsets of %d groups from %d records in %d ms",
            offsets_partition(partition),
            shard.offsets.count(),
            len(listing.overviews(shard)),
            loader.records,
            self.now_ms() - started_ms,
        )
        self._serve(owned, loader.next_offset)

    def _serve(self, owned: Owned, loaded_until: int) -> None:
        """Answer the groups from now on, if all that was loaded is replicated."""
        if self.log.committed_end(owned.partition) >= loaded_until:
            owned.loaded_until, owned.refusal = None, ErrorCode.NONE
            if owned.deleted:
                self._drop(owned, frozenset(owned.deleted))
                owned.deleted.clear()

    def _is_served(self, owned: Owned) -> bool:
        return not owned.refusal and self._is_current(owned)

    def _is_current(self, owned: Owned) -> bool:
        return self._owned.get(owned.partition) is owned
