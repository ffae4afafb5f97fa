import random
import subprocess
import sys
import tracemalloc
from contextlib import suppress

import cramjam
import pytest
from aiokafka import codec as aiokafka_codec

from protocol.records.compression import Codec, compress, decompress
from protocol.records.corrupt_record import CorruptRecord, RecordsTooLarge
from protocol.records.lz4_header import xxh32
from protocol.records.room import Room

TEXT = b"".join(b"a line of text, number %d\n" % n for n in range(12_000))
NOISE = random.Random(5).randbytes(200_000)
REAL_CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]

OTHER_ENCODE = {
    Codec.GZIP: aiokafka_codec.gzip_encode,
    Codec.SNAPPY: aiokafka_codec.snappy_encode,
    Codec.LZ4: aiokafka_codec.lz4_encode,
    Codec.ZSTD: aiokafka_codec.zstd_encode,
}
OTHER_DECODE = {
    Codec.GZIP: aiokafka_codec.gzip_decode,
    Codec.SNAPPY: aiokafka_codec.snappy_decode,
    Codec.LZ4: aiokafka_codec.lz4_decode,
    Codec.ZSTD: aiokafka_codec.zstd_decode,
}


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE], ids=["empty", "byte", "text", "noise"])
def test_what_was_compressed_comes_back(codec: Codec, data: bytes) -> None:
    assert decompress(codec, memoryview(compress(codec, data)), len(data)) == data


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_other_client_reads_ours(codec: Codec) -> None:
    assert bytes(OTHER_DECODE[codec](compress(codec, TEXT))) == TEXT


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_we_read_what_an_other_client_wrote(codec: Codec) -> None:
    assert decompress(codec, bytes(OTHER_ENCODE[codec](TEXT)), len(TEXT)) == TEXT


@pytest.mark.parametrize("codec", list(Codec))
def test_one_byte_more_than_allowed_is_refused(codec: Codec) -> None:
    with pytest.raises(CorruptRecord, match=f"{len(TEXT) - 1} bytes allowed"):
        decompress(codec, compress(codec, TEXT), len(TEXT) - 1)


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_bomb_is_refused(codec: Codec) -> None:
    bomb = compress(codec, bytes(50_000_000))

    with pytest.raises(CorruptRecord):
        decompress(codec, bomb, 1_000_000)


@pytest.mark.parametrize("codec", REAL_CODECS)
@pytest.mark.parametrize("kept", [0.0, 0.1, 0.5, 0.999])
def test_stream_cut_short_is_refused(codec: Codec, kept: float) -> None:
    stream = compress(codec, NOISE)

    with pytest.raises(CorruptRecord):
        decompress(codec, stream[: int(len(stream) * kept)], 1_000_000)


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_damaged_streams_raise_nothing_but_corrupt_record(codec: Codec) -> None:
    chance = random.Random(11)
    stream = compress(codec, TEXT[:3000])
    for _ in range(300):
        damaged = bytearray(stream)
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        with suppress(CorruptRecord):
            assert len(decompress(codec, bytes(damaged), 100_000)) <= 100_000


GZIPPED = compress(Codec.GZIP, b"one, ")
MEMBER_CUT_IN_ITS_HEADER = GZIPPED[:18]


@pytest.mark.fault("broker-3")
@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (compress(Codec.GZIP, b"two"), b"one, two"),
        (compress(Codec.GZIP, b""), b"one, "),
        (compress(Codec.GZIP, TEXT) + compress(Codec.GZIP, NOISE), b"one, " + TEXT + NOISE),
        (bytes(40), b"one, "),
        (b"!!", b"one, "),
        (MEMBER_CUT_IN_ITS_HEADER, b"one, "),
    ],
    ids=["two", "an empty one", "large ones", "zeros", "junk", "a cut header"],
)
def test_members_of_gzip_are_joined_and_what_follows_is_ignored(
    more: bytes, expected: bytes
) -> None:
    assert decompress(Codec.GZIP, GZIPPED + more, len(expected)) == expected


def test_member_of_gzip_behind_another_that_is_damaged_is_refused() -> None:
    damaged = bytearray(compress(Codec.GZIP, NOISE))
    damaged[-6] ^= 1

    with pytest.raises(CorruptRecord, match="damaged"):
        decompress(Codec.GZIP, GZIPPED + damaged, 1_000_000)


def test_bound_is_that_of_all_members_together() -> None:
    member = compress(Codec.GZIP, TEXT)

    assert decompress(Codec.GZIP, member * 3, 3 * len(TEXT)) == TEXT * 3
    with pytest.raises(RecordsTooLarge):
        decompress(Codec.GZIP, member * 3, 3 * len(TEXT) - 1)


