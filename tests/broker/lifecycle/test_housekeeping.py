"""The periodic work of a broker: retention, full disks, and intervals by the right clock."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from broker.lifecycle import housekeeping as lifecycle
from broker.lifecycle.housekeeping import Housekeeping
from broker.settings.config import load_broker_config
from broker.settings.tls_contexts import TlsContexts
from core_log.config import LogConfig
from core_log.log_work import LogWork
from core_log.producers.producer_state import Producer
from protocol.errors import ApiError
from protocol.messages.fetch import FetchRequestPartition
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import NOW_MS, AtOnce, Replicas, batch, leader_and_isr
from tests.broker.spawning import Spawned
from tests.stage.disk import Disk

T0 = TopicPartition("t", 0)
NOBODY: Any = SimpleNamespace(notify=None, remove_due=None)
"""A part that has nothing to do in the first second."""
DELETED = LogConfig(segment_bytes=72, retention_ms=1000)


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("policy", "cleaner_enable", "left"),
    [
        ("delete", "true", 1),
        ("compact", "true", 3),
        ("compact,delete", "true", 3),
        ("compact", "false", 3),
        ("compact,delete", "false", 1),
    ],
)
async def test_what_is_compacted_is_left_to_the_cleaner_with_its_retention(
    policy: str, cleaner_enable: str, left: int
) -> None:
    config = LogConfig(cleanup_policy=tuple(policy.split(",")), segment_bytes=72, retention_ms=1000)
    replicas = filled_log(config)
    spawned = Spawned()
    settings = {"log.cleaner.enable": cleaner_enable}
    housekeeping(replicas, AtOnce(), spawned, settings).start()

    await asyncio.sleep(0.6)

    assert len(replicas.manager.log(T0).segments) == left
    for task in spawned.tasks:
        task.cancel()


@pytest.mark.virtual_time
@pytest.mark.fault("strangers-99")
async def test_a_log_whose_file_is_gone_does_not_end_the_retention_of_others() -> None:
    replicas = Replicas(config=DELETED).lead("a-empty").lead("t")
    empty = replicas.manager.log(TopicPartition("a-empty", 0))
    for timestamp in (1, 1, NOW_MS):
        replicas.write(T0, batch(b"abc", key=b"k", timestamp_ms=timestamp))
    empty.directory.remove("00000000000000000000.log")
    spawned = Spawned()
    housekeeping(replicas, AtOnce(), spawned, {}).start()

    await asyncio.sleep(0.6)

    assert len(replicas.manager.log(T0).segments) == 1
    assert (empty.failure is not None, replicas.manager.log(T0).failure) == (True, None)
    for task in spawned.tasks:
        task.cancel()


@pytest.mark.virtual_time
async def test_segments_are_gone_at_once_and_their_files_in_a_thread() -> None:
    replicas, disk, spawned = filled_log(DELETED), Disk(), Spawned()
    log = replicas.manager.log(T0)
    housekeeping(replicas, disk, spawned, {}).start()
    await asyncio.sleep(0.6)
    assert (log.log_start_offset, len(log.segments)) == (2, 1)
    assert not any(name.endswith(".deleted") for name in log.directory.files())

    write_record(replicas)
    await disk.run_next()

    marked = [name for name in log.directory.files() if name.endswith(".log.deleted")]
    assert marked == [f"{offset:020d}.log.deleted" for offset in (0, 1)]
    assert log.log_end_offset == 4
    for task in spawned.tasks:
        task.cancel()


@pytest.mark.virtual_time
async def test_full_disk_is_logged_once_and_retained_and_written_when_it_has_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "core_log.log_dir")
    replicas, spawned = filled_log(DELETED), Spawned()
    disk, log = replicas.directory.disk, replicas.manager.log(T0)
    keeper = housekeeping(replicas, AtOnce(), spawned, {})
    has_room: list[bool] = []
    keeper.log_failures = SimpleNamespace(
        report=report_nothing, note_room=lambda: has_room.append(True)
    )
    disk.free_bytes = 10
    with pytest.raises(ApiError, match="No space left"):
        write_record(replicas)
    keeper.start()

    await asyncio.sleep(10)  # room is looked for three times
    assert (log.log_start_offset, len(log.segments)) == (2, 1)
    assert (log.guard.is_full, has_room) == (True, [])
    disk.free_bytes = None
    await asyncio.sleep(3)

    write_record(replicas)
    assert (log.failure, has_room) == (None, [True])
    messages = [
        record.getMessage() for record in caplog.records if record.name == "core_log.log_dir"
    ]
    assert messages == [
        "/logs is full: logs that found no room for an append take none until there is room for "
        "4 more MiB; they can be read, and retention and deletion go on",
        "/logs has room again: 1 logs take writes",
    ]
    for task in spawned.tasks:
        task.cancel()


@pytest.mark.fault("strangers-12")
@pytest.mark.virtual_time
async def test_silent_producers_are_forgotten_some_of_them_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lifecycle, "PRODUCERS_PER_TURN", 10)
    replicas = filled_log(DELETED)
    producers = replicas.manager.log(T0).producers.producers
    producers.update({number: Producer(0, last_timestamp=0) for number in range(100)})
    keeper = housekeeping(replicas, AtOnce(), Spawned(), {})
    expiring = asyncio.ensure_future(keeper._expire_producers())

    left = [len(producers)]
    while not expiring.done():
        await asyncio.sleep(0)
        left.append(len(producers))
    assert left[-1] == 0
    assert max(before - after for before, after in pairwise(left)) <= 10


HOUR_MS = 3_600_000


@pytest.mark.virtual_time
@pytest.mark.parametrize("jump_ms", [-HOUR_MS, HOUR_MS])
async def test_no_interval_goes_by_a_clock_that_somebody_sets(jump_ms: int) -> None:
    """Flush after 5 s, a dead follower out of sync after 10 s, a deleted file gone after 60 s."""
    loop, wall_ms = asyncio.get_running_loop(), [NOW_MS]
    config = LogConfig(segment_bytes=72, retention_ms=1000, flush_ms=5000)
    replicas = Replicas(config=config, monotonic_ms=lambda: int(loop.time() * 1000))
    replicas.roles.become_leader_or_follower(
        leader_and_isr("t", isr=(0, 1), replicas=(0, 1), is_new=True), replicas.monotonic_ms()
    )
    flushed: list[Any] = []
    spawned, log = Spawned(), replicas.manager.log(T0)
    settings = {"log.retention.check.interval.ms": "9000000", "replica.lag.time.max.ms": "10000"}
    keeper = housekeeping(replicas, AtOnce(), spawned, settings)
    keeper.now_ms, keeper.monotonic_ms = lambda: wall_ms[0], replicas.monotonic_ms
    keeper.flusher = SimpleNamespace(start=lambda partition: flushed.append(partition.log))

    def fetch(offset: int) -> None:
        partition = FetchRequestPartition(
            partition=0, fetch_offset=offset, log_start_offset=0, partition_max_bytes=1
        )
        replicas.manager.follower_progress.note_follower_fetch(
            1, [(T0, partition)], replicas.monotonic_ms()
        )

    def append(timestamp_ms: int) -> None:
        sent = batch(b"abc", timestamp_ms=timestamp_ms)
        replicas.manager.append(T0, sent, all_in_sync=False, zstd_allowed=True, now_ms=wall_ms[0])

    def flush() -> None:
        begun = log.begin_flush()
        begun.run()
        log.end_flush(begun)

    def effects_so_far() -> tuple[bool, bool, bool]:
        left = [name for name in log.directory.files() if name.endswith(".deleted")]
        return bool(flushed), bool(replicas.proposals), not left

    keeper.start()
    fetch(0)
    await asyncio.sleep(20)  # who is in sync has been looked at before
    append(1)
    flush()
    append(NOW_MS)
    assert log.delete_old_segments(1, wall_ms[0]) == 1
    flush()
    fetch(2)
    append(NOW_MS)
    wall_ms[0] += jump_ms
    seen = []
    for seconds in (3, 4, 10, 41, 4):
        await asyncio.sleep(seconds)
        seen.append(effects_so_far())
    assert seen == [
        (False, False, False),
        (True, False, False),
        (True, True, False),
        (True, True, False),
        (True, True, True),
    ]
    assert replicas.proposals[0].state.isr == (0,)
    for task in spawned.tasks:
        task.cancel()


async def report_nothing(partitions: Any) -> None: ...


def write_record(replicas: Replicas) -> None:
    replicas.write(T0, batch(b"new", timestamp_ms=NOW_MS))


def filled_log(config: LogConfig) -> Replicas:
    """Lead a partition with three segments, two of them older than the retention time."""
    replicas = Replicas(config=config).lead("t")
    for timestamp in (1, 1, NOW_MS):
        sent = batch(b"abc", key=b"k", timestamp_ms=timestamp)
        replicas.write(T0, sent)
    return replicas


def housekeeping(
    replicas: Replicas, disk: Executor, spawned: Spawned, settings: dict[str, str]
) -> Housekeeping:
    """Return a housekeeping that checks retention every half second, with the threads of `disk`."""
    config, _ = load_broker_config(
        {"zookeeper.connect": "zk", "log.retention.check.interval.ms": "500", **settings}
    )
    return Housekeeping(
        config=config,
        logs=replicas.manager.logs,
        replicas=replicas.manager,
        set_aside=NOBODY,
        flusher=NOBODY,
        isr_writer=NOBODY,
        log_failures=NOBODY,
        listener=NOBODY,
        tls=TlsContexts(LogWork(disk).in_thread),
        work=LogWork(disk),
        spawn=spawned,
        now_ms=lambda: NOW_MS,
        monotonic_ms=lambda: NOW_MS,
        fail=NOBODY,
        checkpoint_lock=asyncio.Lock(),
    )
