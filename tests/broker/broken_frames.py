"""Requests that are broken at random, for tests that hold two ways of serving them equal."""

from __future__ import annotations

import random


def broken(chance: random.Random, frame: bytes, beginning: bytes) -> bytes:
    """Change a byte, or leave some away, or add some; it begins with `beginning` all the same."""
    changed = bytearray(frame)
    match chance.randrange(4):
        case 0:
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        case 1:
            changed[chance.randrange(min(len(changed), 60))] = chance.choice([0, 1, 127, 128, 255])
        case 2:
            del changed[chance.randrange(len(changed)) :]
        case 3:
            changed += chance.randbytes(chance.randrange(1, 9))
    changed[: len(beginning)] = beginning
    return bytes(changed)
