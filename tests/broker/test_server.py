"""A whole broker in this process, with its ZooKeeper in memory and its logs on a disk."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path

import pytest

from broker.cluster.registration import AlreadyRegistered
from broker.server import Broker, BrokerStopped
from broker.settings.config import load_broker_config
from clients.errors import ConnectionFailed
from clients.transport.connection import Connection
from core_log.directory import LogDirectory
from core_log.log_manager import LogDirectoryError
from core_log.meta_properties import InconsistentMetaProperties
from protocol.errors import ErrorCode
from protocol.messages.list_groups import ListGroupsRequest
from protocol.metrics import Gauge
from protocol.records.batch import decode_records
from protocol.registry import API
from protocol.settings import parse_properties
from protocol.wire import NO_VERSIONS
from tests.broker.led_partition import describe, fetch_request, led, produce
from tests.broker.settings.shipped_config import SHIPPED
from tests.stage.broker import DEADLINE_S, Site, connected
from tests.stage.waiting import until
from zk.api import ConnectionLoss
from zk.znodes import DEFAULT_ENTITY, BrokerId, Endpoint, EntityConfig

CLEAN_MARK = ".kafka_cleanshutdown"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def fetch(connection: Connection, topic: str) -> list[bytes | None]:
    response = await connection.call(fetch_request(topic))
    (entry,) = response.responses[0].partitions
    assert not entry.error_code
    return [record.value for record in decode_records(bytes(entry.records))]


# ---- a life


async def test_a_started_broker_is_registered_elected_and_answers(site: Site) -> None:
    async with site.running() as broker, connected(broker) as connection:

        async def knows_itself() -> list[tuple[int, str]]:
            response = await describe(connection)
            assert response.controller_id in (-1, 1)
            return [(b.node_id, f"{b.host}:{b.port}") for b in response.brokers]

        assert await until(knows_itself, "brokers are told") == [(1, broker.bootstrap)]
        assert site.controller() == 1
        entry = site.node()
        assert entry is not None
        host, _, port = broker.bootstrap.rpartition(":")
        assert entry[0].endpoints == (Endpoint("PLAINTEXT", host, int(port)),)


async def test_a_broker_counts_its_connections_and_replicas(site: Site) -> None:
    async with site.running() as broker, connected(broker) as connection:
        await led(connection, "t")
        figures = {
            sample.name: sample.figure.value
            for sample in broker.metrics.collect()
            if isinstance(sample.figure, Gauge)
        }
        assert (figures["replicas"], figures["leaders"]) == (1, 1)
        assert figures["replicas_not_following"] == 0
        assert figures["connections"] >= 1


class HeldDirectory(LogDirectory):
    """A directory whose broker cannot finish closing its logs before it is `let_go`."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.is_closing, self.let_go = threading.Event(), threading.Event()

    def unlock(self) -> None:
        self.is_closing.set()
        assert self.let_go.wait(DEADLINE_S), "the loop stands still while logs are closed"
        super().unlock()


async def test_while_a_controller_closes_its_logs_another_broker_is_controller(
    tmp_path: Path,
) -> None:
    directories: list[HeldDirectory] = []

    def hold(path: str) -> HeldDirectory:
        directories.append(HeldDirectory(path))
        return directories[-1]

    site = Site(tmp_path, open_directory=hold)
    first, second = site.broker(1), site.broker(2)
    await first.start()
    await second.start()
    assert site.controller() == 1
    closing = asyncio.create_task(first.close())

    async def is_closing() -> bool:
        return directories[0].is_closing.is_set()

    async def has_a_successor() -> bool:
        return site.controller() == 2

    await until(is_closing, "the first broker closes its logs")
    await until(has_a_successor, "the second broker is elected")
    assert not closing.done()
    assert site.node(1) is not None  # which goes when all is on disk

    for directory in directories:
        directory.let_go.set()
    await closing
    assert site.node(1) is None
    await second.close()


async def test_every_api_that_is_written_down_is_served(site: Site) -> None:
    async with site.running() as broker, connected(broker) as connection:
        assert connection.versions == {
            key: (api.served.first, api.served.last)
            for key, api in API.items()
            if api.served != NO_VERSIONS
        }


async def test_what_is_produced_is_fetched(site: Site) -> None:
    async with site.running() as broker, connected(broker) as connection:
        await led(connection, "t")
        assert [await produce(connection, "t", value) for value in (b"a", b"b")] == [0, 1]
        assert await fetch(connection, "t") == [b"a", b"b"]


async def test_a_fetch_that_waits_is_ended_by_a_produce(site: Site) -> None:
    async with (
        site.running() as broker,
        connected(broker) as consumer,
        connected(broker) as producer,
    ):
        await led(producer, "t")
        waiting = consumer.send(fetch_request("t", max_wait_ms=60_000), timeout_ms=60_000)
        await producer.call(ListGroupsRequest())
        assert not waiting.done()
        await produce(producer, "t", b"a")
        response = await asyncio.wait_for(waiting, DEADLINE_S)
        assert response.responses[0].partitions[0].high_watermark == 1


