"""Write batches: a record is encoded when it is added, so closing a batch needs no second pass.

The numbers in nearly all records are small, so they are looked up in SMALL_VARINTS before a
function is called.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, groupby, repeat
from typing import Final

from crc32c import crc32c

from protocol.bounds import MAX_ARRAY_BYTES
from protocol.records.batch_header import (
    CODEC_MASK,
    CRC_AT,
    CRC_COVERS_FROM,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
)
from protocol.records.compression import Codec, compress
from protocol.records.varint import SMALL_VARINTS, encode_varint

Header = tuple[str, bytes | None]
NewRecord = tuple[int, bytes | None, bytes | None, Sequence[Header]]
"""Timestamp in ms, key, value, headers."""

# The varint of the length -1.
_NULL: Final = b"\x01"
_SMALL: Final = len(SMALL_VARINTS)


class BatchBuilder:
    """Collects the records of a batch of about `max_bytes`, counted before compression."""

    __slots__ = (
        "_base_timestamp",
        "_max_timestamp",
        "_parts",
        "codec",
        "count",
        "max_bytes",
        "size_estimate",
    )

    def __init__(self, codec: Codec = Codec.NONE, max_bytes: int = MAX_ARRAY_BYTES) -> None:
        self.codec = codec
        self.max_bytes = max_bytes
        self.count = 0
        self.size_estimate = HEADER_BYTES
        self._base_timestamp = 0
        self._max_timestamp = 0
        self._parts: list[bytes] = []

    @property
    def base_timestamp_ms(self) -> int:
        """The timestamp of the first record."""
        return self._base_timestamp

    def try_append(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] = (),
    ) -> bool:
        """Add a record, or return False if it does not fit; the first record always does."""
        # Timestamps count from that of the first record.
        count = self.count
        timestamp_delta = timestamp_ms - self._base_timestamp if count else 0

        # Null has the length -1.
        if key is None:
            key_length = _NULL
        else:
            length = len(key)
            key_length = SMALL_VARINTS[length] if length < _SMALL else encode_varint(length)
        if value is None:
            value_length = _NULL
        else:
            length = len(value)
            value_length = SMALL_VARINTS[length] if length < _SMALL else encode_varint(length)

        # All after the length: attributes (0), deltas, key, value and headers.
        fields = b"".join(
            (
                b"\0",
                SMALL_VARINTS[timestamp_delta]
                if 0 <= timestamp_delta < _SMALL
                else encode_varint(timestamp_delta),
                SMALL_VARINTS[count] if count < _SMALL else encode_varint(count),
                key_length,
                key or b"",
                value_length,
                value or b"",
                _encode_headers(headers) if headers else b"\0",
            )
        )

        # The length comes first, and is known only now.
        length = len(fields)
        prefix = SMALL_VARINTS[length] if length < _SMALL else encode_varint(length)
        size = self.size_estimate + len(prefix) + length
        if count and size > self.max_bytes:
            return False

        # Nothing has changed up to here: a record that cannot be encoded leaves the batch intact.
        self._parts += prefix, fields
        self.size_estimate = size
        self.count = count + 1
        if not count:
            self._base_timestamp = self._max_timestamp = timestamp_ms
        elif timestamp_ms > self._max_timestamp:
            self._max_timestamp = timestamp_ms
        return True

    def append_many(
        self,
        timestamp_ms: int,
        keys: Sequence[bytes] | None,
        values: Sequence[bytes],
        headers: Sequence[Header] = (),
    ) -> int:
        """Add records until one does not fit, and return how many; a batch's first always does.

        Time and headers are the same for all, and either all have keys or none has. Where the keys
        have one length, and the values have one length, it takes a third of the time of
        `try_append`.
        """
        if not values:
            return 0
        if _have_one_length(values) and (keys is None or _have_one_length(keys)):
            return self._append_alike(timestamp_ms, keys, values, headers)

        all_keys: Iterable[bytes | None] = repeat(None) if keys is None else keys
        for added, (key, value) in enumerate(zip(all_keys, values, strict=False)):
            if not self.try_append(timestamp_ms, key, value, headers):
                return added
        return len(values)

    def _append_alike(
        self,
        timestamp_ms: int,
        keys: Sequence[bytes] | None,
        values: Sequence[bytes],
        headers: Sequence[Header],
    ) -> int:
        # The bytes of every record around its number, key and value.
        first = self.count
        time = encode_varint(timestamp_ms - self._base_timestamp if first else 0)
        key_length = _NULL if keys is None else encode_varint(len(keys[0]))
        value_length = encode_varint(len(values[0]))
        tail = _encode_headers(headers) if headers else b"\0"
        size = len(b"\0") + len(time) + len(key_length) + len(value_length) + len(tail)
        size += (len(keys[0]) if keys else 0) + len(values[0])

        # The numbers of records have one byte at first, then two, then three.
        count = first + len(values)
        if count <= _SMALL:
            numbers: Sequence[bytes] = SMALL_VARINTS[first:count]
        else:
            numbers = [encode_varint(number) for number in range(first, count)]

        # In C throughout, without a call of Python for each record.
        start = 0
        for number_size, run in groupby(numbers, len):
            same_size = list(run)
            prefix = encode_varint(size + number_size)
            room = (self.max_bytes - self.size_estimate) // (len(prefix) + size + number_size)
            fitting = max(room, 0 if self.count else 1)

            end = start + min(fitting, len(same_size))
            fields = zip(
                repeat(prefix + b"\0" + time),
                same_size,
                repeat(key_length),
                repeat(b"") if keys is None else keys[start:end],
                repeat(value_length),
                values[start:end],
                repeat(tail),
                strict=False,
            )
            records = b"".join(chain.from_iterable(fields))
            self._parts.append(records)
            self.size_estimate += len(records)
            self.count += end - start

            start = end
            if fitting < len(same_size):
                break

        if not first:
            self._base_timestamp = self._max_timestamp = timestamp_ms
        elif start and timestamp_ms > self._max_timestamp:
            self._max_timestamp = timestamp_ms
        return start

    def build(
        self,
        *,
        base_offset: int = 0,
        leader_epoch: int = -1,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        timestamp_type: int = 0,
        flags: int = 0,
    ) -> bytes:
        """Return the batch; no bytes if it has no records. The builder does not change.

        `flags` are attributes: TRANSACTIONAL, and CONTROL for a marker. Raises RecordsTooLarge and
        CompressionUnavailable.
        """
        if not self.count:
            return b""

        body = compress(self.codec, b"".join(self._parts))

        # The CRC, 0 here, is computed last: it covers the header from the attributes on.
        header = HEADER.pack(
            base_offset,
            HEADER_BYTES - LOG_OVERHEAD + len(body),
            leader_epoch,
            MAGIC,
            0,
            self.codec | flags | (LOG_APPEND_TIME if timestamp_type else 0),
            self.count - 1,
            self._base_timestamp,
            self._max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            self.count,
        )

        return _with_crc(header, body)


def _with_crc(header: bytes, body: bytes) -> bytes:
    crc = crc32c(body, crc32c(header[CRC_COVERS_FROM:]))
    return b"".join((header[:CRC_AT], crc.to_bytes(4, "big"), header[CRC_COVERS_FROM:], body))


def encode_body(body: bytes, codec: Codec, header: BatchHeader) -> bytes:
    """Encode records that are encoded already, and not compressed, as a batch in `codec`.

    All else is as in `header`. Raises RecordsTooLarge and CompressionUnavailable.
    """
    stored = compress(codec, body)
    written = header._replace(
        length=HEADER_BYTES - LOG_OVERHEAD + len(stored),
        crc=0,
        attributes=(header.attributes & ~CODEC_MASK) | codec,
    )
    return _with_crc(HEADER.pack(*written), stored)


def encode_batch(
    records: Iterable[NewRecord],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    timestamp_type: int = 0,
    flags: int = 0,
) -> bytes:
    """Encode all `records`, of any size, as one batch; no bytes if there are none."""
    builder = BatchBuilder(codec)
    for record in records:
        builder.try_append(*record)

    return builder.build(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        timestamp_type=timestamp_type,
        flags=flags,
    )


def _encode_headers(headers: Sequence[Header]) -> bytes:
    parts = [encode_varint(len(headers))]
    for key, value in headers:
        key_bytes = key.encode()
        parts += encode_varint(len(key_bytes)), key_bytes
        parts += (_NULL,) if value is None else (encode_varint(len(value)), value)
    return b"".join(parts)


def _have_one_length(contents: Sequence[bytes]) -> bool:
    return len(set(map(len, contents))) == 1
