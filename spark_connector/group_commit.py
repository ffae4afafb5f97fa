"""The group as the mirror of a query's place: for lag tools to see, not for Spark to recover by.

Spark's checkpoint is the truth; what the group holds is overwritten with it. Two things make the
mirror more than a copy:

- A new query's first position is committed before anything is read, with the metadata `initial`.
  Spark stores it only when the first batch has succeeded. If that fails, Spark asks again where to
  begin, and "latest" would by then be behind records nobody has read. While `initial` is the
  newest record of the group, it is the answer.
- A group without members forgets its offsets some time after the last commit
  (`offsets.retention.minutes`), so that an idle query commits the same place again and again.
"""

import logging
from collections.abc import Callable, Collection, Mapping

import attrs

from clients.errors import KgroupError
from protocol.settings import SettingError
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from spark_connector.log_offsets import Brokers
from spark_connector.options import INITIAL
from spark_connector.stream_offset import Offsets, behind

logger = logging.getLogger(__name__)

KEEP_ALIVE_S = 300.0
"""How long the same place goes without another commit."""
RETRY_S = 30.0
"""How long after a failure the next commit is tried: each may last as long as its time-out."""

Committed = Mapping[TopicPartition, OffsetAndMetadata]


class GroupMoved(Exception):
    """Someone else committed to the query's group, and `onGroupReset` is fail."""


@attrs.define(eq=False)
class GroupCommit:
    """Commits a query's place to `group`, as a group without members."""

    brokers: Brokers
    group: str
    metadata: str
    now_s: Callable[[], float]
    fail_on_reset: bool = False
    failures: int = 0
    """Commits that failed."""
    _initial: Offsets | None = None
    _place: Offsets | None = None
    """What was last committed, or tried to be."""
    _ours: tuple[Committed, Committed] = attrs.field(init=False, factory=lambda: ({}, {}))
    """The last commit known to have succeeded and the last tried, which may have."""
    _failing: bool = False
    _tried_at_s: float = float("-inf")

    def stored_initial(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where an earlier run was to begin, if no batch of it has been committed since.

        It may be the run of another query that was given up. Reading from there again may repeat
        records and loses none. Raises BrokerError, ClientError; SettingError if the group is in
        use.
        """
        self._require_no_members()
        held = self.brokers.group_offsets(self.group, partitions)
        if any(committed.metadata != INITIAL for committed in held.values()):
            return {}
        return {partition: committed.offset for partition, committed in held.items()}

    def begin(self, initial: Offsets) -> None:
        """Commit where a new query begins. Raises as `stored_initial`: nothing is read yet."""
        self._initial = initial
        records = self._records(initial)
        self.brokers.commit_group_offsets(self.group, records)
        self._place, self._ours = initial, (records, records)
        self._tried_at_s = self.now_s()

    def mirror(self, place: Offsets) -> None:
        """Commit where the query is, if that is news or is due again.

        A failure is logged and counted. Raises SettingError if at a query's start the group is in
        use, GroupMoved if asked to by `fail_on_reset`.
        """
        elapsed_s = self.now_s() - self._tried_at_s
        wait_s = RETRY_S if self._failing else 0.0 if place != self._place else KEEP_ALIVE_S
        if elapsed_s < wait_s:
            return
        self._tried_at_s = self.now_s()
        records = self._records(place)
        try:
            self._require_ours(place)
            self._ours = (self._ours[0], records)
            self.brokers.commit_group_offsets(self.group, records)
        except SettingError:
            raise
        except KgroupError as error:
            self._failing = True
            self.failures += 1
            logger.warning(
                "group %s: commit failed (%d so far): %s", self.group, self.failures, error
            )
        else:
            self._failing = False
            self._place, self._ours = place, (records, records)

    def mirror_no_less(self, place: Offsets) -> None:
        """Commit `place` unless that would move the group back: Spark says it one batch late."""
        if self._place is None or not behind(place, self._place):
            self.mirror(place)

    def _records(self, place: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
        metadata = INITIAL if place == self._initial else self.metadata
        return {p: OffsetAndMetadata(offset, metadata) for p, offset in place.items()}

    def _require_ours(self, place: Offsets) -> None:
        if self._place is None:
            self._require_no_members()
        held = self.brokers.group_offsets(self.group, place)
        if not (moved := self._moved(place, held)):
            return
        partition, was = next(iter(moved.items()))
        found = held.get(partition)
        text = (
            f"group {self.group}: someone else changed the offset of {partition} from {was} to "
            f"{'nothing' if found is None else found.offset} ({len(moved)} partitions in all)"
        )
        if self.fail_on_reset:
            raise GroupMoved(f"{text}; Spark's checkpoint cannot follow (onGroupReset is fail)")
        logger.warning("%s; overwriting it with the place in Spark's checkpoint", text)

    def _moved(self, place: Offsets, held: Committed) -> dict[TopicPartition, int]:
        """What is not as we left it. Of an earlier run we know that it was not before `place`."""
        if self._place is None:
            return {p: place[p] for p, found in held.items() if found.offset > place[p]}
        committed, tried = self._ours
        return {
            p: ours.offset
            for p, ours in committed.items()
            if p in place and held.get(p) not in (ours, tried.get(p))
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
