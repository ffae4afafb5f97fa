"""DeleteGroups: delete groups without members; the response waits until that is replicated.

Each group has an error of its own. The empty name is a group like any other, as it may commit.
Many groups are deleted a slice in each turn of the event loop.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from broker.network.authorization import group
from broker.network.deferred import Deferred
from broker.network.dispatch import Outcome
from broker.network.pending_responses import respond_when_done
from broker.network.request_context import RequestContext, authorize
from groups.coordinator.coordinator import GroupCoordinator
from groups.coordinator.responses import Done
from groups.runtime.runtime import Pending
from protocol.acls import Operation
from protocol.errors import ApiError, ErrorCode
from protocol.messages.delete_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteGroupsResponseResult,
)

SLICE_GROUPS = 100
SLICE_OFFSETS = 1_000
"""A turn deletes so many groups, or offsets; the last group of a turn may have more."""


def handle(
    coordinator: GroupCoordinator,
    deferred: Deferred,
    request: DeleteGroupsRequest,
    context: RequestContext,
) -> Outcome:
    """Delete the groups that are coordinated here."""
    # A group that is named twice is deleted once.
    deletion = _Deletion(coordinator, context, list(dict.fromkeys(request.groups_names)))
    timeout_ms = coordinator.config.commit_timeout_ms
    return deferred.respond_in_turns(deletion.go_on, timeout_ms, deletion.end_late)


@attrs.define(eq=False)
class _Deletion:
    """The groups of one request: those that are left, those begun, those that were refused."""

    coordinator: GroupCoordinator
    context: RequestContext
    left: list[str]
    pending: dict[str, Pending] = attrs.field(factory=dict)
    refused: dict[str, ErrorCode] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        # The next one is taken from the end.
        self.left.reverse()

    def go_on(self) -> Outcome | None:
        """Delete a slice of the groups; return the outcome when all are begun."""
        offsets = 0
        # The others of this turn have their requests in between (fault groups-8, was: 0).
        end = max(len(self.left) - SLICE_GROUPS, 0)
        while len(self.left) > end and offsets < SLICE_OFFSETS:
            offsets += self._delete(self.left.pop())
        if self.left:
            return None

        # One response, when all deletions have ended.
        late = Done(ErrorCode.REQUEST_TIMED_OUT)
        timeout_ms = self.coordinator.config.commit_timeout_ms
        return respond_when_done([*self.pending.values()], timeout_ms, late, self._render)

    def end_late(self) -> Outcome:
        """Say of each group what is known; deletions that are begun still end."""
        late = ErrorCode.REQUEST_TIMED_OUT
        self.refused.update(dict.fromkeys(self.left, late))
        return self._render(
            [
                Done(late) if pending.response is None else pending.response
                for pending in self.pending.values()
            ]
        )

    def _delete(self, group_id: str) -> int:
        """Begin to delete a group; return the number of records that this writes."""
        if not authorize(self.context, Operation.DELETE, group(group_id)):
            self.refused[group_id] = ErrorCode.GROUP_AUTHORIZATION_FAILED
            return 0
        try:
            pending = self.pending[group_id] = self.coordinator.delete_group(group_id)
        except ApiError as error:
            self.refused[group_id] = error.code
            return 0
        return pending.written

    def _render(self, responses: Sequence[Done]) -> DeleteGroupsResponse:
        deleted = {
            group_id: response.error
            for group_id, response in zip(self.pending, responses, strict=True)
        }
        return DeleteGroupsResponse(
            results=[
                DeleteGroupsResponseResult(group_id=group_id, error_code=error)
                for group_id, error in (self.refused | deleted).items()
            ]
        )
