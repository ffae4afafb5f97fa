"""Records taken by columns must get the verdicts, rows and words that the plain walk gives them."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numpy", reason="missing tool: numpy")

from protocol.records.batch import decode_batch, encode_batch
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.record_columns import Columns, find_columns
from protocol.records.record_walk import walk
from protocol.records.varint import encode_varint
from tests.protocol.damaged_batches import resealed
from tests.protocol.record_shapes import (
    SHAPES,
    Shape,
    fast_verdict,
    mutate,
    plain_verdict,
    record_starts,
)

ROOT = Path(__file__).resolve().parents[2]
COUNT = 320

UNEVEN: dict[str, Shape] = {
    **SHAPES,
    "text": lambda r, n: (n // 9, b"key-%d" % n, b"x" * r.randint(0, 150), []),
    "zeros": lambda r, n: (n, b"k%d" % n, bytes(r.randint(0, 150)), []),
    "records in records": lambda r, n: (n, b"k%d" % n, b"\0\x18" * r.randint(0, 50), []),
    "large": lambda r, n: (n, b"k", b"x" * r.randint(300, 1200), []),
    "tiny": lambda r, n: (n, None, r.choice([None, b""]), []),
    "far apart": lambda r, n: (n * r.randint(0, 2**24), b"k%d" % n, r.randbytes(9), []),
    "some headers": lambda r, n: (n, b"k%d" % n, b"v" * (n % 7), [("h", b"v\0")] * (n % 40 == 3)),
    "some wide": lambda r, n: (n, b"k" * r.choice([1, 80]), b"v" * (9000 * (n % 60 == 8)), []),
    "some far": lambda r, n: (n - (n % 50 == 9) * 2**50, b"k%d" % n, r.randbytes(n % 9), []),
}
PLAIN = set(UNEVEN) - {"headers", "unordered"}
"""Shapes of which so few records are odd that columns are worth it."""


def body_of(shape: str, count: int = COUNT) -> bytes:
    chance = random.Random(shape)
    return encode_batch([UNEVEN[shape](chance, n) for n in range(count)])[61:]


def columns_of(body: bytes, count: int = COUNT) -> Columns | None:
    return find_columns(body, 0, count, require_keys=False)


@pytest.mark.parametrize("shape", UNEVEN)
@pytest.mark.parametrize("count", [256, COUNT, 1000])
def test_sound_records_are_read_as_the_plain_reader_reads_them(shape: str, count: int) -> None:
    body = body_of(shape, count)

    verdict = fast_verdict(body, count, strict=True, require_keys=False)

    assert verdict is not CorruptRecord
    assert verdict == plain_verdict(body, count, strict=True, require_keys=False)
    assert (columns_of(body, count) is not None) == (shape in PLAIN)


def test_three_byte_offset_deltas_are_read() -> None:
    body = body_of("text", 9000)

    assert fast_verdict(body, 9000, True, False) == plain_verdict(body, 9000, True, False)


@pytest.mark.parametrize("shape", UNEVEN)
def test_mutated_records_get_the_verdict_of_the_plain_reader(shape: str) -> None:
    chance = random.Random(shape)
    sound = body_of(shape)
    starts = record_starts(sound, COUNT)
    verdicts = []
    for _ in range(150):
        body = bytearray(sound)
        for _ in range(chance.choice([1, 1, 1, 2, 3])):
            mutate(body, chance, starts)
        claimed = chance.choice([COUNT, COUNT, COUNT, COUNT - 1, COUNT + 1])
        strict, require_keys = chance.choice([(True, False), (True, True), (False, False)])
        verdicts.append(fast_verdict(bytes(body), claimed, strict, require_keys))
        assert verdicts[-1] == plain_verdict(bytes(body), claimed, strict, require_keys)
    assert verdicts.count(CorruptRecord) > 30


@pytest.mark.parametrize("strict", [True, False])
def test_records_that_compaction_has_thinned_out_are_read(strict: bool) -> None:
    body = body_of("text", 2 * COUNT)
    starts = [*record_starts(body, 2 * COUNT), len(body)]
    kept = sorted(random.Random(5).sample(range(2 * COUNT), COUNT))
    thinned = b"".join(body[starts[n] : starts[n + 1]] for n in kept)

    verdict = fast_verdict(thinned, COUNT, strict, require_keys=False)

    assert verdict == plain_verdict(thinned, COUNT, strict, require_keys=False)
    assert (verdict is CorruptRecord) == strict
    assert columns_of(thinned) is not None


@pytest.mark.parametrize("nth", [0, 1, 100, COUNT - 2, COUNT - 1])
@pytest.mark.parametrize("field", ["length", "timestamp", "offset", "key", "value", "headers"])
@pytest.mark.parametrize(
    "varint",
    [
        *map(encode_varint, (-1, -2, 2**21, 2**27, 2**28 - 1, 2**31 - 1, -(2**31), 2**62)),
        *map(bytes.fromhex, ("8000", "80808000", "8080808000", "ffffffffff7f", "ff" * 10)),
    ],
    ids=bytes.hex,
)
def test_wild_varint_in_one_record_gets_the_verdict_of_the_plain_reader(
    nth: int, field: str, varint: bytes
) -> None:
    sound = body_of("text")
    starts = [*record_starts(sound, COUNT), len(sound)]
    fields = {
        "timestamp": encode_varint(nth // 9),
        "offset": encode_varint(nth),
        "key": encode_varint(1) + b"k",
        "value": encode_varint(1) + b"v",
        "headers": b"\0",
    }
    true_length = 1 + sum(map(len, fields.values()))
    length = encode_varint(true_length)
    if field == "length":
        length = varint
    else:
        fields[field] = varint + fields[field][1:] * (field in ("key", "value"))
        length = encode_varint(1 + sum(map(len, fields.values())))
    record = length + b"\0" + b"".join(fields.values())
    body = sound[: starts[nth]] + record + sound[starts[nth + 1] :]

    for strict in (True, False):
        verdict = fast_verdict(body, COUNT, strict, require_keys=False)
        assert verdict == plain_verdict(body, COUNT, strict, require_keys=False)


def test_body_cut_anywhere_is_refused() -> None:
    sound = body_of("text")
    for end in [*range(1, 40), *range(len(sound) - 40, len(sound))]:
        assert fast_verdict(sound[:end], COUNT, True, False) is CorruptRecord


def test_payload_full_of_records_does_not_hide_a_length_that_skips_one() -> None:
    sound = body_of("text")
    starts = record_starts(sound, COUNT)
    skipped = starts[52] - starts[50]
    length = encode_varint(skipped - 2)
    body = sound[: starts[50]] + length + sound[starts[50] + len(length) :]

    with pytest.raises(CorruptRecord, match=r"^record 50: "):
        walk(body, COUNT - 1, strict=True)


def test_keyless_record_among_many_is_named_to_a_compacted_topic() -> None:
    chance = random.Random(1)
    records = [(n, b"k", chance.randbytes(n % 90), []) for n in range(COUNT)]
    records[200] = (0, None, b"v", [])
    body = encode_batch(records)[61:]

    assert walk(body, COUNT, strict=True)
    with pytest.raises(CorruptRecord, match="record 200: no key"):
        walk(body, COUNT, strict=True, require_keys=True)


@pytest.mark.parametrize("base", [0, 2**62, 2**63 - 9, -(2**63)])
def test_bases_at_the_ends_of_int64_do_not_wrap(base: int) -> None:
    body = body_of("text")
    rows: list = []

    walk(body, COUNT, strict=True, base_offset=base, base_timestamp=base, rows=rows)

    assert [row[0] for row in rows] == [base + n for n in range(COUNT)]
    assert [row[1] for row in rows] == [base + n // 9 for n in range(COUNT)]


def test_timestamps_of_64_bits_are_told_exactly() -> None:
    records = [(n, b"k%d" % n, b"v" * (n % 11), []) for n in range(COUNT)]
    records[77] = (2**63 - 1, b"k", b"v", [])
    batch = encode_batch(records)

    assert walk(batch[61:], COUNT, strict=True) == (2**63 - 1, COUNT - 1)
    assert decode_batch(batch)[77].timestamp_ms == 2**63 - 1


def test_timestamp_that_a_word_cuts_short_is_told_exactly() -> None:
    records = [(n, b"k%d" % n, b"v" * (n % 11), []) for n in range(COUNT)]
    records[77] = (2**33 - 1, b"k", b"v" * 9000, [])
    body = encode_batch(records)[61:]

    assert columns_of(body) is not None
    assert walk(body, COUNT, strict=True) == (2**33 - 1, COUNT - 1)


def test_lying_lengths_of_odd_records_are_never_cut_out_of_the_body() -> None:
    columns = columns_of(body_of("some headers"))

    assert columns is not None
    assert columns.odd
    assert {*columns.key_lengths[columns.odd], *columns.value_lengths[columns.odd]} == {1}


def test_records_of_log_append_time_all_have_the_time_of_the_batch() -> None:
    chance = random.Random(2)
    records = [(n, b"k", chance.randbytes(n % 50), []) for n in range(COUNT)]
    batch = resealed(encode_batch(records), 21, b"\0\x08")

    assert {record.timestamp_ms for record in decode_batch(batch)} == {COUNT - 1}


WALK_WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None  # as if it were not there
from protocol.records.batch import CorruptRecord
from protocol.records.record_walk import walk
for line in sys.stdin:
    try:
        print(walk(bytes.fromhex(line), int(sys.argv[1]), strict=True))
    except CorruptRecord as lie:
        print(lie)
assert "protocol.records.record_columns" not in sys.modules
"""


def words(bodies: list[bytes]) -> list[str]:
    """Return the verdicts of `walk`."""
    said = []
    for body in bodies:
        try:
            said.append(repr(walk(body, COUNT, strict=True)))
        except CorruptRecord as lie:
            said.append(str(lie))
    return said


def test_without_numpy_the_same_words_are_said() -> None:
    chance = random.Random(8)
    bodies = []
    for shape in sorted(PLAIN - {"long", "some wide"}):
        sound = body_of(shape)
        starts = record_starts(sound, COUNT)
        for _ in range(8):
            body = bytearray(sound)
            mutate(body, chance, starts)
            bodies.append(bytes(body))

    plainly = subprocess.run(
        [sys.executable, "-c", WALK_WITHOUT_NUMPY, str(COUNT)],
        input="\n".join(body.hex() for body in bodies),
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )

    assert plainly.stdout.splitlines() == words(bodies)


def test_numpy_is_not_imported_before_a_large_uneven_batch() -> None:
    small, even = body_of("text", 200), body_of("equal")
    script = (
        "import sys; from protocol.records.record_walk import walk; "
        f"walk({small!r}, 200, strict=True); walk({even!r}, {COUNT}, strict=True); "
        "sys.exit('numpy' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT).returncode == 0
