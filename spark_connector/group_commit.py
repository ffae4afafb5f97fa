"""Mirror a query's place in a group, for lag tools to see. Spark does not recover by it.

Spark's checkpoint is the truth, and overwrites the group's offsets. Three things make the mirror
more than a copy:

- A new query's first position is committed before anything is read, with the metadata `initial`.
  Spark stores it only when the first batch has succeeded. If that fails, Spark asks again where to
  begin, and "latest" would by then be behind records that nobody has read. As long as the group
  holds `initial`, the query begins there.
- A group without members loses its offsets some time after the last commit
  (`offsets.retention.minutes`), so an idle query commits the same place again and again.
- Another query, or somebody with a tool, may commit to the group; see foreign_commits.py.
"""

import logging
import secrets
from collections.abc import Callable, Collection, Mapping
from typing import NoReturn

import attrs

from clients.errors import KgroupError
from protocol.settings import SettingError
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from spark_connector.commit_metadata import (
    INITIAL,
    Run,
    find_newest_run,
    find_run,
    is_by_query,
    is_initial,
    make_metadata,
    start_run,
)
from spark_connector.foreign_commits import (
    GroupOffsets,
    find_ahead,
    find_foreign,
    find_moved_before,
)
from spark_connector.log_offsets import Brokers
from spark_connector.stream_offset import Offsets, find_behind

logger = logging.getLogger(__name__)

KEEP_ALIVE_S = 300.0
"""Time after which the same place is committed again."""
RETRY_S = 30.0
"""Time from a failed commit to the next; each may last as long as its timeout."""


class GroupMoved(Exception):
    """Someone else has committed to the query's group, and `onGroupReset` is fail or follow."""


