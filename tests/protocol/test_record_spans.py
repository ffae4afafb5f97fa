"""Records of many batches by columns: the same as one by one, with numpy and without."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest

from protocol.records import record_spans as module
from protocol.records.batch import decode_batch, encode_batch
from protocol.records.batch_header import HEADER_BYTES
from protocol.records.builder import NewRecord
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.record_spans import record_spans
from protocol.records.spans import Bodies, Spans
from protocol.records.varint import encode_varint

T0 = 1_600_000_000_000


@pytest.fixture(params=["numpy", "plain"], autouse=True)
def columns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Every test runs twice: with numpy, and as on a machine that does not have it."""
    if request.param == "plain":
        monkeypatch.setitem(sys.modules, "protocol.records.span_columns", None)
    module._columns_finder.cache_clear()
    yield request.param
    module._columns_finder.cache_clear()


class Body(NamedTuple):
    """The records of one batch."""

    start: int
    end: int
    records: int
    base_offset: int


def spans_of(buffer: bytes, bodies: Sequence[Body]) -> Spans:
    starts, ends, counts, base_offsets = zip(*bodies, strict=True)
    return record_spans(buffer, Bodies(starts, ends, counts, base_offsets))


def chunk_of(batches: Sequence[Sequence[NewRecord]]) -> tuple[bytes, list[Body]]:
    """Batches one behind the other, each at the offset where the one before it ended."""
    chunk, bodies, offset = b"", [], 1000
    for records in batches:
        batch = encode_batch(records, base_offset=offset)
        start = len(chunk) + HEADER_BYTES
        chunk += batch
        bodies.append(Body(start, len(chunk), len(records), offset))
        offset += len(records)
    return chunk, bodies


def agrees(chunk: bytes, bodies: Sequence[Body], spans: Spans) -> None:
    """Every column says what reading each batch says."""
    records = [
        record for body in bodies for record in decode_batch(chunk, body.start - HEADER_BYTES)
    ]
    base_timestamps = [
        record.timestamp_ms - delta
        for record, delta in zip(records, spans.timestamp_deltas, strict=True)
    ]
    first, expected = 0, []
    for body in bodies:
        expected += [records[first].timestamp_ms] * body.records if body.records else []
        first += body.records
    assert spans.offsets == [record.offset for record in records]
    keys = keys_of(chunk, spans)
    assert keys == [record.key for record in records]
    assert list(spans.tombstones) == [record.value is None for record in records]
    assert base_timestamps == expected
    assert spans.keyless == keys.count(None)
    for start, end, record in zip(spans.starts, spans.ends, records, strict=True):
        assert (record.key or b"") in chunk[start:end]
        assert chunk[start:end].startswith(encode_varint(end - start - length_bytes(chunk, start)))


def keys_of(chunk: bytes, spans: Spans) -> list[bytes | None]:
    places = zip(spans.key_starts, spans.key_ends, strict=True)
    return [chunk[start:end] if end >= 0 else None for start, end in places]


def length_bytes(chunk: bytes, start: int) -> int:
    width = 1
    while chunk[start + width - 1] > 127:
        width += 1
    return width


def random_record(chance: random.Random) -> NewRecord:
    key_size, value_size = chance.choice([0, 5, 40, 70, 300]), chance.choice([0, 4, 63, 64, 9000])
    return (
        T0 + chance.choice([0, 1, 63, 64, 8191, 8192, 2**30, -1, -100]),
        None if chance.random() < 0.1 else chance.randbytes(key_size),
        None if chance.random() < 0.1 else chance.randbytes(value_size),
        (("name", b"x"), ("none", None)) if chance.random() < 0.1 else (),
    )


@pytest.mark.parametrize("seed", range(8))
def test_random_batches_of_all_sizes_are_read_alike(seed: int) -> None:
    chance = random.Random(seed)
    counts = [chance.choice([1, 2, 7, 50]) for _ in range(80)] + [chance.randint(1, 400)]
    chance.shuffle(counts)
    chunk, bodies = chunk_of([[random_record(chance) for _ in range(n)] for n in counts])
    agrees(chunk, bodies, spans_of(chunk, bodies))


