"""Where the good part of a log ends, and what that means: a torn tail, or damage.

What lies at or above the recovery point when a broker was not stopped in good order may be half
written: it is a torn tail, which recovery cuts off and says so. What was on disk by then, which
after a clean stop is everything, is never cut off silently. Where it cannot be read the log is
damaged: it is left as it is and serves nobody, until a leader can give the data again or an
operator has it cut.
"""

from __future__ import annotations

import attrs

EVERYTHING = 2**63 - 1
"""The recovery point of a log that was closed, where no checkpoint tells its end."""


@attrs.frozen
class BadTail:
    """A log ends before `offset`, at `position` of `file`, with `size_bytes` behind that.

    `last_offset` is the last one that is known to have been there; `reason` says what is wrong.
    """

    file: str
    position: int
    offset: int
    last_offset: int
    size_bytes: int
    reason: str

    def __str__(self) -> str:
        why = f"{self.reason} (at position {self.position} of {self.file})"
        if self.last_offset < self.offset:
            return f"{self.size_bytes} bytes from offset {self.offset} on: {why}"
        return f"offsets {self.offset} to {self.last_offset}, {self.size_bytes} bytes: {why}"

    def is_damage(self, recovery_point: int) -> bool:
        """Whether something went that was on disk."""
        return self.offset < recovery_point
