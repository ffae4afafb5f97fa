"""The journal: which entries share a batch."""

from typing import Any

import pytest

from groups.runtime.effects import Append, Writer
from groups.runtime.journal import MAX_WAITING_BYTES, Journal
from offsets.records import (
    CommittedOffset,
    OffsetKey,
    Record,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from protocol.records.batch import decode_batch, read_header
from protocol.records.compression import Codec
from protocol.records.control_record import COMMIT, coordinator_epoch, marker_type

NOW_MS = 1_700_000_000_000
ROOMY = 1_000_000


def records(group: str, count: int = 1) -> list[Record]:
    return [(OffsetKey(group, "t", p), CommittedOffset(p, -1, "", NOW_MS)) for p in range(count)]


def add(journal: Journal, records: list[Record], then: object, **options: Any) -> None:
    encoded = [(encode_key(key), encode_value(value)) for key, value in records]
    journal.add(Append(records, then, **options), encoded)


def decoded(batch: bytes) -> list[Record]:
    pairs = [(decode_key(record.key), record.value) for record in decode_batch(batch)]
    return [(key, decode_value(key, value)) for key, value in pairs]


def test_what_waits_shares_one_batch_in_order() -> None:
    journal = Journal()
    add(journal, records("a", 2), "first")
    add(journal, records("b"), "second")
    batch = journal.next_batch(ROOMY, NOW_MS)
    assert decoded(batch) == records("a", 2) + records("b")
    assert [entry.then for entry in journal.take()] == ["first", "second"]


def test_while_a_batch_is_in_flight_the_rest_waits_and_then_shares_the_next() -> None:
    journal = Journal()
    add(journal, records("a"), "first")
    journal.next_batch(ROOMY, NOW_MS)
    add(journal, records("b"), "second")
    add(journal, records("c"), "third")
    assert journal.waiting == 2
    assert [entry.then for entry in journal.take()] == ["first"]
    batch = journal.next_batch(ROOMY, NOW_MS)
    assert decoded(batch) == records("b") + records("c")


def test_batch_is_as_large_as_allowed_and_no_larger() -> None:
    journal = Journal()
    for number in range(100):
        add(journal, records("group", 3), number)
    sizes = []
    while journal.waiting:
        sizes.append(len(journal.next_batch(2000, NOW_MS)))
        journal.take()
    assert max(sizes) <= 2000
    assert len(sizes) > 1
    assert sum(sizes[:-1]) > 1400 * len(sizes[:-1])


def test_entry_too_large_to_share_goes_alone() -> None:
    journal = Journal()
    add(journal, records("small"), "small")
    add(journal, records("large", 100), "large")
    add(journal, records("small too"), "small too")
    batches = []
    while journal.waiting:
        journal.next_batch(1000, NOW_MS)
        batches.append([entry.then for entry in journal.take()])
    assert batches == [["small"], ["large"], ["small too"]]


def test_tombstones_are_written_without_a_value() -> None:
    journal = Journal()
    add(journal, [(OffsetKey("a", "t", 0), None)], "gone")
    batch = journal.next_batch(ROOMY, NOW_MS)
    assert decode_batch(batch)[0].value is None


def test_records_carry_the_time_of_writing_and_the_codec() -> None:
    journal = Journal(Codec.GZIP)
    add(journal, records("a"), "first")
    batch = journal.next_batch(ROOMY, NOW_MS)
    assert read_header(batch).codec is Codec.GZIP
    assert decode_batch(batch)[0].timestamp_ms == NOW_MS


def test_losing_the_partition_gives_back_what_is_in_flight_and_what_waits() -> None:
    journal = Journal()
    add(journal, records("a"), "in flight")
    journal.next_batch(ROOMY, NOW_MS)
    add(journal, records("b"), "waiting")
    assert [entry.then for entry in journal.take_all()] == ["in flight", "waiting"]
    assert not journal.waiting


def test_journal_that_cannot_be_emptied_is_full_at_its_bound() -> None:
    journal = Journal()
    large: list[Record] = [(OffsetKey("g", "t", 0), CommittedOffset(0, -1, "m" * 30_000))] * 500
    added = 0
    while not journal.is_full:
        add(journal, large, added)
        added += 1
    assert added == pytest.approx(MAX_WAITING_BYTES / (30_050 * 500), abs=1)
    journal.next_batch(2**31, NOW_MS)
    assert not journal.is_full


PRODUCER = Writer(9, 4)


def test_records_of_a_producer_are_a_transactional_batch_of_its_own() -> None:
    journal = Journal()
    add(journal, records("a"), "plain")
    add(journal, records("b"), "transactional", writer=PRODUCER)
    add(journal, records("c"), "plain again")
    batches = []
    while journal.waiting:
        header = read_header(journal.next_batch(ROOMY, NOW_MS))
        batches.append((header.producer_id, header.producer_epoch, header.is_transactional))
        journal.take()
    assert batches == [(-1, -1, False), (9, 4, True), (-1, -1, False)]


def test_records_of_one_producer_share_a_batch_and_its_marker_does_not() -> None:
    journal = Journal()
    add(journal, records("a"), "first", writer=PRODUCER)
    add(journal, records("b"), "second", writer=PRODUCER)
    add(journal, [], "end", writer=Writer(9, 4, ends=COMMIT, coordinator_epoch=7))
    journal.next_batch(ROOMY, NOW_MS)
    assert [entry.then for entry in journal.take()] == ["first", "second"]
    batch = journal.next_batch(ROOMY, NOW_MS)
    (marker,) = decode_batch(batch)
    assert read_header(batch).is_control
    assert (marker_type(marker.key or b""), coordinator_epoch(marker.value or b"")) == (COMMIT, 7)


def test_appends_that_wait_for_the_leader_alone_share_no_batch_with_others() -> None:
    journal = Journal()
    add(journal, records("a"), "all")
    add(journal, records("b"), "leader", acks=1)
    journal.next_batch(ROOMY, NOW_MS)
    assert (journal.acks, [entry.then for entry in journal.take()]) == (-1, ["all"])
    journal.next_batch(ROOMY, NOW_MS)
    assert (journal.acks, [entry.then for entry in journal.take()]) == (1, ["leader"])
