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
- None of these calls has a time limit. An error in one ends the query, so the reader waits for
  brokers that are away: a trigger then ends where it began.
- `stop` is not always called. Processes that read get a pickled copy that has never planned.
"""

import logging
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from clients.errors import KgroupError
from protocol.special_values import EARLIEST_TIME, LATEST_TIME
from protocol.topic_partition import TopicPartition
from spark_connector.client_options import impatient
from spark_connector.group_commit import GroupCommit
from spark_connector.group_lock import PATIENCE_S, GroupLock, lock_group
from spark_connector.initial_file import InitialFile
from spark_connector.log_offsets import (
    CALL_TIMEOUT_MS,
    TRUNCATION_GRACE_S,
    Brokers,
    Connect,
    SubscribedLogs,
    connect_admin,
    report_data_loss,
)
from spark_connector.options import SourceOptions
from spark_connector.range_reader import read_ranges
from spark_connector.split import limit_batch, plan_ranges, plan_tasks
from spark_connector.stream_offset import Offsets, at_least, find_behind, from_json, to_json

logger = logging.getLogger(__name__)

GROUP_TIMEOUT_MS = 15_000
"""Bound on the time for which a commit delays a trigger."""

MOST_SHOWN = 20
"""Partitions that a line of the log names."""

PLANNING_PATIENCE_S = 600.0
"""Time for which a batch with new partitions waits for brokers that are away."""


def _read_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class KgroupStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader that plans micro-batches, and commits their ends to the group."""

    def __init__(
        self,
        options: SourceOptions,
        *,
        connect: Connect = connect_admin,
        now_s: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = _read_clock_ms,
        lock_directory: Path | None = None,
        lock_patience_s: float = PATIENCE_S,
    ) -> None:
        # Nothing connects here: readers are pickled, and made in processes that plan nothing.
        self._options = options
        self._connect = connect
        self._now_s = now_s
        self._now_ms = now_ms
        self._lock_directory = lock_directory
        self._lock_patience_s = lock_patience_s
        self._lock: GroupLock | None = None
        """A file that no other query of this machine on the same group has locked."""

        # Where the query begins and ends.
        self._initial: Offsets | None = None
        self._from_latest: frozenset[TopicPartition] = frozenset()
        """Partitions that begin where their logs ended when this process was asked first."""
        self._ends: Offsets | None = None
        """The logs' ends at this trigger."""
        self._target: Offsets | None = None
        """Where the query ends, with `availableNow`."""

        # What earlier triggers of this process have seen.
        self._truncated_since_s: dict[TopicPartition, float] = {}
        """Since when logs have ended before what was read."""
        self._is_planning = False
        """Whether this process has said where a batch ends."""
        self._batch_at_s = float("-inf")
        """When the last batch with records was planned, for `maxTriggerDelay`."""

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query begins; the same at every call."""
        if self._initial is None:
            self._initial = self._log.patiently(self._find_initial, self._start_patience_s)
            if self._group is not None:
                self._group.begin(self._initial)
            if self._file is not None:
                self._file.write(self._initial)
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return `maxOffsetsPerTrigger`, which counts holes as records, or the least."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix where this run of the query ends."""
        log = self._log
        self._target = log.patiently(lambda: log.latest(log.partitions()), self._start_patience_s)

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends: exactly at `start` if there is nothing new.

        While the brokers are away, nothing is new. Only a query that has not heard of them since it
        was started fails, as they may never have been there.
        """
        begin = from_json(start)
        self._is_planning = True

        # `start` is the end of the last batch in Spark's commit log.
        if self._group is not None:
            self._group.mirror(begin)
        if self._file is not None and begin != self._initial:
            self._file.delete()

        # With `availableNow` the end stays where it was when the run began.
        if self._target is not None:
            self._ends = self._target
        elif self._ends is None:
            self._ends = self._log.patiently(lambda: self._find_ends(begin), self._start_patience_s)
        else:
            try:
                self._ends = self._find_ends(begin)
            except KgroupError as error:
                if not error.retriable:
                    raise
                self._log.warn(f"the brokers are away, and the query waits for them: {error}")
                return to_json(begin)

        try:
            ends, again = self._after_losses(begin, self._ends)
        except KgroupError as error:
            if not error.retriable:
                raise
            self._log.warn(f"the brokers are away, and the query waits for them: {error}")
            return to_json(begin)
        return to_json({**self._limited(begin, ends, limit), **again})

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the logs' ends that `latestOffset` has read, for the query's progress."""
        return None if self._ends is None else to_json(self._ends)

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Sequence[InputPartition]:
        """Plan the tasks of a batch.

        Raises DataLoss if a partition that came since has lost its first records, and ValueError if
        an end is before its start, unless the query goes on after losses: then the batch has
        nothing of that partition, and the next one begins there.
        """
        known, ends = from_json(start), from_json(end)
        begin = self._log.patiently(
            lambda: self._with_new(self._where_batch_began(known, ends), ends),
            PLANNING_PATIENCE_S,
        )
        # Nobody has read what it had before (fault broker-6).
        self._check_added({p: begin[p] for p in ends.keys() - known.keys()})
        if not self._options.fail_on_data_loss:
            begin = {**begin, **find_behind(ends, begin)}

        tasks = plan_tasks(
            plan_ranges(begin, ends),
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
            joined_offsets=self._options.joined_task_offsets,
        )
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a task's ranges, in another process."""
        yield from read_ranges(self._options, partition.value or ())

    def commit(self, end: Mapping[str, Any]) -> None:
        """Commit the end of a batch to the group, unless that is done."""
        if self._group is not None:
            self._group.mirror_no_less(from_json(end))

    def stop(self) -> None:
        """Close the connections, and let others have the group."""
        # Close only what has connected: a cached_property is in __dict__ once it was used.
        for name in ("_log", "_group"):
            if (owner := self.__dict__.pop(name, None)) is not None:
                owner.brokers.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @cached_property
    def _log(self) -> SubscribedLogs:
        return SubscribedLogs(self._connect_for(CALL_TIMEOUT_MS), self._options, self._now_s)

    @cached_property
    def _group(self) -> GroupCommit | None:
        options = self._options
        if options.committed_group is None:
            return None

        self._lock = lock_group(
            self._lock_directory or Path(tempfile.gettempdir()),
            options.client.bootstrap_servers,
            options.committed_group,
            self._lock_patience_s,
        )

        # A client of its own: a commit may take another time than the rest.
        return GroupCommit(
            self._connect_for(GROUP_TIMEOUT_MS),
            options.committed_group,
            options.commit_metadata,
            self._now_s,
            self._now_ms,
            on_reset=options.on_group_reset,
        )

    @cached_property
    def _file(self) -> InitialFile | None:
        path = self._options.initial_offsets_file
        return InitialFile(Path(path)) if path else None

    @property
    def _start_patience_s(self) -> float:
        """Time for which a query that starts waits for the brokers."""
        return self._options.client.default_api_timeout_ms / 1000

    def _connect_for(self, timeout_ms: int) -> Brokers:
        """Make a client whose calls delay a trigger for `timeout_ms` at most."""
        return self._connect(impatient(self._options.client.cluster_settings, timeout_ms))

    def _find_initial(self) -> Offsets:
        partitions = self._log.partitions()
        earlier = self._find_earlier_initial(partitions)

        # The options, unless somebody has moved the group and the query is to follow.
        start = self._log.starting(partitions)
        if not earlier:
            start |= self._find_reset(partitions)

        # "latest" is the target's end in an `availableNow` run.
        at_latest = {p for p, offset in start.items() if offset == LATEST_TIME}
        if self._target is not None:
            start |= {p: self._target[p] for p in at_latest & self._target.keys()}

        # The earlier run outranks the options in its topics, unless they ask for more.
        topics = {partition.topic for partition in earlier}
        again = {p: earlier.get(p, EARLIEST_TIME) for p in partitions if p.topic in topics}
        self._from_latest = frozenset(at_latest - again.keys())
        begin, begin_again = self._log.at(start), self._log.at(again)
        # A partition of these topics that the earlier run did not know (fault broker-6).
        self._check_added({p: begin_again[p] for p in again.keys() - earlier.keys()})
        # It may have been another query's (fault strangers-84, was: {**begin, **begin_again}).
        return {p: min(offset, begin_again.get(p, offset)) for p, offset in begin.items()}

    def _find_earlier_initial(self, partitions: list[TopicPartition]) -> Offsets:
        """Return where an earlier run began that has committed no batch; {} if none is known."""
        source = ""
        earlier: Offsets = {}
        if self._file is not None:
            source = f"file {self._file.path}"
            known = set(partitions)
            earlier = {p: offset for p, offset in self._file.read().items() if p in known}
        if not earlier and self._group is not None:
            source = f"group {self._group.group}"
            earlier = self._group.read_initial(partitions)

        if earlier:
            logger.warning(
                "%s: beginning at %s, where a query began that committed no batch",
                source,
                _shown(earlier),
            )
        return earlier

    def _find_reset(self, partitions: list[TopicPartition]) -> Offsets:
        """Return where somebody has moved the group, if the query is to begin there."""
        if self._group is None or self._options.on_group_reset != "follow":
            return {}
        if not (reset := self._group.read_reset(partitions)):
            return {}

        begins = self._log.within_range(self._group.group, reset)
        logger.warning(
            "group %s was moved by someone else: the query begins at its offsets, not at "
            "startingOffsets (onGroupReset is follow)",
            self._group.group,
        )
        return begins

    def _find_ends(self, begin: Offsets) -> dict[TopicPartition, int]:
        """Return where the logs end; where a leader is away, the query stays where it is."""
        partitions = self._log.partitions()
        ends = self._log.latest_where_known(partitions)
        return {**{p: begin[p] for p in partitions if p in begin}, **ends}

    def _limited(self, begin: Offsets, ends: Offsets, limit: ReadLimit) -> Offsets:
        """Return the end of a batch that Spark's limit and `minOffsetsPerTrigger` allow."""
        if not isinstance(limit, ReadMinRows | ReadMaxRows):
            return ends

        # New partitions count with all that they have. They may be asked for while brokers go away.
        log = self._log
        start = log.patiently(lambda: self._with_new(begin, ends), PLANNING_PATIENCE_S)
        least = self._options.min_offsets_per_trigger

        # A batch with too little waits, unless the run ends here or it has waited long enough.
        if least is not None and self._target is None:
            new = sum(ends[p] - start[p] for p in ends)
            waited_s = self._now_s() - self._batch_at_s
            if new < least and waited_s < self._options.max_trigger_delay_s:
                return begin
            self._batch_at_s = self._now_s()

        return limit_batch(start, ends, limit.max_rows) if isinstance(limit, ReadMaxRows) else ends

    def _where_batch_began(self, begin: Offsets, ends: Offsets) -> Offsets:
        """Return where a batch begins: `begin`, except for a first batch that failed.

        Spark asks this process again where the query began, and the answer "latest" is of today: no
        record of the planned batch is behind it. Where nobody has remembered the first place, the
        batch is read from as early as it can have begun. That may repeat records, and loses none.
        """
        if self._is_planning or self._initial is None or begin != self._initial:
            return begin
        forgotten = sorted(p for p in self._from_latest if p in begin and p in ends)
        if not forgotten:
            return begin

        # `maxOffsetsPerTrigger` bounds no guess: it may have been lowered since.
        first = self._log.earliest(forgotten)
        again = {p: min(first[p], ends[p]) for p in forgotten}
        logger.warning(
            "the query's first batch failed, and nobody knows where it began: reading it from %s, "
            "which may repeat records; with commit.group.id or initialOffsetsFile that is known",
            _shown(again),
        )
        return {**begin, **again}

    def _with_new(self, begin: Offsets, ends: Offsets) -> Offsets:
        """Return `begin` with the partitions that came since, at their earliest offsets."""
        new = ends.keys() - begin.keys()
        if not new:
            return begin
        earliest = self._log.earliest(new)
        return {**begin, **{p: min(earliest[p], ends[p]) for p in new}}

    def _check_added(self, begin: Offsets) -> None:
        """Raise DataLoss, or warn, for partitions that came since and do not begin at 0."""
        for partition, offset in sorted(begin.items()):
            if offset > 0:
                report_data_loss(
                    f"Added partition {partition} starts from {offset} instead of 0. Some data may "
                    "have been missed",
                    fail=self._options.fail_on_data_loss,
                )

    def _after_losses(self, begin: Offsets, ends: Offsets) -> tuple[Offsets, Offsets]:
        """Return where the batch ends, and where partitions that lost records are read on.

        The ends are never before `begin`, which a moment without a leader may look like. Raises
        DataLoss.
        """
        fail = self._options.fail_on_data_loss
        subscription = self._options.subscription

        # Partitions that are gone.
        gone = begin.keys() - ends.keys()
        for partition in gone:
            place = f"{partition} at offset {begin[partition]}"
            if subscription.includes(partition):
                loss = f"{place} no longer exists"
            else:
                loss = f"{place} is not in {subscription.option}, which has changed since"
            report_data_loss(loss, fail=fail)

        # A new leader may for a moment not know how far its log is committed.
        # With a fixed target a wait cannot help.
        patience_s = TRUNCATION_GRACE_S if self._target is None else 0.0
        now_s = self._now_s()
        self._truncated_since_s = {
            p: self._truncated_since_s.get(p, now_s) for p in find_behind(ends, begin)
        }
        shorter = [
            p for p, since_s in self._truncated_since_s.items() if now_s - since_s >= patience_s
        ]
        made_again = self._log.replaced(begin.keys() & ends.keys())
        if shorter:
            made_again |= self._log.made_again(shorter)
        for partition in shorter:
            why = "its last records have been lost"
            if partition in made_again:
                why = "its topic was deleted and created again"
            loss = (
                f"{partition} ends at offset {ends[partition]}, but was read up to "
                f"{begin[partition]}: {why}"
            )
            report_data_loss(loss, fail=fail)

        for partition in sorted(made_again.difference(shorter)):
            loss = f"the topic of {partition} was deleted and created again"
            report_data_loss(f"{loss} after offset {begin[partition]}", fail=fail)

        again: dict[TopicPartition, int] = {}
        # A place beyond the log's end would hide all that is written below it (fault core-R5).
        again |= self._places_after_loss(gone, shorter, made_again, begin, ends)
        return at_least(ends, begin), again

    def _places_after_loss(
        self,
        gone: Collection[TopicPartition],
        shorter: Collection[TopicPartition],
        made_again: set[TopicPartition],
        begin: Offsets,
        ends: Offsets,
    ) -> dict[TopicPartition, int]:
        """Return the start of logs whose topic was created again, and the end of others."""
        fewer = self._log.find_fewer(gone)
        if not shorter and not made_again and not fewer:
            return {}
        # One log tells it of the others, which may be longer by now (fault strangers-20).
        topics = {partition.topic for partition in made_again}
        # So does one that is gone (fault strangers-30).
        topics |= fewer
        others = {p for p in begin.keys() & ends.keys() if p.topic in topics} - made_again
        for partition in sorted(others.difference(shorter)):
            loss = f"the topic of {partition} was created again after offset {begin[partition]}"
            report_data_loss(loss, fail=self._options.fail_on_data_loss)
        made_again = made_again | others
        places = {p: ends[p] for p in shorter} | self._log.earliest(made_again)
        self._log.forget_replaced()
        return places


def _shown(place: Offsets) -> str:
    """Return a place for a log: ten thousand partitions would be a line that nobody reads."""
    first = dict(sorted(place.items())[:MOST_SHOWN])
    more = f" and {len(place) - len(first)} more partitions" if len(place) > len(first) else ""
    return f"{to_json(first)}{more}"
