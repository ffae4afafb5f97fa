"""A group's offsets as its coordinator keeps them, through the admin client: an `OffsetStore`."""

from collections.abc import Collection

import attrs

from clients.admin import Admin
from clients.errors import BrokerError, KgroupError
from offsets.store import CommitFailed, OffsetFetchFailed, Offsets
from protocol.errors import ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition


@attrs.frozen
class AdminStore:
    """For groups without members; the admin client tries again what can be tried again."""

    admin: Admin

    async def fetch(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Raises OffsetFetchFailed."""
        try:
            return await self.admin.group_offsets(group, partitions) if partitions else {}
        except KgroupError as error:
            raise OffsetFetchFailed(dict.fromkeys(partitions, str(error)), {}) from error

    async def commit(self, group: str, offsets: Offsets) -> None:
        """Raises CommitFailed, ClientError."""
        if not offsets:
            return
        try:
            await self.admin.commit_group_offsets(group, offsets)
            return
        except BrokerError as error:
            if error.code.retriable:
                raise CommitFailed(dict.fromkeys(offsets, error.code)) from error
        errors: dict[TopicPartition, ErrorCode] = {}
        for partition, offset in offsets.items():  # one of them was refused: which, and why?
            try:
                await self.admin.commit_group_offsets(group, {partition: offset})
            except BrokerError as error:
                errors[partition] = error.code
        if errors:
            raise CommitFailed(errors)
