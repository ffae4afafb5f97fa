"""Batches of transactions, and the markers that end them."""

from __future__ import annotations

from typing import Any

from core_log.appending.batch_stamp import stamp
from core_log.producers.producer_state import ProducerState
from protocol.records.batch import encode_batch, read_header
from protocol.records.batch_header import CONTROL, TRANSACTIONAL

ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"


def transactional(offset: int, producer_id: int, count: int = 1) -> bytes:
    """Encode a batch of `count` records of a producer's transaction."""
    rows: list[Any] = [(5, b"key", b"%d" % (offset + n), ()) for n in range(count)]
    return _transactional(rows, offset, producer_id, 0, TRANSACTIONAL)


def marker(offset: int, producer_id: int, kind: bytes, coordinator_epoch: int = 0) -> bytes:
    rows: list[Any] = [(5, kind, b"\0\0" + coordinator_epoch.to_bytes(4), ())]
    return _transactional(rows, offset, producer_id, -1, TRANSACTIONAL | CONTROL)


def _transactional(
    rows: list[Any], offset: int, producer_id: int, sequence: int, attributes: int
) -> bytes:
    batch = encode_batch(rows, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    return b"".join(stamp(batch, read_header(batch), offset, 0, attributes, 5))


def expire(producers: ProducerState, now_ms: int, expiration_ms: int) -> int:
    """Forget silent producers; return how many."""
    before = len(producers.producers)
    for _ in producers.expire(now_ms, expiration_ms):
        pass
    return before - len(producers.producers)