async def test_a_broker_started_again_on_its_directory_goes_on_where_it_was(site: Site) -> None:
    async with site.running() as broker, connected(broker) as connection:
        await led(connection, "t")
        await produce(connection, "t", b"before")
    async with site.running() as broker, connected(broker) as connection:
        await led(connection, "t")
        assert await fetch(connection, "t") == [b"before"]
        assert await produce(connection, "t", b"after") == 1


async def test_closing_leaves_the_logs_clean_and_zookeeper_without_it(site: Site) -> None:
    async with site.running() as broker, connected(broker) as connection:
        await led(connection, "t")
        await produce(connection, "t", b"a")
        logs = Path(broker.config.directories[0])
        assert not (logs / CLEAN_MARK).exists()
    assert (logs / CLEAN_MARK).exists()
    assert "t 0 1" in (logs / "recovery-point-offset-checkpoint").read_text()
    assert "t 0 1" in (logs / "replication-offset-checkpoint").read_text()
    assert (site.node(), site.controller()) == (None, None)


async def test_closing_does_not_wait_for_a_fetch_that_waits(site: Site) -> None:
    async with site.running() as broker, connected(broker) as connection:
        await led(connection, "t")
        waiting = connection.send(fetch_request("t", max_wait_ms=60_000), timeout_ms=60_000)
        await produce_elsewhere(broker)
        async with asyncio.timeout(DEADLINE_S):
            await broker.close()
        with pytest.raises(ConnectionFailed):
            await waiting


async def produce_elsewhere(broker: Broker) -> None:
    """Return when the broker has handled all that was sent before."""
    async with connected(broker) as other:
        await led(other, "u")
        await produce(other, "u", b"a")


async def test_an_id_of_its_own_is_made_and_kept(site: Site) -> None:
    where = str(site.directory / "made")
    for _ in range(2):
        async with site.running(-1, log_dirs=where) as broker:
            assert broker.config.broker_id == 1001
            assert site.node(1001) is not None


async def test_two_brokers_serve_one_cluster(site: Site) -> None:
    async with site.running(1) as first, site.running(2), connected(first) as connection:

        async def both() -> bool:
            return {b.node_id for b in (await describe(connection)).brokers} == {1, 2}

        assert await until(both, "both are told")


async def test_the_file_kafka_is_shipped_with_starts_a_broker(site: Site) -> None:
    """Only its directory and its port are changed: they are taken here."""
    config, _ = load_broker_config(
        parse_properties(SHIPPED)
        | {"log.dirs": str(site.directory), "listeners": "PLAINTEXT://127.0.0.1:0"}
    )
    broker = Broker(config, zk=site.zookeeper.session())
    try:
        await broker.start()
        async with connected(broker) as connection:
            await led(connection, "t")
            assert await produce(connection, "t", b"a") == 0
    finally:
        await broker.close()


