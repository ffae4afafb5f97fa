"""The lag of a group, for programs."""

from clients.admin import Admin
from clients.command_line.sessions import Sessions
from clients.errors import BrokerError
from clients.groups.group_reader import GroupReader
from clients.groups.lag import Lag, lag_of
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition


async def lag(admin: Admin, group_id: str, *, isolation: int = 0) -> dict[TopicPartition, Lag]:
    """Return the lag of a group at its coordinator, for each partition that it owns or committed.

    With an isolation of 1 (read_committed) it is counted to the last stable offset. The lag of a
    partition that cannot be read is None. Raises BrokerError for a group that does not exist, and
    what `Admin.describe_groups` raises.
    """
    await admin.describe_groups([group_id])
    reader = GroupReader(Sessions(admin, None), isolation=isolation)
    facts = await reader.group(group_id)
    if not facts.exists:
        raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, group_id)

    logs = await reader.logs_of([facts])
    return {
        partition: lag_of(facts.current_offset(partition), log) for partition, log in logs.items()
    }