PARTS_WITHOUT_CONTENT = {
    Codec.GZIP: compress(Codec.GZIP, b"") * 2000,
    Codec.SNAPPY: compress(Codec.SNAPPY, b"") + b"\x00\x00\x00\x01\x00" * 2000,
    Codec.LZ4: compress(Codec.LZ4, b"")[:7] + b"\x01\x00\x00\x80x" * 2000 + bytes(4),
    Codec.ZSTD: compress(Codec.ZSTD, b"") * 1000,
}


@pytest.mark.parametrize(("codec", "stream"), PARTS_WITHOUT_CONTENT.items(), ids=REAL_CODECS)
def test_parts_with_next_to_nothing_in_them_are_counted(codec: Codec, stream: bytes) -> None:
    assert len(decompress(codec, stream, 100_000)) <= 2000
    with pytest.raises(RecordsTooLarge):
        decompress(codec, stream, 50_000)


# ---- the room of several streams


@pytest.mark.fault("security-0")
@pytest.mark.parametrize("codec", REAL_CODECS)
def test_what_comes_out_is_taken_from_the_room_of_all(codec: Codec) -> None:
    room = Room(3 * len(TEXT))

    decompress(codec, compress(codec, TEXT), room)
    assert room.left == 2 * len(TEXT)


@pytest.mark.fault("security-0")
@pytest.mark.fault("outside-O4")
@pytest.mark.parametrize("codec", REAL_CODECS)
def test_stream_that_is_too_large_has_used_all_of_the_room(codec: Codec) -> None:
    room = Room(len(TEXT) - 1)

    with pytest.raises(RecordsTooLarge):
        decompress(codec, compress(codec, TEXT), room)
    assert room.left == 0


DAMAGED_AT_THEIR_END = {
    Codec.GZIP: compress(Codec.GZIP, TEXT)[:-8] + b"wrong..!",
    Codec.SNAPPY: compress(Codec.SNAPPY, TEXT) + (5).to_bytes(4, "big") + b"\xff" * 5,
    Codec.LZ4: compress(Codec.LZ4, TEXT)[:-4]
    + (20).to_bytes(4, "little")
    + b"\xff" * 20
    + bytes(4),
    # A frame with a window of 128 KiB, and a compressed block that is none.
    Codec.ZSTD: compress(Codec.ZSTD, TEXT) + bytes.fromhex("28b52ffd 00 38 250000 ffffffff"),
}


@pytest.mark.fault("security-0")
@pytest.mark.parametrize(("codec", "stream"), DAMAGED_AT_THEIR_END.items(), ids=REAL_CODECS)
def test_stream_that_is_damaged_has_used_what_came_out_of_it(codec: Codec, stream: bytes) -> None:
    room = Room(100 * len(TEXT))

    with pytest.raises(CorruptRecord, match="damaged"):
        decompress(codec, stream, room)
    # How much came out of the damaged piece nobody knows, so all of it counts, 1 MiB at most.
    assert 95 * len(TEXT) <= room.left <= 99 * len(TEXT)


