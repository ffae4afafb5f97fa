"""What befalls transactions: two faults at a time, one of clients and one of brokers."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import attrs

from tests.chaos.faults import ANY_S, FAULTS, LONG_S, FaultStage
from tests.chaos.network import CLIENTS, both_ways, broker
from tests.chaos.transactions.clients import Client, Driver
from tests.chaos.transactions.repeater import Repeater
from tests.transactions.workload import TIMEOUT_MS

TOO_LONG_S = (TIMEOUT_MS / 1000 + 2, TIMEOUT_MS / 1000 + 5)
"""By then the transaction of a client that is stopped is aborted."""
MOMENT_S = (0.0, 0.05)
"""Between the begin of a commit and its markers."""
ENDING_S = 30.0
SHARE = 0.5
"""Of the requests that may come twice, while some do."""


@attrs.define(eq=False)
class Scene:
    """What there is to hurt."""

    brokers: FaultStage
    clients: Sequence[Client]
    repeater: Repeater
    ending: asyncio.Event

    def some_driver(self) -> tuple[Client, Driver | None]:
        """Return a client, and the process that runs its transactions now."""
        client = self.brokers.chance.choice(self.clients)
        return client, client.incarnation.driver

    def say(self, what: str) -> None:
        """Add a line to the story."""
        self.brokers.say(what)


Fault = Callable[[Scene], Coroutine[Any, Any, None]]


# ---- clients


async def kill_a_client(scene: Scene) -> None:
    """kill -9 of a client in the middle of whatever it does; another one takes its place."""
    _, driver = scene.some_driver()
    if driver is not None:
        scene.say(f"killed {driver.name}")
        driver.signal(signal.SIGKILL)


async def kill_a_client_that_commits(scene: Scene) -> None:
    """kill -9 of a client between its commit and the response."""
    await _await_ending(scene)
    await kill_a_client(scene)


async def freeze_a_client(scene: Scene) -> None:
    """SIGSTOP of a client for longer than its transaction may last."""
    _, driver = scene.some_driver()
    if driver is not None:
        driver.signal(signal.SIGSTOP)
        try:
            await scene.brokers.last(TOO_LONG_S, f"stopped {driver.name}")
        finally:
            driver.signal(signal.SIGCONT)


async def zombie(scene: Scene) -> None:
    """SIGSTOP of a client, another one in its place, and the first goes on."""
    client, driver = scene.some_driver()
    if driver is not None:
        driver.signal(signal.SIGSTOP)
        client.start()
        try:
            await scene.brokers.last(ANY_S, f"stopped {driver.name}, which is replaced")
        finally:
            driver.signal(signal.SIGCONT)


async def requests_come_twice(scene: Scene) -> None:
    """Requests to coordinators come twice, or late."""
    scene.repeater.share = SHARE
    try:
        await scene.brokers.last(ANY_S, "requests come twice")
    finally:
        scene.repeater.share = 0.0


# ---- brokers


async def kill_in_a_commit(scene: Scene) -> None:
    """kill -9 of a broker while a transaction gets its markers, and a start."""
    await _await_ending(scene)
    await FAULTS["kill"][0](scene.brokers)


async def freeze_in_a_commit(scene: Scene) -> None:
    """SIGSTOP of a broker while a transaction gets its markers: others lead, and it comes back."""
    await _await_ending(scene)
    broker_id = scene.brokers.some_broker()
    async with scene.brokers.cluster.frozen(broker_id):
        await scene.brokers.last(LONG_S, f"stopped broker {broker_id}")


async def move_leaders_in_a_commit(scene: Scene) -> None:
    """Have others lead while a transaction gets its markers."""
    await _await_ending(scene)
    await FAULTS["elect preferred"][0](scene.brokers)


async def slow_clients(scene: Scene) -> None:
    """What passes between clients and a broker comes late."""
    one = scene.brokers.some_broker()
    seconds = scene.brokers.chance.uniform(0.1, 2.0)
    pairs = both_ways(CLIENTS, broker(one))
    network = scene.brokers.cluster.network
    network.delay(pairs, seconds)
    try:
        what = f"clients and broker {one} hear {seconds:.1f} s late"
        await scene.brokers.last(ANY_S, what)
    finally:
        network.heal(pairs)


async def _await_ending(scene: Scene) -> None:
    """Wait for the begin of a commit, and a moment longer."""
    scene.ending.clear()
    try:
        async with asyncio.timeout(ENDING_S):
            await scene.ending.wait()
    except TimeoutError:
        scene.say("nobody commits")
    await asyncio.sleep(scene.brokers.chance.uniform(*MOMENT_S))


def _of_brokers(name: str) -> Fault:
    fault, _ = FAULTS[name]

    async def strike(scene: Scene) -> None:
        await fault(scene.brokers)

    return strike


CLIENT_FAULTS: dict[str, Fault] = {
    "kill a client": kill_a_client,
    "kill a client that commits": kill_a_client_that_commits,
    "freeze a client": freeze_a_client,
    "zombie": zombie,
    "requests come twice": requests_come_twice,
}
BROKER_FAULTS: dict[str, Fault] = {
    "kill in a commit": kill_in_a_commit,
    "freeze in a commit": freeze_in_a_commit,
    "move leaders in a commit": move_leaders_in_a_commit,
    "slow clients": slow_clients,
} | {
    name: _of_brokers(name)
    for name in (
        *("kill all", "freeze the controller", "roll", "cut two brokers", "cut one way"),
        *("isolate", "slow link", "reset brokers", "reset clients", "cut clients"),
        *("shrink and grow",),
    )
}
FIRST = ("kill in a commit", "freeze in a commit", "move leaders in a commit", "reset clients")
"""What befalls brokers in a short story."""


def deal(names: Sequence[str], chance: random.Random) -> Iterator[str]:
    """Go through names without end: in one random order after the other."""
    while True:
        yield from chance.sample(names, len(names))
