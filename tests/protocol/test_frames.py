"""Frames are cut from any pieces in which they arrive."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from protocol.frames import BEGUN_BYTES, LARGE_BYTES, SMALL_BYTES, FrameCutter, FrameError

MAX_BYTES = 100 * 1024 * 1024


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def feed(cutter: FrameCutter, data: bytes) -> list[bytes]:
    """Feed bytes; return all frames that are whole then."""
    cutter.feed(data)
    frames = []
    while (frame := cutter.cut()) is not None:
        frames.append(bytes(frame))
    return frames


@pytest.mark.parametrize("seed", range(20))
def test_frames_come_out_whole_however_the_stream_is_cut(seed: int) -> None:
    rng = random.Random(seed)
    near = [SMALL_BYTES - 1, SMALL_BYTES, SMALL_BYTES + 1]
    sizes = rng.choices([0, 1, 3, 100, 5000, *near, SMALL_BYTES * 30], k=8)
    payloads = [rng.randbytes(size) for size in sizes]
    stream = b"".join(framed(p) for p in payloads)
    cutter, got, pos = FrameCutter(MAX_BYTES), [], 0
    while pos < len(stream):
        step = rng.choice([1, 3, 7, 1000, 65536, 262144])
        got += feed(cutter, stream[pos : pos + step])
        pos += step
    assert got == payloads
    assert not cutter.has_input
    assert cutter.held_bytes == 0


@pytest.mark.parametrize("seed", range(20))
def test_frames_may_be_asked_for_long_after_they_came(seed: int) -> None:
    rng = random.Random(seed)
    payloads = [rng.randbytes(rng.choice([0, 1, 100, 50_000])) for _ in range(30)]
    stream = b"".join(framed(p) for p in payloads)
    cutter, got, pos = FrameCutter(MAX_BYTES), [], 0
    while len(got) < len(payloads):
        step = rng.choice([0, 1, 3, 1000, 65536])
        cutter.feed(stream[pos : pos + step])
        pos += step
        if rng.random() < 0.5 and (frame := cutter.cut()) is not None:
            got.append(bytes(frame))
    assert got == payloads


def test_what_is_asked_for_again_is_told_apart_from_what_must_come_first() -> None:
    cutter = FrameCutter(MAX_BYTES)
    cutter.feed(framed(b"one") + framed(b"two") + b"\0\0")
    assert cutter.cut() == b"one"
    assert cutter.has_more
    assert cutter.cut() == b"two"
    assert cutter.cut() is None
    assert not cutter.has_more
    assert cutter.has_input


@pytest.mark.parametrize("step", [1, 1000, SMALL_BYTES, 65536])
def test_a_frame_that_has_begun_takes_no_more_memory_than_has_come_of_it(step: int) -> None:
    cutter, sent = FrameCutter(MAX_BYTES), 0
    assert feed(cutter, MAX_BYTES.to_bytes(4, "big")) == []
    for _ in range(min(60, BEGUN_BYTES // step)):
        assert feed(cutter, bytes(step)) == []
        sent += step
        assert cutter.held_bytes == sent
        assert sum(map(len, cutter._pieces)) == sent
        assert len(cutter._pieces) <= 1 + 2 * sent // SMALL_BYTES
    assert cutter.is_in_frame


@pytest.mark.fault("outside-O18")
@pytest.mark.parametrize("begun", [1, 3, 4, 5, SMALL_BYTES, SMALL_BYTES * 2])
def test_the_beginning_of_a_frame_keeps_nothing_of_those_before_it(begun: int) -> None:
    """Those bytes would count, and nothing would ever make room for them."""
    before = framed(bytes(SMALL_BYTES * 8))
    last = framed(bytes(SMALL_BYTES * 2))
    cutter = FrameCutter(MAX_BYTES)
    tracemalloc.start()
    try:
        stream = before + last[:begun]
        assert len(feed(cutter, stream)) == 1
        del stream
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert cutter.held_bytes <= begun
    assert kept_bytes < 2 * begun + 4000
    assert feed(cutter, last[begun:]) == [last[4:]]


def test_what_is_cleared_is_forgotten() -> None:
    cutter = FrameCutter(MAX_BYTES)
    assert feed(cutter, framed(b"x" * 100_000)[:-1]) == []
    cutter.clear()
    assert not cutter.has_input
    assert feed(cutter, framed(b"next")) == [b"next"]


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(FrameError, match="-1"):
        feed(FrameCutter(100), b"\xff\xff\xff\xff")


def test_a_size_above_the_bound_is_refused_before_anything_of_it_is_kept() -> None:
    with pytest.raises(FrameError, match="101 bytes, allowed are 0 to 100"):
        feed(FrameCutter(100), (101).to_bytes(4, "big"))


def test_a_frame_of_exactly_the_bound_is_taken() -> None:
    assert feed(FrameCutter(100), framed(b"x" * 100)) == [b"x" * 100]


def test_frames_that_are_whole_are_seen_before_they_are_cut() -> None:
    cutter = FrameCutter(10)
    cutter.feed(framed(b"one") + framed(b"two") + framed(b"three") + framed(b"four")[:-1])
    assert cutter.peek(2) == [b"one", b"two"]
    assert cutter.peek(9) == [b"one", b"two", b"three"]
    assert cutter.cut() == b"one"
    cutter.skip(cutter.peek(1))
    assert cutter.peek(9) == [b"three"]
    assert cutter.cut() == b"three"

    # The rest of a frame that has begun.
    assert cutter.cut() is None
    cutter.feed(b"r" + framed(b"five"))
    assert cutter.peek(9) == []
    assert [cutter.cut(), cutter.cut(), cutter.cut()] == [b"four", b"five", None]
    assert cutter.held_bytes == 0


@pytest.mark.parametrize("size", [-1, 11])
def test_a_frame_of_a_false_size_is_not_seen(size: int) -> None:
    cutter = FrameCutter(10)
    cutter.feed(framed(b"one") + size.to_bytes(4, "big", signed=True) + bytes(20))
    assert cutter.peek(9) == [b"one"]
    cutter.skip(cutter.peek(1))
    with pytest.raises(FrameError):
        cutter.cut()


@pytest.mark.fault("security-5")
def test_the_last_piece_of_a_large_frame_moves_no_more_than_itself() -> None:
    size, step = 5 * LARGE_BYTES, 256 * 1024
    payload = bytes(range(256)) * (size // 256)
    stream = framed(payload)
    cutter = FrameCutter(MAX_BYTES)
    last = stream[-step:]
    for pos in range(0, len(stream) - step, step):
        assert feed(cutter, stream[pos : min(pos + step, len(stream) - step)]) == []
    assert cutter.held_bytes == size - step

    # What is copied is held twice for a moment.
    tracemalloc.start()
    try:
        cutter.feed(last)
        frame = cutter.cut()
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert frame == payload
    assert cutter.held_bytes == 0
    assert most_bytes < size / 2


def test_large_frames_come_out_whole_and_others_behind_them() -> None:
    rng = random.Random(3)
    payloads = [rng.randbytes(size) for size in (LARGE_BYTES + 1, 7, 3 * LARGE_BYTES, 1, 0)]
    stream = b"".join(framed(p) for p in payloads)
    cutter, got = FrameCutter(MAX_BYTES), []
    for pos in range(0, len(stream), 700_001):
        got += feed(cutter, stream[pos : pos + 700_001])
    assert got == payloads

    # What is cleared is not in the next one.
    feed(cutter, stream[: 2 * LARGE_BYTES])
    cutter.clear()
    assert feed(cutter, framed(b"next")) == [b"next"]
