"""A log and its producers: nothing twice, and the same state after every way to come back."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest

from core_log.appending.appended import LogAppendInfo
from core_log.appending.batch_stamp import stamp
from core_log.config import LogConfig
from core_log.log import Log
from core_log.memory_directory import MemoryDirectory
from core_log.producers.producer_snapshots import SNAPSHOT, encode, snapshot_name
from core_log.recovery.loading import load_log
from core_log.storage import Directory
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch import encode_batch, read_header
from protocol.records.batch_header import CONTROL, TRANSACTIONAL
from protocol.topic_partition import TopicPartition
from tests.core_log.conftest import Writer, reads
from tests.core_log.transactional_batches import expire

Open = Callable[..., Any]
P = 7
FLIGHTS_0, OFFSETS_0 = TopicPartition("flights", 0), TopicPartition("__consumer_offsets", 0)


@attrs.define(eq=False)
class Idempotent:
    """A producer with an id; `writer` appends for it."""

    writer: Any
    producer_id: int = P
    epoch: int = 0
    sequence: int = 0

    def send(self, *values: bytes, sequence: int | None = None, **how: Any) -> LogAppendInfo:
        """Append the next numbers, or again the ones from `sequence` on."""
        appended: LogAppendInfo = self.writer.append(
            *values,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence if sequence is None else sequence,
            **how,
        )
        if sequence is None:
            self.sequence += len(values)
        return appended

    def refusal(self, sequence: int) -> ErrorCode:
        with pytest.raises(ApiError) as refused:
            self.send(b"refused", sequence=sequence)
        return refused.value.code


def snapshots(directory: Directory) -> list[int]:
    names = directory.files()
    return [int(name[:20]) for name in names if name.endswith(SNAPSHOT)]


def last_batches(log: Log) -> bytes:
    """The state as a snapshot keeps it."""
    return encode(log.producers.producers)


def by_a_full_scan(directory: Directory) -> bytes:
    """Return the producers that a log without any snapshots finds."""
    again = MemoryDirectory("scanned")
    for name in directory.files():
        if not name.endswith(SNAPSHOT):
            again.write_atomic(name, directory.read(name) or b"")
    scanned = load_log(
        again,
        FLIGHTS_0,
        LogConfig(),
        recovery_point=0,
        clean_shutdown=False,
        monotonic_ms=lambda: 0,
    )
    return last_batches(scanned)


def test_a_batch_sent_again_is_answered_as_the_first_time_and_not_appended(
    directory: Directory, open_log: Open
) -> None:
    producer = Idempotent(open_log(directory))
    producer.writer.append(b"other")
    first = producer.send(b"a", b"b")
    producer.send(b"c")
    again = producer.send(b"a", b"b", sequence=0)
    assert (
        (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset) == (1, 2)
    )
    assert producer.writer.values() == [b"other", b"a", b"b", b"c"]


def test_a_repeated_batch_has_the_log_append_time_of_the_first(
    memory: MemoryDirectory, open_log: Open
) -> None:
    producer = Idempotent(open_log(memory, message_timestamp_type="LogAppendTime"))
    first = producer.send(b"a", timestamp=5)
    producer.writer.now_ms += 1000
    assert producer.send(b"a", sequence=0).log_append_time_ms == first.log_append_time_ms > 5


def test_a_gap_is_refused_and_nothing_is_appended(memory: MemoryDirectory, open_log: Open) -> None:
    producer = Idempotent(open_log(memory))
    producer.send(b"a")
    assert producer.refusal(2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.writer.values() == [b"a"]


def test_in_the_offsets_topic_the_epoch_alone_counts(memory: MemoryDirectory) -> None:
    producer = Idempotent(
        Writer(
            load_log(
                memory,
                OFFSETS_0,
                LogConfig(),
                recovery_point=0,
                clean_shutdown=True,
                monotonic_ms=lambda: 0,
            )
        )
    )
    assert [producer.send(b"x", sequence=s).base_offset for s in (9, 4, 12)] == [0, 1, 2]
    producer.epoch = -1
    assert producer.refusal(13) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_failed_write_is_not_noted(memory: MemoryDirectory, open_log: Open) -> None:
    producer = Idempotent(open_log(memory.child("flights-0")))
    producer.send(b"a")
    before = last_batches(producer.writer.log)
    memory.disk.free_bytes = 10
    with pytest.raises(ApiError):
        producer.send(b"b" * 100)
    assert last_batches(producer.writer.log) == before


def test_a_failed_roll_is_not_noted(memory: MemoryDirectory, open_log: Open) -> None:
    producer = Idempotent(open_log(memory.child("flights-0"), segment_bytes=200))
    producer.send(b"a" * 50)
    memory.disk.free_bytes = 0
    with pytest.raises(ApiError):
        producer.send(b"b" * 120)
    assert producer.writer.log.producers.producers[P].next_sequence == 1


def test_a_follower_takes_note_and_checks_nothing(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory)
    for offset, sequence in ((0, 15), (1, 90)):
        records = [(5, None, b"x", ())]
        writer.log.append_follower(
            encode_batch(
                records,
                base_offset=offset,
                producer_id=P,
                producer_epoch=2,
                base_sequence=sequence,
            ),
            now_ms=0,
        )
    producer = Idempotent(writer, epoch=2, sequence=91)
    assert producer.send(b"c").base_offset == 2
    assert producer.send(b"x", sequence=90).base_offset == 1
    assert producer.refusal(93) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_markers_and_transactions_of_another_broker_pass(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory)
    writer.log.append_follower(
        _with_attributes(0, 0, TRANSACTIONAL) + _with_attributes(1, -1, TRANSACTIONAL | CONTROL),
        now_ms=0,
    )
    assert writer.log.log_end_offset == 2
    assert Idempotent(writer, sequence=1).send(b"next").base_offset == 2
    writer.log.close()
    again = open_log(memory)
    assert again.log.producers.producers[P].next_sequence == 2


def _with_attributes(offset: int, sequence: int, attributes: int) -> bytes:
    batch = encode_batch(
        [(5, b"\0\0\0\1", b"\0\0\0\0\0\0", ())],
        producer_id=P,
        producer_epoch=0,
        base_sequence=sequence,
    )
    return b"".join(stamp(batch, read_header(batch), offset, 0, attributes, 5))


# ---- coming back


def test_a_closed_log_knows_its_producers_without_reading_its_records(
    memory: MemoryDirectory, open_log: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Idempotent(open_log(memory))
    for value in (b"a", b"b", b"c"):
        producer.send(value)
    read = reads(monkeypatch)

    def bytes_read() -> int:
        read.clear()
        producer.writer = open_log(memory)
        return sum(read)

    producer.writer.log.close()
    with_snapshot = bytes_read()
    assert producer.send(b"c", sequence=2).base_offset == 2
    producer.writer.log.close()
    snapshot = memory.read(f"{3:020d}{SNAPSHOT}") or b""
    memory.remove(f"{3:020d}{SNAPSHOT}")
    assert with_snapshot == bytes_read() + len(snapshot)


def test_what_a_closed_log_knew_survives_a_power_loss(
    memory: MemoryDirectory, open_log: Open
) -> None:
    producer = Idempotent(open_log(memory.child("flights-0")))
    producer.send(b"a")
    producer.writer.log.close()
    memory.lose_power()
    producer.writer = open_log(memory.child("flights-0"))
    assert producer.send(b"b").base_offset == 1


@pytest.mark.parametrize("clean", [True, False])
def test_state_comes_back_with_the_log(directory: Directory, open_log: Open, clean: bool) -> None:
    producer = Idempotent(open_log(directory, segment_bytes=300))
    for _ in range(8):
        producer.send(b"x" * 50)
    if clean:
        producer.writer.log.close()
    producer.writer = open_log(directory, clean=clean, segment_bytes=300)
    assert producer.refusal(9) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(b"x" * 50, sequence=7).base_offset == 7
    assert producer.send(b"y").base_offset == 8


def test_without_snapshots_the_log_itself_tells(directory: Directory, open_log: Open) -> None:
    producer = Idempotent(open_log(directory, segment_bytes=300))
    for _ in range(8):
        producer.send(b"x" * 50)
    for offset in snapshots(directory):
        directory.remove(f"{offset:020d}{SNAPSHOT}")
    producer.writer = open_log(directory, clean=False, recovery_point=8, segment_bytes=300)
    assert [producer.send(b"x" * 50, sequence=s).base_offset for s in range(3, 8)] == [
        3,
        4,
        5,
        6,
        7,
    ]


def test_a_flush_writes_the_snapshots_of_the_rolls_before_it_and_keeps_those_of_use(
    memory: MemoryDirectory, open_log: Open, flush: Callable[[Any], None]
) -> None:
    producer = Idempotent(open_log(memory, segment_bytes=300))
    for _ in range(8):
        producer.send(b"x" * 50)
    bases = [segment.base_offset for segment in producer.writer.log.segments]
    assert snapshots(memory) == [], "a roll is on the event loop"
    flush(producer.writer)
    producer.writer.log.tick(producer.writer.now_ms)
    assert snapshots(memory) == bases[-2:]


@pytest.mark.fault("strangers-12")
def test_a_snapshot_is_of_its_roll_whatever_producers_do_until_a_flush_writes_it(
    memory: MemoryDirectory, open_log: Open, flush: Callable[[Any], None]
) -> None:
    """To encode 150,000 producers would take a turn of 0.1 s, and write 7 MB."""
    writer = open_log(memory)
    one, other = Idempotent(writer, producer_id=1), Idempotent(writer, producer_id=2)
    one.send(b"a")
    other.send(b"b")
    known = last_batches(writer.log)
    writer.log.roll(writer.now_ms)
    one.send(b"c")
    Idempotent(writer, producer_id=3).send(b"d")
    assert snapshots(memory) == []

    flush(writer)
    assert snapshots(memory) == [2]
    assert memory.read(snapshot_name(2)) == known
    assert not writer.log.producers.is_shared


def test_a_snapshot_that_no_disk_took_is_written_by_the_next_flush(
    memory: MemoryDirectory, open_log: Open, flush: Callable[[Any], None]
) -> None:
    writer = open_log(memory)
    one = Idempotent(writer)
    one.send(b"a")
    known = last_batches(writer.log)
    writer.log.roll(writer.now_ms)
    memory.disk.free_bytes = 10
    with pytest.raises(OSError, match="No space left"):
        writer.log.begin_flush().run()
    memory.disk.free_bytes = None
    one.send(b"b")
    flush(writer)
    assert memory.read(snapshot_name(1)) == known


def test_a_truncation_goes_by_a_snapshot_that_is_not_written_yet(
    directory: Directory, open_log: Open
) -> None:
    writer = open_log(directory)
    one = Idempotent(writer)
    one.send(b"a")
    writer.log.roll(writer.now_ms)
    # Of these six the five that are remembered do not tell what came before.
    for _ in range(6):
        one.send(b"b")
    writer.log.truncate_to(1)
    assert last_batches(writer.log) == by_a_full_scan(directory)
    assert snapshots(directory) == [1]


def test_a_producer_silent_for_too_long_is_forgotten_after_a_restart_too(
    memory: MemoryDirectory, open_log: Open
) -> None:
    """By the time of its last record, for nobody has heard of it since."""
    old = Idempotent(open_log(memory), producer_id=1)
    old.send(b"a", timestamp=1000)
    new = Idempotent(old.writer, producer_id=2)
    new.send(b"b", timestamp=1500)
    old.writer.log.close()
    again = open_log(memory)
    assert expire(again.log.producers, 2000, 1000) == 1
    old.writer = new.writer = again
    assert list(again.log.producers.producers) == [2]
    assert new.send(b"c").base_offset == 2


def test_snapshots_below_the_logs_start_go_with_their_segments(
    directory: Directory, open_log: Open
) -> None:
    producer = Idempotent(open_log(directory, segment_bytes=300, retention_ms=-1))
    log = producer.writer.log
    for _ in range(8):
        producer.send(b"x" * 50)
        log.history.write_snapshots()
    assert snapshots(directory) == [2, 4, 6]
    log.increment_log_start_offset(4)
    log.delete_old_segments(8, producer.writer.now_ms)
    assert snapshots(directory) == [4, 6]
    log.increment_log_start_offset(8)
    log.delete_old_segments(8, producer.writer.now_ms)
    assert snapshots(directory) == [6]


def test_truncation_goes_back_to_what_was_known_then(directory: Directory, open_log: Open) -> None:
    producer = Idempotent(open_log(directory, segment_bytes=300))
    for _ in range(8):
        producer.send(b"x" * 50)
    producer.writer.log.truncate_to(5)
    assert producer.refusal(8) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert all(offset <= 5 for offset in snapshots(directory))
    assert producer.send(b"x" * 50, sequence=5).base_offset == 5
    assert last_batches(producer.writer.log) == by_a_full_scan(directory)


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("producer_id", [-1, P])
@pytest.mark.parametrize("times", [[1_000_000] * 2003, range(2003), [-1] * 2003])
def test_truncation_reads_some_index_intervals_of_the_log_however_long_it_is(
    memory: MemoryDirectory,
    open_log: Open,
    monkeypatch: pytest.MonkeyPatch,
    is_restarted: bool,
    producer_id: int,
    times: Sequence[int],
) -> None:
    read = reads(monkeypatch)

    directory = memory.child("flights-0")
    writer = open_log(directory)
    producer = Idempotent(writer, producer_id)
    for time in times[:2000]:
        producer.send(b"x" * 120, timestamp=time)
    if is_restarted:
        writer.log.close()
        writer = producer.writer = open_log(directory)
        for time in times[2000:]:  # of what came before, a snapshot has a producer's last batch
            producer.send(b"x" * 120, timestamp=time)
    assert writer.log.size > 350_000

    read.clear()
    writer.log.truncate_to(writer.log.log_end_offset - 2)

    assert sum(read) < 10 * LogConfig().index_interval_bytes


def test_a_log_that_starts_anew_knows_nobody(directory: Directory, open_log: Open) -> None:
    producer = Idempotent(open_log(directory, segment_bytes=300))
    for _ in range(4):
        producer.send(b"x" * 50)
    producer.writer.log.truncate_fully_and_start_at(100)
    assert snapshots(directory) == []
    assert producer.send(b"x", sequence=7).base_offset == 100


def test_a_producer_outlives_its_records(memory: MemoryDirectory, open_log: Open) -> None:
    producer = Idempotent(open_log(memory, segment_bytes=300, retention_ms=1))
    for _ in range(4):
        producer.send(b"x" * 50)
    log = producer.writer.log
    log.delete_old_segments(4, now_ms=producer.writer.now_ms + 1000)
    assert (log.log_start_offset, log.size) == (4, 0)
    assert producer.send(b"y").base_offset == 4
    log.close()
    producer.writer = open_log(memory, log_start_offset=4)
    assert producer.send(b"z").base_offset == 5


def test_a_log_with_a_damaged_segment_is_served_with_the_producers_of_the_others(
    memory: MemoryDirectory, open_log: Open
) -> None:
    """By the ends of its segments, which alone are looked at after a clean stop, it is whole."""
    settings = {"segment_bytes": 300, "index_interval_bytes": 100}
    producer = Idempotent(open_log(memory, **settings))
    for _ in range(8):
        producer.send(b"x" * 50)
    producer.writer.log.close()
    for offset in snapshots(memory):
        memory.write_atomic(f"{offset:020d}{SNAPSHOT}", b"torn")
    memory.open_segment(f"{0:020d}.log").write(16, b"\x07")  # a format of the future
    producer.writer = open_log(memory, **settings)
    assert producer.send(b"y").base_offset == 8


def torn(rng: random.Random, synced: bytes, now: bytes) -> bytes:
    """Return the fsynced bytes, and some of those that were written since."""
    return now[: rng.randint(len(synced), max(len(synced), len(now)))]


@pytest.mark.parametrize("seed", range(25))
def test_state_after_a_power_loss_is_what_a_full_scan_finds(
    memory: MemoryDirectory, open_log: Open, seed: int
) -> None:
    rng = random.Random(seed)
    directory = memory.child("flights-0")
    # The full scan copies the files, those of indexes with the room that they reserve.
    small = {"segment_bytes": 400, "segment_index_bytes": 4096}
    settings = {**small, "file_delete_delay_ms": 0}
    writer = open_log(directory, **settings)
    recovery_point = 0
    producers = [Idempotent(writer, producer_id=number) for number in range(3)]
    for _ in range(60):
        step = rng.random()
        if step < 0.8:
            producer = rng.choice(producers)
            producer.send(*[b"x" * rng.randint(1, 60)] * rng.randint(1, 3))
        elif step < 0.9:
            begun = writer.log.begin_flush()
            begun.run()
            writer.log.end_flush(begun)
            recovery_point = writer.log.recovery_point
        else:
            writer.log.truncate_to(rng.randint(max(0, writer.log.log_end_offset - 6), 10**6))
            assert last_batches(writer.log) == by_a_full_scan(directory)
            recovery_point = min(recovery_point, writer.log.recovery_point)
            by_id = writer.log.producers.producers
            for producer in producers:
                sizes = by_id.get(producer.producer_id)
                producer.sequence = sizes.next_sequence if sizes else 0
    memory.lose_power(lambda synced, now: torn(rng, synced, now))
    again = open_log(directory, clean=False, recovery_point=recovery_point, **settings)
    assert last_batches(again.log) == by_a_full_scan(directory)