@pytest.mark.parametrize("codec", [Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_noise_is_refused_before_anything_is_allocated(codec: Codec) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecord):
            decompress(codec, NOISE)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(NOISE)


def test_snappy_is_cut_into_blocks_of_32_kib() -> None:
    stream = compress(Codec.SNAPPY, bytes(32 * 1024 + 1))

    first_block_bytes = int.from_bytes(stream[16:20], "big")
    assert stream[:16].hex() == "82534e41505059000000000100000001"
    assert cramjam.snappy.decompress_raw_len(stream[20 : 20 + first_block_bytes]) == 32 * 1024


def test_snappy_header_in_mid_stream_is_skipped() -> None:
    stream = compress(Codec.SNAPPY, b"one, ") + compress(Codec.SNAPPY, b"two")

    assert decompress(Codec.SNAPPY, stream, 100) == b"one, two"


def test_snappy_cut_inside_a_later_header_is_refused() -> None:
    stream = compress(Codec.SNAPPY, b"one")

    with pytest.raises(CorruptRecord, match="ends early"):
        decompress(Codec.SNAPPY, stream + stream[:12], 100)


def test_snappy_without_header_is_one_raw_block() -> None:
    raw = bytes(cramjam.snappy.compress_raw(TEXT))

    assert decompress(Codec.SNAPPY, raw, len(TEXT)) == TEXT


def test_lz4_frame_has_the_header_and_stored_block_of_kafkas_writer() -> None:
    assert compress(Codec.LZ4, b"short").hex() == "04224d18604082" + "05000080" + (
        b"short".hex() + "00000000"
    )


@pytest.mark.parametrize(("descriptor", "bits"), [("6050fb", 18), ("606051", 20), ("607073", 22)])
def test_lz4_with_larger_blocks_is_read(descriptor: str, bits: int) -> None:
    block = TEXT[: 1 << bits]
    stored = (len(block) | 1 << 31).to_bytes(4, "little") + block
    frame = bytes.fromhex("04224d18" + descriptor) + stored + bytes(4)

    assert decompress(Codec.LZ4, frame, len(block)) == block


def test_lz4_with_sums_of_content_and_blocks_is_read() -> None:
    compressor = cramjam.lz4.Compressor(content_checksum=True, block_linked=False)
    compressor.compress(TEXT)
    frame = bytes(compressor.finish())

    assert frame[4] & 0x14 == 0x14
    assert decompress(Codec.LZ4, frame, len(TEXT)) == TEXT


def test_lz4_of_linked_blocks_is_refused() -> None:
    compressor = cramjam.lz4.Compressor(block_linked=True)
    compressor.compress(TEXT)

    with pytest.raises(CorruptRecord, match="independent"):
        decompress(Codec.LZ4, bytes(compressor.finish()), len(TEXT))


BEHIND = [b"!", bytes(3), bytes(40), b"\xee" * 40]


@pytest.mark.fault("broker-3")
@pytest.mark.parametrize("more", [*BEHIND, compress(Codec.LZ4, b"more")])
def test_what_follows_an_lz4_frame_is_ignored(more: bytes) -> None:
    assert decompress(Codec.LZ4, compress(Codec.LZ4, TEXT) + more, len(TEXT)) == TEXT


@pytest.mark.fault("broker-3")
@pytest.mark.parametrize("wrong", [0, 5, 2**63])
def test_size_and_sum_of_an_lz4_frame_are_not_compared(wrong: int) -> None:
    descriptor = bytes((0x60 | 0x08 | 0x04, 0x40)) + wrong.to_bytes(8, "little")
    header = b"\x04\x22\x4d\x18" + descriptor + bytes((xxh32(descriptor) >> 8 & 0xFF,))
    frame = header + compress(Codec.LZ4, TEXT)[7:] + b"sum?"

    assert decompress(Codec.LZ4, frame, len(TEXT)) == TEXT


@pytest.mark.fault("broker-3")
@pytest.mark.parametrize("more", [*BEHIND, compress(Codec.ZSTD, b"more")[:-2]])
def test_what_follows_the_zstd_frames_is_ignored(more: bytes) -> None:
    assert decompress(Codec.ZSTD, compress(Codec.ZSTD, TEXT) + more, len(TEXT)) == TEXT


def test_zstd_frames_are_joined() -> None:
    skipped = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"notes"
    stream = compress(Codec.ZSTD, TEXT) + skipped + compress(Codec.ZSTD, NOISE)

    assert decompress(Codec.ZSTD, stream, len(TEXT + NOISE)) == TEXT + NOISE


@pytest.mark.parametrize("content_bytes", [0, 1, 255, 256, 70_000, 300_000])
@pytest.mark.parametrize("level", [1, 3, 19])
def test_zstd_of_any_size_and_level_is_read(content_bytes: int, level: int) -> None:
    for content in (bytes(content_bytes), (NOISE + TEXT)[:content_bytes]):
        stream = bytes(cramjam.zstd.compress(content, level))
        assert decompress(Codec.ZSTD, stream, len(content)) == content


@pytest.mark.fault("broker-3")
@pytest.mark.parametrize("more", [b"!", bytes(3)])
def test_too_few_bytes_for_another_block_of_snappy_are_ignored(more: bytes) -> None:
    assert decompress(Codec.SNAPPY, compress(Codec.SNAPPY, TEXT) + more, len(TEXT)) == TEXT


def test_lz4_with_wrong_header_sum_is_refused() -> None:
    frame = bytearray(compress(Codec.LZ4, b"x"))
    frame[6] = 0x1A

    with pytest.raises(CorruptRecord):
        decompress(Codec.LZ4, bytes(frame), 100)


@pytest.mark.parametrize("codec", [Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_missing_package_is_named(codec: Codec) -> None:
    program = f"""
import sys
sys.modules["cramjam"] = None
from protocol.records.compression import *
for work in (lambda: compress(Codec({codec:d}), b""), lambda: decompress(Codec({codec:d}), b"", 1)):
    try:
        work()
    except CompressionUnavailable as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True)

    assert done.stdout.count("pip install 'kgroup[compression]'") == 2, done.stderr


def test_codec_is_known_by_its_name() -> None:
    assert Codec.of_name("zstd") is Codec.ZSTD
    with pytest.raises(ValueError, match="none, gzip, snappy, lz4, zstd"):
        Codec.of_name("brotli")
