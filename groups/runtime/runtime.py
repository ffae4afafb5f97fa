"""The shell of a coordinator: it owns the shards of the partitions that this broker leads.

It decides nothing. An event goes to `decide`, with its shard. An `Append` among the effects goes to
the journal and on to the log. When it is replicated its records are replayed, and its `then` is
decided in its turn. A `Reply` ends the request that it names. A `SetTimer` brings its event back
later. If there is no replica to wait for, all that happens inside `submit`, and the response is
there when it returns.

A broker that becomes the leader of a partition starts to load it: one partition at a time, a slice
per turn of the event loop, up to the log's end, because records beyond the high watermark may have
been acknowledged. Until all of it is loaded and replicated, requests are refused with
COORDINATOR_LOAD_IN_PROGRESS, so that no response can be lost with this leader. After a failed load
the error is COORDINATOR_NOT_AVAILABLE, and the load is repeated: half a partition is never served.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import aclosing
from functools import partial
from typing import Any, Generic, TypeVar

import attrs

from groups.event_timers import EventTimers
from groups.runtime.effects import ALL_IN_SYNC, Append, Effect, Publish, Reply, RequestId, SetTimer
from groups.runtime.events import Unloaded
from groups.runtime.journal import Entry, Journal
from groups.runtime.led_partition import LedPartition
from groups.runtime.loader import Loader, LoadError
from groups.runtime.partition_log import TO_THE_END, AppendDelayed, PartitionLog
from groups.runtime.shard import NO_PRODUCER, Shard
from protocol.errors import ApiError, ErrorCode
from protocol.records.builder import BatchBuilder
from protocol.records.compression import Codec
from protocol.records.control_record import COMMIT
from protocol.state_checks import STATE_CHECKS
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

S = TypeVar("S", bound=Shard)

FIRST_BACKOFF_MS = 1000
MAX_BACKOFF_MS = 60_000
NAMED_WRITERS = 10
"""Most groups, or other subjects, that a log line about a failed append names."""
OF_REQUESTS = {
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
}
"""Errors of those who were replaced, or write too much: nothing is wrong with the log."""
RESPONSES_A_TURN = 100
"""Most responses that parked requests get in one turn of the loop: some 10 ms."""
SWEEP_PAUSE_S = 0.01
"""Pause after each event of a sweep that wrote records: other work goes first."""
FAILED_PAUSE_S = 1.0
"""Pause after an event of a sweep whose append failed."""
SWEEP_BACKLOG_BYTES = 256 * 1024
"""A sweep waits while more than this waits to be written."""
SWEEP_WAITS = 100
"""So many pauses, one after the other, a sweep that comes again waits for that."""


@attrs.define(eq=False)
class Pending:
    """A request whose `response` is None until there is one; `written` counts its records."""

    request_id: RequestId
    response: Any = None
    written: int = 0


def _ignore(pending: Pending) -> None:
    """Do nothing with a response."""


async def in_one_piece(partition: int, shard: Any) -> AsyncGenerator[int, None]:
    """Load a partition in one piece."""
    yield TO_THE_END


@attrs.define(eq=False)
class CoordinatorRuntime(Generic[S]):
    """The led partitions of `topic`, each with a shard made by `new_shard`.

    `decide(shard, event, now_ms)` returns the effects of an event; `now_ms` is the wall clock.
    `spawn` runs a coroutine for as long as the broker lives. `on_response` is called when a pending
    request gets its response, `on_served` when a partition begins to be served. `on_published`
    gets the values that are published. `load_stages(partition, shard)` yields the end offsets up to
    which the log is replayed, one after the other; in between it may change the shard by what the
    log does not tell.
    """

    topic: str
    log: PartitionLog
    new_shard: Callable[[], S]
    decide: Callable[[S, Any, int], Sequence[Effect]]
    now_ms: Callable[[], int]
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    codec: Codec = Codec.NONE
    load_buffer_bytes: int = 5 * 1024 * 1024
    on_response: Callable[[Pending], None] = _ignore
    on_served: Callable[[LedPartition[S]], None] = lambda led: None
    on_published: Callable[[Any], None] = lambda value: None
    load_stages: Callable[[int, S], AsyncGenerator[int, None]] = in_one_piece

    # Requests and led partitions, by their ids.
    _request_ids: Iterator[RequestId] = attrs.field(factory=lambda: itertools.count(1))
    _led: dict[int, LedPartition[S]] = attrs.field(factory=dict)
    _pending: dict[RequestId, Pending] = attrs.field(factory=dict)
    # Held by the load in progress: one partition loads at a time.
    _one_load: asyncio.Lock = attrs.field(factory=asyncio.Lock)
    _one_in_line: asyncio.Lock = attrs.field(factory=asyncio.Lock)
    # Requests that have their responses, and whose clients are told in the next turns.
    _untold: deque[Pending] = attrs.field(factory=deque)

    # ---- requests

    def next_request_id(self) -> RequestId:
        """Return an id for a request that is to be submitted."""
        return next(self._request_ids)

    def submit(self, led: LedPartition[S], event: Any) -> Pending:
        """Decide a request; `event.request_id` names it."""
        assert event.request_id not in self._pending, "a request is submitted once"
        pending = Pending(event.request_id)
        self._pending[event.request_id] = pending
        try:
            pending.written = self.write(led, event)
        except BaseException:
            self._pending.pop(event.request_id, None)  # it gets no response
            raise
        return pending

    def serving(self, partition: int) -> LedPartition[S]:
        """Return a partition that is served here. Raises ApiError if it is not."""
        led = self._led.get(partition)
        refusal = ErrorCode.NOT_COORDINATOR if led is None else led.refusal
        if led is None or refusal:
            raise ApiError(refusal, str(self.partition_of(partition)))
        return led

    def led_partitions(self) -> list[LedPartition[S]]:
        """Return all partitions led here, served or not."""
        return list(self._led.values())

    def is_served(self, led: LedPartition[S]) -> bool:
        """Return whether requests for the partition are decided now."""
        return not led.refusal and self._is_current(led)

    def check(self) -> None:
        """Assert what must hold between two steps. For tests: this walks all state."""
        for led in self._led.values():
            led.check()

    def partition_of(self, partition: int) -> TopicPartition:
        """Name a partition of the topic."""
        return TopicPartition(self.topic, partition)

    # ---- writing

    def write(self, led: LedPartition[S], event: Any) -> int:
        """Decide `event` and perform the effects; return how many records they write."""
        now_ms = self.now_ms()
        effects = self.decide(led.shard, event, now_ms)

        # Queue all, then write: the appends of one event may share a batch.
        self._perform(led, effects, now_ms)
        self._advance(led, now_ms)
        self._check(led)

        written = 0
        for effect in effects:
            if isinstance(effect, Append):
                written += len(effect.records)
        return written

    def write_at_once(
        self,
        led: LedPartition[S],
        keys: Sequence[bytes],
        values: Sequence[bytes],
        now_ms: int,
    ) -> bool:
        """Write and replay records if nothing has to be waited for; otherwise change nothing.

        Return whether they are written. They are encoded already. The same records by `submit` get
        the reason of a failure.
        """
        is_busy = led.journal.has_in_flight or led.journal.waiting or led.ending
        if is_busy or led.is_held_up or not self.log.commits_at_once(led.partition):
            return False

        # As the journal does: every record has the time of writing.
        builder = BatchBuilder(self.codec)
        builder.append_many(now_ms, keys, values)
        try:
            last_offset = self.log.append(led.partition, builder.build(), now_ms)
        except (ApiError, AppendDelayed):
            return False

        assert self.log.committed_end(led.partition) > last_offset, "nothing is waited for"
        led.shard.replay(zip(keys, values, strict=True))
        self._check(led)
        return True

    async def sweep(
        self,
        led: LedPartition[S],
        events: Generator[Any, int, None],
        *,
        stops_at_failure: bool = True,
    ) -> int:
        """Decide `events` one at a time, no faster than the log replicates what they write.

        Return how many records they wrote. The generator is sent the number for each event. The
        sweep ends early when the partition is no longer served. With `stops_at_failure` it also
        ends at the first append that fails, and where the log takes nothing for long, as a later
        call finds what is left; otherwise it goes on after a pause.
        """
        waits = 0
        written = 0
        failed_before = led.failed_appends
        event = next(events, None)
        while event is not None and self.is_served(led):
            # Commits first.
            if led.journal.waiting_bytes > SWEEP_BACKLOG_BYTES:
                waits += 1
                # The partitions that come after this one have their turn (fault groups-9).
                if stops_at_failure and waits > SWEEP_WAITS:
                    break
                await asyncio.sleep(SWEEP_PAUSE_S)
                continue

            waits = 0
            count = self.write(led, event)
            written += count
            has_failed = led.failed_appends > failed_before
            if has_failed and stops_at_failure:
                break

            # Leave time to others, or to the log.
            failed_before = led.failed_appends
            pause_s = SWEEP_PAUSE_S if count else 0
            await asyncio.sleep(FAILED_PAUSE_S if has_failed else pause_s)
            try:
                event = events.send(count)
            except StopIteration:
                break
        return written

    async def sweep_in_line(self, led: LedPartition[S], events: Generator[Any, int, None]) -> int:
        """Sweep when the sweeps before this one have ended."""
        async with self._one_in_line:
            return await self.sweep(led, events)

    async def decide_in_turns(self, led: LedPartition[S], events: Iterable[Any]) -> None:
        """Decide `events` that write nothing, each in a turn of the event loop.

        They wait neither for a log that is stuck nor after an append that failed. They end early
        when the partition is no longer served.
        """
        for event in events:
            if not self.is_served(led):
                return
            self.write(led, event)
            await asyncio.sleep(0)

    def _perform(self, led: LedPartition[S], effects: Sequence[Effect], now_ms: int) -> None:
        is_telling = bool(self._untold)
        # Those of a group of thousands take long to encode and send (fault groups-8, was: False).
        tells_later = len(effects) > RESPONSES_A_TURN
        for effect in effects:
            if isinstance(effect, Reply):
                self._respond(effect, tells_later=tells_later)
            elif isinstance(effect, SetTimer):
                led.timers.set(effect.event, effect.after_ms)
            elif isinstance(effect, Publish):
                self.on_published(effect.value)
            elif led.journal.is_full:
                # Nothing is replicated: bound the memory.
                self._end(led, effect.then, ErrorCode.COORDINATOR_NOT_AVAILABLE, now_ms)
            else:
                self._queue(led, effect)
        if self._untold and not is_telling:
            self._tell_some()

    def _respond(self, reply: Reply, *, tells_later: bool) -> None:
        pending = self._pending.pop(reply.request_id, None)
        # None: an earlier response has ended the request.
        if pending is None:
            return
        pending.response = reply.response

        if tells_later:
            self._untold.append(pending)
        else:
            self.on_response(pending)

    def _tell_some(self) -> None:
        """Tell of some responses, in order, and of the others in the next turns of the loop."""
        told = 0
        # Whoever is told may come back with more.
        while self._untold and told < RESPONSES_A_TURN:
            told += 1
            self.on_response(self._untold.popleft())
        if self._untold:
            asyncio.get_running_loop().call_soon(self._tell_some)

    def _queue(self, led: LedPartition[S], append: Append) -> None:
        entry = led.journal.add(append, led.shard.encode(append.records))
        led.shard.begin_write(append.records)
        if append.timeout_ms is not None:
            led.untimed.append(entry)

    def _start_timers(self, led: LedPartition[S]) -> None:
        """Limit the time of the appends that have to wait for the log."""
        loop = asyncio.get_running_loop()
        for entry in led.untimed:
            timeout_ms = entry.append.timeout_ms
            if timeout_ms is not None and not entry.has_ended:
                entry.timer = loop.call_later(timeout_ms / 1000, self._time_out, led, entry)
        led.untimed.clear()

    def _time_out(self, led: LedPartition[S], entry: Entry) -> None:
        assert not entry.has_ended, "an append that ends takes its timer with it"
        # The entry stays in the journal: if it is replicated after all, it is replayed.
        entry.has_timed_out = True
        now_ms = self.now_ms()
        self._end(led, entry.then, ErrorCode.REQUEST_TIMED_OUT, now_ms)
        self._advance(led, now_ms)
        self._check(led)

    def _end(self, led: LedPartition[S], then: Any, error: ErrorCode, now_ms: int) -> None:
        """Decide the `then` of an append that ended."""
        event = attrs.evolve(then, error=error)
        self._perform(led, self.decide(led.shard, event, now_ms), now_ms)

    def _end_entries(
        self,
        led: LedPartition[S],
        entries: Sequence[Entry],
        error: ErrorCode,
        now_ms: int,
        *,
        is_written: bool = False,
    ) -> None:
        """Replay entries that are written, and decide what follows each of them, in order.

        A response may bring the next request at once, so the runtime can be entered meanwhile.
        """
        led.ending += 1
        try:
            for entry in entries:
                entry.has_ended = True
                if entry.timer is not None:
                    # It would keep the records until its time is up.
                    entry.timer.cancel()

                # Replay first: the next decision reads the state with these records.
                if is_written:
                    self._replay(led.shard, entry)
                led.shard.end_write(entry.append.records)
                if not entry.has_timed_out:
                    self._end(led, entry.append.then, error, now_ms)
        finally:
            led.ending -= 1

    def _advance(self, led: LedPartition[S], now_ms: int) -> None:
        """Settle replicated batches and write waiting entries, until it must wait for the log."""
        if led.is_appending:
            # The log has woken this request with the batch that it takes just now, and whoever
            # appends that goes on (fault strangers-36).
            return
        while led.in_flight_until is None or self._settle(led, led.in_flight_until, now_ms):
            if not led.journal.waiting or led.is_held_up:
                break
            self._append(led, now_ms)
        if led.untimed:
            self._start_timers(led)

    def _append(self, led: LedPartition[S], now_ms: int) -> None:
        """Write the next batch."""
        batch = led.journal.next_batch(self.log.max_batch_bytes(led.partition), now_ms)
        try:
            led.in_flight_until = self.log.append(led.partition, batch, now_ms) + 1
        except AppendDelayed:
            # The log calls `_log_moved` when it takes appends again.
            led.journal.put_back()
            led.is_held_up = True
        except ApiError as error:
            # Nothing of the batch is written, so nothing of it is replayed.
            led.failed_appends += 1
            entries = led.journal.take()
            self._log_failure(led, entries, error)
            self._end_entries(led, entries, error.code, now_ms)

    def _log_failure(self, led: LedPartition[S], entries: Sequence[Entry], error: ApiError) -> None:
        names = sorted({led.shard.name(entry.then) for entry in entries})
        more = f" and {len(names) - NAMED_WRITERS} more" if len(names) > NAMED_WRITERS else ""
        # Or whoever may commit fills the log with errors (fault strangers-10, was: logging.ERROR).
        level = logging.INFO if error.code in OF_REQUESTS else logging.ERROR
        logger.log(
            level,
            "%s: writing for %s failed: %s",
            self.partition_of(led.partition),
            ", ".join(names[:NAMED_WRITERS]) + more,
            error,
        )

    def _settle(self, led: LedPartition[S], until: int, now_ms: int) -> bool:
        """Replay the batch in flight if it has what it waits for; return whether it has."""
        waits_for_all = led.journal.acks == ALL_IN_SYNC
        if waits_for_all and self.log.committed_end(led.partition) < until:
            return False

        # Make room first: the end of an entry may bring the next request, with its append.
        led.in_flight_until = None

        # All replicas that are in sync have it; were there enough of them?
        error = ErrorCode.NONE
        if waits_for_all and not self.log.is_enough_in_sync(led.partition):
            error = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND  # but it is written
        self._end_entries(led, led.journal.take(), error, now_ms, is_written=True)
        return True

    def _replay(self, shard: S, entry: Entry) -> None:
        # Plain records, a marker, or the records of a producer.
        writer = entry.append.writer
        if writer is None:
            shard.replay(entry.encoded)
        elif writer.ends is not None:
            shard.end_transaction(writer.producer_id, writer.ends == COMMIT)
        else:
            shard.replay(
                entry.encoded, writer.producer_id if writer.is_transactional else NO_PRODUCER
            )

    def _log_moved(self, partition: int) -> None:
        """Go on with a partition after its high watermark or its leader may have changed."""
        led = self._led.get(partition)
        if led is None:
            return
        if led.loaded_until is not None:
            self._serve(led, led.loaded_until)
        # The log also calls this during the append, when nothing is in flight yet.
        elif led.in_flight_until is not None or led.is_held_up:
            led.is_held_up = False
            self._advance(led, self.now_ms())
            self._check(led)

    def _check(self, led: LedPartition[S]) -> None:
        """Check a partition after a step, unless another step on it has not ended yet."""
        is_between_steps = not led.ending and not led.is_appending
        if STATE_CHECKS.is_on and is_between_steps and self._is_current(led):
            STATE_CHECKS.run(led.check)

    def _handle_timer(self, led: LedPartition[S], event: Any) -> None:
        if self.is_served(led):
            self.write(led, event)

    # ---- leadership

    @property
    def leads_any(self) -> bool:
        """Return whether any partition of the topic is led here."""
        return bool(self._led)

    def on_leadership(self, leaders: Collection[int], followers: Collection[int]) -> None:
        """Load the partitions now led here, and unload those that are no longer.

        A partition that was led here before keeps its state: no other broker wrote to it.
        """
        for partition in followers:
            self._unload(partition)

        for partition in leaders:
            if partition not in self._led:
                led = LedPartition(partition, Journal(self.codec), self.new_shard())
                led.timers = EventTimers(partial(self._handle_timer, led))
                self._led[partition] = led
                # Listen first: the log may move while it is read.
                self.log.on_committed(partition, partial(self._log_moved, partition))
                self.spawn(self._load_until_done(led))

    def _unload(self, partition: int) -> None:
        led = self._led.pop(partition, None)
        if led is None:
            return
        logger.info("%s: unloaded %s", self.partition_of(partition), led.shard.describe())

        # Requests in flight end: their clients look for the new leader.
        now_ms = self.now_ms()
        led.timers.cancel_all()
        led.in_flight_until = None
        self._perform(led, self.decide(led.shard, Unloaded(), now_ms), now_ms)
        self._end_entries(led, led.journal.take_all(), ErrorCode.NOT_COORDINATOR, now_ms)

    async def _load_until_done(self, led: LedPartition[S]) -> None:
        for attempt in itertools.count():
            try:
                # Not held during the pause, so that others load meanwhile.
                async with self._one_load:
                    await self._load(led)
                return
            except (LoadError, ApiError, OSError) as error:
                reason: object = error
            except Exception:
                # A bug: this partition is not served, the others are.
                logger.exception("loading %s failed", self.partition_of(led.partition))
                reason = "see above"

            # Refuse requests, and load again after a pause.
            led.refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
            # The shift has a bound, as attempts have none.
            backoff_ms = min(FIRST_BACKOFF_MS << min(attempt, 16), MAX_BACKOFF_MS)
            if self._is_current(led):
                logger.error(
                    "%s is not served, loading it again in %d ms: %s",
                    self.partition_of(led.partition),
                    backoff_ms,
                    reason,
                )
                await asyncio.sleep(backoff_ms / 1000)

    async def _load(self, led: LedPartition[S]) -> None:
        """Read the whole partition into a new shard, unless it is no longer led here."""
        partition = led.partition
        started_ms = self.now_ms()
        if not self._is_current(led):
            return

        # Into a shard of its own: after a failure the load begins with a new one.
        shard = self.new_shard()
        name = self.partition_of(partition)
        loader = Loader(name, shard, self.log.start_offset(partition))
        async with aclosing(self.load_stages(partition, shard)) as end_offsets:
            async for end_offset in end_offsets:
                # Others take their turn; the leadership may go meanwhile.
                if not self._is_current(led) or not await self._replay_until(
                    led, loader, end_offset
                ):
                    return
        if not self._is_current(led):
            return

        # Serve, at once or when all of it is replicated.
        led.shard = shard
        led.refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        led.loaded_until = loader.next_offset
        logger.info(
            "%s: loaded %s from %d records in %d ms",
            name,
            shard.describe(),
            loader.records,
            self.now_ms() - started_ms,
        )
        self._serve(led, loader.next_offset)

    async def _replay_until(self, led: LedPartition[S], loader: Loader, end_offset: int) -> bool:
        """Feed a loader up to an offset; return False if the partition is no longer led here."""
        size = self.load_buffer_bytes
        while chunk := self.log.read(led.partition, loader.next_offset, size, end_offset):
            for _ in loader.feed(chunk):
                await asyncio.sleep(0)
                if not self._is_current(led):
                    return False
        return True

    def _serve(self, led: LedPartition[S], loaded_until: int) -> None:
        """Decide requests from now on, if everything below `loaded_until` is replicated."""
        if self.log.committed_end(led.partition) >= loaded_until:
            led.loaded_until = None
            led.refusal = ErrorCode.NONE
            self._check(led)
            self.on_served(led)

    def _is_current(self, led: LedPartition[S]) -> bool:
        return self._led.get(led.partition) is led
