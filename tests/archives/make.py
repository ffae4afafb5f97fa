"""Make archives of what this version writes, for later versions to start on.

    python -m tests.archives.make NAME [three] [secured]

writes NAME-clean.tar.xz, of brokers that were stopped, and NAME-killed.tar.xz, of brokers that
were killed; and the same of three brokers (NAME-three-…) and of a secured one (NAME-secured-…,
whose keys and passwords are of no use elsewhere). Each has the log directories, ZooKeeper's own
data (so a node keeps the transaction that created it), `contents.json` with what a reader found,
`nodes.json` with all persistent nodes, and the first kind `spark/` with checkpoints. NAME is that
of the version: archives are never made again, a new version gets new ones.
"""

from __future__ import annotations

import asyncio
import io
import json
import signal
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from tests.archives import secured, three
from tests.archives.contents import journal, look, tree_below
from tests.archives.filling import CLEANING, DIRECTORIES, arguments, fill
from tests.archives.spark_queries import run_queries
from tests.stage.cluster import DevCluster

HOME = Path(__file__).parent
WAYS = ("clean", "killed")
ZOOKEEPER = "zookeeper/version-2"


def make(name: str, way: str, directory: Path) -> Path:
    """Fill a cluster in `directory`, end it, and pack what is left."""
    with DevCluster(directory, arguments(directory, CLEANING)) as cluster:
        fill(cluster)
        run_queries(cluster, directory / "spark", range(4), range(4))
        found = look(cluster) | {"journal": journal(cluster)}
        nodes = asyncio.run(_nodes(cluster))
        if way == "killed":
            _kill(cluster, "broker-0", "zookeeper")
    return _pack(name, way, directory, (*DIRECTORIES, "spark"), found, nodes)


def make_three(name: str, way: str, directory: Path) -> Path:
    """Do the same with three brokers, of which one is gone."""
    with DevCluster(directory, three.arguments()) as cluster:
        three.fill(cluster)
        found = look(cluster) | {"journal": journal(cluster)}
        nodes = asyncio.run(_nodes(cluster))
        if way == "killed":
            _kill(cluster, "broker-0", "broker-1", "zookeeper")
    return _pack(f"{name}-three", way, directory, three.DIRECTORIES, found, nodes)


def make_secured(name: str, way: str, directory: Path) -> Path:
    """Do the same with a cluster that has logins, ACLs and certificates."""
    with DevCluster(directory, secured.arguments()) as cluster:
        secured.fill(cluster)
        found = secured.look(cluster)
        if way == "killed":
            _kill(cluster, "broker-0", "zookeeper")
    return _pack(f"{name}-secured", way, directory, secured.DIRECTORIES, found, {})


def _kill(cluster: DevCluster, *names: str) -> None:
    for name in names:
        cluster.kill(name, signal.SIGKILL)


def _pack(
    name: str,
    way: str,
    directory: Path,
    folders: tuple[str, ...],
    found: dict[str, Any],
    nodes: dict[str, str],
) -> Path:
    target = HOME / f"{name}-{way}.tar.xz"
    with tarfile.open(target, "w:xz", preset=9) as archive:
        for folder in (*folders, ZOOKEEPER):
            for path in sorted((directory / folder).rglob("*")):
                if path.is_file():
                    _add(archive, str(path.relative_to(directory)), path.read_bytes())
        _add(archive, "contents.json", json.dumps(found, indent=1).encode())
        _add(archive, "nodes.json", json.dumps(nodes, indent=1).encode())
    return target


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a file. It has no owner and no time, for neither is data."""
    if name.startswith(ZOOKEEPER) and "/log." in name:
        content = content.rstrip(b"\0") + bytes(1024)  # ZooKeeper fills up its files by 64 MiB
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


async def _nodes(cluster: DevCluster) -> dict[str, str]:
    async with cluster.zookeeper_session() as zk:
        nodes = await tree_below(zk, "/")
    return {
        path: data.decode("latin-1")
        for path, data in nodes.items()
        if path != "/" and not path.startswith("/zookeeper")
    }


KINDS = {"": make, "three": make_three, "secured": make_secured}

if __name__ == "__main__":
    for kind in sys.argv[2:] or KINDS:
        for each_way in WAYS:
            with tempfile.TemporaryDirectory() as folder:
                made = KINDS[kind](sys.argv[1], each_way, Path(folder))
                print(f"{made}: {made.stat().st_size} bytes")
