"""What goes wrong in a group's story: members, wires, nodes and brokers that come and go."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import string
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any

from protocol.topic_partition import TopicPartition
from tests.groups.zookeeper.stories.figures import (
    GROUP,
    HEARD_S,
    MORTAL,
    MOST_MEMBERS,
    NOTICED_S,
    OWNERS,
    SESSION_TIMEOUT_MS,
    SLOW,
)
from tests.groups.zookeeper.stories.player import Player
from zk.api import SessionState, ZkError
from zk.znodes import ConsumerRegistration, TopicAssignment

if TYPE_CHECKING:
    from tests.groups.zookeeper.stories.story import Story


class Troubles:
    """What may befall a group; each is one scene of the plot."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self._names = _short_names()

    async def join(self) -> None:
        """Let a member join."""
        if len(self.story.players) == MOST_MEMBERS:
            return await self.leave()
        self.story.faults["join"] += 1
        return await self.arrive()

    async def arrive(self) -> None:
        """Let one of the first members join, which does not count as a fault."""
        name = next(self._names)
        streams = self.story.random.randint(1, 2)
        self.story.tell("", f"-- {name} joins with {streams} streams")
        session = self.story.zk.session(SESSION_TIMEOUT_MS)
        await session.start()
        self.story.players[name] = player = Player(self.story, name, session, streams)
        player.begin()

    async def leave(self) -> None:
        """Let a member leave properly."""
        if len(self.story.players) < 3:
            return await self.join()
        player = self._somebody()
        self._befalls("leave", f"{player.name} leaves")
        del self.story.players[player.name]
        self._later(0, lambda: self._spawn(self.let_leave(player)))
        return None

    async def redeploy(self) -> None:
        """Let a topic grow; soon all members leave properly, and as many join."""
        await self.more_partitions()
        await asyncio.sleep(self.story.random.uniform(0.5, 2.5))
        players = list(self.story.players.values())
        self._befalls("redeployed", "the whole group is deployed again")
        self.story.players.clear()
        await asyncio.gather(*map(self.let_leave, players))
        for _ in players:
            await self.arrive()

    async def let_leave(self, player: Player) -> None:
        await player.member.leave()
        player.end()
        await player.session.close()

    async def crash(self) -> None:
        """Crash a process; ZooKeeper notices it when the session ends."""
        if len(self.story.players) < 3:
            return await self.join()
        player = self._somebody()
        self._befalls("crash", f"{player.name} crashes")
        del self.story.players[player.name]
        self._be_gone(player)
        player.crashed = True
        self._silence(player, 0.0)
        self._later(SESSION_TIMEOUT_MS / 1000, lambda: self.story.zk.expire(player.session))
        return None

    def _be_gone(self, player: Player) -> None:
        with contextlib.suppress(ValueError):  # it ended with its session
            player.session.remove_state_listener(player.member._session_changed)
        player.end()
        if player.member._runner:
            player.member._runner.cancel()
        player.member._timers.cancel_all()
        player.delivery.abandon()

    async def blip(self) -> None:
        """Cut a connection for less than a lease lasts."""
        await self._cut(self.story.random.uniform(0.05, 3.9), "blip")

    async def silence(self) -> None:
        """Cut a connection for longer than the lease lasts, and less than the session."""
        await self._cut(self.story.random.uniform(4.1, 5.9), "silence")

    async def expiry(self) -> None:
        """Cut a connection for longer than the session lasts."""
        await self._cut(self.story.random.uniform(6.1, 9.0), "expiry")

    async def _cut(self, silent_s: float, kind: str) -> None:
        player = self._somebody()
        if player.session.state is not SessionState.CONNECTED:
            return await self.slow()
        self._befalls(kind, f"{player.name} is cut off from ZooKeeper for {silent_s:.2f} s")
        self._silence(player, silent_s)
        return None

    def _silence(self, player: Player, silent_s: float) -> None:
        player.next_silence_s = silent_s
        self.story.zk.suspend(player.session)

    def connection_broke(self, player: Player, silent_s: float) -> None:
        """End a silence: the connection comes back, or the session expires."""
        session = player.session
        timeout_s = SESSION_TIMEOUT_MS / 1000
        if silent_s >= timeout_s:
            self._later(timeout_s, lambda: self.story.zk.expire(session))
        self._later(silent_s, lambda: player.crashed or self.story.zk.resume(session))

    async def lost_reply(self) -> None:
        """Break a connection behind a write, which is done and gets no response."""
        player = self._somebody()
        if player.session.state is not SessionState.CONNECTED:
            return await self.slow()
        self._befalls("lost reply", f"{player.name} will get no reply to its next write")
        self.story.zk.lose_reply(player.session)
        return None

    async def slow(self) -> None:
        """Make a wire very slow for a while; later events of others overtake those on it."""
        player = self._somebody()
        lasts_s = self.story.random.uniform(0.5, 3.0)
        self._befalls("slow wire", f"{player.name}'s wire is slow for {lasts_s:.2f} s")
        player.wire.slowness = SLOW
        self._later(lasts_s, lambda: setattr(player.wire, "slowness", 1))

    async def more_partitions(self) -> None:
        """Let a topic grow."""
        topic = self.story.random.choice(sorted(self.story.partitions))
        self.story.partitions[topic] += self.story.random.randint(1, 3)
        self._befalls(
            "more partitions", f"{topic} has {self.story.partitions[topic]} partitions now"
        )
        await self.write_topic(topic, self.story.partitions[topic])

    async def retention(self) -> None:
        """Delete the messages of a topic, consumed or not."""
        topic = self.story.random.choice(sorted(self.story.partitions))
        self._befalls("retention", f"the messages of {topic} are deleted")
        for number in range(self.story.partitions[topic]):
            partition = TopicPartition(topic, number)
            self.story.log_starts[partition] = self.story.log_bounds(partition)[1]

    async def topic_deleted(self) -> None:
        """Delete a topic for good."""
        if MORTAL not in self.story.partitions:
            return await self.more_partitions()
        self._befalls("topic deleted", f"{MORTAL} is deleted")
        del self.story.partitions[MORTAL]
        await self.story.admin.delete(TopicAssignment.path(MORTAL))
        return None

    async def unregistered(self) -> None:
        """Delete the registration of a living member."""
        player = self._somebody()
        path = ConsumerRegistration.path(GROUP, player.consumer_id)
        self._befalls("unregistered", f"{player.name}'s registration is deleted by hand")
        with contextlib.suppress(ZkError):
            await self.story.admin.delete(path)

    async def directories_deleted(self) -> None:
        """Delete the group's directories, or the whole group, as somebody who tidies up would."""
        below = self.story.random.choice(["", "/ids", "/owners", f"/owners/{self._some_topic()}"])
        path = f"/consumers/{GROUP}{below}"
        self._befalls("directories deleted", f"{path} is deleted by hand, with all below it")
        until_s = self.story.now_s() + NOTICED_S
        for owned, node in self.story.zk.tree.items():
            if owned.startswith(OWNERS) and owned.startswith(f"{path}/") and node.ephemeral_owner:
                self.story.promises.taken[owned] = until_s
        with contextlib.suppress(ZkError):  # where claims are refused, deletions are
            await self.story.admin.delete_recursive(path)

    async def session_closed(self) -> None:
        """Close the session of a member; its applications notice it."""
        player = self._somebody()
        if len(self.story.players) < 3 or player.session.state is not SessionState.CONNECTED:
            return await self.join()
        self._befalls("session closed", f"the session of {player.name} is closed for good")
        await player.session.close()
        del self.story.players[player.name]
        if player.delivery.owned:
            self.story.violated(f"{player.name} delivers {player.delivers} without a session")
        self._later(HEARD_S, lambda: self._spawn(self._ends_lost(player)))
        return None

    async def _ends_lost(self, player: Player) -> None:
        if player.streams_lost < player.num_streams:
            self.story.violated(f"{player.name} waits for messages that nobody will send")
        await self.let_leave(player)

    async def claims_refused(self) -> None:
        """Forbid to claim partitions of a topic, and to release them, for a while."""
        topic = self._some_topic()
        lasts_s = self.story.random.uniform(0.5, 4.0)
        self._befalls("claims refused", f"nobody may claim of {topic} for {lasts_s:.2f} s")
        path = f"{OWNERS}{topic}"
        self.story.zk.read_only.add(path)
        self._later(lasts_s, lambda: self.story.zk.read_only.discard(path))

    def _some_topic(self) -> str:
        return self.story.random.choice(sorted(self.story.partitions))

    async def malformed(self) -> None:
        """Register a member with unreadable content, and delete it again."""
        lasts_s = self.story.random.uniform(0.2, 3.0)
        path = ConsumerRegistration.path(GROUP, f"broken{self.story.faults['malformed']}")
        self._befalls("malformed", f"a registration nobody can read stands for {lasts_s:.2f} s")
        await self.story.admin.create(path, b"{", make_parents=True)
        self._later(lasts_s, lambda: self._spawn(self.story.admin.delete_recursive(path)))

    async def broker(self) -> None:
        """Register a second broker, or delete it."""
        self._befalls("broker", "a broker comes or goes")
        if await self.story.admin.exists("/brokers/ids/1"):
            await self.story.admin.delete("/brokers/ids/1")
        else:
            await self.story.admin.create("/brokers/ids/1", None, make_parents=True)

    async def write_topic(self, topic: str, count: int) -> None:
        content = TopicAssignment({number: (number % 3,) for number in range(count)}).encode()
        path = TopicAssignment.path(topic)
        if await self.story.admin.exists(path):
            await self.story.admin.set(path, content)
        else:
            await self.story.admin.create(path, content, make_parents=True)

    def _somebody(self) -> Player:
        return self.story.players[self.story.random.choice(sorted(self.story.players))]

    def _befalls(self, kind: str, what: str) -> None:
        self.story.faults[kind] += 1
        self.story.tell("", f"-- {what}")

    def _later(self, delay_s: float, call: Callable[[], object]) -> None:
        asyncio.get_running_loop().call_later(delay_s, call)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.ensure_future(work).add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            self.story.violated(f"unexpected: {error!r}")


