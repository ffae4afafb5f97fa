"""Transaction markers: the single record of a control batch (KIP-98).

key    int16 version | int16 type               type 0 aborts the transaction, 1 commits it
value  int16 version | int32 epoch of the coordinator that wrote it
"""

from __future__ import annotations

from struct import Struct

from protocol.records.batch_header import CONTROL, TRANSACTIONAL
from protocol.records.builder import encode_batch
from protocol.records.corrupt_record import CorruptRecord

ABORT = 0
COMMIT = 1

_KEY = Struct(">hh")
_VALUE = Struct(">hi")


def marker_type(key: bytes) -> int:
    """Read the type: ABORT, COMMIT or an unknown one. Raises CorruptRecord if there is none."""
    if len(key) >= _KEY.size:
        version, kind = _KEY.unpack_from(key)
        # Versions above 0 only append fields.
        if version >= 0:
            return int(kind)

    raise CorruptRecord(f"control record key {key.hex()} is not a version and a type")


def coordinator_epoch(value: bytes) -> int:
    """Read the coordinator epoch; -1 if the value is too short."""
    if len(value) < _VALUE.size:
        return -1
    return int(_VALUE.unpack_from(value)[1])


def encode_marker(
    kind: int,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
) -> bytes:
    """Encode the control batch that ends a producer's transaction with ABORT or COMMIT."""
    row = (timestamp_ms, _KEY.pack(0, kind), _VALUE.pack(0, coordinator_epoch), ())
    return encode_batch(
        [row],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        flags=TRANSACTIONAL | CONTROL,
    )
