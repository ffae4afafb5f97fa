import random
from contextlib import suppress

import pytest

from protocol.records.batch import Codec, CorruptRecord, encode_batch, read_header, validate_batch
from protocol.records.compression import compress
from tests.protocol.damaged_batches import resealed

COUNT = 30
RECORDS = [(1_000 + n, b"key-%02d" % n, b"v" * 50, ()) for n in range(COUNT)]
STRIDE = (len(encode_batch(RECORDS)) - 61) // COUNT
LENGTH, ATTRIBUTES, TIMESTAMP, OFFSET, KEY_LENGTH, VALUE_LENGTH, HEADERS = 0, 1, 2, 3, 4, 11, 62
"""Where the fields of those records are, each a single byte."""


def check(batch: bytes, **options: object) -> int:
    return validate_batch(batch, read_header(batch), **options).max_timestamp


def lying(index: int, field: int, byte: int, codec: Codec = Codec.NONE) -> bytes:
    """A batch with one wrong byte in one record, and a CRC that hides it."""
    batch = resealed(encode_batch(RECORDS), 61 + index * STRIDE + field, bytes((byte,)))
    if codec is Codec.NONE:
        return batch
    body = compress(codec, batch[61:])
    header = batch[:8] + (49 + len(body)).to_bytes(4, "big") + batch[12:61]
    return resealed(header + body, 21, bytes((0, codec)))


@pytest.mark.parametrize("codec", list(Codec))
def test_true_batch_passes_and_tells_its_greatest_timestamp(codec: Codec) -> None:
    assert check(memoryview(encode_batch(RECORDS, codec=codec))) == 1_000 + COUNT - 1


def test_greatest_timestamp_is_that_of_the_records_not_of_the_header() -> None:
    batch = resealed(encode_batch(RECORDS), 35, (10**15).to_bytes(8, "big"))

    assert check(batch) == 1_000 + COUNT - 1


def test_greatest_timestamp_of_records_that_go_back_in_time_is_the_first() -> None:
    assert check(encode_batch([(5_000 - n, b"", b"", ()) for n in range(40)])) == 5_000


def test_greatest_timestamp_may_be_below_the_base() -> None:
    batch = encode_batch([(5_000, b"", b"", ())])
    first = resealed(batch, 61 + TIMESTAMP, bytes((9,)))

    assert check(first) == 4_995


def test_records_without_a_timestamp_have_minus_one() -> None:
    assert check(encode_batch([(-1, b"", b"", ())] * 20)) == -1


def test_timestamp_beyond_64_bits_is_refused() -> None:
    batch = resealed(encode_batch(RECORDS), 27, (2**63 - 5).to_bytes(8, "big"))

    with pytest.raises(CorruptRecord, match="64 bits"):
        check(batch)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("index", [0, 13, COUNT - 1])
@pytest.mark.parametrize(
    ("field", "byte", "lie"),
    [
        (LENGTH, 4, "length 2"),
        (LENGTH, 1, "length -1"),
        (LENGTH, 122, "header count 0|length 61|bytes end"),
        (ATTRIBUTES, 1, "attributes 1"),
        (OFFSET, 1, "offset delta -1 is not"),
        (KEY_LENGTH, 3, "key length -2"),
        (KEY_LENGTH, 10, ""),
        (VALUE_LENGTH, 5, "value length -3"),
        (VALUE_LENGTH, 98, ""),
        (HEADERS, 1, "header count -1"),
        (HEADERS, 126, "header"),
    ],
)
def test_lie_in_a_record_is_found_and_named(
    codec: Codec, index: int, field: int, byte: int, lie: str
) -> None:
    with pytest.raises(CorruptRecord, match=f"^record {index}: .*{lie}"):
        check(lying(index, field, byte, codec))


def test_skipped_offset_is_refused() -> None:
    with pytest.raises(CorruptRecord, match="record 7: offset delta 8 is not 7"):
        check(lying(7, OFFSET, 16))


@pytest.mark.parametrize("tail", [b"\x01", bytes(20)])
def test_header_of_a_record_may_not_lack_its_key(tail: bytes) -> None:
    batch = encode_batch([(0, b"k", b"v", [("?", tail)])])
    at = batch.rindex(b"?") - 1

    with pytest.raises(CorruptRecord, match="record 0: header key is null"):
        check(resealed(batch, at, b"\x01"))


