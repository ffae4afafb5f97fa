"""Gather the facts about `__consumer_offsets` that `offsets_topic_verdict` judges.

Partitions are read whole, one after the other: memory is that of the keys of one partition, and
the time that it takes is about what a coordinator needs to load it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import attrs

from clients.admin import (
    EARLIEST_TIME,
    LATEST_TIME,
    Admin,
    ConfigResource,
    ListedOffset,
    LogDirDescription,
)
from clients.cluster_view import PartitionView
from clients.command_line.missing_rights import error_of_reading
from clients.command_line.output import Failure
from clients.errors import (
    BrokerError,
    ConnectionFailed,
    DeadlineExceeded,
    KgroupError,
    UnsupportedApi,
)
from clients.fetch_requests import Isolation
from clients.groups.group_records import read_partitions
from clients.watching.offsets_tally import PartitionTally
from clients.watching.offsets_topic_verdict import (
    GroupTally,
    PartitionFacts,
    TopicFacts,
    size_text,
)
from offsets.topic import offsets_partition
from protocol.errors import ErrorCode
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.records.corrupt_record import CorruptRecord
from protocol.topic_partition import TopicPartition

SAMPLE_MS = 60_000

Offsets = Mapping[TopicPartition, ListedOffset]


@attrs.define(eq=False)
class OffsetsTopicReading:
    """A reading of the topic; while it lasts its fields say how far it is."""

    admin: Admin
    sample_ms: int = SAMPLE_MS
    """Commits of so long a time, up to the newest one, are counted."""
    count: int = 0
    read: int = 0
    """Partitions that have been read, of `count`."""
    failures: list[Failure] = attrs.field(factory=list)
    """What could not be asked; the rest is judged without it."""
    tally: PartitionTally = attrs.field(factory=PartitionTally)
    """That of the partition that is being read."""
    silent: dict[int, str] = attrs.field(factory=dict)
    """Brokers that did not respond, and why."""
    _read_bytes: int = 0
    _keys: Counter[str] = attrs.field(factory=Counter)
    _commits: Counter[str] = attrs.field(factory=Counter)

    @property
    def progress(self) -> str:
        """Say in words how far it is."""
        size = size_text(self._read_bytes + self.tally.size_bytes)
        return f"{OFFSETS_TOPIC}: {self.read} of {self.count} partitions, {size}"

    async def gather(self) -> TopicFacts | None:
        """Return the facts; None if there is no such topic. Raises KgroupError."""
        try:
            described = await self.admin.describe_topics([OFFSETS_TOPIC])
        except BrokerError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return None
            if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise BrokerError(error.code, error_of_reading(OFFSETS_TOPIC, error)) from None
            raise
        views = dict(sorted(described[OFFSETS_TOPIC].partitions.items()))
        self.count = len(views)
        brokers = [broker.node_id for broker in (await self.admin.describe_cluster()).brokers]

        # Brokers are asked all at once.
        sizes, settings, broker_settings = await asyncio.gather(
            self._sizes(brokers),
            self._settings(OFFSETS_TOPIC, ConfigResource.topic(OFFSETS_TOPIC)),
            self._settings_of_brokers(brokers),
        )

        # Partitions without a leader, or with one that hangs, would only be waited for.
        led = [
            offsets_partition(number)
            for number, view in views.items()
            if view.leader >= 0 and view.leader not in self.silent
        ]
        starts, ends, stable = await asyncio.gather(
            self.admin.list_offsets(dict.fromkeys(led, EARLIEST_TIME)),
            self.admin.list_offsets(dict.fromkeys(led, LATEST_TIME)),
            self.admin.list_offsets(
                dict.fromkeys(led, LATEST_TIME), isolation=Isolation.READ_COMMITTED
            ),
        )
        open_since = await self.admin.first_timestamps(
            {tp: stable[tp].offset for tp in led if 0 <= stable[tp].offset < ends[tp].offset}
        )
        commits_since_ms = await self._sample_start(starts, ends)

        now_ms = time.time_ns() // 1_000_000
        young_since_ms = now_ms - int(settings.get("min.compaction.lag.ms", 0))
        partitions = [
            await self._read(
                number,
                view,
                PartitionTally(commits_since_ms, young_since_ms),
                log_start=_offset(starts, offsets_partition(number)),
                log_end=_offset(ends, offsets_partition(number)),
                replica_bytes=sizes.get(offsets_partition(number)),
                open_since_ms=open_since.get(offsets_partition(number)),
            )
            for number, view in views.items()
        ]

        return TopicFacts(
            partitions,
            {name: GroupTally(keys, self._commits[name]) for name, keys in self._keys.items()},
            brokers,
            settings,
            broker_settings,
            now_ms,
            self.sample_ms,
            self.silent,
        )

    async def _read(
        self, number: int, view: PartitionView, tally: PartitionTally, **known: Any
    ) -> PartitionFacts:
        """Read a partition that has a leader, and return what there is and what is `known`."""
        self.tally = tally
        began = time.monotonic()
        if view.leader >= 0 and view.leader not in self.silent:
            await read_partitions(self.admin, [number], tally)
        read_ms = int((time.monotonic() - began) * 1000)

        self._keys.update(tally.keys_by_group())
        self._commits.update(tally.commits_by_group())
        self._read_bytes += tally.size_bytes
        self.tally = PartitionTally()
        self.read += 1
        failure = tally.errors.get(number)
        return PartitionFacts(
            number,
            view.leader,
            view.replicas,
            view.isr,
            read_bytes=tally.size_bytes,
            clean_bytes=tally.clean_bytes,
            young_bytes=tally.young_bytes,
            records=tally.records,
            keys=tally.keys,
            repeated_since_ms=tally.repeated_since_ms,
            last_written_ms=tally.last_written_ms,
            read_ms=read_ms,
            error=self.silent.get(view.leader)
            if failure is None
            else error_of_reading(OFFSETS_TOPIC, failure),
            is_damaged=isinstance(failure, CorruptRecord),
            **known,
        )

    async def _sample_start(self, starts: Offsets, ends: Offsets) -> int | None:
        """Return the start of the sample, which ends with the newest record of all.

        So the rate is right whatever this machine's clock shows.
        """
        last = {
            partition: end.offset - 1
            for partition, end in ends.items()
            if end.offset > starts[partition].offset >= 0
        }
        times = await self.admin.first_timestamps(last)
        return max(times.values()) - self.sample_ms if times else None

    async def _settings(self, owner: str, resource: ConfigResource) -> dict[str, str]:
        """Return the settings of an owner; none if they cannot be told."""
        try:
            configs = await self.admin.describe_configs([resource])
        except UnsupportedApi:
            return {}
        except KgroupError as error:
            self.failures.append(Failure.of(f"settings of {owner}", error))
            return {}
        return {entry.name: entry.value for entry in configs[resource] if entry.value is not None}

    async def _settings_of_brokers(self, brokers: list[int]) -> dict[int, dict[str, str]]:
        settings = await asyncio.gather(
            *(self._settings(f"broker {id}", ConfigResource.broker(id)) for id in brokers)
        )
        return dict(zip(brokers, settings, strict=True))

    async def _sizes(self, brokers: list[int]) -> dict[TopicPartition, int]:
        """Return the size of each partition's largest replica, where brokers tell it."""
        sizes: dict[TopicPartition, int] = {}
        for directories in await asyncio.gather(*map(self._log_dirs, brokers)):
            for directory in directories.values():
                for partition, replica in directory.replicas.items():
                    if partition.topic == OFFSETS_TOPIC and not replica.is_future:
                        sizes[partition] = max(sizes.get(partition, 0), replica.size_bytes)
        return sizes

    async def _log_dirs(self, broker: int) -> Mapping[str, LogDirDescription]:
        """Return the log directories of a broker; none if it does not tell them."""
        try:
            return await self.admin.describe_log_dirs(broker)
        except UnsupportedApi:
            return {}
        except KgroupError as error:
            # Over the time of the call the connection failed again and again.
            cause = error.__cause__ if isinstance(error, DeadlineExceeded) else error
            if isinstance(cause, ConnectionFailed):
                self.silent[broker] = str(cause)
            self.failures.append(Failure.of(f"log directories of broker {broker}", error))
            return {}


def _offset(offsets: Offsets, partition: TopicPartition) -> int | None:
    listed = offsets.get(partition)
    return None if listed is None or listed.error else listed.offset
