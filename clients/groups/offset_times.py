"""Read the times of committed offsets: of the commit, its expiry, and the first record behind it.

Neither is in a coordinator's responses. Commits and expiries are in `__consumer_offsets`, the times
of records in the logs. What may not be read is left out, and named in `unread`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import attrs

from clients.admin import Admin, ConfigResource
from clients.command_line.missing_rights import error_of_reading
from clients.command_line.output import Failure
from clients.errors import BrokerError, KgroupError
from clients.groups.group_facts import GroupFacts, LogOffsets, OffsetTimes
from clients.groups.lag import next_offset
from clients.groups.offset_expiry import deleted_at_ms, expires_at_ms
from clients.groups.partition_rounds import partition_rounds
from offsets.topic import offsets_partition
from protocol.errors import ErrorCode
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from clients.groups.recorded_groups import RecordedGroups

T = TypeVar("T")

RETENTION_MINUTES = "offsets.retention.minutes"
MINUTE_MS = 60_000
NO_LIMIT = -1
"""retention.bytes of a topic without a limit."""

FirstTimes = dict[tuple[TopicPartition, int], int]
"""(partition, offset) -> timestamp of the first record from there on."""
Retentions = dict[tuple[str, int | None], tuple[str, int]]
"""(topic, id of the broker that leads) -> cleanup.policy and retention.ms."""
Times = Mapping[str, Mapping[TopicPartition, OffsetTimes]]
"""Group -> partition -> times."""


@attrs.define(eq=False)
class TimeReader:
    """Reads the times for one command.

    `size_bound` gets the topics whose records retention.bytes may delete before their time, and
    `compacted` those of which compaction may.
    """

    admin: Admin
    groups: Sequence[GroupFacts]
    logs: Mapping[TopicPartition, LogOffsets]
    isolation: int = 0
    unread: list[Failure] = attrs.field(factory=list)
    size_bound: set[str] = attrs.field(factory=set)
    compacted: set[str] = attrs.field(factory=set)

    async def read(self, *, records: bool, logs: bool, retention: bool) -> Times:
        """Return the times of all partitions of the groups for which there are logs.

        `records`: of commits and expiries. `logs`: of the first records behind commits.
        `retention`: of their deletion.
        """
        leaders = self.admin.cluster.view.leaders
        recorded, expiry_ms, first, deletions = await asyncio.gather(
            self._read_records() if records else _nothing(None),
            self._read_expiry() if records else _nothing(dict[int, int]()),
            self._read_first() if logs else _nothing(FirstTimes()),
            self._read_retention(leaders) if retention else _nothing(Retentions()),
        )
        return {
            group.group: {
                partition: _times(
                    group,
                    partition,
                    next_offset(group.current_offset(partition), self.logs[partition]),
                    recorded,
                    expiry_ms,
                    first,
                    deletions.get((partition.topic, leaders.get(partition))),
                )
                for partition in group.partitions & self.logs.keys()
            }
            for group in self.groups
        }

    async def _read_records(self) -> RecordedGroups | None:
        """Read what `__consumer_offsets` has of the groups with offsets at a coordinator."""
        # Most tables need no record, so their commands do not wait for the decoder.
        from clients.groups.group_records import read_group_records

        ids = [g.group for g in self.groups if g.coordinator is not None and g.coordinator.offsets]
        if not ids:
            return None
        try:
            records = await read_group_records(self.admin, ids)
        except KgroupError as error:
            self._leave_out(OFFSETS_TOPIC, error, error_of_reading(OFFSETS_TOPIC, error))
            return None
        for partition_id, error_of_one in records.errors.items():
            self._leave_out(str(offsets_partition(partition_id)), error_of_one)
        return records

    async def _read_expiry(self) -> dict[int, int]:
        """Return offsets.retention.minutes, in ms, of each coordinator."""
        brokers = {
            group.coordinator.coordinator_id
            for group in self.groups
            if group.coordinator is not None and group.coordinator.offsets
        }
        settings = await self._settings([ConfigResource.broker(broker) for broker in brokers])
        return {
            int(resource.name): int(values[RETENTION_MINUTES]) * MINUTE_MS
            for resource, values in settings.items()
            if RETENTION_MINUTES in values
        }

    async def _read_retention(self, leaders: Mapping[TopicPartition, int]) -> Retentions:
        """Return cleanup.policy and retention.ms of each topic, as each of its leaders has them."""
        led: dict[int | None, set[str]] = {}
        for partition, log in self.logs.items():
            if log.end is not None:
                # A topic without its own has the broker's (fault strangers-70, was: None).
                leader = leaders.get(partition)
                led.setdefault(leader, set()).add(partition.topic)
        parts = await asyncio.gather(*(self._retention_at(*item) for item in led.items()))
        return {key: retention for part in parts for key, retention in part.items()}

    async def _retention_at(self, broker: int | None, topics: Collection[str]) -> Retentions:
        resources = [ConfigResource.topic(topic) for topic in sorted(topics)]
        settings = await self._settings(resources, at=broker)
        for resource, values in settings.items():
            policy = values.get("cleanup.policy", "")
            if "delete" in policy and int(values.get("retention.bytes", NO_LIMIT)) != NO_LIMIT:
                self.size_bound.add(resource.name)
            # (fault strangers-90).
            if "compact" in policy:
                self.compacted.add(resource.name)
        return {
            (resource.name, broker): (values["cleanup.policy"], int(values["retention.ms"]))
            for resource, values in settings.items()
            if "cleanup.policy" in values and "retention.ms" in values
        }

    async def _settings(
        self, resources: Collection[ConfigResource], at: int | None = None
    ) -> Mapping[ConfigResource, Mapping[str, str]]:
        """Return settings by name. Brokers before 0.11 tell none, and others not to everybody."""
        if not resources:
            return {}
        described = await self.admin.describe_each_config(resources, at=at)
        settings = {
            resource: {config.name: config.value for config in configs if config.value is not None}
            for resource, configs in described.items()
            if not isinstance(configs, KgroupError)
        }

        # One remark for all of them. A topic that was deleted meanwhile has no times.
        errors = [
            result
            for result in described.values()
            if isinstance(result, KgroupError) and not _is_of_deleted(result)
        ]
        if errors:
            self._leave_out("settings", errors[0])
        return settings

    async def _read_first(self) -> FirstTimes:
        """Read the logs from where groups will go on."""
        places = [
            (partition, offset)
            for group in self.groups
            for partition in group.partitions & self.logs.keys()
            if (offset := next_offset(group.current_offset(partition), self.logs[partition]))
            is not None
            and offset < (self.logs[partition].end or 0)
        ]
        first: FirstTimes = {}
        if not places:
            return first

        from clients.first_timestamps import may_not_read, read_first_records

        refused: set[TopicPartition] = set()
        for asked in partition_rounds(places):
            try:
                found = await read_first_records(self.admin.cluster, asked, self.isolation)
            except KgroupError as error:
                self._leave_out("logs", error, missing="lags in time")
                break
            times = found.timestamps
            first |= {(partition, asked[partition]): at_ms for partition, at_ms in times.items()}
            refused |= found.refused

        for refusal in may_not_read(refused):
            # "-" is what has no lag, too (fault strangers-49).
            self._leave_out("logs", refusal, missing="lags in time")
        return first

    def _leave_out(
        self, what: str, error: Exception, text: str = "", missing: str = "times"
    ) -> None:
        reason = f"cannot be read, so {missing} are missing: {text or error}"
        failure = attrs.evolve(Failure.of(what, error), message=reason)
        # Several brokers may refuse the same.
        if failure not in self.unread:
            self.unread.append(failure)


def _is_of_deleted(error: KgroupError) -> bool:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return isinstance(error, BrokerError) and error.code is unknown


def _times(
    group: GroupFacts,
    partition: TopicPartition,
    offset: int | None,
    recorded: RecordedGroups | None,
    expiry_ms: Mapping[int, int],
    first: FirstTimes,
    deletion: tuple[str, int] | None,
) -> OffsetTimes:
    """Put together what was read of one partition."""
    committed_ms = -1
    expiry_of_offset_ms = None
    if recorded is not None:
        record = recorded.of(group.group)
        if partition in record.offsets:
            committed_ms = record.offsets[partition].committed_at_ms

        # ZooKeeper keeps offsets for ever; what is left in Kafka beside one does not count.
        if group.coordinator is not None and group.winner(partition) != "zookeeper":
            retention_ms = expiry_ms.get(group.coordinator.coordinator_id)
            expiry_of_offset_ms = expires_at_ms(group.coordinator, record, partition, retention_ms)

    next_ms = None if offset is None else first.get((partition, offset))
    return OffsetTimes(
        committed_at_ms=None if committed_ms < 0 else committed_ms,
        expires_at_ms=expiry_of_offset_ms,
        next_record_ms=next_ms,
        deleted_at_ms=None
        if next_ms is None or deletion is None
        else deleted_at_ms(next_ms, *deletion),
    )


async def _nothing(value: T) -> T:
    return value