def test_more_headers_than_bytes_are_refused_before_room_is_made_for_them() -> None:
    batch = encode_batch([(0, b"k", b"v" * 5, ())])
    patched = resealed(batch, len(batch) - 7, b"\x02\xfe\xff\xff\xff\x0f\x00"[:7])

    with pytest.raises(CorruptRecord, match="record 0: "):
        check(patched)


@pytest.mark.parametrize(
    ("at", "patch", "lie"),
    [
        (0, (7).to_bytes(8, "big"), "base offset of a produced batch is 7"),
        (21, b"\0\x20", "control"),
        (21, b"\0\x07", "unknown compression 7"),
        (57, bytes(4), "says 0 records"),
        (57, b"\xff\xff\xff\xff", "says -1 records"),
        (57, (COUNT - 1).to_bytes(4, "big"), "says 29 records but last offset delta 29"),
        (23, COUNT.to_bytes(4, "big"), "says 30 records but last offset delta 30"),
        (43, (5).to_bytes(8, "big"), "producer id 5 with base sequence -1"),
    ],
)
def test_lie_in_the_header_is_found_and_named(at: int, patch: bytes, lie: str) -> None:
    with pytest.raises(CorruptRecord, match=lie):
        check(resealed(encode_batch(RECORDS), at, patch))


@pytest.mark.parametrize(
    ("claimed", "lie"),
    [
        (COUNT - 1, f"{STRIDE} bytes are left over after 29 records"),
        (COUNT + 1, "record 30: "),
        (2**31 - 1, "which 1890 bytes cannot hold"),
    ],
)
def test_count_that_the_records_do_not_bear_out_is_refused(claimed: int, lie: str) -> None:
    batch = resealed(encode_batch(RECORDS), 57, claimed.to_bytes(4, "big"))

    with pytest.raises(CorruptRecord, match=lie):
        check(resealed(batch, 23, (claimed - 1).to_bytes(4, "big")))


def test_producer_id_with_a_sequence_passes() -> None:
    check(encode_batch(RECORDS, producer_id=0, producer_epoch=0, base_sequence=0))


def test_damage_is_found_by_the_crc_before_anything_else() -> None:
    batch = bytearray(encode_batch(RECORDS))
    batch[60] ^= 1

    with pytest.raises(CorruptRecord, match="CRC"):
        check(bytes(batch))


@pytest.mark.parametrize("tail", [b"\0", encode_batch(RECORDS)])
def test_anything_after_the_batch_is_refused(tail: bytes) -> None:
    with pytest.raises(CorruptRecord, match="were sent"):
        check(encode_batch(RECORDS) + tail)


def test_batch_cut_short_is_refused() -> None:
    with pytest.raises(CorruptRecord, match="were sent"):
        check(encode_batch(RECORDS)[:-1])


def test_compacted_topic_refuses_a_record_without_key() -> None:
    keyless = encode_batch([*RECORDS[:20], (1, None, b"v", ()), *RECORDS[20:]])

    check(keyless)
    with pytest.raises(CorruptRecord, match="record 20: no key"):
        check(keyless, require_keys=True)


def test_compacted_topic_refuses_many_equal_records_without_key() -> None:
    with pytest.raises(CorruptRecord, match="record 0: no key"):
        check(encode_batch([(0, None, b"v", ())] * 50), require_keys=True)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_compressed_batch_that_grows_beyond_the_bound_is_refused(codec: Codec) -> None:
    bomb = encode_batch([(0, b"k", bytes(3_000_000), ())], codec=codec)

    check(bomb)
    with pytest.raises(CorruptRecord, match="1000000 bytes allowed"):
        check(bomb, max_decompressed=1_000_000)


def test_random_bytes_with_a_true_crc_raise_nothing_but_corrupt_record() -> None:
    chance = random.Random(17)
    for _ in range(2_000):
        batch = bytearray(encode_batch(RECORDS, codec=chance.choice(list(Codec))))
        for _ in range(chance.randint(1, 4)):
            batch[chance.randrange(21, len(batch))] = chance.randrange(256)
        with suppress(CorruptRecord):
            check(resealed(bytes(batch), 12, b""), max_decompressed=100_000)
