"""A broker's id and cluster, from its file, its disks and ZooKeeper."""

from __future__ import annotations

import base64

import pytest

from broker.cluster import identity
from broker.settings.config import BrokerConfig, load_broker_config
from core_log.config import LogConfig
from core_log.log_manager import LogManager
from core_log.memory_directory import MemoryDirectory
from core_log.meta_properties import InconsistentMetaProperties, MetaProperties
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import ClusterId

CLUSTER = "c" * 22


async def session(zookeeper: MemoryZooKeeper | None = None) -> MemorySession:
    new_session = (zookeeper or MemoryZooKeeper()).session()
    await new_session.start()
    return new_session


def config(**given: str) -> BrokerConfig:
    dotted = {name.replace("_", "."): value for name, value in given.items()}
    return load_broker_config({"zookeeper.connect": "zk:2181"} | dotted)[0]


def logs(*disks: MemoryDirectory) -> LogManager:
    manager = LogManager(disks or [MemoryDirectory("a")], LogConfig(), lambda: 0)
    manager.load()
    return manager


def disk(name: str, broker_id: int, cluster: str | None = CLUSTER) -> MemoryDirectory:
    directory = MemoryDirectory(name)
    directory.write_atomic("meta.properties", MetaProperties(broker_id, cluster).encode())
    return directory


async def test_the_first_broker_names_the_cluster_and_the_others_go_by_it() -> None:
    zookeeper = MemoryZooKeeper()
    first = await identity.get_or_create_cluster_id(await session(zookeeper))
    assert await identity.get_or_create_cluster_id(await session(zookeeper)) == first


async def test_a_cluster_is_named_as_kafka_names_it() -> None:
    name = await identity.get_or_create_cluster_id(await session())
    assert len(name) == 22
    assert len(base64.urlsafe_b64decode(name + "==")) == 16


async def test_a_cluster_that_has_a_name_keeps_it() -> None:
    zk = await session()
    await zk.create(ClusterId.path(), ClusterId(id="named").encode(), make_parents=True)
    assert await identity.get_or_create_cluster_id(zk) == "named"


async def test_a_broker_has_the_id_its_file_says_and_its_disks_remember_it() -> None:
    kept = logs(MemoryDirectory("a"), MemoryDirectory("b"))
    assert (
        await identity.assign_broker_id(await session(), config(broker_id="5"), kept, CLUSTER) == 5
    )
    assert [*kept.read_meta_properties().values()] == [MetaProperties(5, CLUSTER)] * 2


async def test_without_one_it_gets_a_number_above_those_that_files_may_say() -> None:
    zk = await session()
    ids = [await identity.assign_broker_id(zk, config(), logs(), CLUSTER) for _ in range(3)]
    assert ids == [1001, 1002, 1003]


async def test_a_number_it_was_given_once_is_its_own() -> None:
    zk, kept = await session(), logs()
    first = await identity.assign_broker_id(zk, config(), kept, CLUSTER)
    assert await identity.assign_broker_id(zk, config(), kept, CLUSTER) == first


async def test_numbers_begin_above_the_reserved_ones() -> None:
    small = config(reserved_broker_max_id="10")
    assert await identity.assign_broker_id(await session(), small, logs(), CLUSTER) == 11


async def test_a_new_disk_beside_an_old_one_learns_who_it_belongs_to() -> None:
    kept = logs(disk("a", 5), MemoryDirectory("b"))
    assert await identity.assign_broker_id(await session(), config(), kept, CLUSTER) == 5
    assert [*kept.read_meta_properties().values()] == [MetaProperties(5, CLUSTER)] * 2


async def test_a_disk_of_a_kafka_that_kept_no_cluster_is_given_one() -> None:
    kept = logs(disk("a", 5, None))
    assert await identity.assign_broker_id(await session(), config(), kept, CLUSTER) == 5
    assert [*kept.read_meta_properties().values()] == [MetaProperties(5, CLUSTER)]


@pytest.mark.parametrize(
    ("given", "disks", "reason"),
    [
        ({"broker_id": "6"}, [("a", 5, CLUSTER)], r"broker\.id 5 is stored where 6"),
        ({}, [("a", 5, CLUSTER), ("b", 6, CLUSTER)], r"broker\.id 6 is stored where 5"),
        ({}, [("a", 5, "other")], r"cluster\.id other is stored where c+ is expected"),
    ],
    ids=["another broker's", "of two brokers", "another cluster's"],
)
async def test_a_disk_that_is_not_its_own_is_refused_and_left_as_it_is(
    given: dict[str, str], disks: list[tuple[str, int, str]], reason: str
) -> None:
    directories = [disk(*place) for place in disks]
    before = [directory.read("meta.properties") for directory in directories]
    with pytest.raises(InconsistentMetaProperties, match=reason):
        identity.check_disks(config(**given), LogManager(directories, LogConfig(), int), CLUSTER)
    with pytest.raises(InconsistentMetaProperties, match=reason):
        await identity.assign_broker_id(
            await session(), config(**given), logs(*directories), CLUSTER
        )
    assert [directory.read("meta.properties") for directory in directories] == before
