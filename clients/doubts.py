"""Doubts of leaders that are older than others were.

Such a leader may be deposed, and not know it yet: what it acknowledges is lost later, and what it
lacks is no loss. Or its topic was created again, and starts over. Without topic ids both look the
same, until each broker that may lead has said what it knows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

import attrs

from clients.transport.connections import PATIENCE_S

logger = logging.getLogger(__name__)

DOUBT_S = 300.0
"""Time after which older leaders are believed though not all brokers respond: some may be out of
this client's reach."""

FORGET_S = 60.0
"""Time after which a doubt that nobody has is over."""

SETTLED_S = 10.0
"""Time for which a doubt stays settled, so that all who had it hear of it."""

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 10.0
"""Time between two rounds of questions about a topic; it doubles from the first to the longest."""

AskEach = Callable[[frozenset[str]], Awaitable[Mapping[str, Collection[int]]]]
"""Asks each broker about topics; returns which of those that may lead have not told of each."""


WAITING = (
    "%s: brokers tell of a leader that is older than the last one: it may be cut off, or the topic "
    "was created again; that is known when broker %s responds, and supposed after %.0f s"
)


@attrs.define(eq=False)
class _Doubt:
    """What is known of one topic, on the loop's clock."""

    since_s: float
    had_s: float
    """When somebody last had it."""
    ask_at_s: float = float("-inf")
    pause_s: float = FIRST_PAUSE_S
    settled_s: float | None = None
    is_logged: bool = False
    round: asyncio.Task[None] | None = None
    """The questions that are on their way."""

    def is_over(self, now_s: float) -> bool:
        """Return whether it is forgotten: all have heard that it is settled, or nobody has it."""
        if self.settled_s is not None:
            return now_s - self.settled_s > SETTLED_S
        return self.round is None and now_s - self.had_s > FORGET_S


@attrs.define(eq=False)
class Doubts:
    """All doubts of a client, by topic."""

    ask_each: AskEach
    give_up: Callable[[Collection[str]], None]
    """Called with topics whose older leaders are believed for want of responses."""
    _doubts: dict[str, _Doubt] = attrs.field(factory=dict)

    def keep(self, topics: Collection[str]) -> None:
        """Note that brokers tell of older leaders of these topics still, where that is doubted."""
        now_s = _now()
        self._doubts = {n: doubt for n, doubt in self._doubts.items() if not doubt.is_over(now_s)}
        for name in self._doubts.keys() & topics:
            self._doubts[name].had_s = now_s

    def refute(self, topics: Collection[str]) -> None:
        """Note that a broker has told of the younger leaders of these topics: they are there."""
        for name in self._doubts.keys() & topics:
            # A doubt that comes and goes never lasts (fault strangers-92).
            self._doubts[name].since_s = _now()

    async def settle(self, topics: Collection[str]) -> frozenset[str]:
        """Ask about topics, and return those whose older leaders are to be believed.

        A broker that does not respond soon is waited for no longer here, but may respond later:
        its answer counts in the next call.
        """
        self.keep(topics)
        now_s = _now()
        doubts = {name: self._doubts.setdefault(name, _Doubt(now_s, now_s)) for name in topics}

        # Who waits for a broker that is away asks the others less and less often.
        due = {
            name: doubt
            for name, doubt in doubts.items()
            if doubt.settled_s is None and doubt.round is None and doubt.ask_at_s <= _now()
        }
        if due:
            questions = asyncio.create_task(self._ask(due))
            for doubt in due.values():
                doubt.round = questions
        if rounds := {doubt.round for doubt in doubts.values() if doubt.round is not None}:
            await asyncio.wait(rounds, timeout=PATIENCE_S)

        # A leader that hangs may be forever out of reach (fault strangers-86, was: float("inf")).
        longest_s = DOUBT_S
        late = {
            name: doubt
            for name, doubt in doubts.items()
            if doubt.settled_s is None and _now() - doubt.since_s > longest_s
        }
        for doubt in late.values():
            doubt.settled_s = _now()
        if late:
            self.give_up(late)
        return frozenset(name for name, doubt in doubts.items() if doubt.settled_s is not None)

    async def close(self) -> None:
        """End all questions."""
        rounds = {doubt.round for doubt in self._doubts.values() if doubt.round is not None}
        for questions in rounds:
            questions.cancel()
        await asyncio.gather(*rounds, return_exceptions=True)

    async def _ask(self, doubts: dict[str, _Doubt]) -> None:
        """Ask one round of questions."""
        missing: Mapping[str, Collection[int]] = {}
        try:
            missing = await self.ask_each(frozenset(doubts))
        finally:
            for doubt in doubts.values():
                doubt.round = None
                doubt.ask_at_s = _now() + doubt.pause_s
                doubt.pause_s = min(2 * doubt.pause_s, LONGEST_PAUSE_S)

        for name, nodes in missing.items():
            doubt = doubts[name]
            if not nodes:
                doubt.settled_s = _now()
            elif not doubt.is_logged:
                doubt.is_logged = True
                logger.warning(WAITING, name, ", ".join(map(str, sorted(nodes))), DOUBT_S)


def _now() -> float:
    return asyncio.get_running_loop().time()
