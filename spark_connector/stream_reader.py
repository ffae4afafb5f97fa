"""The streaming query: a micro-batch lies between two places in the topics.

Spark calls this reader in one long-lived process per query, in an order that its documentation does
not describe (PySpark 4.3):

- `initialOffset` is called twice for a new query, and again if the first batch has failed. It must
  return the same each time, see group_commit.py.
- `latestOffset(start, …)` is called at each trigger, idle or not. `start` is the end of the last
  batch in the commit log. So this commits it to the group: at the latest one trigger after the
  batch, and at the end of an `availableNow` run.
- `commit(end)` is called when the next batch is planned, so never for the last one. It is only a
  second chance.
- `partitions` is called also for a batch that an earlier process has planned.
- `stop` is not always called. Processes that read get a pickled copy that has never planned.
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

from protocol.special_values import EARLIEST_TIME, LATEST_TIME
from protocol.topic_partition import TopicPartition
from spark_connector.group_commit import GroupCommit
from spark_connector.log_offsets import Connect, SubscribedLogs, connect_admin, report_data_loss
from spark_connector.options import SourceOptions
from spark_connector.range_reader import ranges_of, read_ranges
from spark_connector.split import limit_batch, plan_ranges
from spark_connector.stream_offset import Offsets, at_least, find_behind, from_json, to_json

logger = logging.getLogger(__name__)

GROUP_TIMEOUT_MS = 15_000
"""Bound on the time for which a commit delays a trigger."""

TRUNCATION_GRACE_S = 10.0
"""Time for which a log may end before what was read, until that counts as data loss."""


class KgroupStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader that plans micro-batches, and commits their ends to the group."""

    def __init__(
        self,
        options: SourceOptions,
        *,
        connect: Connect = connect_admin,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        # Nothing connects here: readers are pickled, and made in processes that plan nothing.
        self._options = options
        self._connect = connect
        self._now_s = now_s

        # Where the query begins and ends.
        self._initial: Offsets | None = None
        self._ends: Offsets | None = None
        """The logs' ends at this trigger."""
        self._target: Offsets | None = None
        """Where the query ends, with `availableNow`."""
        self._truncated_since_s: dict[TopicPartition, float] = {}
        """Since when logs have ended before what was read; infinity once that was reported."""

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query begins; the same at every call."""
        if self._initial is None:
            self._initial = self._find_initial()
            if self._group is not None:
                self._group.begin(self._initial)
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return `maxOffsetsPerTrigger`, which counts holes as records."""
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix where this run of the query ends."""
        self._target = self._log.latest(self._log.partitions())

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends: exactly at `start` if there is nothing new."""
        begin = from_json(start)

        # `start` is the end of the last batch in Spark's commit log.
        if self._group is not None:
            self._group.mirror(begin)

        # With `availableNow` the end stays where it was when the run began.
        if self._target is None:
            self._ends = self._log.latest(self._log.partitions())
        else:
            self._ends = self._target

        ends = self._not_before(begin, self._ends)

        # Limit the batch: new partitions count with all that they have.
        if isinstance(limit, ReadMaxRows):
            ends = limit_batch(self._with_new(begin, ends), ends, limit.max_rows)
        return to_json(ends)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the logs' ends that `latestOffset` has read, for the query's progress."""
        return None if self._ends is None else to_json(self._ends)

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Sequence[InputPartition]:
        """Plan a task for each partition with records.

        Raises ValueError if an end is before its start.
        """
        ends = from_json(end)
        begin = self._with_new(from_json(start), ends)
        return [InputPartition(offset_range) for offset_range in plan_ranges(begin, ends)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a task's ranges, in another process."""
        yield from read_ranges(self._options, ranges_of(partition.value))

    def commit(self, end: Mapping[str, Any]) -> None:
        """Commit the end of a batch to the group, unless that is done."""
        if self._group is not None:
            self._group.mirror_no_less(from_json(end))

    def stop(self) -> None:
        """Close the connections."""
        # Close only what has connected: a cached_property is in __dict__ once it was used.
        for name in ("_log", "_group"):
            if (owner := self.__dict__.pop(name, None)) is not None:
                owner.brokers.close()

    @cached_property
    def _log(self) -> SubscribedLogs:
        brokers = self._connect(self._options.client.cluster_settings)
        return SubscribedLogs(brokers, self._options, self._now_s)

    @cached_property
    def _group(self) -> GroupCommit | None:
        options = self._options
        if options.committed_group is None:
            return None
        settings = options.client.cluster_settings

        # A client of its own, with a short time-out: a commit must not delay a trigger for long.
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

        # An earlier run that has committed no batch.
        earlier: Offsets = {}
        if self._group is not None and (earlier := self._group.read_initial(partitions)):
            logger.warning(
                "group %s: beginning at %s, where a query began that committed no batch",
                self._group.group,
                to_json(earlier),
            )

        # The options, where "latest" is the target's end in an `availableNow` run.
        start = self._log.starting(partitions)
        if self._target is not None:
            at_latest = {p for p, offset in start.items() if offset == LATEST_TIME}
            start |= {p: self._target[p] for p in at_latest & self._target.keys()}

        # The earlier run outranks the options in its topics.
        topics = {partition.topic for partition in earlier}
        again = {p: earlier.get(p, EARLIEST_TIME) for p in partitions if p.topic in topics}
        return self._log.at({**start, **again})

    def _with_new(self, begin: Offsets, ends: Offsets) -> Offsets:
        """Return `begin` with the partitions that came since, at their earliest offsets."""
        new = ends.keys() - begin.keys()
        if not new:
            return begin
        earliest = self._log.earliest(new)
        return {**begin, **{p: min(earliest[p], ends[p]) for p in new}}

    def _not_before(self, begin: Offsets, ends: Offsets) -> Offsets:
        """Return `ends`, but never before `begin`: Spark has no way back. Raises DataLoss."""
        fail = self._options.fail_on_data_loss

        # Partitions that are gone.
        for partition in begin.keys() - ends.keys():
            report_data_loss(
                f"{partition} at offset {begin[partition]} no longer exists", fail=fail
            )

        # A new leader may for a moment not know how far its log is committed.
        # With a fixed target a wait cannot help.
        patience_s = TRUNCATION_GRACE_S if self._target is None else 0.0
        now_s = self._now_s()
        self._truncated_since_s = {
            p: self._truncated_since_s.get(p, now_s) for p in find_behind(ends, begin)
        }
        for partition, since_s in self._truncated_since_s.items():
            if now_s - since_s >= patience_s:
                self._truncated_since_s[partition] = float("inf")
                loss = (
                    f"{partition} ends at offset {ends[partition]}, but was read up to "
                    f"{begin[partition]}: its last records have been lost"
                )
                report_data_loss(loss, fail=fail)
        return at_least(ends, begin)
