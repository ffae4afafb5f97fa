"""Two brokers' authorizers on one ZooKeeper in memory, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import attrs
import pytest

from broker.authorization.acl_authorizer import AclAuthorizer
from broker.authorization.acl_index import Policy
from tests.broker.refusing_session import RefusingSession
from tests.broker.spawning import Spawned
from tests.stage.clock import VirtualTimeLoop
from zk.memory import MemorySession, MemoryZooKeeper

T = TypeVar("T")


@attrs.define(eq=False)
class Follower:
    """An authorizer that follows ZooKeeper; `refusing` is between both."""

    session: MemorySession
    refusing: RefusingSession
    authorizer: AclAuthorizer
    spawned: Spawned


@attrs.define(eq=False)
class AclStage:
    """A ZooKeeper, and what writes to it and follows it."""

    runner: asyncio.Runner
    zookeeper: MemoryZooKeeper = attrs.field(init=False)
    tool: MemorySession = attrs.field(init=False)
    _followers: list[Follower] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        loop = self.runner.get_loop()
        self.zookeeper = MemoryZooKeeper(lambda: int(loop.time() * 1000))
        self.tool = self.zookeeper.session()
        self.run(self.tool.start)

    def run(self, call: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run a call to its end."""

        async def run() -> T:
            return await call(*args)

        return self.runner.run(run())

    def follower(self, policy: Policy = Policy(), seed: int = 0) -> Follower:  # noqa: B008
        """Make an authorizer that is not started."""
        session = self.zookeeper.session()
        refusing = RefusingSession(session)
        spawned = Spawned()
        authorizer = AclAuthorizer(refusing.session, policy, spawned, random.Random(seed))
        self._followers.append(Follower(session, refusing, authorizer, spawned))
        self.run(session.start)
        return self._followers[-1]

    def following(self, seed: int = 0) -> Follower:
        """Make an authorizer and start it."""
        follower = self.follower(seed=seed)
        self.run(follower.authorizer.start)
        return follower

    def settle(self, ms: int = 1000) -> None:
        """Let everybody follow for so long, in virtual time."""
        self.run(asyncio.sleep, ms / 1000)

    def close(self) -> None:
        for follower in self._followers:
            for task in follower.spawned.tasks:
                task.cancel()
                if task.done() and not task.cancelled():
                    assert task.exception() is None


@pytest.fixture
def acls() -> Iterator[AclStage]:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        stage = AclStage(runner)
        yield stage
        stage.close()
