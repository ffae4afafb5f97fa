"""The runtime with a coordinator that counts words: it knows no offsets, and no groups."""

from __future__ import annotations

import asyncio
import weakref
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import attrs
import pytest

from groups.runtime.effects import LEADER_ONLY, Append, Effect, Reply, SetTimer, Writer
from groups.runtime.events import Unloaded
from groups.runtime.led_partition import LedPartition
from groups.runtime.memory_partition_log import MemoryPartitionLog
from groups.runtime.runtime import (
    FAILED_PAUSE_S,
    MAX_BACKOFF_MS,
    RESPONSES_A_TURN,
    SWEEP_PAUSE_S,
    SWEEP_WAITS,
    CoordinatorRuntime,
    Pending,
)
from groups.runtime.shard import NO_PRODUCER, EncodedRecord, MalformedRecord
from protocol.errors import ApiError, ErrorCode
from protocol.records.control_record import ABORT, COMMIT
from protocol.state_checks import STATE_CHECKS
from tests.stage.bytecodes import bytecodes_of
from tests.stage.clock import VirtualTimeLoop

NOW_MS = 1_700_000_000_000
PRODUCER = Writer(9, 4)


@attrs.frozen
class Say:
    """Count words; those of `writer` are in its transaction."""

    request_id: int
    words: tuple[str, ...]
    writer: Writer | None = None
    acks: int = -1
    timeout_ms: int | None = None


@attrs.frozen
class Said:
    request_id: int
    error: ErrorCode = ErrorCode.NONE


@attrs.frozen
class RemindOf:
    """Say a word later, unless it was said before; reminding again moves the timer."""

    request_id: int
    word: str
    after_ms: int


@attrs.frozen
class Reminder:
    word: str


@attrs.frozen
class Ask:
    """Wait for an AnswerAll."""

    request_id: int


@attrs.frozen
class AnswerAll:
    request_id: int
    waiting: tuple[int, ...]


@attrs.define(eq=False)
class WordShard:
    """A shard that counts words. The end of a transaction counts the words said in it."""

    counts: Counter[str] = attrs.field(factory=Counter)
    in_flight: Counter[str] = attrs.field(factory=Counter)
    open: dict[int, list[str]] = attrs.field(factory=dict)

    def encode(self, records: Sequence[str]) -> list[EncodedRecord]:
        return [(word.encode(), b"") for word in records]

    def begin_write(self, records: Sequence[str]) -> None:
        self.in_flight.update(records)

    def end_write(self, records: Sequence[str]) -> None:
        self.in_flight.subtract(records)

    def replay(self, records: Iterable[EncodedRecord], producer_id: int = NO_PRODUCER) -> None:
        words = [key.decode() for key, _ in records]
        if "" in words:
            raise MalformedRecord("a word without letters")
        if producer_id == NO_PRODUCER:
            self.counts.update(words)
        else:
            self.open.setdefault(producer_id, []).extend(words)

    def end_transaction(self, producer_id: int, is_committed: bool) -> None:
        held = self.open.pop(producer_id, [])
        if is_committed:
            self.counts.update(held)

    def describe(self) -> str:
        return f"{self.counts.total()} words"

    def name(self, event: Any) -> str:
        return f"request {event.request_id}"

    def check(self, unfinished: Sequence[Sequence[str]]) -> None:
        """Every word in flight has an append."""
        assert +self.in_flight == Counter(word for words in unfinished for word in words)


def decide(shard: WordShard, event: Any, now_ms: int) -> Sequence[Effect]:
    if isinstance(event, Say):
        then = Said(event.request_id)
        return [Append(event.words, then, event.writer, event.acks, event.timeout_ms)]
    if isinstance(event, Said):
        return [Reply(event.request_id, event.error)]
    if isinstance(event, RemindOf):
        timer = SetTimer(Reminder(event.word), event.after_ms)
        return [timer, Reply(event.request_id, ErrorCode.NONE)]
    if isinstance(event, Reminder):
        return [] if shard.counts[event.word] else [Append((event.word,), Said(0))]
    if isinstance(event, Ask):
        return []
    if isinstance(event, AnswerAll):
        return [Reply(request_id, ErrorCode.NONE) for request_id in event.waiting]
    if isinstance(event, Unloaded):
        return []
    raise AssertionError(event)


