"""A broker with two disks starts whatever fails on one of them, and serves what is on the other."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from broker.server import Broker
from core_log.log_manager import LogDirectoryError
from core_log.memory_directory import Disk, MemoryDirectory
from core_log.storage import Directory
from protocol.errors import ErrorCode
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from protocol.topic_partition import TopicPartition
from tests.core_log.failing_directory import FailingDirectory, Fault, copied
from tests.stage.broker import Site, connected

GOOD, BAD = "good", "bad"
ON_GOOD, ON_BAD = TopicPartition("t", 0), TopicPartition("t", 1)
DISKS = {"log.dirs": f"/{GOOD},/{BAD}"}


class DeadDisk(Fault):
    """Fails from an operation on."""

    def strikes(self, path: str, operation: str) -> bool:
        self.count += 1
        if self.count - 1 < self.at:
            return False
        self.struck = self.struck or (path, operation)
        return True


def stored_disks() -> dict[str, MemoryDirectory]:
    disks = {name: MemoryDirectory(name, Disk()) for name in (GOOD, BAD)}
    disks[GOOD].child(str(ON_GOOD))
    disks[BAD].child(str(ON_BAD))
    return disks


async def start(directory: Path, fault: Fault) -> dict[str, tuple[ErrorCode, list[TopicPartition]]]:
    """Start a broker, one of whose disks has the fault; what it says of its disks."""
    stored = stored_disks()

    def open_directory(path: str) -> Directory:
        disk = copied(stored[Path(path).name])
        if disk.name == GOOD:
            return disk
        fault.check(path, "open")
        return FailingDirectory(disk, fault)

    async with Site(directory, open_directory=open_directory).running(1, **DISKS) as broker:
        operations = fault.count
        said = await described(broker)
        fault.at = 2**63  # the stop is another matter
        fault.count = operations
        return said


async def described(broker: Broker) -> dict[str, tuple[ErrorCode, list[TopicPartition]]]:
    async with connected(broker) as connection:
        response = await connection.call(DescribeLogDirsRequest(topics=None))
    return {
        result.log_dir: (
            ErrorCode.of(result.error_code),
            [
                TopicPartition(topic.name, partition.partition_index)
                for topic in result.topics
                for partition in topic.partitions
            ],
        )
        for result in response.results
    }


@pytest.mark.fault("broker-2")
@pytest.mark.parametrize("kind", [Fault, DeadDisk])
async def test_whatever_fails_on_one_of_two_disks_the_broker_starts_and_serves_the_other(
    tmp_path: Path, kind: type[Fault]
) -> None:
    whole = kind(errno.EIO, at=2**63)
    both = {f"/{GOOD}": (ErrorCode.NONE, [ON_GOOD]), f"/{BAD}": (ErrorCode.NONE, [ON_BAD])}
    assert await start(tmp_path, whole) == both
    assert whole.count > 20

    outcomes = set()
    for number in range(whole.count):
        fault = kind(errno.EIO, at=number)
        said = await start(tmp_path, fault)
        assert said.pop(f"/{GOOD}") == (ErrorCode.NONE, [ON_GOOD]), fault.struck
        assert said.keys() == {f"/{BAD}"}, fault.struck
        outcomes.add(said[f"/{BAD}"][0])
        if number == 0:
            assert said == {f"/{BAD}": (ErrorCode.KAFKA_STORAGE_ERROR, [])}, "it is not opened"
    assert ErrorCode.KAFKA_STORAGE_ERROR in outcomes


async def test_a_broker_without_any_disk_does_not_start(tmp_path: Path) -> None:
    def open_directory(path: str) -> Directory:
        raise OSError(errno.EROFS, "Read-only file system")

    broker = Site(tmp_path, open_directory=open_directory).broker(1, **DISKS)
    with pytest.raises(LogDirectoryError, match="no log directory can be used"):
        await broker.start()
    await broker.close()
