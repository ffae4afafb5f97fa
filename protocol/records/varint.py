"""Zigzag base-128 varints, the numbers in the records of format 2.

A signed number is folded to an unsigned one (0, -1, 1, -2 become 0, 1, 2, 3) and written in groups
of seven bits, lowest first; the high bit of a byte says that more bytes follow. A varint holds 32
bits in at most 5 bytes, a varlong 64 in at most 10. Encodings longer than needed are legal. Bits
beyond the width are refused; Java drops them silently. Source: Kafka's message format, after
Protocol Buffers.

The hot loops (record_walk.py, record_spans.py, key_values.py) read numbers of one and two bytes in
line, each with the same five lines: a call for each number would take them twice as long.
"""

from protocol.records.corrupt_record import CorruptRecord


def encode_varint(n: int) -> bytes:
    """Encode a varint or a varlong; their encodings differ only in range."""
    if 0 <= n < len(SMALL_VARINTS):
        return SMALL_VARINTS[n]

    # Fold the sign into the lowest bit.
    unsigned = n << 1 if n >= 0 else ~(n << 1)
    groups = bytearray()
    while unsigned > 127:
        groups.append(unsigned & 127 | 128)
        unsigned >>= 7
    groups.append(unsigned)
    return bytes(groups)


def decode_varint(buf: bytes | memoryview, pos: int) -> tuple[int, int]:
    """Read the 32-bit number at `pos`; return it and the next position. Raises CorruptRecord."""
    # Numbers of one byte, nearly all, need no further call.
    if pos < len(buf) and (folded := buf[pos]) < 128:
        return folded >> 1 ^ -(folded & 1), pos + 1
    folded, pos = decode_folded(buf, pos, 32)
    return folded >> 1 ^ -(folded & 1), pos


def decode_varlong(buf: bytes | memoryview, pos: int) -> tuple[int, int]:
    """Read the 64-bit number at `pos`; return it and the next position. Raises CorruptRecord."""
    folded, pos = decode_folded(buf, pos, 64)
    return folded >> 1 ^ -(folded & 1), pos


def decode_folded(buf: bytes | memoryview, pos: int, bits: int) -> tuple[int, int]:
    """Read a number of at most `bits` bits and leave it folded; return it and the next position.

    An even result f stands for f / 2, an odd one for -(f + 1) / 2. Raises CorruptRecord.
    """
    folded = shift = 0
    while pos < len(buf):
        group = buf[pos]
        pos += 1
        folded |= (group & 127) << shift
        if group < 128:
            # The last group may have bits that the width has no place for.
            if folded >> bits:
                break
            return folded, pos

        shift += 7
        if shift >= bits:
            break
    else:
        raise CorruptRecord("the bytes end inside a varint")
    raise CorruptRecord(f"varint is too long for {bits} bits")


SMALL_VARINTS = (
    *(bytes((low,)) for low in range(0, 128, 2)),
    *(bytes((low, high)) for high in range(1, 128) for low in range(128, 256, 2)),
)
"""The encodings of 0 to 8191 by number, in one or two bytes: most lengths and deltas."""
