"""Commit a table of offsets to a group that has no members.

Tasks hand their rows to the driver, which commits all of them at once, or none. Without
`execute` it commits nothing, and logs what it would.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql.datasource import DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from protocol.frozen import frozen
from protocol.settings import SettingError
from protocol.special_values import EARLIEST_TIME, LATEST_TIME
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from spark_connector.group_offsets_options import OffsetsOptions
from spark_connector.log_offsets import Brokers, Connect, connect_admin

if TYPE_CHECKING:
    from clients.admin.descriptions import ListedOffset

logger = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]

_REQUIRED = ("topic", "partition", "offset")
_KNOWN = (*_REQUIRED, "group", "metadata")
_IGNORED = ("leaderEpoch", "logStartOffset", "logEndOffset", "lag", "timeLagMs", "error")
"""Columns of the table that is read, which say nothing of where a group is to be."""


class BadOffsets(ValueError):
    """The table cannot be committed; nothing of it was."""


@frozen
class OffsetRow:
    """A row: where a group is to go on in a partition."""

    group: str
    partition: TopicPartition
    offset: OffsetAndMetadata


@frozen
class OffsetRows(WriterCommitMessage):
    """The rows of one task."""

    rows: tuple[OffsetRow, ...]


class GroupOffsetsWriter(DataSourceWriter):
    """A writer that collects the rows, and commits them on the driver."""

    def __init__(
        self, options: OffsetsOptions, schema: StructType, *, connect: Connect = connect_admin
    ) -> None:
        self._options = options
        self._group = _group_of(options, schema)
        self._connect = connect

    def write(self, iterator: Iterator[Row]) -> OffsetRows:
        """Take the rows of one task. Raises BadOffsets."""
        return OffsetRows(tuple(self._read(row.asDict()) for row in iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit all rows, group by group. Raises BadOffsets, BrokerError, ClientError."""
        rows = [
            row for message in messages if isinstance(message, OffsetRows) for row in message.rows
        ]
        by_group = _by_group(rows)

        with closing(self._connect(self._options.client.cluster_settings)) as brokers:
            # Check every group before the first commit.
            plans = {group: _plan(brokers, group, by_group[group]) for group in sorted(by_group)}
            for group, lines in plans.items():
                if self._options.execute:
                    brokers.commit_group_offsets(group, by_group[group])
                verb = "committed" if self._options.execute else "would commit"
                for line in lines:
                    logger.warning("group %s: %s %s", group, verb, line)

        if by_group and not self._options.execute:
            logger.warning("nothing was committed: set the option execute to true")

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit nothing: a task has failed."""

    def _read(self, row: Mapping[str, Any]) -> OffsetRow:
        group = row.get("group") or self._group
        missing = [name for name in _REQUIRED if row.get(name) is None]
        if missing:
            raise BadOffsets(f"a row has no {missing[0]}: {dict(row)}")
        if not group:
            raise BadOffsets(f"a row names no group, and the option group is not set: {dict(row)}")

        partition = TopicPartition(row["topic"], row["partition"])
        if row["offset"] < 0:
            raise BadOffsets(f"{partition} of group {group} has offset {row['offset']}")
        # A leader epoch is of the offset and the cluster that it was read with: beside others it
        # takes the group back (fault strangers-61).
        committed = OffsetAndMetadata(row["offset"], row.get("metadata") or "")
        return OffsetRow(group, partition, committed)


def _group_of(options: OffsetsOptions, schema: StructType) -> str | None:
    """Return the group of all rows; None if each row names its own. Raises SettingError."""
    names = {name.lower() for name in schema.names}
    for name in _REQUIRED:
        if name not in names:
            raise SettingError(name, f"is no column: the table needs {', '.join(_REQUIRED)}")
    for name in schema.names:
        if name not in (*_KNOWN, *_IGNORED):
            raise SettingError(name, f"is no column of offsets; known are {', '.join(_KNOWN)}")

    if len(options.group) > 1:
        raise SettingError("group", "names several groups; a column group may do so")
    if not options.group and "group" not in names:
        raise SettingError("group", "is not set, and the table has no column group")
    return options.group[0] if options.group else None


def _by_group(rows: Sequence[OffsetRow]) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
    """Return group -> its offsets. Raises BadOffsets if a partition comes twice."""
    by_group: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
    for row in rows:
        offsets = by_group.setdefault(row.group, {})
        if row.partition in offsets:
            raise BadOffsets(f"{row.partition} of group {row.group} is there twice")
        offsets[row.partition] = row.offset
    return by_group


def _plan(brokers: Brokers, group: str, offsets: Offsets) -> list[str]:
    """Return a line for each partition that says what becomes of it. Raises BadOffsets."""
    members = brokers.describe_groups([group])[group].group.members
    if members:
        clients = ", ".join(sorted({member.client_id for member in members}))
        raise BadOffsets(
            f"group {group} has {len(members)} members ({clients}): stop them first, because they "
            "would overwrite what is committed"
        )

    # No consumer could go on outside of the log.
    starts = _list_offsets(brokers, group, offsets, EARLIEST_TIME)
    ends = _list_offsets(brokers, group, offsets, LATEST_TIME)
    for partition, new in sorted(offsets.items()):
        start, end = starts[partition], ends[partition]
        if not start.offset <= new.offset <= end.offset:
            raise BadOffsets(
                f"{partition} of group {group}: offset {new.offset} is not in the log, which has "
                f"{start.offset} to {end.offset}"
            )

    before = brokers.group_offsets(group, offsets)
    return [
        f"{partition}: {before[partition].offset if partition in before else 'nothing'} -> "
        f"{new.offset}"
        for partition, new in sorted(offsets.items())
    ]


def _list_offsets(
    brokers: Brokers, group: str, partitions: Iterable[TopicPartition], time_ms: int
) -> "Mapping[TopicPartition, ListedOffset]":
    """Return where logs begin or end. Raises BadOffsets for one that cannot be asked."""
    listed = brokers.list_offsets(dict.fromkeys(partitions, time_ms))
    # It was waited for, and is not waited for again to learn its end.
    for partition, offset in sorted(listed.items()):
        if error := offset.error:
            raise BadOffsets(f"{partition} of group {group}: {error.name}: {error.meaning}")
    return listed
