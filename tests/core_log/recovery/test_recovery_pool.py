"""Recovery by worker processes: what comes of it is what comes of recovery here."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
from pathlib import Path

import pytest

from core_log.config import LogConfig
from core_log.directory import LogDirectory
from core_log.log_manager import LogManager
from core_log.recovery.recovery_pool import RecoveryJob, RecoveryPool
from protocol.records.batch import encode_batch, read_header
from protocol.topic_partition import TopicPartition

T0 = 1_500_000_000_000
PARTITIONS = [TopicPartition("t", number) for number in range(3)]
CONFIG = LogConfig(segment_bytes=4000, index_interval_bytes=300)


def managed(root: Path, processes: int) -> LogManager:
    manager = LogManager([LogDirectory(root)], CONFIG, lambda: T0, recovery_threads=processes)
    manager.load()
    return manager


def crashed(root: Path, *, damaged: bool = False) -> Path:
    """Three logs of a broker that was killed: whole, with a torn tail, and whole or damaged."""
    manager = managed(root, 1)
    for tp in PARTITIONS:
        log = manager.get_or_create(tp, CONFIG)
        for number in range(60):
            batch = encode_batch(
                [(T0 + number, None, b"%d" % number * 20, ())],
                producer_id=7,
                producer_epoch=0,
                base_sequence=number,
            )
            header = read_header(batch)
            log.append(
                batch, header, leader_epoch=number // 25, now_ms=T0, max_timestamp=T0 + number
            )
            if number == 40:
                flush = log.begin_flush()
                flush.run()
                log.end_flush(flush)
    manager.checkpoint_recovery_points()
    manager.close(clean=False)
    with max((root / "t-1").glob("*.log")).open("ab") as file:
        file.write(b"torn")
    if damaged:
        first = min((root / "t-2").glob("*.log"))
        first.write_bytes(first.read_bytes()[:-3])
    return root


def state(manager: LogManager) -> dict[TopicPartition, tuple[object, ...]]:
    return {
        tp: (
            log.log_start_offset,
            log.log_end_offset,
            log.recovery_point,
            log.leader_epochs.entries,
            log.failure,
            [segment.base_offset for segment in log.segments],
            {number: producer.batches[-1] for number, producer in log.producers.producers.items()},
        )
        for tp, log in manager.logs.items()
    }


def files(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


@pytest.mark.parametrize("damaged", [False, True])
def test_workers_leave_what_recovery_here_leaves_and_the_same_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damaged: bool
) -> None:
    crashed(tmp_path / "here", damaged=damaged)
    shutil.copytree(tmp_path / "here", tmp_path / "apart")
    lines, states = {}, {}
    for name, processes in (("here", 1), ("apart", 2)):
        caplog.clear()
        manager = managed(tmp_path / name, processes)
        lines[name] = sorted(
            (record.name, record.levelname, record.getMessage().replace(name, ""))
            for record in caplog.records
            if record.levelname != "INFO"
        )
        states[name] = state(manager)
        manager.close()
    twice = {line for line in lines["apart"] if "rebuilt" in line[2]}  # it is read here once more
    assert set(lines["apart"]) - twice == set(lines["here"]) - twice
    assert bool(twice - set(lines["here"])) == damaged
    assert any("recovery truncates" in message for _, _, message in lines["here"])
    assert any("is offline" in message for _, _, message in lines["here"]) == damaged
    assert states["apart"] == states["here"]
    assert files(tmp_path / "apart") == files(tmp_path / "here")
    assert not multiprocessing.active_children()


def test_logs_whose_worker_is_killed_are_recovered_here(tmp_path: Path) -> None:
    crashed(tmp_path)
    pool = RecoveryPool(2)
    results = [
        pool.begin(RecoveryJob(str(tmp_path / str(tp)), tp, CONFIG, 41, 0)) for tp in PARTITIONS
    ]
    for worker in multiprocessing.active_children():
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
    assert [result() for result in results] == [None, None, None]
    assert not multiprocessing.active_children()
    assert pool.begin(RecoveryJob(str(tmp_path / "t-0"), PARTITIONS[0], CONFIG, 41, 0))() is None

    manager = managed(tmp_path, 1)
    assert {tp: log.log_end_offset for tp, log in manager.logs.items()} == dict.fromkeys(
        PARTITIONS, 60
    )
    manager.close()
