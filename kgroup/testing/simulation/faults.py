"""Draw a schedule of faults from a seed: at least ten in sixty seconds.

Each fault ends by itself after a while, and `heal` ends them all. Whether one had an effect (it
"bit") is seen by others: clients see their requests fail, and who looks at ZooKeeper sees leaders,
in-sync replicas and controllers change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING

import attrs

from kgroup.testing.simulation.zookeeper import HOST as ZK_HOST
from zk.znodes import Controller

if TYPE_CHECKING:
    from kgroup.testing.simulation.cluster import Client, Cluster
    from kgroup.testing.simulation.node import Node

FEWEST = 10
LENGTH_S = 60.0
REST_S = 15.0
LONG_SILENCE_S = (18.0, 45.0)
"""A silence that outlasts the sessions and the request time-outs of these brokers and clients."""


def torn(rng: Random) -> Callable[[bytes, bytes], bytes]:
    """Return what a power failure leaves of a file: what was synced, and part of the rest."""

    def survivor(synced: bytes, now: bytes) -> bytes:
        if not now.startswith(synced):
            return synced if rng.random() < 0.5 else now
        whole, end = len(now), rng.randint(len(synced), len(now))
        return rng.choice(
            [synced, now, now[:end], now[:end].ljust(whole, b"\0")]  # the size came first
        )

    return survivor


@attrs.define(eq=False)
class Faults:
    """Strikes `cluster` by a schedule (`strike`) or one by one, each fault at a random victim.

    A fault ends by itself after a while, or by `heal`. One that has no victim at the moment does
    nothing. The story has a line of each.

    `long_silences` is the chance that a pause, a cut or a stall outlasts sessions and time-outs, so
    that requests and responses arrive when nobody counts on them any more.
    """

    cluster: Cluster
    rng: Random
    long_silences: float = 0.0
    _healing: list[Callable[[], None]] = attrs.field(factory=list)
    _has_lost_disk: bool = False
    _rest_s: float = 0.0
    _is_over: bool = False
    _told: int = 0

    async def strike(self, length_s: float = LENGTH_S) -> None:
        """Strike for so long (virtual seconds), 12 to 20 times a minute, with faults of all kinds.

        It returns when the time is over; some faults may still last then.
        """
        self._is_over = False
        loop = asyncio.get_running_loop()
        minutes = length_s / LENGTH_S
        number, fewest = round(self._number() * minutes), round(FEWEST * minutes) + self._told

        ends = loop.time() + length_s
        times = sorted(self.rng.uniform(0, length_s * 0.95) for _ in range(number))
        kinds = self._kinds()
        begins = loop.time()
        for at in times:
            begins, ends, self._rest_s = begins + self._rest_s, ends + self._rest_s, 0.0
            await asyncio.sleep(max(0.0, begins + at - loop.time()))
            self.rng.choices(list(kinds), weights=list(kinds.values()))[0]()
        while self._told < fewest:  # not every kind can strike at any time
            self.rng.choices(list(kinds), weights=list(kinds.values()))[0]()
        await asyncio.sleep(max(0.0, ends - loop.time()))

    def _number(self) -> int:
        return self.rng.randint(FEWEST + 2, FEWEST + 10)

    def _kinds(self) -> dict[Callable[[], None], int]:
        """Return the kinds that make sense in this cluster, with their weights."""
        may_lose_power = self.cluster.may_lose_power
        has_others = len(self.cluster.nodes) > 1
        return {
            self.kill: 4,
            self.kill_in_turn: 2,
            self.lose_power: 3 if may_lose_power else 0,
            self.black_out: 1 if may_lose_power else 0,
            self.bounce_unseen: 1,
            self.pause: 3,
            self.partition_brokers: 2 if has_others else 0,
            self.partition_from_zookeeper: 2,
            self.partition_client: 2,
            self.expire_session: 2,
            self.depose_controller: 2 if has_others else 0,
            self.fill_disk: 1,
            self.replace_disk: 1 if has_others else 0,
            self.clock_jump: 1,
            self.reset_connections: 3,
            self.stall_connections: 2,
            self.silence: 2 if self.long_silences else 0,
            self.kill_client: 4 if self.cluster.restarted else 0,
        }

    def heal(self) -> None:
        """End all faults, and start every broker and every client of `run_client` that is down."""
        self._is_over = True
        healing, self._healing = self._healing, []
        for heal in healing:
            heal()
        for node in self.cluster.nodes:
            if not node.running:
                node.start()
        for client in self.cluster.restarted:
            if not client.running:
                client.start()

    # ---- the kinds

    def kill(self) -> None:
        """Kill a broker (SIGKILL), and start it within 10 s: its session may have ended or not."""
        node = self._running_node()
        if node is not None:
            self._tell("kill", node.host, "")
            self._kill(node)

    def kill_client(self) -> None:
        """Kill a client of `run_client` (SIGKILL), and start it again within 5 s."""
        running = [client for client in self.cluster.restarted if client.running]
        if not running:
            return

        client = self.rng.choice(running)
        self._tell("client kill", client.name, "")
        client.kill()
        self._later((0.2, 5.0), lambda: self._start_client(client))

    @staticmethod
    def _start_client(client: Client) -> None:
        if not client.running:
            client.start()

    def kill_in_turn(self) -> None:
        """Kill a broker, as ZooKeeper notices at once, and another just after the election."""

        def kill_one() -> None:
            node = self._running_node()
            if node is not None:
                self._tell("kill in turn", node.host, "")
                self._kill(node)
                self._expire(node)

        kill_one()
        self._soon((0.005, 0.5), kill_one)

    def lose_power(self) -> None:
        """Cut the power of a broker: the disk keeps what was synced, and a part of the rest."""
        node = self._running_node()
        if node is not None:
            self._tell("power loss", node.host, "")
            self._lose_power(node, (1.0, 12.0))

    def black_out(self) -> None:
        """Cut the power of all brokers at once."""
        self._tell("blackout", "all", "")
        for node in self.cluster.nodes:
            if node.running:
                self._lose_power(node, (1.0, 6.0))

    def bounce_unseen(self) -> None:
        """Restart a broker while there is no controller that could see it."""
        node = self._running_node()
        if node is None:
            return
        self._tell("unseen bounce", node.host, "")
        for other in self.cluster.nodes:
            if other is not node:
                self.cut("zookeeper partition", other.host, ZK_HOST, (0.5, 4.0))
            self._expire(other)
        if self.cluster.may_lose_power:
            self._lose_power(node, (0.1, 0.5))
        else:
            node.stop()
            self._later((0.1, 0.5), lambda: self._start(node))

    def _is_cut(self, node: Node) -> bool:
        session = node.session
        return session is None or session.is_cut() or session.served.server_expired

    def _kill(self, node: Node) -> None:
        node.stop()
        self._later((0.2, 10.0), lambda: self._start(node))

    def _expire(self, node: Node) -> None:
        session = node.session
        if session is not None and session.session_id and not session.served.server_expired:
            self.cluster.zookeeper.expire(session)

    def _lose_power(self, node: Node, back_after_s: tuple[float, float]) -> None:
        if not self.cluster.every_record_flushed:
            self.cluster.loss_allowed = True
        node.powered = False
        self.cluster.network.off.add(node.host)
        node.stop(silent=True)
        node.directory.lose_power(torn(self.rng))

        def power_on() -> None:
            node.powered = True
            self.cluster.network.power_on(node.host)
            self._start(node)

        self._later(back_after_s, power_on)

    def pause(self) -> None:
        """Freeze a broker or a client (SIGSTOP) for up to 12 s."""
        running = [n.process for n in self.cluster.nodes if n.running]
        running += [process for process in self.cluster.clients if process.alive]
        process = self.rng.choice([p for p in running if not p.paused] or running)
        self._tell("pause", process.name, "")
        process.pause()

        def go_on() -> None:
            self.cluster.world.story.tell(process.name, "goes on")
            process.resume()

        self._later(self._silence_s(0.3, 12.0), go_on)

    def silence(self) -> None:
        """Cut a broker off from everything, both ways, as a dropped route does, for long.

        It neither answers nor breaks off, and goes on when it is heard again.
        """
        node = self.rng.choice(self.cluster.nodes)
        hosts = {other.host for other in self.cluster.nodes} | {ZK_HOST}
        hosts |= {client.host for client in self.cluster.clients}
        self._tell("silence", node.host, "")
        self.silence_host(node.host, sorted(hosts - {node.host}), LONG_SILENCE_S)

    def silence_host(
        self, host: str, others: Sequence[str], lasts_s: tuple[float, float] | None
    ) -> Callable[[], None]:
        """Cut a host off from others, both ways; return what ends that. None: until it is ended."""
        network = self.cluster.network
        ways = [way for other in others for way in ((host, other), (other, host))]
        for way in ways:
            network.cut(*way)
        self.cluster.zookeeper.path_changed()

        def mend() -> None:
            self.cluster.world.story.tell("network", f"{host} is heard again")
            for way in ways:
                network.mend(*way)

        if lasts_s is not None:
            self._later(lasts_s, mend)
        return mend

    def partition_brokers(self) -> None:
        """Cut two brokers off from each other, in one direction or both, for up to 15 s."""
        one, other = self.rng.sample([n.host for n in self.cluster.nodes], 2)
        self.cut("broker partition", one, other, self._silence_s(0.5, 15.0))

    def partition_from_zookeeper(self) -> None:
        """Cut a broker off from ZooKeeper, in one direction or both, for up to 15 s."""
        node = self.rng.choice(self.cluster.nodes)
        self.cut("zookeeper partition", node.host, ZK_HOST, self._silence_s(0.5, 15.0))

    def partition_client(self) -> None:
        """Cut a client off from a broker, in one direction or both, for up to 10 s."""
        client = self.rng.choice(self.cluster.clients)
        node = self.rng.choice(self.cluster.nodes)
        self.cut("client partition", client.host, node.host, self._silence_s(0.5, 10.0))

    def expire_session(self) -> None:
        """Have ZooKeeper end a session for reasons of its own."""
        sessions = [
            s
            for s in self.cluster.zookeeper.sessions
            if s.process.alive and not s.served.server_expired and s.session_id
        ]
        if sessions:
            session = self.rng.choice(sessions)
            self._tell("session expiry", session.process.name, "")
            self.cluster.zookeeper.expire(session)

    def depose_controller(self) -> None:
        """Delete /controller as an operator does, to have another controller elected.

        Most often that is just when the controller begins to write who leads instead of a broker.
        """
        tree = self.cluster.zookeeper.server.tree
        if (znode := tree.get(Controller.path())) is None:
            return
        broker_id = Controller.decode(znode.data).broker_id
        self._tell("deposition", f"b{broker_id}", "")
        if self.rng.random() < 0.8:
            others = [node for node in self.cluster.nodes if node.broker_id != broker_id]
            self._expire(self.rng.choice(others))

        def depose() -> None:
            if Controller.path() in self.cluster.zookeeper.server.tree:
                self.cluster.zookeeper.delete(Controller.path())

        self._soon((0.0, 0.006), depose)

    def replace_disk(self) -> None:
        """Restart a broker with an empty disk, alone or as the first one after a blackout.

        Once in a story, when all have everything, and nothing else befalls them for a while: who
        loses a disk and the others at once needs an operator.
        """
        nodes = self.cluster.nodes
        states = self.cluster.partition_states().values()
        is_calm = all(n.serving and not n.process.paused and not self._is_cut(n) for n in nodes)
        if (
            not is_calm
            or any(len(s.isr) < self.cluster.replication for s in states)
            or self._has_lost_disk
        ):
            return
        self._has_lost_disk, self._rest_s = True, REST_S
        node, *others = self.rng.sample(nodes, len(nodes))
        in_blackout = self.cluster.every_record_flushed and self.rng.random() < 0.5
        self._tell("new disk", node.host, "after a blackout" if in_blackout else "")
        for other in others if in_blackout else ():
            self._lose_power(other, (3.0, 5.0))
            self._expire(other)
        node.stop()
        if in_blackout:
            self._expire(node)
        node.directory = self.cluster.empty_directory(node.host)
        self._later((0.2, 2.0), lambda: self._start(node))

    def fill_disk(self) -> None:
        """Fill a disk for up to 10 s. The broker is started again then, or finds out by itself."""
        node = self._running_node()
        if node is None:
            return
        disk = node.directory.disk
        disk.free_bytes = left = self.rng.randrange(4096)
        self._tell("disk full", node.host, f"{disk.free_bytes} bytes left")

        process = node.process

        def make_room() -> None:
            disk.free_bytes = None
            # One that has started meanwhile may have found no room to recover its logs.
            if left % 2 and node.running and node.process is process:
                self.cluster.world.story.tell(node.host, "has room again")
                return
            if node.running:
                self.cluster.world.story.tell(node.host, "has room again, and is started again")
                node.stop()
            self._start(node)

        self._later((1.0, 10.0), make_room)

    def clock_jump(self) -> None:
        """Set the clock of a broker or a client, back or forth, by up to an hour."""
        process = self.rng.choice([n.process for n in self.cluster.nodes] + self.cluster.clients)
        by_ms = self.rng.choice([-1, 1]) * int(10 ** self.rng.uniform(2, 6.5))
        self._tell("clock jump", process.name, f"by {by_ms} ms")
        process.skew_ms += by_ms
        self.cluster.skews_ms[process.name] = process.skew_ms

    def reset_connections(self) -> None:
        """Reset the connections of two hosts, with or without what is under way."""
        one, other = self._two_hosts()
        ends = self.cluster.network.between(one, other)
        if ends:
            loses = self.rng.random() < 0.5
            what = "losing what is under way" if loses else "once that has arrived"
            self._tell("connection reset", one, f"and {other}, {what}")
            for end in ends:
                end.reset(loses=loses)
                if loses:
                    end.peer.reset(loses=True)

    def stall_connections(self) -> None:
        """Stall the connections of two hosts for up to 9 s; newer ones pass them."""
        one, other = self._two_hosts()
        ends = self.cluster.network.between(one, other)
        if ends:
            until_s = self.cluster.world.now + self.rng.uniform(*self._silence_s(0.5, 9.0))
            self._tell("connection stall", one, f"to {other}")
            for end in ends:
                end.stalled_until = until_s

    # ---- parts of them

    def _tell(self, kind: str, who: str, what: str) -> None:
        self._told += 1
        self.cluster.world.story.fault(kind, who, what)

    def _silence_s(self, shortest: float, longest: float) -> tuple[float, float]:
        """Return the limits of a silence: the usual ones, or those of a long one."""
        if self.long_silences and self.rng.random() < self.long_silences:
            return LONG_SILENCE_S
        return shortest, longest

    def _running_node(self) -> Node | None:
        running = [node for node in self.cluster.nodes if node.running]
        return self.rng.choice(running) if running else None

    def _two_hosts(self) -> tuple[str, str]:
        hosts = [node.host for node in self.cluster.nodes]
        clients = [client.host for client in self.cluster.clients]
        one = self.rng.choice(hosts)
        other = self.rng.choice([h for h in hosts + clients if h != one])
        return (one, other) if self.rng.random() < 0.5 else (other, one)

    def cut(self, kind: str, one: str, other: str, lasts_s: tuple[float, float]) -> None:
        """Cut two hosts off from each other, in one direction or both, for a time in seconds."""
        network = self.cluster.network
        ways = self.rng.choice([[(one, other)], [(other, one)], [(one, other), (other, one)]])
        how = " and back" if len(ways) == 2 else ""
        self._tell(kind, ways[0][0], f"to {ways[0][1]}{how}")
        for way in ways:
            network.cut(*way)
        self.cluster.zookeeper.path_changed()

        def mend() -> None:
            self.cluster.world.story.tell("network", f"{one} and {other} hear each other")
            for way in ways:
                network.mend(*way)

        self._later(lasts_s, mend)

    def _start(self, node: Node) -> None:
        if not node.running and node.powered:
            node.start()

    def _soon(self, when_s: tuple[float, float], strike: Callable[[], None]) -> None:
        """Go on with a fault, unless peace was made."""

        def go_on() -> None:
            if not self._is_over:
                strike()

        asyncio.get_running_loop().call_later(self.rng.uniform(*when_s), go_on)

    def _later(self, when_s: tuple[float, float], heal: Callable[[], None]) -> None:
        """Undo a fault after a while, or when all is healed."""
        self._healing.append(heal)

        def undo() -> None:
            if heal in self._healing:
                self._healing.remove(heal)
                heal()

        asyncio.get_running_loop().call_later(self.rng.uniform(*when_s), undo)