class Words:
    """Partition 0 of the topic of words, led here, on a loop in virtual time."""

    def __init__(self, log: MemoryPartitionLog | None = None) -> None:
        self.loop = VirtualTimeLoop()
        self.log = log or MemoryPartitionLog()
        self.responded: list[Pending] = []
        self.runtime = CoordinatorRuntime(
            "words",
            self.log,
            WordShard,
            decide,
            now_ms=lambda: NOW_MS + int(self.loop.time() * 1000),
            spawn=self.loop.create_task,
            on_response=self.responded.append,
        )
        self.runtime.on_leadership({0}, set())
        self.run()

    def run(self, seconds: float = 0.1) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def end(self) -> None:
        """Stop to lead, which also ends loads that are repeated."""
        self.runtime.on_leadership(set(), {0})
        self.run(MAX_BACKOFF_MS / 1000)
        self.loop.close()

    def submit(self, event_type: Any, *arguments: Any, **options: Any) -> Pending:
        async def submit() -> Pending:
            request_id = self.runtime.next_request_id()
            event = event_type(request_id, *arguments, **options)
            return self.runtime.submit(self.led, event)

        return self.loop.run_until_complete(submit())

    @property
    def led(self) -> LedPartition[WordShard]:
        return self.runtime.serving(0)

    @property
    def counts(self) -> dict[str, int]:
        self.led.check()
        assert not any(self.led.shard.in_flight.values())
        return dict(self.led.shard.counts)


@pytest.fixture
def words() -> Iterator[Words]:
    words_bench = Words()
    yield words_bench
    words_bench.end()


def test_word_is_counted_once_it_is_replicated(words: Words) -> None:
    words.log.replicas = 3
    pending = words.submit(Say, ("hello", "world"))
    assert (pending.response, pending.written, words.led.shard.counts) == (None, 2, {})
    words.led.check()
    words.log.replicate(0)
    assert pending.response is ErrorCode.NONE
    assert words.responded == [pending]
    assert words.counts == {"hello": 1, "world": 1}


def test_leader_that_comes_counts_what_the_one_before_did(words: Words) -> None:
    words.submit(Say, ("a", "b"))
    words.submit(Say, ("b",), PRODUCER)
    words.submit(Say, ("c",), PRODUCER)
    words.submit(Say, (), Writer(9, 4, ends=COMMIT))
    words.submit(Say, ("d",), PRODUCER)
    words.submit(Say, (), Writer(9, 4, ends=ABORT))
    words.submit(Say, ("e",), Writer(10, 0))
    served = words.led.shard
    other = Words(words.log)
    loaded = other.led.shard
    other.end()
    assert served.counts == loaded.counts == {"a": 1, "b": 2, "c": 1}
    assert served.open == loaded.open == {10: ["e"]}


def test_append_for_the_leader_alone_waits_for_nobody(words: Words) -> None:
    words.log.replicas = 3
    pending = words.submit(Say, ("now",), acks=LEADER_ONLY)
    assert pending.response is ErrorCode.NONE
    assert words.counts == {"now": 1}


def test_append_whose_time_is_up_is_answered_and_counts_when_it_is_replicated(
    words: Words,
) -> None:
    words.log.replicas = 3
    pending = words.submit(Say, ("late",), timeout_ms=1000)
    words.run(0.9)
    assert pending.response is None
    words.run(0.2)
    assert pending.response is ErrorCode.REQUEST_TIMED_OUT
    words.log.replicate(0)
    assert words.counts == {"late": 1}
    assert words.responded == [pending]


def test_append_that_ends_in_time_is_answered_once(words: Words) -> None:
    pending = words.submit(Say, ("soon",), timeout_ms=1000)
    words.run(2)
    assert (pending.response, words.responded) == (ErrorCode.NONE, [pending])


def test_append_that_ends_is_not_kept_until_its_time_would_be_up(words: Words) -> None:
    words.log.replicas = 3
    words.submit(Say, ("soon",), timeout_ms=1000)
    (entry,) = map(weakref.ref, words.led.journal.unfinished())
    words.log.replicate(0)
    assert entry() is None


def test_appends_whose_time_is_up_together_cost_each_the_same_however_many_they_are() -> None:
    def cost_of(number: int) -> float:
        words = Words(MemoryPartitionLog(replicas=3))
        pending = [words.submit(Say, ("late",), timeout_ms=1000) for _ in range(number)]
        STATE_CHECKS.is_on = False  # they walk all state; who turned them on sets this again
        cost = bytecodes_of(lambda: words.run(2))
        assert {request.response for request in pending} == {ErrorCode.REQUEST_TIMED_OUT}
        words.end()
        return cost / number

    assert cost_of(400) < 1.2 * cost_of(100)


def test_timer_brings_its_event_and_setting_it_again_moves_it(words: Words) -> None:
    words.submit(RemindOf, "tea", 1000)
    words.run(0.5)
    words.submit(RemindOf, "tea", 1000)
    words.run(0.9)
    assert words.counts == {}
    words.run(0.2)
    assert words.counts == {"tea": 1}


def test_timers_end_with_leadership(words: Words) -> None:
    words.submit(RemindOf, "tea", 1000)
    words.runtime.on_leadership(set(), {0})
    words.runtime.on_leadership({0}, set())
    words.run(5)
    assert words.counts == {}


def test_leader_that_goes_answers_what_is_in_flight(words: Words) -> None:
    words.log.replicas = 3
    pending = [words.submit(Say, (word,)) for word in "abc"]
    words.runtime.on_leadership(set(), {0})
    assert [request.response for request in pending] == [ErrorCode.NOT_COORDINATOR] * 3
    with pytest.raises(ApiError) as refused:
        words.runtime.serving(0)
    assert refused.value.code is ErrorCode.NOT_COORDINATOR


