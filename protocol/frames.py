"""Cut a stream of bytes into frames, `int32 size | payload`, with a bound on their size."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence

SMALL_BYTES = 16 * 1024
"""Pieces of a frame below this size are joined on arrival, because each object costs memory too."""
LARGE_BYTES = 4 * 1024 * 1024
"""A frame above this has a buffer for all of it. To join pieces of 100 MB when the last is there
would take the event loop 60 ms, and twice the memory."""
BEGUN_BYTES = 512 * 1024
"""Bytes of a large frame that are there before it has its buffer: they are copied once more."""

_SIZE = struct.Struct(">i")

# What stands in place of a size, by its first two bytes.
_STRANGERS = {
    b"\x16\x03": ": it is a TLS handshake, and this port does not speak TLS",
    b"\x15\x03": ": it is an alert of TLS, which the port seems to speak (security.protocol)",
    **dict.fromkeys((b"GE", b"PO", b"PU", b"HE", b"HT", b"OP"), ": it is HTTP"),
}


class FrameError(ValueError):
    """The size of a frame is negative or above the bound; the stream cannot be read further."""


class FrameCutter:
    """Cuts the bytes of one connection into frames, one for each call of `cut`.

    A frame that is complete in the bytes just fed is a view of them. The pieces of any other frame
    are kept and joined once, when the last piece is there, or as they come where they are many. So
    memory grows with the bytes that have arrived, not with the size that the frame announces.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes

        # The bytes fed last, and the position up to which they are cut.
        self._fed = b""
        self._pos = 0

        # The frame that has begun: its pieces, their size, and the bytes that are missing.
        self._pieces: list[bytes | bytearray | memoryview] = []
        self._gathered = 0
        self._missing = 0
        # A buffer for all of it, in place of the pieces, once they are large.
        self._large: mmap.mmap | None = None

    @property
    def has_input(self) -> bool:
        """True if bytes have arrived that no call of `cut` has returned yet."""
        return self._missing > 0 or self._pos < len(self._fed)

    @property
    def has_more(self) -> bool:
        """True if `cut` may return another frame."""
        # Any byte continues a frame that has begun; another one needs its size first.
        left = len(self._fed) - self._pos
        return left >= _SIZE.size or (left > 0 and self._missing > 0)

    @property
    def is_in_frame(self) -> bool:
        """True while the beginning of a frame is kept until its rest arrives."""
        return self._missing > 0

    @property
    def begin(self) -> memoryview:
        """The bytes that are there of the next frame's payload, or the first of them."""
        if self._large is not None:
            return memoryview(self._large)[: self._gathered]
        if self._pieces:
            return memoryview(self._pieces[0])
        return memoryview(self._fed)[self._pos + (0 if self._missing else _SIZE.size) :]

    @property
    def held_bytes(self) -> int:
        """Bytes kept in memory."""
        return self._gathered + len(self._fed)

    def feed(self, data: bytes) -> None:
        """Add bytes that have arrived."""
        # Bytes that are not cut yet stay in front of the new ones.
        if self._pos < len(self._fed):
            self._fed = self._fed[self._pos :] + data
        else:
            self._fed = data
        self._pos = 0

    def cut(self) -> memoryview | None:
        """Return the payload of the next frame; None while it is incomplete. Raises FrameError."""
        # A frame that has begun comes first.
        if self._missing:
            return self._gather()

        fed = self._fed
        pos = self._pos
        begins = pos + _SIZE.size
        if begins > len(fed):
            # Or a byte of the next frame would keep all before it in memory (fault outside-O18).
            self._fed = fed[pos:]
            self._pos = 0
            return None

        # Refuse a false size before bytes are kept for it.
        (size,) = _SIZE.unpack_from(fed, pos)
        if not 0 <= size <= self.max_bytes:
            hint = _STRANGERS.get(bytes(fed[pos : pos + 2]), "")
            raise FrameError(f"frame of {size} bytes, allowed are 0 to {self.max_bytes}{hint}")

        end = begins + size
        if end > len(fed):
            # The frame is not whole: keep what there is of it.
            self._pos = begins
            self._missing = size
            return self._gather()

        # It is whole: return a view, not a copy.
        if end == len(fed):
            self._fed = b""
            self._pos = 0
        else:
            self._pos = end
        return memoryview(fed)[begins:end]

    def peek(self, most: int) -> list[memoryview]:
        """Return up to `most` of the next frames, as far as the bytes just fed have them whole.

        They are not cut. A frame with a false size is left to `cut`.
        """
        frames: list[memoryview] = []
        fed = memoryview(self._fed)
        end = self._pos
        while len(frames) < most and not self._missing and end + _SIZE.size <= len(fed):
            (size,) = _SIZE.unpack_from(fed, end)
            begins = end + _SIZE.size
            end = begins + size
            if not 0 <= size <= self.max_bytes or end > len(fed):
                break
            frames.append(fed[begins:end])
        return frames

    def skip(self, frames: Sequence[memoryview]) -> None:
        """Cut these frames, the first ones that `peek` has returned."""
        self._pos += sum(map(len, frames)) + _SIZE.size * len(frames)
        self._release_fed()

    def clear(self) -> None:
        """Discard all bytes."""
        self._fed = b""
        self._pos = 0
        self._pieces = []
        self._gathered = 0
        self._missing = 0
        self._large = None

    def take_large(self) -> mmap.mmap | None:
        """Discard all bytes; return the buffer of a large frame, if there is one.

        To close it takes 10 ms for 100 MB, and may be done in a thread.
        """
        large = self._large
        self.clear()
        return large

    def _gather(self) -> memoryview | None:
        """Move the bytes fed to the frame that has begun; return the frame if it is complete."""
        assert self._missing >= 0
        # Take what has arrived, up to the end of the frame.
        if self._pos < len(self._fed):
            piece = memoryview(self._fed)[self._pos : self._pos + self._missing]
            self._pos += len(piece)
            self._missing -= len(piece)
            self._keep(piece)
        self._release_fed()
        if self._missing:
            return None

        # A frame in a single piece is not copied.
        if self._large is not None:
            whole = memoryview(self._large)
        elif len(self._pieces) == 1:
            whole = memoryview(self._pieces[0])
        else:
            whole = memoryview(b"".join(self._pieces))
        self._pieces = []
        self._gathered = 0
        self._large = None
        return whole

    def _keep(self, piece: memoryview) -> None:
        """Keep a piece as it is, if that keeps little else; append a small one to the buffer."""
        self._gathered += len(piece)
        last = self._pieces[-1] if self._pieces else None
        # Each piece is copied in the turn in which it comes (fault security-5).
        if self._large is None and self._missing and self._gathered > BEGUN_BYTES:
            self._begin_large()
        if self._large is not None:
            self._large[self._gathered - len(piece) : self._gathered] = piece
            return
        # As it is, it keeps the frames before it, too.
        if len(piece) >= max(SMALL_BYTES, len(self._fed) // 2):
            self._pieces.append(piece)
        elif isinstance(last, bytearray) and len(last) < SMALL_BYTES:
            last += piece
        else:
            self._pieces.append(bytearray(piece))

    def _begin_large(self) -> None:
        """Move the pieces of a frame that is large to a buffer for all of it.

        It takes memory as far as bytes are in it, and gives all of it back when it is freed.
        """
        size = self._gathered + self._missing
        if size <= LARGE_BYTES:
            return
        self._large = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        end = 0
        for kept in self._pieces:
            begin, end = end, end + len(kept)
            self._large[begin:end] = kept
        self._pieces = []

    def _release_fed(self) -> None:
        """Release the memory of the bytes fed once all of them are cut."""
        if self._pos == len(self._fed):
            self._fed = b""
            self._pos = 0
