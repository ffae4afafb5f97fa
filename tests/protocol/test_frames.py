"""Frames are cut whatever the pieces they arrive in."""

from __future__ import annotations

import random

import pytest

from protocol.frames import LARGE, FrameCutter, FrameError


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


@pytest.mark.parametrize("seed", range(20))
def test_frames_come_out_whole_however_the_stream_is_cut(seed: int) -> None:
    rng = random.Random(seed)
    sizes = rng.choices([0, 1, 3, 100, 5000, LARGE - 1, LARGE, LARGE + 1, LARGE * 3], k=5)
    payloads = [rng.randbytes(size) for size in sizes]
    stream = b"".join(framed(p) for p in payloads)
    cutter, got, pos = FrameCutter(10 * LARGE), [], 0
    while pos < len(stream):
        step = rng.choice([1, 3, 7, 1000, 65536, 262144])
        got += [bytes(f) for f in cutter.feed(stream[pos : pos + step])]
        pos += step
    assert got == payloads
    assert not cutter.waiting


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(FrameError, match="-1"):
        FrameCutter(100).feed(b"\xff\xff\xff\xff")


def test_a_size_above_the_bound_is_refused_before_anything_of_it_is_kept() -> None:
    cutter = FrameCutter(100)
    with pytest.raises(FrameError, match="101 bytes, allowed are 0 to 100"):
        cutter.feed((101).to_bytes(4, "big"))


def test_a_frame_of_exactly_the_bound_is_taken() -> None:
    assert [bytes(f) for f in FrameCutter(100).feed(framed(b"x" * 100))] == [b"x" * 100]


def test_a_large_frame_may_be_read_straight_into_its_room() -> None:
    payload = random.Random(1).randbytes(LARGE * 2)
    cutter = FrameCutter(10 * LARGE)
    assert cutter.feed(framed(payload)[:1000]) == []
    got, pos = None, 1000 - 4
    while got is None:
        room = cutter.room
        assert room is not None
        piece = payload[pos : pos + 50_000]
        room[: len(piece)] = piece
        got, pos = cutter.fill(len(piece)), pos + len(piece)
    assert bytes(got) == payload
    assert cutter.room is None
    assert [bytes(f) for f in cutter.feed(framed(b"next"))] == [b"next"]
