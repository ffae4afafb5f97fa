"""ZooKeepers as they are in the field: the embedded one, and those that Kafka came with before.

Kafka 0.8 to 2.3 has ZooKeeper 3.4, 2.4 to 2.8 has 3.5. The jars of a release come by Maven, once a
machine.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import attrs
import pytest

from zk.embedded import EmbeddedZooKeeper
from zk.session import KazooSession

EMBEDDED = "3.9"
OLD_VERSIONS = ("3.5.9", "3.4.9")
VERSIONS = (EMBEDDED, pytest.param("3.5.9", marks=pytest.mark.product), "3.4.9")
"""For what a client asks of a server, 3.5 is as 3.4: neither knows MultiRead."""

_LOGGING = Path(__file__).parents[1] / "jvm"  # with a log4j.properties


def class_path(version: str) -> Sequence[Path]:
    """What a release runs on; empty for the embedded one, which knows. Skips without Maven."""
    if version == EMBEDDED:
        return ()
    # Here, since all tests come by, and few of them want a peer's jars.
    from benchmarks.peer import fetch_jars
    from tests.stage.stock_kafka import jars

    zookeeper = f"org.apache.zookeeper:zookeeper:{version}"
    libraries = jars(lambda: fetch_jars(f"zookeeper-{version}", [zookeeper]))
    return [*sorted(libraries.glob("*.jar")), _LOGGING]


@contextlib.asynccontextmanager
async def zookeeper_session(
    connect_string: str, *, create_chroot: bool = False, session_timeout_ms: int = 6000
) -> AsyncIterator[KazooSession]:
    """Open a session for the block."""
    session = KazooSession(
        connect_string, create_chroot=create_chroot, session_timeout_ms=session_timeout_ms
    )
    await session.start()
    try:
        yield session
    finally:
        await session.close()


@attrs.define(eq=False)
class ZooKeepers:
    """One server of each version that somebody has asked for, until the end of the tests."""

    directory: Path
    _servers: dict[str, EmbeddedZooKeeper] = attrs.field(factory=dict)
    _numbers: Iterator[int] = attrs.field(factory=itertools.count)

    def server(self, version: str) -> EmbeddedZooKeeper:
        """The server of a version, started by the first call."""
        if version not in self._servers:
            directory = self.directory / version
            server = EmbeddedZooKeeper(directory, class_path=class_path(version))
            asyncio.run(server.start())
            self._servers[version] = server
        return self._servers[version]

    def chroot(self, version: str) -> str:
        """host:port/chroot of a tree that is empty, and the caller's alone."""
        server = self.server(version)
        connect_string = f"{server.connect_string}/chroot{next(self._numbers)}"

        async def make_chroot() -> None:
            async with zookeeper_session(connect_string, create_chroot=True):
                pass

        asyncio.run(make_chroot())
        return connect_string

    def stop(self) -> None:
        """End all of them."""
        for server in self._servers.values():
            asyncio.run(server.stop())
