"""This version starts on what each earlier one has left, and finds everything."""

from __future__ import annotations

import asyncio
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.archives import secured, three
from tests.archives.contents import journal, look, missing
from tests.archives.filling import RESTING, arguments
from tests.archives.spark_queries import run_queries
from tests.stage.cluster import DevCluster
from tests.stage.waiting import until
from tests.stage.zookeeper import zookeeper_session
from zk.embedded import EmbeddedZooKeeper
from zk.znodes import BrokerId

HOME = Path(__file__).parent
ALL = sorted(HOME.glob("*.tar.xz"))
THREE = sorted(HOME.glob("*-three-*.tar.xz"))
SECURED = sorted(HOME.glob("*-secured-*.tar.xz"))
ARCHIVES = [archive for archive in ALL if archive not in (*THREE, *SECURED)]


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
    put_copies_of_nodes(tmp_path)

    check_contents(tmp_path, with_spark=False)


@pytest.mark.parametrize(
    ("archive", "with_copies"),
    [
        pytest.param(
            archive,
            with_copies,
            id=f"{'copies of nodes' if with_copies else 'the same nodes'}-{archive.name}",
            marks=() if with_copies == ("clean" in archive.name) else pytest.mark.product,
        )
        for archive in THREE
        for with_copies in (False, True)
    ],
)
def test_three_brokers_have_everything_and_end_what_was_begun(
    archive: Path, tmp_path: Path, with_copies: bool
) -> None:
    unpack(archive, tmp_path)
    if with_copies:
        put_copies_of_nodes(tmp_path)
    else:
        asyncio.run(let_sessions_expire(tmp_path / "zookeeper"))

    expected = json.loads((tmp_path / "contents.json").read_text())
    entries = expected.pop("journal")
    with DevCluster(tmp_path, three.arguments()) as cluster:
        assert missing(expected, look(cluster)) == []
        assert journal(cluster) == entries
        three.check_and_end(cluster)
        assert missing(expected, look(cluster)) == []
        logs = "".join(map(cluster.log, range(3)))
        assert "set aside" not in logs
    for topic in three.TOPICS:
        replicas = three.replicas_on_disk(tmp_path, topic, 0)
        assert len(replicas) >= 2
        assert {*replicas} == {replicas[0]}


@pytest.mark.parametrize("archive", SECURED, ids=lambda path: path.name)
def test_secured_cluster_has_everything_and_lets_in_whom_it_did(
    archive: Path, tmp_path: Path
) -> None:
    unpack(archive, tmp_path)
    asyncio.run(let_sessions_expire(tmp_path / "zookeeper"))
    expected = json.loads((tmp_path / "contents.json").read_text())
    with DevCluster(tmp_path, secured.arguments()) as cluster:
        assert secured.look(cluster) == expected
        secured.check_logins(cluster)


async def let_sessions_expire(directory: Path) -> None:
    """Have ZooKeeper find out that the brokers that were killed are gone."""
    async with (
        EmbeddedZooKeeper(directory) as server,
        zookeeper_session(server.connect_string) as session,
    ):

        async def are_gone() -> bool:
            names, _ = await session.children(BrokerId.directory())
            return not names

        await until(are_gone, "the end of the brokers' sessions")


def put_copies_of_nodes(directory: Path) -> None:
    """Take ZooKeeper's data away, and create all nodes again."""
    for file in (directory / "zookeeper").rglob("*.*"):
        if file.is_file():
            file.unlink()
    asyncio.run(
        restore(directory / "zookeeper", json.loads((directory / "nodes.json").read_text()))
    )


async def restore(directory: Path, nodes: Mapping[str, str]) -> None:
    """Create the nodes, of each topic another transaction than the one that first made it."""
    async with (
        EmbeddedZooKeeper(directory) as server,
        zookeeper_session(server.connect_string) as session,
    ):
        for path, data in nodes.items():
            await session.create(path, data.encode("latin-1"))


def test_archives_are_small_and_of_each_kind() -> None:
    names = {archive.name for archive in ALL}
    for kind in ("", "-three", "-secured"):
        for way in ("clean", "killed"):
            assert f"b1ab101{kind}-{way}.tar.xz" in names
    assert sum(archive.stat().st_size for archive in ALL) < 1 << 20
