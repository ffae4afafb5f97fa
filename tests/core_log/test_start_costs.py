"""What the start of a broker asks of its disk: as much for each log, however many there are."""

from __future__ import annotations

from collections import Counter

import attrs
import pytest

from core_log.checkpoint import LOG_START_OFFSETS, RECOVERY_POINTS
from core_log.config import LogConfig
from core_log.log_manager import LogManager
from core_log.memory_directory import MemoryDirectory
from protocol.topic_partition import TopicPartition
from tests.core_log.conftest import T0, Writer
from tests.core_log.failing_directory import FailingDirectory, Fault

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=0)


@attrs.define(eq=False)
class Counted(Fault):
    """Fails nothing, and counts what is done by its kind."""

    done: Counter[str] = attrs.field(factory=Counter)

    def strikes(self, path: str, operation: str) -> bool:
        """Count an operation."""
        kind, _, name = operation.partition(" ")
        is_of_a_log = path.count("/") > 1 or name.startswith("t-")
        self.done[kind if is_of_a_log else operation] += 1
        return False


def start_of(logs: int, *, is_clean: bool) -> Counter[str]:
    """Count what a start does that finds so many logs of three segments each."""
    disk = MemoryDirectory("d")
    before = LogManager([disk], CONFIG, lambda: 0)
    before.load()
    for number in range(logs):
        Writer(before.get_or_create(TopicPartition("t", number), CONFIG)).append_many(20)
    before.sync_names()
    before.checkpoint_recovery_points()
    before.close(clean=is_clean)

    counted = Counted(0)
    manager = LogManager([FailingDirectory(disk, counted)], CONFIG, lambda: T0)
    manager.load()
    manager.read_high_watermarks()
    assert len(manager.logs) == logs
    return counted.done


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
def test_start_asks_as_much_for_each_log_and_writes_no_checkpoint_for_each(is_clean: bool) -> None:
    few, more, many = (start_of(logs, is_clean=is_clean) for logs in (5, 15, 45))
    for operation in many:
        each = (more[operation] - few[operation]) / 10
        assert many[operation] - more[operation] <= each * 30, operation
    for checkpoint in (RECOVERY_POINTS, LOG_START_OFFSETS):
        assert many[f"write {checkpoint}"] <= 1
