"""An `OffsetStore` that keeps a group's offsets at its coordinator, through the admin client."""

from collections.abc import Collection

from clients.admin import Admin
from clients.errors import BrokerError, KgroupError
from offsets.store import Offsets
from offsets.store_errors import CommitFailed, OffsetFetchFailed
from protocol.frozen import frozen
from protocol.topic_partition import OffsetAndMetadata, TopicPartition


@frozen
class AdminStore:
    """Offsets of groups without members. The admin client retries what can be retried."""

    admin: Admin

    async def fetch(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Raises OffsetFetchFailed."""
        try:
            return await self.admin.group_offsets(group_id, partitions) if partitions else {}
        except KgroupError as error:
            raise OffsetFetchFailed(dict.fromkeys(partitions, str(error)), {}) from error

    async def commit(self, group_id: str, offsets: Offsets) -> None:
        """Raises CommitFailed, ClientError."""
        if not offsets:
            return

        try:
            verdicts = await self.admin.alter_group_offsets(group_id, offsets)
        except BrokerError as error:
            raise CommitFailed(dict.fromkeys(offsets, error.code)) from error

        # Who restores offsets has to know all that are missing (fault tool-F12, was: {}).
        errors = {partition: error.code for partition, error in verdicts.items() if error}
        if errors:
            raise CommitFailed(errors)
