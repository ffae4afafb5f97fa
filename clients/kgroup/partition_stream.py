"""A stream of one partition without a group: Kafka's `--partition` and `--offset`.

Nothing is registered or committed. The stream follows the partition's leader.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self

import attrs
import click

from clients.command_line.isolation_option import LEVELS
from clients.command_line.output import Target
from clients.command_line.sessions import bootstrap_of, client_settings
from clients.errors import ConsumerTimeout
from clients.fetch_requests import Isolation
from clients.kgroup.formatter import Headers
from clients.simple_consumer import EARLIEST_TIME, LATEST_TIME, FetchRequest, SimpleConsumer
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.settings import SettingError, convert

MAX_WAIT_MS = 500
NAMED_TIMES = {
    "earliest": EARLIEST_TIME,
    "latest": LATEST_TIME,
    str(EARLIEST_TIME): EARLIEST_TIME,
    str(LATEST_TIME): LATEST_TIME,
}
# Eighteen digits fit 64 bits.
OFFSET = re.compile("[0-9]{1,18}")

FETCH_SIZE = "fetch.message.max.bytes"
RECEIVE_BUFFER = "socket.receive.buffer.bytes"

ISOLATION = "isolation.level"

_CONSUMER_SETTINGS = {
    "auto.offset.reset",
    "consumer.timeout.ms",
    "zookeeper.connect",
    FETCH_SIZE,
    ISOLATION,
}
"""Settings of a group's members that the client does not know; the command line has used them."""


@frozen
class Place:
    """The partition and where to begin: a timestamp of ListOffsets, or an offset."""

    topic: str
    partition: int
    time: int | None
    offset: int
    max_bytes: int
    isolation: Isolation
    settings: Mapping[str, Any]
    """Settings of the client."""

    @classmethod
    def of(cls, topic: str, partition: int, begin: str, client_settings: Mapping[str, str]) -> Self:
        """Parse `begin` from the command line. Raises UsageError, SettingError."""
        time = NAMED_TIMES.get(begin.lower())
        if time is None and not OFFSET.fullmatch(begin):
            raise click.UsageError(f"--offset {begin!r} is not earliest, latest or an offset")

        max_bytes = convert(FETCH_SIZE, client_settings.get(FETCH_SIZE, 1_048_576), int)

        # The protocol's field has 32 bits.
        if not 1 <= max_bytes < 1 << 31:
            raise SettingError(FETCH_SIZE, f"{max_bytes} is not between 1 and {(1 << 31) - 1}")

        level = client_settings.get(ISOLATION, "read_uncommitted")
        if level not in LEVELS:
            raise SettingError(ISOLATION, f"{level} is not one of {', '.join(LEVELS)}")

        # The simple consumer has other names for the settings of a group's members.
        settings = {
            "receive.buffer.bytes" if name == RECEIVE_BUFFER else name: value
            for name, value in client_settings.items()
            if name not in _CONSUMER_SETTINGS
        }

        offset = 0 if time else int(begin)
        isolation = Isolation[level.upper()]
        return cls(topic, partition, time, offset, max_bytes, isolation, settings)


@frozen
class PartitionMessage:
    """A message as formatters print it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@asynccontextmanager
async def partition_stream(
    target: Target, place: Place, idle_s: float | None
) -> AsyncIterator["PartitionStream"]:
    """Open the stream for the block. Raises BrokerError, ClientError, SettingError."""
    # Addresses and timeouts of the command outrank the user's settings.
    settings = {**place.settings, **client_settings(target, await bootstrap_of(target))}
    async with await SimpleConsumer.for_leader(settings, place.topic, place.partition) as consumer:
        offset = place.offset
        if place.time is not None:
            offset = await consumer.earliest_or_latest_offset(
                place.topic, place.partition, place.time, isolation=place.isolation
            )

        yield PartitionStream(consumer, place, offset, idle_s)


@attrs.define(eq=False)
class PartitionStream:
    """An endless stream. Raises ConsumerTimeout when no message arrived for `idle_s`."""

    consumer: SimpleConsumer
    place: Place
    offset: int
    idle_s: float | None
    _fetched: deque[PartitionMessage] = attrs.field(init=False, factory=deque)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PartitionMessage:
        """Return the next message. Raises BrokerError if the offset is not in the log."""
        now = asyncio.get_running_loop().time
        deadline = None if self.idle_s is None else now() + self.idle_s
        max_bytes = self.place.max_bytes

        # Fetches may bring nothing: a quiet partition, or batches that hold markers alone.
        while not self._fetched:
            left_ms = MAX_WAIT_MS if deadline is None else round((deadline - now()) * 1000)
            if left_ms <= 0:
                raise ConsumerTimeout
            max_bytes = await self._fetch(min(MAX_WAIT_MS, left_ms), max_bytes)

        return self._fetched.popleft()

    async def _fetch(self, max_wait_ms: int, max_bytes: int) -> int:
        """Fetch once. Returns the size for the next fetch if this one brought no message."""
        topic = self.place.topic
        partition = self.place.partition
        fetched = await self.consumer.fetch(
            FetchRequest(topic, partition, self.offset, max_bytes),
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            isolation=self.place.isolation,
        )
        # A broker from before KIP-74 refuses a fetch that is smaller than the message.
        if fetched.error is ErrorCode.INVALID_FETCH_SIZE and max_bytes < 1 << 30:
            return 2 * max_bytes

        for offset, timestamp_ms, key, value, headers in fetched.rows:
            self._fetched.append(
                PartitionMessage(
                    *(topic, partition, offset, timestamp_ms, fetched.timestamp_type),
                    *(key, value, tuple(headers)),
                )
            )

        # Past what was fetched, and past what compaction removed.
        self.offset = fetched.next_offset

        # Messages before an error are handed out first; the next fetch raises it again.
        if not self._fetched:
            fetched.raise_for_error()
        return max_bytes
