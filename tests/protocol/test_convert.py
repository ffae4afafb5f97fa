"""Down-conversion: what a reader of an older format gets of batches, and what is lost."""

import pytest

from protocol.records.batch import Codec, decode_records, encode_batch, read_header
from protocol.records.convert import NoOlderForm, down_convert
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.entry import read_entry
from protocol.records.legacy import encode_messages, read_message_header
from tests.protocol.damaged_batches import resealed

RECORDS = [(1_000 + n, b"k%d" % n, b"v" * n, [("h", b"x")]) for n in range(10)]


def batch_at(offset: int, codec: Codec = Codec.NONE, **options: int) -> bytes:
    return encode_batch(RECORDS, base_offset=offset, codec=codec, **options)


def converted(batches: bytes, magic: int, min_offset: int = 0) -> bytes:
    return b"".join(data for _, data in down_convert(batches, magic, min_offset=min_offset))


def magics(entries: bytes) -> list[int]:
    found, pos = [], 0
    while (header := read_entry(entries, pos, len(entries))) is not None:
        found.append(header.magic)
        pos += header.size
    assert pos == len(entries)
    return found


@pytest.mark.parametrize("magic", [0, 1])
def test_uncompressed_batch_becomes_as_many_messages(magic: int) -> None:
    entries = converted(batch_at(100), magic)

    assert magics(entries) == [magic] * 10
    assert [(r.offset, r.key, r.value) for r in decode_records(entries)] == [
        (100 + n, key, value) for n, (_, key, value, _) in enumerate(RECORDS)
    ]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_compressed_batch_becomes_one_wrapper_in_its_codec(magic: int, codec: Codec) -> None:
    entries = converted(batch_at(100, codec), magic)

    assert magics(entries) == [magic]
    header = read_message_header(entries)
    assert (header.codec, header.offset) == (codec, 109)
    assert [r.offset for r in decode_records(entries)] == list(range(100, 110))


def test_format_1_keeps_timestamps_and_format_0_has_none() -> None:
    times = {
        magic: [r.timestamp_ms for r in decode_records(converted(batch_at(0), magic))]
        for magic in (0, 1)
    }

    assert times == {0: [-1] * 10, 1: list(range(1_000, 1_010))}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_log_append_time_is_kept_in_format_1(codec: Codec) -> None:
    entries = converted(batch_at(0, codec, timestamp_type=1), 1)

    assert read_message_header(entries).timestamp_type == 1
    assert {r.timestamp_ms for r in decode_records(entries)} == {1_009}


def test_headers_are_dropped() -> None:
    assert all(not r.headers for r in decode_records(converted(batch_at(0), 1)))


def test_messages_below_the_offset_asked_for_are_dropped_where_they_stand_alone() -> None:
    plain = converted(batch_at(100), 1, min_offset=107)
    packed = converted(batch_at(100, Codec.GZIP), 1, min_offset=107)

    assert [r.offset for r in decode_records(plain)] == [107, 108, 109]
    assert [r.offset for r in decode_records(packed)] == list(range(100, 110))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_batch_with_nothing_from_the_offset_on_gives_nothing(codec: Codec) -> None:
    """Its last records were compacted away; a reader that were given the rest again stood still."""
    compacted = resealed(batch_at(100, codec), 23, (20).to_bytes(4, "big"))
    assert read_header(compacted).last_offset == 120

    both = compacted + batch_at(121, codec)

    assert [r.offset for r in decode_records(converted(both, 1, min_offset=115))] == list(
        range(121, 131)
    )


def test_what_the_reader_knows_is_copied_as_it_is() -> None:
    rows = [(offset, 5, b"k", b"v", ()) for offset in range(3)]
    old, older = encode_messages(rows, 1, codec=Codec.LZ4), encode_messages(rows, 0)

    assert converted(older + old, 1) == older + old
    assert converted(older, 0) == older
    assert magics(converted(old + older, 0)) == [0, 0, 0, 0]


def test_formats_may_be_mixed() -> None:
    rows = [(offset, 5, b"k", b"v", ()) for offset in range(3)]
    mixed = encode_messages(rows, 0) + batch_at(3) + encode_messages([(13, 5, b"", b"", ())], 1)

    assert magics(converted(mixed, 1)) == [0, 0, 0, *[1] * 11]
    assert [r.offset for r in decode_records(converted(mixed, 1))] == list(range(14))


def test_transaction_markers_and_emptied_batches_give_nothing() -> None:
    marker = resealed(encode_batch([(0, bytes(4), bytes(6), ())], base_offset=5), 21, b"\0\x30")
    emptied = resealed(batch_at(6)[:8] + (49).to_bytes(4, "big") + batch_at(6)[12:61], 57, bytes(4))

    assert list(down_convert(marker + emptied, 1)) == [
        (len(marker), b""),
        (len(marker + emptied), b""),
    ]


def test_part_of_a_batch_at_the_end_is_left() -> None:
    whole = batch_at(0) + batch_at(10)

    assert [end for end, _ in down_convert(whole[:-1], 1)] == [len(batch_at(0))]


def test_zstd_has_no_older_form() -> None:
    pieces = down_convert(batch_at(0) + batch_at(10, Codec.ZSTD), 1)

    assert next(pieces)[0] == len(batch_at(0))
    with pytest.raises(NoOlderForm):
        next(pieces)


def test_damage_is_raised_where_it_is() -> None:
    pieces = down_convert(batch_at(0) + batch_at(10)[:-1] + b"!", 1)

    assert next(pieces)[0] == len(batch_at(0))
    with pytest.raises(CorruptRecord, match="CRC"):
        next(pieces)
