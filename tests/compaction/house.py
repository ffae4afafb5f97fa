"""Logs and their cleaner, as a broker has them, on a loop whose clock jumps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from compaction.clean import Event
from compaction.cleaner import Cleaner
from compaction.config import CleanerConfig
from compaction.job import CleaningJob, GroupCleaned
from compaction.worker_pool import InLoop, OnEvent, Workers
from core_log.checkpoint import CLEANER_OFFSETS, decode_offsets
from core_log.config import LogConfig
from core_log.log import Log
from core_log.log_manager import LogManager
from core_log.log_work import LogWork
from core_log.memory_directory import Disk, MemoryDirectory
from core_log.storage import Directory
from protocol.records.batch import Record, decode_batch, encode_batch, read_header
from protocol.records.entry import read_entry
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import AtOnce
from tests.broker.spawning import Spawned

TP = TopicPartition("positions", 0)
OTHER = TopicPartition("positions", 1)
T0 = 1_600_000_000_000
COMPACT = LogConfig(
    cleanup_policy=("compact",),
    segment_bytes=1000,
    segment_index_bytes=600,
    min_cleanable_dirty_ratio=0.01,
    file_delete_delay_ms=1000,
)


@attrs.define(eq=False)
class Listening:
    """Workers that do the work in the loop, and stop before an event that a test wants to see."""

    before: Callable[[CleaningJob, Event], None] = lambda job, event: None
    inner: InLoop = attrs.field(factory=InLoop)
    jobs: list[CleaningJob] = attrs.field(factory=list)
    speeds: list[float] = attrs.field(factory=list)
    rests: int = 0

    async def run(
        self,
        job: CleaningJob,
        directory: Directory,
        heard: OnEvent,
    ) -> None:
        self.jobs.append(job)

        async def hear(event: Event) -> None:
            self.before(job, event)
            await heard(event)

        await self.inner.run(job, directory, hear)

    def change_speed(self, bytes_per_second: float) -> None:
        self.speeds.append(bytes_per_second)

    async def end_idle(self) -> None:
        self.rests += 1


def when_swapped(act: Callable[[], None]) -> Callable[[CleaningJob, Event], None]:
    """Do something once, when the first copy is about to take its originals' place."""
    done: list[bool] = []

    def before(job: CleaningJob, event: Event) -> None:
        if isinstance(event, GroupCleaned) and not done:
            done.append(True)
            act()

    return before


def _records(data: bytes) -> Iterator[Record]:
    """Read records of all formats."""
    position = 0
    while (entry := read_entry(data, position, len(data))) is not None:
        yield from decode_batch(data, position, entry)
        position += entry.size


class House:
    """A broker's cleaner and its logs. Create it in a running loop of virtual time."""

    def __init__(
        self,
        *directories: Directory,
        workers: Workers | None = None,
        config: CleanerConfig | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.disk = Disk(now_ms=self.now_ms)
        self.directories = directories or (MemoryDirectory("data", self.disk),)
        self.logs = LogManager(self.directories, LogConfig(), self.now_ms)
        self.logs.load({TP.topic: COMPACT})
        self.spawned = Spawned()
        self.workers = workers or Listening()
        self.watermarks: dict[TopicPartition, int] = {}
        self.cleaner = Cleaner(
            self.logs,
            self.high_watermark,
            self.workers,
            config or CleanerConfig(),
            self.spawned,
            self.now_ms,
            LogWork(AtOnce()),
        )

    def now_ms(self) -> int:
        return T0 + int(self.loop.time() * 1000)

    def high_watermark(self, tp: TopicPartition) -> int | None:
        """Return the log's end: everything is committed, unless a test says otherwise."""
        log = self.logs.get(tp)
        return None if log is None else self.watermarks.get(tp, log.log_end_offset)

    def log(self, tp: TopicPartition = TP, config: LogConfig = COMPACT) -> Log:
        return self.logs.get_or_create(tp, config)

    def write(
        self,
        *pairs: tuple[str, str | None],
        tp: TopicPartition = TP,
        config: LogConfig = COMPACT,
        timestamp: int | None = None,
        **options: Any,
    ) -> None:
        """Append a batch for each record, with the present time unless a test says otherwise."""
        log = self.log(tp, config)
        for key, value in pairs:
            when = self.now_ms() if timestamp is None else timestamp
            record = (when, key.encode(), None if value is None else value.encode(), ())
            batch = encode_batch([record], **options)
            log.append(
                batch,
                read_header(batch),
                leader_epoch=0,
                now_ms=self.now_ms(),
                max_timestamp=when,
            )

    def write_rounds(
        self, rounds: int, keys: int = 10, *, tp: TopicPartition = TP, **options: Any
    ) -> None:
        """Append each key in each round, and roll a segment for each round."""
        for number in range(rounds):
            end = self.log(tp, options.get("config", COMPACT)).log_end_offset
            self.write(*((f"k{k}", f"{end}.{number}") for k in range(keys)), tp=tp, **options)
            self.log(tp).roll(self.now_ms())

    def records(self, tp: TopicPartition = TP) -> list[tuple[str, str | None]]:
        """Read the records as a consumer does."""
        log = self.log(tp)
        return [
            ((record.key or b"").decode(), None if record.value is None else record.value.decode())
            for segment in log.segments
            for record in _records(segment.log.read(0, segment.size))
            if record.offset >= log.log_start_offset
        ]

    def newest(self, tp: TopicPartition = TP) -> dict[str, str | None]:
        """The newest value of each key."""
        return dict(self.records(tp))

    def checkpoint(self, tp: TopicPartition = TP) -> int | None:
        """Read the cleaner's checkpoint file."""
        for directory in self.directories:
            clean_offset = decode_offsets(directory.read(CLEANER_OFFSETS)).get(tp)
            if clean_offset is not None:
                return clean_offset
        return None

    def leftovers(self, tp: TopicPartition = TP) -> list[str]:
        """Files of a replacement that did not come to its end."""
        names = self.log(tp).directory.files()
        return [name for name in names if name.endswith((".cleaned", ".swap"))]

    async def live(self, seconds: float) -> None:
        """Let time pass with the cleaner at work."""
        self.cleaner.start()
        await asyncio.sleep(seconds)
        await self.cleaner.close()
