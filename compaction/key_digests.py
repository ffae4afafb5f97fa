"""Digests that stand for long keys: BLAKE2b of 128 bits.

Two equal digests by chance are as unlikely as two equal ones of Kafka's MD5.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from compaction.keys import Keys

LONGEST_KEY_BYTES: Final = 64
"""A digest takes longer than all else for a key, so the keys of committed offsets have none."""
DIGEST_BYTES: Final = 16


def digest_keys(keys: Keys) -> Keys:
    """Replace long keys by their digests."""
    return Keys.of([_digest_of(key) for key in keys.to_list()])


def _digest_of(key: bytes | None) -> bytes | None:
    if key is None or len(key) <= LONGEST_KEY_BYTES:
        return key
    return blake2b(key, digest_size=DIGEST_BYTES).digest()
