"""The streaming query: a micro-batch is what lies between two places in the topics.

Spark calls this reader in one long-lived process per query, in an order of its own that its
documentation does not tell (PySpark 4.3):

- `initialOffset` twice for a new query, and again when the first batch had failed: the answer must
  be the same, see group_commit.py.
- `latestOffset(start, …)` at each trigger, idle or not. `start` is where the last batch ended that
  is in the commit log: so it is there that the group learns of it, at the latest one trigger after
  the batch, and at the end of an `availableNow` run.
- `commit(end)` when the next batch is planned, so for the last one never: merely a second chance.
- `partitions`, also for a batch planned by a process before this one.
- `stop` not reliably. Processes that read are given a pickled copy that never planned anything.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from clients.offset_requests import EARLIEST_TIME, LATEST_TIME
from protocol.topic_partition import TopicPartition
from spark_connector.group_commit import GroupCommit
from spark_connector.log_offsets import Connect, LogOffsets, connect_admin, data_lost
from spark_connector.options import SourceOptions
from spark_connector.range_reader import read_range
from spark_connector.split import limited, ranges
from spark_connector.stream_offset import Offsets, at_least, behind, from_json, to_json

logger = logging.getLogger(__name__)

GROUP_TIMEOUT_MS = 15_000
"""Most that a commit may hold a trigger up."""

CUT_GRACE_S = 10.0
"""How long a log may end before what was read, until it counts as lost."""


class KgroupStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches, and commits to the group how far they got."""

    def __init__(
        self,
        options: SourceOptions,
        *,
        connect: Connect = connect_admin,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._connect = connect
        self._now_s = now_s
        self._initial: Offsets | None = None
        self._ends: Offsets | None = None
        """The logs' ends as of this trigger."""
        self._target: Offsets | None = None
        """With `availableNow`: where the query ends."""
        self._cut_since: dict[TopicPartition, float] = {}
        """Since when logs have ended before what was read; infinity once that was said."""

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins; the same however often it is asked."""
        if self._initial is None:
            self._initial = self._find_initial()
            if self._group is not None:
                self._group.begin(self._initial)
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        """`maxOffsetsPerTrigger`, holes counted as records."""
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix where this run of the query ends."""
        self._target = self._log.latest(self._log.partitions())

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends: exactly `start` if there is nothing new."""
        begin = from_json(start)
        if self._group is not None:
            self._group.mirror(begin)
        if self._target is None:
            self._ends = self._log.latest(self._log.partitions())
        else:
            self._ends = self._target
        ends = self._not_before(begin, self._ends)
        if isinstance(limit, ReadMaxRows):
            ends = limited(self._with_new(begin, ends), ends, limit.max_rows)
        return to_json(ends)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The logs' ends, for the query's progress: asked for by `latestOffset` already."""
        return None if self._ends is None else to_json(self._ends)

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Sequence[InputPartition]:
        """A task for each partition with records. Raises ValueError for an end before its start."""
        ends = from_json(end)
        begin = self._with_new(from_json(start), ends)
        return [InputPartition(wanted) for wanted in ranges(begin, ends)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a range, in another process."""
        yield from read_range(self._options, partition.value)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Take note that a batch is done, if that is news."""
        if self._group is not None:
            self._group.mirror_no_less(from_json(end))

    def stop(self) -> None:
        """Close what was opened."""
        for opened in ("_log", "_group"):
            if (owner := self.__dict__.pop(opened, None)) is not None:
                owner.brokers.close()

    @cached_property
    def _log(self) -> LogOffsets:
        brokers = self._connect(self._options.client.cluster_settings)
        return LogOffsets(brokers, self._options, self._now_s)

    @cached_property
    def _group(self) -> GroupCommit | None:
        options = self._options
        if options.committed_group is None:
            return None
        settings = options.client.cluster_settings
        timeout_ms = min(settings["default.api.timeout.ms"], GROUP_TIMEOUT_MS)
        return GroupCommit(
            self._connect({**settings, "default.api.timeout.ms": timeout_ms}),
            options.committed_group,
            options.commit_metadata,
            self._now_s,
            fail_on_reset=options.on_group_reset == "fail",
        )

    def _find_initial(self) -> Offsets:
        partitions = self._log.partitions()
        stored: Offsets = {}
        if self._group is not None and (stored := self._group.stored_initial(partitions)):
            logger.warning(
                "group %s: beginning at %s, where a query began that committed no batch",
                self._group.group,
                to_json(stored),
            )
        start = self._log.starting(partitions)
        if self._target is not None:
            at_latest = {p for p, offset in start.items() if offset == LATEST_TIME}
            start |= {p: self._target[p] for p in at_latest & self._target.keys()}
        topics = {partition.topic for partition in stored}
        again = {p: stored.get(p, EARLIEST_TIME) for p in partitions if p.topic in topics}
        return self._log.at({**start, **again})

    def _with_new(self, begin: Offsets, ends: Offsets) -> Offsets:
        """`begin` and the partitions that came since: they begin at their earliest offset."""
        new = ends.keys() - begin.keys()
        if not new:
            return begin
        earliest = self._log.earliest(new)
        return {**begin, **{p: min(earliest[p], ends[p]) for p in new}}

    def _not_before(self, begin: Offsets, ends: Offsets) -> Offsets:
        """`ends`, but never before `begin`: Spark has no way back. Raises DataLoss."""
        fail = self._options.fail_on_data_loss
        for partition in begin.keys() - ends.keys():
            data_lost(f"{partition} at offset {begin[partition]} is there no more", fail=fail)
        # A new leader may for a moment not know how far its log is committed.
        patience_s = CUT_GRACE_S if self._target is None else 0.0
        now_s = self._now_s()
        self._cut_since = {p: self._cut_since.get(p, now_s) for p in behind(ends, begin)}
        for partition, since_s in self._cut_since.items():
            if now_s - since_s >= patience_s:
                self._cut_since[partition] = float("inf")
                cut = f"{partition} ends at offset {ends[partition]}, but was read up to"
                data_lost(f"{cut} {begin[partition]}: its last records have been lost", fail=fail)
        return at_least(ends, begin)
