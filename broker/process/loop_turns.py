"""Work of a coroutine that is too long for one turn of the event loop."""

from __future__ import annotations

import asyncio

import attrs


@attrs.define(eq=False)
class LoopTurns:
    """Counts the steps of some work, of which one turn of the loop has `a_turn` at most."""

    a_turn: int
    _taken: int = 0

    async def take(self, steps: int = 1) -> None:
        """Count the next steps, in the next turn if this one has had its own.

        More than `a_turn` at once are one turn.
        """
        self._taken += steps
        if self._taken > self.a_turn:
            # The other connections come in between.
            await asyncio.sleep(0)
            self._taken = steps
