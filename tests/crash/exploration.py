"""Explore each crash of a workload: open the disk again, and check what is there.

Disks that are the same to the byte are opened once. Some of them are crashed again, at each
operation of that opening, and opened again: what is found must be the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from itertools import islice

import attrs

from core_log.checkpoint import LOG_START_OFFSETS, decode_offsets
from core_log.config import LogConfig
from core_log.log_manager import LogManager
from core_log.meta_properties import META_PROPERTIES
from protocol.topic_partition import TopicPartition
from tests.crash.checks import Bounds, Found, FoundDisk, contradictions, look_at
from tests.crash.history import Requirement
from tests.crash.power_loss import Crash, Effort, Platter
from tests.crash.recording import Disk, Operation, Tree
from tests.crash.story import META, TICK_MS, Story
from tests.crash.workloads import Workload


class CrashViolation(AssertionError):
    """A check has failed after a crash. The text tells all about it."""


@attrs.define
class Counts:
    """Counts of what was tried."""

    moments: int = 0
    crashes: int = 0
    disks: int = 0
    opened_again: int = 0

    def __str__(self) -> str:
        return (
            f"{self.crashes} crashes at {self.moments} moments, {self.disks} different disks, "
            f"{self.opened_again} crashes more while they were opened"
        )

    def add(self, other: Counts) -> None:
        """Sum up."""
        self.moments += other.moments
        self.crashes += other.crashes
        self.disks += other.disks
        self.opened_again += other.opened_again


@attrs.frozen
class Opened:
    """A disk that was opened after a crash: its contents, and what the opening did."""

    disk_state: FoundDisk
    operations: list[Operation]


def explore(workload: Workload, effort: Effort) -> Counts:
    """Crash a workload wherever it can. Raises CrashViolation."""
    story, counts = workload.story(), Counts()
    opened_disks: dict[bytes, FoundDisk] = {}
    checked: set[tuple[bytes, bool]] = set()
    root_syncs, required_at, required = story.root_syncs, -1, {}
    with _silent():
        for at, crash in crashes(story.disk.operations, effort, counts):
            if at != required_at:
                required_at = at
                required = {tp: h.requirement(at, root_syncs) for tp, h in story.histories.items()}
                checked.clear()
            key = digest(crash.tree)
            if (key, crash.was_killed) in checked:
                continue
            checked.add((key, crash.was_killed))
            disk_state = opened_disks.get(key)
            if disk_state is None:
                opened = reopened(crash.tree, story.config, story.now_ms)
                disk_state = opened_disks[key] = opened.disk_state
                counts.disks += 1
                if counts.disks % effort.open_again_every == 0:
                    _open_again(crash, opened, story, effort, counts)
            problems = [
                *disk_state.faults,
                *_problems(disk_state, required, story, at, crash.was_killed),
            ]
            if problems:
                raise CrashViolation(_told(workload, story, at, crash, problems))
    return counts


def crashes(
    operations: list[Operation], effort: Effort, counts: Counts
) -> Iterator[tuple[int, Crash]]:
    """Yield all crashes of a recording, each with the number of operations before it."""
    platter = Platter(Tree())
    for at, following in enumerate([*operations, None]):
        counts.moments += 1
        for crash in (*platter.killed(following, effort), *platter.without_power(effort)):
            counts.crashes += 1
            yield at, crash
        if following is not None:
            platter.advance(following)


def reopened(tree: Tree, config: LogConfig, now_ms: int) -> Opened:
    """Open a disk, as at the start of a broker. What cannot be opened is a fault."""
    disk = Disk(lambda: now_ms, tree.copy())
    manager = LogManager([disk.root], config, lambda: now_ms)
    logs: dict[TopicPartition, Found] = {}
    faults: list[str] = []
    try:
        manager.load()
        operations = list(disk.operations)
        for tp, log in manager.logs.items():
            logs[tp], wrong = look_at(log)
            faults += wrong
        for name in disk.root.children():
            if not name.endswith("-delete") and name not in map(str, manager.logs):
                faults.append(f"{name} is not loaded")
        log_starts = decode_offsets(disk.root.read(LOG_START_OFFSETS))
        disk_state = FoundDisk(
            logs,
            manager.read_high_watermarks(),
            log_starts,
            disk.root.read(META_PROPERTIES),
            tuple(faults),
        )
    except Exception as error:
        disk_state = FoundDisk(logs, {}, {}, None, (*faults, f"cannot be opened: {error!r}"))
        operations = list(disk.operations)
    return Opened(disk_state, operations)


def _open_again(crash: Crash, opened: Opened, story: Story, effort: Effort, counts: Counts) -> None:
    """Crash the opening of a disk at each operation: by a kill, or with nothing or all of what is
    pending; `effort.again` may ask for more. Raises CrashViolation."""
    platter, seen = Platter(crash.tree.copy()), set()
    for following in (*opened.operations, None):
        left = platter.without_power(effort.again or effort)
        if effort.again is None:
            left = islice(left, 2)
        for again in (*islice(platter.killed(following, effort), 2), *left):
            key = digest(again.tree)
            if key in seen:
                continue
            seen.add(key)
            counts.opened_again += 1
            disk_state = reopened(again.tree, story.config, story.now_ms).disk_state
            if (
                disk_state.logs != opened.disk_state.logs
                or disk_state.faults != opened.disk_state.faults
            ):
                raise CrashViolation(
                    f"{crash.how}; opened, and before {following}: {again.how}\n"
                    f"{opened.disk_state}\nagain: {disk_state}"
                )
        if following is not None:
            platter.advance(following)


def _problems(
    disk_state: FoundDisk,
    required: dict[TopicPartition, Requirement],
    story: Story,
    at: int,
    was_killed: bool,
) -> Iterator[str]:
    now_ms = max(now_ms for noted_at, now_ms in story.clock if noted_at <= at)
    bounds = Bounds(story.config.flush_messages, story.config.flush_ms + TICK_MS, now_ms)
    for tp, requirement in required.items():
        for problem in contradictions(disk_state.logs.get(tp), requirement, bounds, was_killed):
            yield f"{tp}: {problem}"
    for tp, start in disk_state.log_starts.items():
        log = disk_state.logs.get(tp)
        if log is not None and log.log_start_offset < min(start, log.log_end_offset):
            yield f"{tp} starts at {log.log_start_offset}, the checkpoint says {start}"
    for tp, high_watermark in disk_state.high_watermarks.items():
        if high_watermark not in story.high_watermarks.get(tp, {0}):
            yield f"{tp}: nobody wrote the high watermark {high_watermark}"
    if disk_state.meta_properties not in (META.encode(), *([None] if at < _meta_at(story) else [])):
        yield f"meta.properties is {disk_state.meta_properties!r}"


def _meta_at(story: Story) -> int:
    return len(story.disk.operations) + 1 if story.meta_at is None else story.meta_at


def digest(tree: Tree) -> bytes:
    """Compute a digest that tells two disks apart."""
    hashed = blake2b(digest_size=16)
    for path, content in tree.paths():
        hashed.update(path.encode() + b"\0")
        if content is not None:
            hashed.update(len(content).to_bytes(8, "big") + content)
    return hashed.digest()


def _told(workload: Workload, story: Story, at: int, crash: Crash, problems: list[str]) -> str:
    operations = story.disk.operations
    lines = [f"{workload.name}: crash after {at} of {len(operations)} operations", crash.how]
    lines += [f"  {number}: {operations[number]}" for number in range(max(0, at - 30), at)]
    if at < len(operations):
        lines.append(f"  not done: {operations[at]}")
    for path, content in crash.tree.paths():
        lines.append(f"  {path} {'' if content is None else len(content)}")
    return "\n".join([*lines, *problems])


@contextmanager
def _silent() -> Iterator[None]:
    """Thousands of recoveries warn of what they cut."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