@pytest.mark.parametrize(
    ("enabled", "code"),
    [
        ("true", ErrorCode.LEADER_NOT_AVAILABLE),
        ("false", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_topics_are_made_by_asking_only_where_the_file_says_so(
    site: Site, enabled: str, code: ErrorCode
) -> None:
    async with (
        site.running(auto_create_topics_enable=enabled) as broker,
        connected(broker) as connection,
    ):

        async def knows_itself() -> bool:
            return bool((await describe(connection)).brokers)

        await until(knows_itself, "brokers are told")
        (topic,) = (await describe(connection, "t")).topics
        assert topic.error_code == code


# ---- what keeps one from starting


async def refuses(broker: Broker, error: type[Exception], match: str) -> None:
    try:
        with pytest.raises(error, match=match):
            await broker.start()
    finally:
        await broker.close()


async def can_start(site: Site, broker_id: int, **settings: str) -> None:
    async with site.running(broker_id, **settings):
        pass


async def test_an_id_in_use_is_refused_and_nothing_is_kept(site: Site) -> None:
    async with site.running(1):
        taken = site.broker(1, log_dirs=str(site.directory / "other"))
        await refuses(taken, AlreadyRegistered, "broker id 1 is taken")
        entry = site.node()
        assert entry is not None
    await can_start(site, 1, log_dirs=str(site.directory / "other"))


async def test_a_port_in_use_is_refused_and_nobody_hears_of_the_broker(site: Site) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        where = f"PLAINTEXT://127.0.0.1:{other.getsockname()[1]}"
        await refuses(site.broker(1, listeners=where), OSError, "in use")
    assert site.node() is None
    await can_start(site, 1, listeners=where)


async def test_a_directory_in_use_is_refused(site: Site) -> None:
    async with site.running(1) as first:
        (shared,) = first.config.directories
        second = site.broker(2, log_dirs=shared)
        await refuses(second, InconsistentMetaProperties, r"broker\.id 1 is stored where 2")
        third = site.broker(1, log_dirs=shared)
        await refuses(third, LogDirectoryError, "is locked by another broker")


async def test_another_clusters_disk_is_refused_and_left_as_it_is(site: Site) -> None:
    async with site.running(1) as broker, connected(broker) as connection:
        await led(connection, "t")
        await produce(connection, "t", b"a")
    (directory,) = map(Path, broker.config.directories)
    before = {file: file.read_bytes() for file in directory.rglob("*") if file.is_file()}
    assert directory / CLEAN_MARK in before
    elsewhere = Site(site.directory)
    await refuses(elsewhere.broker(1), InconsistentMetaProperties, r"cluster\.id .* is stored")
    after = {file: file.read_bytes() for file in directory.rglob("*") if file.is_file()}
    assert after == before
    await can_start(site, 1)


async def test_a_zookeeper_that_is_not_there_is_named(site: Site) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        where = f"127.0.0.1:{nobody.getsockname()[1]}"
        config, _ = load_broker_config(
            {
                "zookeeper.connect": where,
                "zookeeper.connection.timeout.ms": "200",
                "log.dirs": str(site.directory),
            }
        )
        await refuses(Broker(config), ConnectionLoss, f"no session with ZooKeeper at {where}")


async def test_one_that_waits_for_its_predecessors_session_can_be_stopped(site: Site) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    dead = site.zookeeper.session()
    await dead.start()
    node = BrokerId((Endpoint("PLAINTEXT", "127.0.0.1", port),), timestamp_ms=5)
    await dead.create(BrokerId.path(1), node.encode(), ephemeral=True, make_parents=True)
    broker = site.broker(1, listeners=f"PLAINTEXT://127.0.0.1:{port}")
    starting = asyncio.ensure_future(broker.start())

    async def is_bound() -> bool:
        return bool(broker.bootstrap)

    await until(is_bound, "it has come as far as its port")
    async with asyncio.timeout(DEADLINE_S):
        await broker.close()
        await starting
    assert site.node() == (node, dead.session_id)
    (directory,) = map(Path, broker.config.directories)
    assert (directory / CLEAN_MARK).exists()


# ---- the session


async def test_after_its_session_expired_it_registers_again_and_serves_on(site: Site) -> None:
    async with site.running() as broker, connected(broker) as connection:
        await led(connection, "t")
        before = site.node()
        site.zookeeper.expire(site.session)

        async def is_back() -> bool:
            now = site.node()
            return now is not None and now != before and site.controller() == 1

        await until(is_back, "it is registered and elected again")
        await led(connection, "t")
        assert await produce(connection, "t", b"a") == 0
        await led(connection, "u")


async def test_when_its_id_was_taken_meanwhile_it_stops(site: Site) -> None:
    async with site.running() as broker:
        site.zookeeper.suspend(site.session)
        site.zookeeper.expire(site.session)
        other = site.zookeeper.session()
        await other.start()
        node = BrokerId((Endpoint("PLAINTEXT", "elsewhere", 1),), timestamp_ms=5)
        await other.create(BrokerId.path(1), node.encode(), ephemeral=True)
        site.zookeeper.resume(site.session)
        with pytest.raises(BrokerStopped, match="broker id 1 is taken"):
            async with asyncio.timeout(DEADLINE_S):
                await broker.run_until(asyncio.Event())
        assert site.node() == (node, other.session_id)


async def test_it_runs_until_it_is_told_to_stop(site: Site) -> None:
    async with site.running() as broker:
        stop = asyncio.Event()
        running = asyncio.ensure_future(broker.run_until(stop))
        async with connected(broker) as connection:
            await describe(connection)
        assert not running.done()
        stop.set()
        await asyncio.wait_for(running, DEADLINE_S)


async def test_a_default_that_was_changed_for_all_brokers_is_known_when_logs_are_recovered(
    site: Site,
) -> None:
    """A log that may have been compacted may lack segments between others."""
    async with site.running(log_segment_bytes="80") as broker, connected(broker) as connection:
        await led(connection, "t")
        for value in (b"a", b"b", b"c"):
            await produce(connection, "t", value)
    directory = site.directory / "logs-1"
    (directory / CLEAN_MARK).unlink()
    # Its indexes stay: of a log that was never compacted they show that the segment is missing.
    (directory / "t-0" / f"{1:020}.log").unlink()

    session = site.zookeeper.session()
    await session.start()
    compacted = EntityConfig({"log.cleanup.policy": "compact"}).encode()
    path = EntityConfig.path("brokers", DEFAULT_ENTITY)
    await session.create(path, compacted, make_parents=True)
    await session.delete(EntityConfig.path("topics", "t"))  # as of a topic that tools made

    async with site.running(log_segment_bytes="80") as broker, connected(broker) as connection:
        await led(connection, "t")
        assert await fetch(connection, "t") == [b"a"]
        response = await connection.call(fetch_request("t", 1))
        (entry,) = response.responses[0].partitions
        assert [record.offset for record in decode_records(bytes(entry.records))] == [2]
