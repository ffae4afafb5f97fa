"""The true checksum against the codec, which verifies it; Kafka's wrong one against its vector."""

import pytest

from protocol.records.compression import Codec, compress, decompress
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.lz4_header import with_kafkas_checksum, with_true_checksum, xxh32

PLAIN = b"some bytes" * 50
FRAME = compress(Codec.LZ4, PLAIN)
WITH_SIZE = FRAME[:4] + b"\x68" + FRAME[5:6] + len(PLAIN).to_bytes(8, "little") + FRAME[6:]
"""Another writer's: the header says how long the content is, and its checksum is not right yet."""


@pytest.mark.parametrize(
    ("data", "hashed"), [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF)]
)
def test_hash_has_its_published_values(data: bytes, hashed: int) -> None:
    assert xxh32(data) == hashed


@pytest.mark.parametrize("frame", [FRAME, WITH_SIZE], ids=["plain", "with size"])
def test_every_reader_takes_the_true_checksum(frame: bytes) -> None:
    wrong = with_kafkas_checksum(frame)

    assert decompress(Codec.LZ4, with_true_checksum(wrong), 1000) == PLAIN
    with pytest.raises(CorruptRecord):
        decompress(Codec.LZ4, wrong, 1000)


def test_kafkas_checksum_is_the_one_its_writer_wrote() -> None:
    assert with_kafkas_checksum(FRAME)[:7] == bytes.fromhex("04224d18 60 40 1a")
    assert with_true_checksum(FRAME) == FRAME


@pytest.mark.parametrize("size", range(7))
def test_what_is_too_short_for_a_frame_stays(size: int) -> None:
    assert with_true_checksum(FRAME[:size]) == FRAME[:size]
