"""Batches of records with damage."""

from crc32c import crc32c


def resealed(batch: bytes, at: int, patch: bytes) -> bytes:
    """Put `patch` into a batch and make its CRC true again."""
    patched = bytearray(batch)
    patched[at : at + len(patch)] = patch
    patched[17:21] = crc32c(bytes(patched[21:])).to_bytes(4, "big")
    return bytes(patched)
