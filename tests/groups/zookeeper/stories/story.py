"""Simulate a group for sixty seconds of virtual time, and record everything that happens.

The members, streams and offsets are real. ZooKeeper is in memory, behind wires that keep the order
within a session, as ZooKeeper does, and delay each direction at random. Applications read; the
clock jumps. A seed decides the faults: joins, leaves, crashes, connections cut for shorter or
longer than the session lasts, sessions closed for good, replies lost, wires that become slow, nodes
and whole directories deleted by hand, claims that ZooKeeper refuses, a topic deleted while it is
consumed. Rebalance listeners are slow, and raise.

These things are checked:

- at each commit, and whenever ownership or deliveries change: only the owner of a partition
  delivers and commits it, and no commit goes back. An exception holds for a while after somebody
  has deleted owner nodes.
- whenever a listener is called: the partitions it gets are still owned.
- at the end: all partitions are shared out evenly, and no message was missed.

In every fifth story the group has `auto.offset.reset=largest`, its applications are slow, and all
events are clean: members come and go, the whole group is deployed again, topics grow, old messages
are deleted. Then a partition is reset once, unless messages that the group had still to consume
were deleted, and nothing is missed from the reset on.

A story ends at its first violation, and its transcript shows what led to it. The same seed gives
the same transcript, word for word.
"""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import Any

from groups.zookeeper.assignment import ASSIGNORS
from kgroup.testing import story
from kgroup.testing.story import Violation, listed
from protocol.topic_partition import TopicPartition
from tests.groups.zookeeper.stories.figures import (
    FEWEST_FAULTS,
    FIRST_MEMBERS,
    GROUP,
    LARGEST_EVERY,
    LAST_MESSAGE_S,
    LENGTH_S,
    TOPICS,
    TROUBLE_S,
)
from tests.groups.zookeeper.stories.player import Player
from tests.groups.zookeeper.stories.promises import Promises
from tests.groups.zookeeper.stories.troubles import CLEAN_TROUBLES, TROUBLES, Troubles
from tests.groups.zookeeper.stories.wire import WatchedZooKeeper
from tests.groups.zookeeper.stories.words import in_words
from tests.stage.checked_states import checking_states
from tests.stage.clock import run_in_virtual_time
from zk.memory import MemorySession


class Story(story.Story):
    """One seed's sixty seconds. `run` it, or `tell_whole` it from outside a loop."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, asyncio.get_running_loop().time)
        self.random = Random(seed)
        self.violation: str | None = None
        self.players: dict[str, Player] = {}
        self.strategy = sorted(ASSIGNORS)[seed % len(ASSIGNORS)]
        self.reset = "largest" if seed % LARGEST_EVERY == LARGEST_EVERY - 1 else "smallest"
        self.partitions = dict(TOPICS)
        self.log_starts: dict[TopicPartition, int] = {}
        self.zk = WatchedZooKeeper(self)
        self.admin: MemorySession = self.zk.session()
        self.promises = Promises(self)
        self.troubles = Troubles(self)
        self.delays = self.reorderings = 0
        self._sent = 0
        self._on_the_way: set[int] = set()
        self._over = asyncio.Event()

    # --- the plot -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Run the story. Raises Violation."""
        await self.admin.start()
        for topic, count in TOPICS.items():
            await self.troubles.write_topic(topic, count)
        plot = [(self.random.uniform(0, 2), Troubles.arrive) for _ in range(FIRST_MEMBERS)]
        troubles = CLEAN_TROUBLES if self.reset == "largest" else TROUBLES
        for _ in range(self.random.randint(FEWEST_FAULTS, FEWEST_FAULTS + 6)):
            plot.append((self.random.uniform(*TROUBLE_S), self.random.choice(troubles)))
        for at_s, befall in sorted(plot, key=lambda scene: scene[0]):
            await self._wait_until(at_s)
            await befall(self.troubles)

        await self._wait_until(LENGTH_S)
        if self.violation is None:
            await self._wait_until_nobody_looks_around()
            self.promises.check_end()

        for player in self.players.values():
            await self.troubles.let_leave(player)
        if self.violation is not None:
            raise Violation(self.transcript())

    async def _wait_until(self, at_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(at_s):
                await self._over.wait()

    async def _wait_until_nobody_looks_around(self) -> None:
        for _ in range(200):
            if all(player.member.is_settled for player in self.players.values()):
                return
            await asyncio.sleep(0.01)

    # --- the world ----------------------------------------------------------------------------

    def log_bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """Return the log's start and end; every partition gets messages at its own pace."""
        pace = 0.7 + (7 * partition.partition + len(partition.topic)) % 4
        log_end = int(min(self.now_s(), LAST_MESSAGE_S) * pace)
        return self.log_starts.get(partition, 0), log_end

    async def work(self) -> None:
        """Take the time of an application for a message: hardly any, or seldom a long one."""
        seldom, longest_s = (0.01, 5.0) if self.reset == "largest" else (0.05, 0.1)
        if self.random.random() < seldom and self.now_s() < LAST_MESSAGE_S:
            await asyncio.sleep(self.random.uniform(0, longest_s))

    def calls_sent(self) -> int:
        self._sent += 1
        self._on_the_way.add(self._sent)
        return self._sent

    def call_arrives(self, number: int) -> None:
        self._on_the_way.remove(number)
        self.delays += 1
        self.reorderings += any(earlier < number for earlier in self._on_the_way)

    # --- the telling --------------------------------------------------------------------------

    def violated(self, what: str) -> None:
        """End the story: a promise is broken. The first one counts."""
        if self.violation is None:
            self.tell("", f"VIOLATION: {what}")
            self.violation = what
            self.close()
            self._over.set()

    def line(self, at_s: float, who: str, what: Any) -> str | None:
        """Put an event, an effect or a text into words, with the name of its member."""
        text = what if isinstance(what, str) else in_words(what)
        return f"{at_s:7.3f}  {who.removeprefix(f'{GROUP}_'):2}{text}" if text else None

    def transcript(self) -> str:
        """Return the story so far, in words."""
        again = f"to replay: make simulate SEEDS={self.seed}"
        return "\n".join([f"seed {self.seed}: {self.summary()}", *self.lines(), again])

    def summary(self) -> str:
        """Return the faults of the story, and how often they took effect."""
        messages = sum(map(len, self.promises.seen.values()))
        return (
            f"{self.faults.total()} faults ({listed(self.faults)}); "
            f"they bit: {listed(self.bites) or 'never'}; "
            f"{self.delays} calls delayed, {self.reorderings} overtaken, "
            f"{messages} messages, {self.promises.repeated} repeated"
        )


def tell_whole(seed: int) -> Story:
    """Run the story of a seed. Raises Violation, with the transcript."""

    async def live() -> Story:
        story = Story(seed)
        await story.run()
        return story

    with checking_states():
        return run_in_virtual_time(live())
