"""Bound the handshakes of a server: how many are open at once, and how long a turn spends on them.

A step of a handshake takes a millisecond or more of computing, and its peer need not have computed
anything. So steps stand in a line of their own, and a turn of the event loop performs as many as
fit in TURN_S, at least one: whoever is connected already is served in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

import attrs

TURN_S = 0.004
"""Seconds that a turn of the loop spends on handshakes. The last step of a turn may exceed it."""
MAX_AT_ONCE = 1000
"""Most handshakes that are open at once."""


class Handshake(Protocol):
    """A handshake that is not finished."""

    def step(self) -> None:
        """Go on with the bytes that have arrived."""

    def give_up(self, reason: str) -> None:
        """End the connection."""


@attrs.define(eq=False)
class Handshakes:
    """The open handshakes. `call_soon` is the loop's, `time` returns seconds."""

    call_soon: Callable[[Callable[[], None]], object]
    time: Callable[[], float]
    max_at_once: int = MAX_AT_ONCE
    _waiting: dict[Handshake, None] = attrs.field(factory=dict)
    """Those that wait for their peers, longest first."""
    _line: deque[Handshake] = attrs.field(factory=deque)
    """Those that wait for us."""
    _is_called: bool = False

    def __len__(self) -> int:
        return len(self._waiting) + len(self._line)

    def begin(self, handshake: Handshake) -> None:
        """Add a handshake. If there are too many, the one is given up that is silent longest."""
        self._waiting[handshake] = None
        if len(self) > self.max_at_once:
            next(iter(self._waiting)).give_up("too many handshakes at once")

    def line_up(self, handshake: Handshake) -> None:
        """Let a handshake go on when its turn comes: bytes have arrived."""
        if handshake not in self._waiting:
            return
        del self._waiting[handshake]
        self._line.append(handshake)
        if not self._is_called:
            self._is_called = True
            self.call_soon(self._turn)

    def end(self, handshake: Handshake) -> None:
        """Remove a handshake that is finished, or whose connection has ended."""
        self._waiting.pop(handshake, None)
        if handshake in self._line:
            self._line.remove(handshake)

    def _turn(self) -> None:
        began = self.time()
        try:
            while self._line:
                handshake = self._line.popleft()
                # It goes to the end of those that wait, because its peer has done something.
                self._waiting[handshake] = None
                handshake.step()
                if self.time() - began >= TURN_S:
                    break
        finally:
            # The others go on, even after an error that nobody expected.
            self._is_called = bool(self._line)
            if self._is_called:
                self.call_soon(self._turn)
