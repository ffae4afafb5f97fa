"""All records of a partition, as our simple consumer reads them."""

from clients.admin import LATEST_TIME, Admin
from clients.fetch_requests import Isolation
from clients.simple_consumer import FetchRequest, SimpleConsumer
from protocol.records.batch import Record
from protocol.topic_partition import TopicPartition


async def contents(
    bootstrap: str,
    partition: TopicPartition,
    offset: int = 0,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    **security: str,
) -> list[Record]:
    """The records from an offset to the end there is now, for readers of this isolation."""
    records: list[Record] = []
    settings = {"bootstrap.servers": bootstrap, **security}
    async with (
        Admin(settings) as admin,
        await SimpleConsumer.for_leader(settings, *partition) as consumer,
    ):
        latest = await admin.list_offsets({partition: LATEST_TIME}, isolation=isolation)
        end = latest[partition].offset
        while offset < end:
            fetched = await consumer.fetch(FetchRequest(*partition, offset), isolation=isolation)
            assert fetched.next_offset > offset, fetched.error
            records += fetched
            offset = fetched.next_offset
    return records