def test_runs_of_equal_records_are_read_alike() -> None:
    batches: list[list[NewRecord]] = [
        [(T0 + n, b"key-%05d" % n, b"v" * 100, ()) for n in range(500)],
        [(T0, None, b"v", ()) for _ in range(100)],
        [(T0, b"k", None, ()) for _ in range(100)],
        [(T0 + 2 * n, b"k", bytes(n // 50), ()) for n in range(300)],
    ]
    chunk, bodies = chunk_of(batches)
    agrees(chunk, bodies, spans_of(chunk, bodies))


@pytest.mark.parametrize("lengths", [1, 4, 700])
def test_keys_of_one_length_of_few_and_of_many_are_read_alike(lengths: int) -> None:
    keys = [bytes([n % 256]) * (n % lengths) + b"\0" * (lengths == 1) for n in range(1400)]
    records: list[NewRecord] = [
        (T0, key if n % 9 else None, b"v", ()) for n, key in enumerate(keys)
    ]
    chunk, bodies = chunk_of([records[n : n + 20] for n in range(0, 1400, 20)])
    agrees(chunk, bodies, spans_of(chunk, bodies))


@pytest.mark.parametrize("count", [1, 63, 64, 65])
def test_records_at_the_very_end_of_the_buffer_are_read(count: int) -> None:
    chunk, bodies = chunk_of([[(T0, b"", b"", ())] for _ in range(count)])
    agrees(chunk, bodies, spans_of(chunk, bodies))


def test_no_bodies_and_empty_ones_have_no_records() -> None:
    assert record_spans(b"", Bodies([], [], [], [])).offsets == []
    chunk, bodies = chunk_of([[(T0, b"k", b"v", ())] for _ in range(100)])
    empty = Body(bodies[3].start, bodies[3].start, 0, 5)
    assert spans_of(chunk, [empty]).offsets == []
    spans = spans_of(chunk, [empty, *bodies[:70], empty, *bodies[70:], empty])
    agrees(chunk, bodies, spans)


def test_widest_numbers_are_read() -> None:
    batch: Sequence[NewRecord] = [
        (0, b"k", b"v", ()),
        (2**62, b"k", b"v", ()),
        (-(2**62), b"k", bytes(3_000_000), ()),
    ] + [(n, b"k", b"v", ()) for n in range(100)]
    chunk, bodies = chunk_of([batch])
    agrees(chunk, bodies, spans_of(chunk, bodies))


def test_gaps_between_offsets_are_kept() -> None:
    chunk, bodies = chunk_of([[(T0, b"%03d" % n, b"v", ()) for n in range(200)]])
    whole = spans_of(chunk, bodies)
    kept = [n for n in range(200) if n % 3]
    body = b"".join(chunk[whole.starts[n] : whole.ends[n]] for n in kept)
    spans = spans_of(body, [Body(0, len(body), len(kept), 1000)])
    assert spans.offsets == [1000 + n for n in kept]


# Lies


def lies(buffer: bytes, bodies: Sequence[Body]) -> str:
    with pytest.raises(CorruptRecord) as caught:
        spans_of(buffer, bodies)
    return str(caught.value)


def one_body(record: bytes, count: int = 1) -> tuple[bytes, list[Body]]:
    """Enough sound batches of a record for columns, and then one of `record`."""
    chunk, bodies = chunk_of([[(T0, b"k", b"v", ())] for _ in range(100)])
    return chunk + record, [*bodies, Body(len(chunk), len(chunk) + len(record), count, 5000)]


SOUND = bytes.fromhex("10 00 00 00 02 6b 02 76 00".replace(" ", ""))


@pytest.mark.parametrize(
    ("record", "count"),
    [
        (SOUND, 2),
        (SOUND + b"\0", 1),
        (SOUND * 2, 2),
        (SOUND, -1),
        (SOUND, 2**31 - 1),
        (b"\x12" + SOUND[1:], 1),
        (b"\x0e" + SOUND[1:], 1),
        (b"\x11" + SOUND[1:], 1),
        (SOUND[:3] + b"\1" + SOUND[4:], 1),
        (SOUND[:4] + b"\3" + SOUND[5:], 1),
        (SOUND[:4] + b"\x7e" + SOUND[5:], 1),
        (SOUND[:6] + b"\4" + SOUND[7:], 1),
        (SOUND[:6] + b"\3" + SOUND[7:], 1),
        (b"\xff" * 12, 1),
        (b"", 1),
    ],
    ids=[
        "fewer records",
        "left over",
        "offsets equal",
        "negative count",
        "endless count",
        "longer",
        "shorter",
        "negative length",
        "negative offset",
        "negative key length",
        "key too long",
        "value too long",
        "negative value length",
        "varint too long",
        "no bytes",
    ],
)
def test_body_that_lies_is_named(record: bytes, count: int) -> None:
    assert spans_of(*one_body(SOUND)).offsets[-1] == 5000
    assert "batch at 5000" in lies(*one_body(record, count))


@pytest.mark.parametrize("seed", range(30))
def test_flipped_bytes_are_refused_or_read_within_the_body(seed: int) -> None:
    chance = random.Random(seed)
    chunk, bodies = chunk_of([[random_record(chance) for _ in range(3)] for _ in range(60)])
    damaged = bytearray(chunk)
    for _ in range(chance.choice([1, 3])):
        body = chance.choice(bodies)
        damaged[chance.randrange(body.start, min(body.end, body.start + 12))] = chance.randrange(
            256
        )
    try:
        spans = spans_of(bytes(damaged), bodies)
    except CorruptRecord:
        return
    assert len(spans.key_starts) == len(spans.key_ends) == 180
    assert all(start < end for start, end in zip(spans.starts, spans.ends, strict=True))
    assert list(spans.ends)[2::3] == [body.end for body in bodies]
