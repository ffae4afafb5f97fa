import random
import subprocess
import sys
from contextlib import suppress

import cramjam
import pytest
from aiokafka import codec as aiokafka_codec

from protocol.records.compression import Codec, compress, decompress
from protocol.records.corrupt_record import CorruptRecord

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


def test_bytes_after_gzip_data_are_refused() -> None:
    with pytest.raises(CorruptRecord, match="2 bytes follow"):
        decompress(Codec.GZIP, compress(Codec.GZIP, b"x") + b"!!", 10)


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


def test_lz4_of_two_frames_is_refused() -> None:
    frame = compress(Codec.LZ4, b"x")

    with pytest.raises(CorruptRecord, match="exactly one frame"):
        decompress(Codec.LZ4, frame + frame, 100)


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
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.stdout.count("pip install 'kgroup[compression]'") == 2, done.stderr


def test_codec_is_known_by_its_name() -> None:
    assert Codec.of_name("zstd") is Codec.ZSTD
    with pytest.raises(ValueError, match="none, gzip, snappy, lz4, zstd"):
        Codec.of_name("brotli")
