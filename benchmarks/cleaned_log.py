"""A broker with dirty logs, whose cleaner gets one after the other.

A log is dirty enough only after a change of its topic's settings, and one thread has the default
buffer. So one cleaning alone is timed: from that change until `cleaner-offset-checkpoint` shows the
log clean up to its active segment.
"""

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import attrs

from benchmarks.brokers import Broker, Side, install
from benchmarks.written_log import WrittenLog, place_logs
from clients.admin import Admin, ConfigResource, NewTopic
from core_log.checkpoint import CLEANER_OFFSETS, CheckpointError, decode_offsets
from protocol.topic_partition import TopicPartition

SETTINGS = {"log.cleaner.threads": "1", "log.cleaner.backoff.ms": "100"}
PATIENCE_S = 300.0

# Values of min.cleanable.dirty.ratio.
_NEVER, _NOW = "1", "0"
_DIRTY_ENOUGH = "min.cleanable.dirty.ratio"
_pause = partial(time.sleep, 0.005)


@attrs.define(eq=False)
class CleaningBroker:
    """A running broker, and the topics that are still dirty; all have the same log."""

    broker: Broker
    log_directory: Path
    log: WrittenLog
    dirty: list[str]

    def begin(self) -> str:
        """Let the cleaner clean the next log; return its topic."""
        topic = self.dirty.pop()
        resource = ConfigResource.topic(topic)

        async def alter(admin: Admin) -> None:
            # With this ratio any dirty byte is enough.
            change = {resource: {_DIRTY_ENOUGH: _NOW}}
            if refusal := (await admin.incremental_alter_configs(change))[resource]:
                raise RuntimeError(f"{topic} cannot be cleaned: {refusal}")

        self.broker.administer(alter)
        return topic

    def is_clean(self, topic: str) -> bool:
        """True if a log is clean up to its active segment."""
        path = self.log_directory / CLEANER_OFFSETS
        try:
            offsets = decode_offsets(path.read_bytes() if path.exists() else None)
        except CheckpointError:
            return False
        return offsets.get(TopicPartition(topic, 0), 0) >= self.log.active_offset

    def await_clean(self, topic: str, meanwhile: Callable[[], None] = _pause) -> None:
        """Repeat `meanwhile` until a log is clean. Raises RuntimeError after PATIENCE_S."""
        ends = time.monotonic() + PATIENCE_S
        while not self.is_clean(topic):
            if time.monotonic() > ends:
                raise RuntimeError(f"{self.broker.name} does not clean {topic}")
            self.broker.process.check_alive()
            meanwhile()


@contextlib.contextmanager
def start_cleaning_broker(
    side: Side, directory: Path, log: WrittenLog, number: int
) -> Iterator[CleaningBroker]:
    """Start a broker that has the log `number` times; stop it and delete them at the end."""
    topics = [f"dirty-{nth}" for nth in range(number)]
    configs = {
        "cleanup.policy": "compact",
        "segment.bytes": str(log.segment_bytes),
        _DIRTY_ENOUGH: _NEVER,
    }

    with contextlib.ExitStack() as stack:
        # Callbacks run in reverse: the broker stops before its data is deleted.
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        place = install(side, directory, directory.name, SETTINGS)
        place_logs(place, [NewTopic(name, 1, 1, configs) for name in topics], log)
        broker = place.start()
        stack.callback(broker.process.stop, at_once=True)
        yield CleaningBroker(broker, place.log_directory, log, topics)


def exclude_numpy(side: Side, directory: Path) -> Side:
    """Return our side with a broker, and workers, that cannot import numpy."""
    directory.mkdir(exist_ok=True)

    # A module of that name comes first on the path, and cannot be imported.
    (directory / "numpy.py").write_text('raise ImportError("kept out")\n')
    # Behind it stays what leads to the compiled copy, if that is measured.
    path = f"{directory}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    command = ("env", f"PYTHONPATH={path}", *side.command)

    # The variable means nothing to a JVM.
    assert side.command[0] == sys.executable
    return attrs.evolve(side, command=command)