@attrs.define(eq=False)
class GroupCommit:
    """The group to which a query commits its place; the group has no members."""

    brokers: Brokers
    group: str
    metadata: str
    now_s: Callable[[], float]
    now_ms: Callable[[], int]
    on_reset: str = "warn"
    failures: int = 0
    """Number of commits that failed."""

    # What was committed, as far as this process knows.
    _run: Run | None = attrs.field(init=False, default=None)
    """This process, from its first commit on."""
    _initial: Offsets | None = attrs.field(init=False, default=None)
    _place: Offsets | None = attrs.field(init=False, default=None)
    """The place that was last committed."""

    # How the last try ended, and when it began.
    _is_failing: bool = attrs.field(init=False, default=False)
    _tried_at_s: float = attrs.field(init=False, default=float("-inf"))

    def read_initial(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where an earlier run was to begin, if no batch of it has been committed since.

        That may have been another query, since abandoned. Reading from there again may repeat
        records, and loses none. Raises BrokerError, ClientError; SettingError if the group is in
        use.
        """
        self._require_no_members()
        offsets = self.brokers.group_offsets(self.group, partitions)

        # Any other metadata: a batch has been committed since, and Spark has its place.
        if not all(is_initial(committed.metadata) for committed in offsets.values()):
            return {}
        return {partition: committed.offset for partition, committed in offsets.items()}

    def read_reset(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where the group is if somebody who is no query has moved it, else nothing.

        One partition that was moved is enough: the others are where the last query was. Raises
        BrokerError, ClientError.
        """
        offsets = self.brokers.group_offsets(self.group, partitions)
        if all(is_by_query(committed.metadata, self.metadata) for committed in offsets.values()):
            return {}
        return {partition: committed.offset for partition, committed in offsets.items()}

    def begin(self, initial: Offsets) -> None:
        """Commit where a new query begins, before it reads anything. Raises as `read_initial`."""
        run = self._start_run(self.brokers.group_offsets(self.group, initial))
        self._initial = initial

        # An error is raised: without this commit a first batch that fails might lose records.
        metadata = make_metadata(INITIAL, run)
        records = {p: OffsetAndMetadata(offset, metadata) for p, offset in initial.items()}
        self.brokers.commit_group_offsets(self.group, records)
        self._place = initial
        self._tried_at_s = self.now_s()

    def mirror(self, place: Offsets) -> None:
        """Commit where the query is, if it has moved or a commit is due.

        A failure is logged and counted. Raises SettingError if the group is in use when the query
        starts, or another query has it; GroupMoved by `onGroupReset`.
        """
        # Seldom after a failure (a try delays a trigger), at a move, and to keep offsets alive.
        is_move = place != self._place
        if self._is_failing:
            wait_s = RETRY_S
        elif is_move:
            wait_s = 0.0
        else:
            wait_s = KEEP_ALIVE_S
        elapsed_s = self.now_s() - self._tried_at_s
        if elapsed_s < wait_s:
            return

        self._tried_at_s = self.now_s()
        try:
            committed_now = self._read(place)
            records = self._records(place, committed_now)

            # The listener on the driver may have been here first, at the end of the batch.
            if not (is_move and records.items() <= committed_now.items()):
                self.brokers.commit_group_offsets(self.group, records)
        except SettingError:
            # The group is in use: that is for the user, and no retry helps.
            raise
        except KgroupError as error:
            # The group is a mirror only: a query does not fail for it.
            self._is_failing = True
            self.failures += 1
            logger.warning(
                "group %s: commit failed (%d so far): %s", self.group, self.failures, error
            )
        else:
            self._is_failing = False
            self._place = place

    def mirror_no_less(self, place: Offsets) -> None:
        """Commit `place` unless that would move the group back: Spark reports it one batch late."""
        if self._place is None or not find_behind(place, self._place):
            self.mirror(place)

    def _read(self, place: Offsets) -> GroupOffsets:
        """Read the group, and check that nobody else has it or has moved it. Raises as `mirror`."""
        # Somebody may have joined while the query was stopped.
        if self._place is None:
            self._require_no_members()
        committed_now = self.brokers.group_offsets(self.group, place)

        # The first commit of this process: whatever run is there may be its predecessor.
        if self._run is None or self._place is None:
            self._report_moved(find_moved_before(self.metadata, place, committed_now))
            if ahead := find_ahead(self.metadata, place, committed_now):
                self._warn_of(ahead, "is ahead of Spark's checkpoint")
            self._start_run(committed_now)
            return committed_now

        foreign = find_foreign(self._run, self._place, place, committed_now)
        if foreign.earlier is not None:
            self._refuse(self._run, foreign.earlier)
        if foreign.later is not None:
            logger.warning(
                "group %s: another query (run %s) has come to the group of this one (run %s); "
                "overwriting its place, so that it ends",
                self.group,
                foreign.later,
                self._run,
            )
        self._report_moved(foreign.moved)
        return committed_now

    def _start_run(self, committed_now: GroupOffsets) -> Run:
        if self._run is None:
            before = find_newest_run(committed.metadata for committed in committed_now.values())
            self._run = start_run(self.now_ms(), secrets.token_hex(4), before)
        return self._run

    def _records(self, place: Offsets, committed_now: GroupOffsets) -> GroupOffsets:
        """Return what to commit; what is there of this run stays, which may name the batch."""
        # The mark stays until the query has moved.
        text = INITIAL if place == self._initial else self.metadata
        metadata = make_metadata(text, self._run)

        records = {p: OffsetAndMetadata(offset, metadata) for p, offset in place.items()}
        for partition, committed in committed_now.items():
            is_there = committed.offset == place[partition]
            is_marked = is_initial(committed.metadata) == (text == INITIAL)
            if is_there and is_marked and find_run(committed.metadata) == self._run:
                records[partition] = committed
        return records

    def _report_moved(self, moved: Mapping[TopicPartition, int | None]) -> None:
        """Warn, or raise GroupMoved, if someone else has moved the group."""
        if not moved:
            return
        if self.on_reset not in ("fail", "follow"):
            self._warn_of(moved, "was moved by someone else")
            return

        advice = {
            "fail": "Spark's checkpoint cannot follow, and onGroupReset is fail",
            "follow": "delete the checkpoint and start the query again: it will begin at the "
            "group's offsets (onGroupReset is follow)",
        }[self.on_reset]
        raise GroupMoved(f"{self._describe(moved)} was moved by someone else; {advice}")

    def _warn_of(self, places: Mapping[TopicPartition, int | None], what: str) -> None:
        text = f"{self._describe(places)} {what}"
        logger.warning("%s; overwriting it with the place in Spark's checkpoint", text)

    def _describe(self, places: Mapping[TopicPartition, int | None]) -> str:
        partition = min(places)
        offset = "no offset" if places[partition] is None else f"offset {places[partition]}"
        more = f" (and {len(places) - 1} more partitions)" if len(places) > 1 else ""
        return f"group {self.group}: {partition} at {offset}{more}"

    def _refuse(self, own: Run, other: Run) -> NoReturn:
        raise SettingError(
            "commit.group.id",
            f"group {self.group} is that of another query (run {other}), which was there before "
            f"this one (run {own}): stop one of them, or give it a group of its own",
        )

    def _require_no_members(self) -> None:
        group = self.brokers.describe_groups([self.group])[self.group].group
        if group.members:
            clients = ", ".join(sorted({member.client_id for member in group.members}))
            raise SettingError(
                "commit.group.id",
                f"group {self.group} has {len(group.members)} members ({clients}); "
                "a query needs a group of its own",
            )
