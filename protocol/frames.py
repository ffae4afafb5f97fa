"""Bytes in, whole frames out: `int32 size | payload`, sizes checked before anything is kept."""

from __future__ import annotations

import struct

SMALL_BYTES = 16 * 1024
"""Smaller pieces of a frame are put together as they come: each by itself takes more than that."""

_SIZE = struct.Struct(">i")


class FrameError(ValueError):
    """A frame whose announced size is negative or above the bound; the stream is lost."""


class FrameCutter:
    """Cuts one connection's bytes into frames, each when it is asked for.

    A frame that lies whole in the bytes fed is a view of them. Of one that does not, the pieces are
    kept as they came, and joined once, when the last one is there: what is kept is what has
    arrived, whatever size was announced.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._fed = b""
        self._pos = 0
        self._pieces: list[bytes | bytearray | memoryview] = []
        self._gathered = 0
        self._missing = 0

    @property
    def waiting(self) -> bool:
        """Whether a frame has begun and is not complete, or is not asked for yet."""
        return self._missing > 0 or self._pos < len(self._fed)

    @property
    def has_more(self) -> bool:
        """Whether to ask for another frame, which is there perhaps."""
        left = len(self._fed) - self._pos
        return left >= _SIZE.size or (left > 0 and self._missing > 0)

    @property
    def in_frame(self) -> bool:
        """Whether the part that has come of a frame is kept until the rest comes."""
        return self._missing > 0

    @property
    def held_bytes(self) -> int:
        """What is kept in memory."""
        return self._gathered + len(self._fed)

    def feed(self, data: bytes) -> None:
        """Take what has arrived."""
        self._fed = self._fed[self._pos :] + data if self._pos < len(self._fed) else data
        self._pos = 0

    def cut(self) -> memoryview | None:
        """The payload of the next frame, None while it is not whole. Raises FrameError."""
        if self._missing:
            return self._gather()
        fed, pos = self._fed, self._pos
        begins = pos + _SIZE.size
        if begins > len(fed):
            self._drop_cut()
            return None
        (size,) = _SIZE.unpack_from(fed, pos)
        if not 0 <= size <= self.max_bytes:
            raise FrameError(f"frame of {size} bytes, allowed are 0 to {self.max_bytes}")
        end = begins + size
        if end > len(fed):
            self._pos, self._missing = begins, size
            return self._gather()
        if end == len(fed):
            self._fed, self._pos = b"", 0
        else:
            self._pos = end
        return memoryview(fed)[begins:end]

    def clear(self) -> None:
        """Forget all of it."""
        self._fed, self._pos = b"", 0
        self._pieces, self._gathered, self._missing = [], 0, 0

    def _gather(self) -> memoryview | None:
        """Take what has come of the frame that has begun; the frame, if it is whole now."""
        if self._pos < len(self._fed):
            piece = memoryview(self._fed)[self._pos : self._pos + self._missing]
            self._pos += len(piece)
            self._missing -= len(piece)
            self._keep(piece)
        self._drop_cut()
        if self._missing:
            return None
        whole = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces, self._gathered = [], 0
        return memoryview(whole)

    def _keep(self, piece: memoryview) -> None:
        self._gathered += len(piece)
        last = self._pieces[-1] if self._pieces else None
        if len(piece) >= SMALL_BYTES:
            self._pieces.append(piece)
        elif isinstance(last, bytearray) and len(last) < SMALL_BYTES:
            last += piece
        else:
            self._pieces.append(bytearray(piece))

    def _drop_cut(self) -> None:
        """Let go of what was fed, once all of it is cut."""
        if self._pos == len(self._fed):
            self._fed, self._pos = b"", 0
