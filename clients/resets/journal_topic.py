"""The journal of resets in the compacted topic `__kgroup_journal`."""

from collections.abc import Sequence
from typing import Any

import attrs

from clients.admin import EARLIEST_TIME, LATEST_TIME, Admin, ConfigResource, NewTopic
from clients.errors import BrokerError, UnsupportedApi
from clients.fetching import FetchedPartition
from clients.producer.producer import Producer
from clients.resets.journal_entry import Record
from clients.simple_consumer import FetchRequest, SimpleConsumer
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.internal_topics import JOURNAL_TOPIC, OFFSETS_TOPIC

FETCH_BYTES = 4 << 20
WAIT_MS = 500
DEFAULT_REPLICATION = 3
REPLICATION_SETTING = "offsets.topic.replication.factor"


@frozen
class JournalTopic:
    """The topic, through the settings of an admin client. Calls raise KgroupError."""

    admin: Admin
    name: str = JOURNAL_TOPIC

    async def exists(self) -> bool:
        """Return whether the topic is there."""
        # All topics are listed: old brokers create a topic that is asked for by its name.
        return self.name in await self.admin.list_topics(internal=True)

    async def create(self) -> None:
        """Create the topic, unless another command has just done so."""
        replicas = await self._find_replication()
        topic = NewTopic(self.name, 1, replicas, configs={"cleanup.policy": "compact"})
        error = (await self.admin.create_topics([topic]))[self.name]
        if error is not None and error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise error

    async def read(self) -> list[Record]:
        """Return all records, the oldest first."""
        records: list[Record] = []
        async with await SimpleConsumer.for_leader(self._settings, self.name, 0) as consumer:
            offset = await consumer.earliest_or_latest_offset(self.name, 0, EARLIEST_TIME)
            end = await consumer.earliest_or_latest_offset(self.name, 0, LATEST_TIME)
            while offset < end:
                request = FetchRequest(self.name, 0, offset, FETCH_BYTES)
                fetched = await consumer.fetch(request, max_wait_ms=WAIT_MS, min_bytes=1)
                fetched.raise_for_error()
                records += _texts(fetched)
                offset = fetched.next_offset
        return records

    async def append(self, records: Sequence[Record]) -> None:
        """Write records, and return when all replicas in sync have them."""
        config = self.admin.config
        times_ms = max(config.default_api_timeout_ms, config.request_timeout_ms)
        async with Producer(
            self._settings, acks="all", max_block_ms=times_ms, delivery_timeout_ms=times_ms
        ) as producer:
            for key, value in records:
                content = None if value is None else value.encode()
                await producer.send_and_wait(self.name, content, key=key.encode(), partition=0)

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
