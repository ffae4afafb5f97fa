"""Bytes in, whole frames out: `int32 size | payload`, sizes checked before anything is kept."""

from __future__ import annotations

LARGE = 128 * 1024


class FrameError(ValueError):
    """A frame whose announced size is negative or above the bound; the stream is lost."""


class FrameCutter:
    """Cuts one connection's bytes into frames.

    Frames that lie whole in the bytes fed are returned as views of them. A large frame is gathered
    in one buffer of the announced size, because growing a buffer chunk by chunk copies it again
    and again; whoever reads the socket may also read straight into `room`, and say so by `fill`.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._rest = b""
        self._large: bytearray | None = None
        self._filled = 0

    @property
    def waiting(self) -> bool:
        """Whether a frame has begun and is not complete."""
        return bool(self._rest) or self._large is not None

    @property
    def room(self) -> memoryview | None:
        """What is still to come of a large frame: the part of its buffer that is not filled."""
        return None if self._large is None else memoryview(self._large)[self._filled :]

    def fill(self, received: int) -> memoryview | None:
        """So many bytes were put at the start of `room`; the frame, if it is complete now."""
        large = self._large
        assert large is not None, "no large frame has begun"
        self._filled += received
        if self._filled < len(large):
            return None
        self._large, self._rest = None, b""
        return memoryview(large)

    def feed(self, data: bytes) -> list[memoryview]:
        """Return the payloads completed by `data`. Raises FrameError."""
        frames: list[memoryview] = []
        view = memoryview(data)
        if self._large is not None:
            view = self._fill_large(view, frames)
            if not view:
                return frames
        elif self._rest:
            view = memoryview(self._rest + data)
        self._cut(view, frames)
        return frames

    def _fill_large(self, view: memoryview, frames: list[memoryview]) -> memoryview:
        room = self.room
        assert room is not None
        take = min(len(room), len(view))
        room[:take] = view[:take]
        frame = self.fill(take)
        if frame is not None:
            frames.append(frame)
        return view[take:]

    def _cut(self, view: memoryview, frames: list[memoryview]) -> None:
        pos, end = 0, len(view)
        while end - pos >= 4:
            size = int.from_bytes(view[pos : pos + 4], "big", signed=True)
            if not 0 <= size <= self.max_bytes:
                raise FrameError(f"frame of {size} bytes, allowed are 0 to {self.max_bytes}")
            if end - pos - 4 < size:
                if size > LARGE:
                    self._begin_large(size, view[pos + 4 :])
                    return
                break
            frames.append(view[pos + 4 : pos + 4 + size])
            pos += 4 + size
        self._rest = bytes(view[pos:])

    def _begin_large(self, size: int, start: memoryview) -> None:
        self._large, self._rest = bytearray(size), b""
        self._filled = len(start)
        self._large[: self._filled] = start
