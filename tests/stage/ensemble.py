"""Three ZooKeeper servers that elect a leader, each a process."""

import asyncio
import contextlib
import os
import signal
import socket
from pathlib import Path

import attrs

from broker.kbroker.local_cluster import HOST, claim_ports
from tests.stage.processes import lives
from tests.stage.waiting import block_until
from tests.stage.zookeeper import class_path
from zk.embedded import EmbeddedZooKeeper

SERVERS = 3
_LIMITS = {"initLimit": "20", "syncLimit": "10"}  # in ticks, for a busy machine
_PROBE_S = 5.0


@attrs.define(eq=False)
class Ensemble:
    """The servers by number. `start` also brings back those that were killed."""

    servers: list[EmbeddedZooKeeper]

    @classmethod
    def of(cls, version: str, directory: Path) -> "Ensemble":
        """Three servers of a version, not started yet."""
        ports = claim_ports(0, 2 * SERVERS)
        peers = {
            f"server.{n + 1}": f"{HOST}:{ports[2 * n]}:{ports[2 * n + 1]}" for n in range(SERVERS)
        }
        servers = []
        for number in range(1, SERVERS + 1):
            home = directory / str(number)
            home.mkdir(parents=True)
            (home / "myid").write_text(str(number))
            servers.append(
                EmbeddedZooKeeper(home, settings=peers | _LIMITS, class_path=class_path(version))
            )
        return cls(servers)

    @property
    def hosts(self) -> str:
        """All of them, for a client."""
        return ",".join(server.connect_string for server in self.servers)

    def start(self) -> None:
        """Start those that do not run; return when all serve."""

        async def start_all() -> None:
            down = [server for server in self.servers if not _runs(server)]
            await asyncio.gather(*(server.stop() for server in down))
            await asyncio.gather(*(server.start() for server in down))

        asyncio.run(start_all())

    def stop(self) -> None:
        """End all of them."""

        async def stop_all() -> None:
            await asyncio.gather(*(server.stop() for server in self.servers))

        asyncio.run(stop_all())

    def leader(self) -> EmbeddedZooKeeper:
        """The one that leads."""
        return next(server for server in self.servers if ask(server).get("Mode") == "leader")

    def busiest_follower(self) -> EmbeddedZooKeeper:
        """Of those that follow, the one with the most connections."""
        told = {server: ask(server) for server in self.servers}
        followers = [server for server in self.servers if told[server].get("Mode") == "follower"]
        return max(followers, key=lambda server: int(told[server]["Connections"]))


def ask(server: EmbeddedZooKeeper) -> dict[str, str]:
    """What a server says of itself by name, its Mode and Connections among it; nothing while it
    serves nobody."""
    with (
        contextlib.suppress(OSError),
        socket.create_connection((server.host, server.port), _PROBE_S) as connection,
    ):
        connection.sendall(b"srvr")
        said = b"".join(iter(lambda: connection.recv(4096), b"")).decode()
        lines = (line.partition(": ") for line in said.splitlines())
        return {name: value for name, _, value in lines}
    return {}


def kill(server: EmbeddedZooKeeper) -> None:
    """As a machine that loses its power; return when the process is gone."""
    pid = server.pid
    os.kill(pid, signal.SIGKILL)
    block_until(lambda: not _runs(server), f"the end of {pid}")


def _runs(server: EmbeddedZooKeeper) -> bool:
    with contextlib.suppress(AssertionError):  # one that was never started has no pid
        return lives(server.pid)
    return False