Scene = Callable[[Troubles], Coroutine[Any, Any, None]]

TROUBLES: tuple[Scene, ...] = (
    # members
    *(Troubles.join, Troubles.leave, Troubles.crash),
    # wires and sessions
    *(Troubles.blip, Troubles.silence, Troubles.expiry, Troubles.expiry),
    *(Troubles.lost_reply, Troubles.lost_reply, Troubles.slow, Troubles.slow),
    # nodes
    *(Troubles.more_partitions, Troubles.topic_deleted, Troubles.unregistered, Troubles.malformed),
    *(Troubles.broker, Troubles.directories_deleted),
    *(Troubles.session_closed, Troubles.claims_refused),
)
CLEAN_TROUBLES: tuple[Scene, ...] = (
    *(Troubles.join, Troubles.leave, Troubles.leave, Troubles.redeploy, Troubles.redeploy),
    *(Troubles.slow, Troubles.more_partitions, Troubles.more_partitions, Troubles.retention),
    *(Troubles.topic_deleted, Troubles.broker),
)


def _short_names() -> Iterator[str]:
    """Yield a to z, A to Z, a1, b1, ..."""
    for letter in string.ascii_letters:
        yield letter
    for number, letter in itertools.product(itertools.count(1), string.ascii_letters):
        yield f"{letter}{number}"