def test_malformed_record_keeps_the_partition_from_being_served(
    words: Words, caplog: pytest.LogCaptureFixture
) -> None:
    words.submit(Say, ("fine",))
    words.log.replicas = 3
    words.submit(Say, ("",))
    other = Words(words.log)
    assert "words-0 at offset 1: a word without letters" in caplog.text
    with pytest.raises(ApiError) as refused:
        other.runtime.serving(0)
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    other.end()


def test_failed_append_names_whose_it_was(words: Words, caplog: pytest.LogCaptureFixture) -> None:
    words.log.fail(0, ErrorCode.KAFKA_STORAGE_ERROR)
    assert words.submit(Say, ("a",)).response is ErrorCode.KAFKA_STORAGE_ERROR
    assert "words-0: writing for request 1 failed" in caplog.text
    assert words.counts == {}


@pytest.mark.fault("strangers-10")
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    ],
)
def test_append_that_is_refused_for_what_its_writer_wrote_is_no_error_in_the_log(
    words: Words, caplog: pytest.LogCaptureFixture, code: ErrorCode
) -> None:
    words.log.fail(0, code)
    with caplog.at_level("INFO"):
        assert words.submit(Say, ("a",)).response is code
    assert [(r.levelname, "failed" in r.message) for r in caplog.records] == [("INFO", True)]


def test_sweep_waits_after_a_failure_and_goes_on_if_it_is_told_to(words: Words) -> None:
    written: list[int] = []

    def events() -> Generator[Any, int, None]:
        for word in "abc":
            written.append((yield Say(0, (word,))))

    words.log.fail(0, ErrorCode.NOT_ENOUGH_REPLICAS)
    sweep = words.loop.create_task(words.runtime.sweep(words.led, events(), stops_at_failure=False))
    words.run(FAILED_PAUSE_S / 2)
    words.log.fail(0, None)
    words.run(FAILED_PAUSE_S)
    assert sweep.result() == 3
    assert (written, words.counts) == ([1, 1, 1], {"b": 1, "c": 1})


def test_sweep_stops_at_a_failure_unless_it_is_told_not_to(words: Words) -> None:
    def events() -> Generator[Any, int, None]:
        while True:
            yield Say(0, ("again",))

    words.log.fail(0, ErrorCode.NOT_ENOUGH_REPLICAS)
    sweep = words.loop.create_task(words.runtime.sweep(words.led, events()))
    words.run(FAILED_PAUSE_S)
    assert sweep.result() == 1


@pytest.mark.fault("groups-9")
def test_sweep_of_a_partition_that_is_stuck_ends_so_that_others_have_their_turn(
    words: Words,
) -> None:
    def events() -> Generator[Any, int, None]:
        while True:
            yield Say(0, ("again",))

    words.log.replicas = 3
    for number in range(50):
        words.submit(Say, (f"{number:010000}",))
    sweep = words.loop.create_task(words.runtime.sweep(words.led, events()))
    words.run(2 * SWEEP_WAITS * SWEEP_PAUSE_S)
    assert sweep.done()
    assert sweep.result() == 0


@pytest.mark.fault("groups-8")
def test_very_many_requests_that_end_at_once_are_answered_some_in_each_turn(words: Words) -> None:
    asked = [words.submit(Ask) for _ in range(3 * RESPONSES_A_TURN + 1)]
    words.submit(AnswerAll, tuple(pending.request_id for pending in asked))
    told = [len(words.responded)]
    # Decided is decided: only the way to the clients takes its time.
    assert all(pending.response is ErrorCode.NONE for pending in asked)

    while len(words.responded) < len(asked):
        words.loop.run_until_complete(asyncio.sleep(0))
        told.append(len(words.responded))
    assert words.responded == asked
    assert told[0] < len(asked)
    assert max(after - before for before, after in pairwise([0, *told])) <= 2 * RESPONSES_A_TURN


@pytest.mark.fault("strangers-36")
def test_a_request_that_the_log_wakes_while_it_appends_is_written_next(words: Words) -> None:
    """As a marker that waited for this partition to be served does."""
    partition = words.log.partition(0)
    listener = partition.listener
    assert listener is not None
    woken: list[Pending] = []

    def wake() -> None:
        if not woken:
            request_id = words.runtime.next_request_id()
            woken.append(words.runtime.submit(words.led, Say(request_id, ("b",))))
            # What is being appended is not replayed yet, and comes first.
            assert not words.runtime.write_at_once(words.led, [b"c"], [b""], NOW_MS)
        listener()

    partition.listener = wake
    first = words.submit(Say, ("a",))
    assert [pending.response for pending in (first, *woken)] == [ErrorCode.NONE] * 2
    assert len(partition.batches) == 2
    assert words.counts == {"a": 1, "b": 1}
