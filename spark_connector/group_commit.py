"""Mirror a query's place in a group, for lag tools to see. Spark does not recover by it.

Spark's checkpoint is the truth, and overwrites the group's offsets. Two things make the mirror more
than a copy:

- A new query's first position is committed before anything is read, with the metadata `initial`.
  Spark stores it only when the first batch has succeeded. If that fails, Spark asks again where to
  begin, and "latest" would by then be behind records that nobody has read. As long as the group
  holds `initial`, the query begins there.
- A group without members loses its offsets some time after the last commit
  (`offsets.retention.minutes`), so an idle query commits the same place again and again.
"""

import logging
from collections.abc import Callable, Collection, Mapping

import attrs

from clients.errors import KgroupError
from protocol.settings import SettingError
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from spark_connector.log_offsets import Brokers
from spark_connector.options import INITIAL
from spark_connector.stream_offset import Offsets, find_behind

logger = logging.getLogger(__name__)

KEEP_ALIVE_S = 300.0
"""Time after which the same place is committed again."""
RETRY_S = 30.0
"""Time from a failed commit to the next; each may last as long as its timeout."""

GroupOffsets = Mapping[TopicPartition, OffsetAndMetadata]


class GroupMoved(Exception):
    """Someone else has committed to the query's group, and `onGroupReset` is fail."""


@attrs.define(eq=False)
class GroupCommit:
    """The group to which a query commits its place; the group has no members."""

    brokers: Brokers
    group: str
    metadata: str
    now_s: Callable[[], float]
    fail_on_reset: bool = False
    failures: int = 0
    """Number of commits that failed."""

    # What was committed, as far as this process knows.
    _initial: Offsets | None = None
    _place: Offsets | None = None
    """The place that was last committed."""
    _ours: tuple[GroupOffsets, GroupOffsets] = attrs.field(init=False, factory=lambda: ({}, {}))
    """The last commit that certainly succeeded, and the last one tried, which may have."""

    # How the last try ended, and when it began.
    _is_failing: bool = False
    _tried_at_s: float = float("-inf")

    def read_initial(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where an earlier run was to begin, if no batch of it has been committed since.

        That may have been another query, since abandoned. Reading from there again may repeat
        records, and loses none. Raises BrokerError, ClientError; SettingError if the group is in
        use.
        """
        self._require_no_members()
        offsets = self.brokers.group_offsets(self.group, partitions)

        # Any other metadata: a batch has been committed since, and Spark has its place.
        if any(committed.metadata != INITIAL for committed in offsets.values()):
            return {}
        return {partition: committed.offset for partition, committed in offsets.items()}

    def begin(self, initial: Offsets) -> None:
        """Commit where a new query begins, before it reads anything. Raises as `read_initial`."""
        self._initial = initial
        records = self._records(initial)

        # An error is raised: without this commit a first batch that fails might lose records.
        self.brokers.commit_group_offsets(self.group, records)
        self._place = initial
        self._ours = (records, records)
        self._tried_at_s = self.now_s()

    def mirror(self, place: Offsets) -> None:
        """Commit where the query is, if it has moved or a commit is due.

        A failure is logged and counted. Raises SettingError if the group is in use when the query
        starts, GroupMoved if `fail_on_reset`.
        """
        # Seldom after a failure (a try delays a trigger), at a move, and to keep offsets alive.
        if self._is_failing:
            wait_s = RETRY_S
        elif place != self._place:
            wait_s = 0.0
        else:
            wait_s = KEEP_ALIVE_S
        elapsed_s = self.now_s() - self._tried_at_s
        if elapsed_s < wait_s:
            return

        self._tried_at_s = self.now_s()
        records = self._records(place)
        try:
            self._require_ours(place)

            # Note it before the commit: without a response it may still have succeeded.
            self._ours = (self._ours[0], records)
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
            self._ours = (records, records)

    def mirror_no_less(self, place: Offsets) -> None:
        """Commit `place` unless that would move the group back: Spark reports it one batch late."""
        if self._place is None or not find_behind(place, self._place):
            self.mirror(place)

    def _records(self, place: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
        # The mark stays until the query has moved.
        metadata = INITIAL if place == self._initial else self.metadata
        return {
            partition: OffsetAndMetadata(offset, metadata) for partition, offset in place.items()
        }

    def _require_ours(self, place: Offsets) -> None:
        """Warn, or raise GroupMoved, if someone else has moved the group."""
        # The first commit of this process: somebody may have joined while the query was stopped.
        if self._place is None:
            self._require_no_members()
        committed_now = self.brokers.group_offsets(self.group, place)
        if not (moved := self._find_moved(place, committed_now)):
            return

        partition, was = next(iter(moved.items()))
        now = committed_now.get(partition)
        text = (
            f"group {self.group}: someone else changed the offset of {partition} from {was} to "
            f"{'nothing' if now is None else now.offset} ({len(moved)} partitions in all)"
        )
        if self.fail_on_reset:
            raise GroupMoved(f"{text}; Spark's checkpoint cannot follow (onGroupReset is fail)")
        logger.warning("%s; overwriting it with the place in Spark's checkpoint", text)

    def _find_moved(self, place: Offsets, committed_now: GroupOffsets) -> dict[TopicPartition, int]:
        """Return partition -> our offset, for those that are not as we left them."""
        # An earlier run of the query has committed nothing beyond `place`.
        if self._place is None:
            return {
                partition: place[partition]
                for partition, committed in committed_now.items()
                if committed.offset > place[partition]
            }

        # A commit whose response was lost may stand: its offset is ours too.
        certain, tried = self._ours
        return {
            partition: ours.offset
            for partition, ours in certain.items()
            if partition in place
            and committed_now.get(partition) not in (ours, tried.get(partition))
        }

    def _require_no_members(self) -> None:
        group = self.brokers.describe_groups([self.group])[self.group].group
        if group.members:
            clients = ", ".join(sorted({member.client_id for member in group.members}))
            raise SettingError(
                "commit.group.id",
                f"group {self.group} has {len(group.members)} members ({clients}); "
                "a query needs a group of its own",
            )
