"""This version starts on what each earlier one has left, and finds everything."""

from __future__ import annotations

import asyncio
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.archives.contents import journal, look, missing
from tests.archives.filling import RESTING, arguments
from tests.archives.spark_queries import run_queries
from tests.stage.cluster import DevCluster
from tests.stage.waiting import until
from tests.stage.zookeeper import zookeeper_session
from zk.embedded import EmbeddedZooKeeper
from zk.znodes import BrokerId

ARCHIVES = sorted(Path(__file__).parent.glob("*.tar.xz"))


def unpack(archive: Path, directory: Path) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")


def check_contents(directory: Path, *, with_spark: bool) -> None:
    expected = json.loads((directory / "contents.json").read_text())
    entries = expected.pop("journal")
    with DevCluster(directory, arguments(directory, RESTING)) as cluster:
        assert missing(expected, look(cluster)) == []
        assert journal(cluster) == entries
        if with_spark:
            run_queries(cluster, directory / "spark", (4, 5), (4, 5))


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_everything_that_an_earlier_version_kept_is_there(archive: Path, tmp_path: Path) -> None:
    unpack(archive, tmp_path)
    asyncio.run(let_sessions_expire(tmp_path / "zookeeper"))
    check_contents(tmp_path, with_spark="clean" in archive.name)


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_everything_is_there_when_zookeeper_has_copies_of_its_nodes(
    archive: Path, tmp_path: Path
) -> None:
    """Other transactions have created them, so a node's `czxid` is another."""
    unpack(archive, tmp_path)
    for file in (tmp_path / "zookeeper").rglob("*.*"):
        if file.is_file():
            file.unlink()
    asyncio.run(restore(tmp_path / "zookeeper", json.loads((tmp_path / "nodes.json").read_text())))

    check_contents(tmp_path, with_spark=False)


async def let_sessions_expire(directory: Path) -> None:
    """Have ZooKeeper find out that the broker that was killed is gone."""
    async with (
        EmbeddedZooKeeper(directory) as server,
        zookeeper_session(server.connect_string) as session,
    ):

        async def is_gone() -> bool:
            return await session.exists(BrokerId.path(0)) is None

        await until(is_gone, "the end of the broker's session")


async def restore(directory: Path, nodes: Mapping[str, str]) -> None:
    """Create the nodes, of each topic another transaction than the one that first made it."""
    async with (
        EmbeddedZooKeeper(directory) as server,
        zookeeper_session(server.connect_string) as session,
    ):
        for path, data in nodes.items():
            await session.create(path, data.encode("latin-1"))


def test_archives_are_small_and_of_each_kind() -> None:
    names = [archive.name for archive in ARCHIVES]
    assert {"b1ab101-clean.tar.xz", "b1ab101-killed.tar.xz"} <= {*names}
    assert sum(archive.stat().st_size for archive in ARCHIVES) < 1 << 20
