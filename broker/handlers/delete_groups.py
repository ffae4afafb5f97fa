"""DeleteGroups: forget groups without members; answered once that is replicated.

Each group has an error of its own. The empty name is a group like any other, as it may commit.
"""

from __future__ import annotations

from broker.network.dispatch import RequestContext
from broker.network.purgatory import Wait
from broker.replication.partition_waits import WATERMARK
from groups.coordinator.coordinator import GroupCoordinator, Pending
from offsets.topic import offsets_partition
from protocol.errors import ApiError, ErrorCode
from protocol.messages.delete_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteGroupsResponseResult,
)


def handle(
    coordinator: GroupCoordinator, request: DeleteGroupsRequest, context: RequestContext
) -> DeleteGroupsResponse | Wait:
    """Delete what is coordinated here."""
    pending: dict[str, Pending] = {}
    refused: dict[str, ErrorCode] = {}
    for group_id in dict.fromkeys(request.groups_names):
        try:
            pending[group_id] = coordinator.delete_group(group_id)
        except ApiError as error:
            refused[group_id] = error.code

    def answer(expired: bool) -> DeleteGroupsResponse | None:
        errors = {group_id: deletion.error for group_id, deletion in pending.items()}
        if None in errors.values() and not expired:
            return None
        results = [
            DeleteGroupsResponseResult(
                group_id=group_id,
                error_code=ErrorCode.REQUEST_TIMED_OUT if error is None else error,
            )
            for group_id, error in (refused | errors).items()
        ]
        return DeleteGroupsResponse(results=results)

    return answer(False) or Wait(
        keys=tuple({(WATERMARK, offsets_partition(each.partition)) for each in pending.values()}),
        timeout_ms=coordinator.config.commit_timeout_ms,
        try_complete=answer,
    )
