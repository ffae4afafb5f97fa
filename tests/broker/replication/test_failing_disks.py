"""A broker with several log directories, one of which fails while it runs."""

from __future__ import annotations

import asyncio
import contextlib
from errno import EIO
from pathlib import Path

import pytest

from broker.handlers import describe_log_dirs
from broker.server import Broker, BrokerStopped
from broker.settings.config import load_broker_config
from core_log.config import LogConfig
from core_log.log_manager import LogManager
from core_log.memory_directory import Disk, MemoryDirectory
from protocol.errors import ErrorCode
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from protocol.topic_partition import TopicPartition
from tests.broker.led_partition import led, produce
from tests.broker.replication.replicas import NOW_MS, Replicas, context, leader_and_isr
from tests.stage.broker import DEADLINE_S, Site, connected
from tests.stage.waiting import until

GONE = OSError(EIO, "Input/output error")


def half_offline() -> tuple[Replicas, TopicPartition]:
    """Return broker 0, with t-0 and t-1 on a disk each, and the disk that is off-line."""
    replicas = Replicas()
    dirs = [MemoryDirectory("live"), MemoryDirectory("broken")]
    logs = replicas.manager.logs = LogManager(dirs, LogConfig(), lambda: NOW_MS)
    logs.load()
    replicas.lead("t", 2, isr=(0, 1), replicas=(0, 1))
    (failing,) = (tp for tp, log in logs.logs.items() if log.directory.path.startswith("/broken"))
    replicas.manager.log(failing).guard.fail(GONE)
    (log_dir,) = logs.suspect_dirs()
    logs.take_offline(log_dir, GONE)
    return replicas, failing


def code_of_state(replicas: Replicas, topic: str, *, is_new: bool, epoch: int = 0) -> int:
    request = leader_and_isr(topic, is_new=is_new, epoch=epoch)
    (answer,) = replicas.roles.become_leader_or_follower(request, NOW_MS).partition_errors
    return answer.error_code


def test_new_replicas_are_made_in_the_directory_that_lives() -> None:
    replicas, _ = half_offline()
    assert code_of_state(replicas, "u", is_new=True) == ErrorCode.NONE
    directory = replicas.manager.log(TopicPartition("u", 0)).directory
    assert directory.path == "/live/u-0"


@pytest.mark.parametrize("epoch", [0, 3])
def test_a_replica_that_may_be_in_the_other_directory_is_not_made_anew(epoch: int) -> None:
    replicas, _ = half_offline()
    assert code_of_state(replicas, "u", is_new=False, epoch=epoch) == ErrorCode.KAFKA_STORAGE_ERROR
    assert TopicPartition("u", 0) not in replicas.manager.partitions


def test_each_replica_of_it_counts_as_failed_and_no_other() -> None:
    replicas, failing = half_offline()
    failed = [tp for tp, p in replicas.manager.partitions.items() if p.is_failed]
    assert failed == [failing]


def test_the_directory_is_described_with_its_error_and_without_logs() -> None:
    replicas, _ = half_offline()
    answer = describe_log_dirs.handle(
        replicas.manager.logs, replicas.manager, DescribeLogDirsRequest(topics=None), context(1)
    )
    directories = {
        result.log_dir: (result.error_code, len(result.topics)) for result in answer.results
    }
    assert directories == {
        "/live": (ErrorCode.NONE, 1),
        "/broken": (ErrorCode.KAFKA_STORAGE_ERROR, 0),
    }


def on_disks(site: Site, *disks: Disk) -> Broker:
    """Make a broker with a log directory on each disk."""
    dirs = {f"/disk-{number}": disk for number, disk in enumerate(disks)}
    session = site.zookeeper.session()
    config, _ = load_broker_config(
        {
            "broker.id": "1",
            "zookeeper.connect": "memory:1",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": ",".join(dirs),
        }
    )
    return Broker(
        config,
        zk=session,
        open_directory=lambda path: MemoryDirectory(path.removeprefix("/"), dirs[path]),
    )


async def test_partitions_of_other_disks_are_served_when_one_fails(tmp_path: Path) -> None:
    one, two = Disk(), Disk()
    broker = on_disks(Site(tmp_path), one, two)
    await broker.start()
    try:
        async with connected(broker) as connection:
            await led(connection, "a")
            await led(connection, "b")
            one.is_broken = True

            async def written(topic: str) -> bool:
                try:
                    await produce(connection, topic, b"x")
                except AssertionError:
                    return False
                return True

            async def is_offline() -> bool:
                answer = await connection.call(DescribeLogDirsRequest(topics=None))
                codes = {result.log_dir: result.error_code for result in answer.results}
                return bool(codes["/disk-0"] == ErrorCode.KAFKA_STORAGE_ERROR)

            assert [await written("a"), await written("b")] in ([True, False], [False, True])
            await until(is_offline, "the disk is probed")
            for topic in ("c", "d"):
                await led(connection, topic)
                assert await written(topic)
    finally:
        await broker.close()


async def test_full_disk_refuses_is_read_and_takes_writes_when_it_has_room(tmp_path: Path) -> None:
    disk = Disk()
    broker = on_disks(Site(tmp_path), disk)
    await broker.start()
    try:
        async with connected(broker) as connection:
            await led(connection, "a")
            await produce(connection, "a", b"x")
            disk.free_bytes = 10
            with pytest.raises(AssertionError, match=str(int(ErrorCode.KAFKA_STORAGE_ERROR))):
                await produce(connection, "a", b"y")
            disk.free_bytes = None

            async def is_written() -> bool:
                with contextlib.suppress(AssertionError):
                    await produce(connection, "a", b"z")
                    return True
                return False

            await until(is_written, "the disk has room")
    finally:
        await broker.close()


async def test_without_a_directory_that_lives_the_broker_stops_and_says_why(
    tmp_path: Path,
) -> None:
    disk = Disk()
    broker = on_disks(Site(tmp_path), disk)
    await broker.start()
    try:
        async with connected(broker) as connection:
            await led(connection, "a")
            disk.is_broken = True
            with pytest.raises(AssertionError):
                await produce(connection, "a", b"x")
        reason = r"no log directory is left: .*/disk-0.*Input/output error"
        with pytest.raises(BrokerStopped, match=reason):
            await asyncio.wait_for(broker.run_until(asyncio.Event()), DEADLINE_S)
    finally:
        await broker.close()


async def test_a_directory_that_vanishes_is_found_out_by_its_checkpoints(tmp_path: Path) -> None:
    site = Site(tmp_path)
    dirs = [tmp_path / "one", tmp_path / "two"]
    broker = site.broker(
        1, log_dirs=",".join(map(str, dirs)), log_flush_offset_checkpoint_interval_ms="100"
    )
    await broker.start()
    try:
        async with connected(broker) as connection:
            dirs[0].rename(tmp_path / "gone")

            async def is_offline() -> bool:
                answer = await connection.call(DescribeLogDirsRequest(topics=None))
                failed = [result.log_dir for result in answer.results if result.error_code]
                return failed == [str(dirs[0])]

            await until(is_offline, "the directory is found out")
            await led(connection, "a")
            await produce(connection, "a", b"x")
        dirs[1].rename(tmp_path / "gone too")
        with pytest.raises(BrokerStopped, match="no log directory is left"):
            await asyncio.wait_for(broker.run_until(asyncio.Event()), DEADLINE_S)
    finally:
        await broker.close()
    assert not dirs[0].exists()
