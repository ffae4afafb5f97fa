"""The journal of resets in the compacted topic `__kgroup_journal`."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import attrs

from clients.admin import EARLIEST_TIME, LATEST_TIME, Admin, ConfigResource, NewTopic
from clients.command_line.missing_rights import may_describe_topic
from clients.errors import BrokerError, KgroupError, UnsupportedApi
from clients.fetching import FetchedPartition
from clients.producer.producer import Producer
from clients.resets.journal_entry import Record
from clients.simple_consumer import FetchRequest, SimpleConsumer
from protocol.errors import ErrorCode
from protocol.internal_topics import JOURNAL_TOPIC, OFFSETS_TOPIC

FETCH_BYTES = 4 << 20
WAIT_MS = 500
DEFAULT_REPLICATION = 3
REPLICATION_SETTING = "offsets.topic.replication.factor"


@attrs.define(eq=False)
class JournalTopic:
    """The topic, through the settings of an admin client. Calls raise KgroupError.

    A command reads and appends for each of its groups: with `keeps_clients` those of this topic
    stay open until the admin client is closed.
    """

    admin: Admin
    name: str = JOURNAL_TOPIC
    keeps_clients: bool = True
    _clients: AsyncExitStack = attrs.field(init=False, factory=AsyncExitStack)
    _is_there: bool = attrs.field(init=False, default=False)
    _consumer: SimpleConsumer | None = attrs.field(init=False, default=None)
    _producer: Producer | None = attrs.field(init=False, default=None)

    async def exists(self) -> bool:
        """Return whether the topic is there. Raises BrokerError for one that may not be seen."""
        # All topics for each group would be many times many (fault scale-C2).
        if self._is_there:
            return True

        # All topics are listed: old brokers create a topic that is asked for by its name.
        self._is_there = self.name in await self.admin.list_topics(internal=True)
        if not self._is_there and not await may_describe_topic(self.admin, self.name):
            raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, self.name)
        return self._is_there

    async def create(self) -> None:
        """Create the topic, unless another command has just done so."""
        replicas = await self._find_replication()
        topic = NewTopic(self.name, 1, replicas, configs={"cleanup.policy": "compact"})
        error = (await self.admin.create_topics([topic]))[self.name]
        if error is not None and error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise error

    async def read(self, start: int = 0) -> tuple[list[Record], int]:
        """Return the records from an offset on, the oldest first, and the offset behind them."""
        async with self._opened():
            try:
                return await self._read(await self._reader(), start)
            except KgroupError as error:
                if not error.retriable:
                    raise
                # Another broker may lead by now.
                self._consumer = None
                return await self._read(await self._reader(), start)

    async def append(self, records: Sequence[Record]) -> None:
        """Write records, and return when all replicas in sync have them."""
        async with self._opened():
            producer = await self._writer()
            for key, value in records:
                content = None if value is None else value.encode()
                await producer.send_and_wait(self.name, content, key=key.encode(), partition=0)

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[None]:
        """Close the clients behind the block, or with the admin client."""
        is_first = self._consumer is None and self._producer is None
        if self.keeps_clients and is_first:
            self.admin.kept.push_async_callback(self._close)
        try:
            yield
        finally:
            if not self.keeps_clients:
                await self._close()

    async def _close(self) -> None:
        self._consumer = self._producer = None
        await self._clients.aclose()

    async def _writer(self) -> Producer:
        if self._producer is None:
            config = self.admin.config
            times_ms = max(config.default_api_timeout_ms, config.request_timeout_ms)
            self._producer = await self._clients.enter_async_context(
                Producer(
                    self._settings, acks="all", max_block_ms=times_ms, delivery_timeout_ms=times_ms
                )
            )
        return self._producer

    async def _reader(self) -> SimpleConsumer:
        if self._consumer is None:
            consumer = await SimpleConsumer.for_leader(self._settings, self.name, 0)
            self._consumer = await self._clients.enter_async_context(consumer)
        return self._consumer

    async def _read(self, consumer: SimpleConsumer, start: int) -> tuple[list[Record], int]:
        records: list[Record] = []
        offset = start or await consumer.earliest_or_latest_offset(self.name, 0, EARLIEST_TIME)
        end = await consumer.earliest_or_latest_offset(self.name, 0, LATEST_TIME)
        while offset < end:
            request = FetchRequest(self.name, 0, offset, FETCH_BYTES)
            fetched = await consumer.fetch(request, max_wait_ms=WAIT_MS, min_bytes=1)
            fetched.raise_for_error()
            records += _texts(fetched)
            offset = fetched.next_offset
        return records, offset

    @property
    def _settings(self) -> dict[str, Any]:
        fields = attrs.asdict(self.admin.config, recurse=False)
        return {name: value for name, value in fields.items() if value is not None}

    async def _find_replication(self) -> int:
        """Return the number of replicas of the offsets topic, or as many as that would have."""
        cluster, topics = await self.admin.describe_all()
        if OFFSETS_TOPIC in topics:
            return len(topics[OFFSETS_TOPIC].partitions[0].replicas)

        # That topic is created with the first group.
        resource = ConfigResource.broker(cluster.brokers[0].node_id)
        try:
            settings = (await self.admin.describe_configs([resource]))[resource]
        except (BrokerError, UnsupportedApi):
            # Old brokers do not tell their settings, and not every client may read them.
            settings = ()
        wanted = {setting.name: setting.value for setting in settings}.get(REPLICATION_SETTING)
        return min(int(wanted or DEFAULT_REPLICATION), len(cluster.brokers))


def _texts(fetched: FetchedPartition) -> list[Record]:
    """Return keys and values as text; what is not UTF-8 is no entry, and is refused when read."""
    return [
        (
            (record.key or b"").decode("utf-8", "replace"),
            None if record.value is None else record.value.decode("utf-8", "replace"),
        )
        for record in fetched.records
    ]
