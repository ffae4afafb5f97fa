"""Members of the other kind in a group: in ZooKeeper, or at the coordinator.

Both kinds share the id of the group and nothing else: neither sees the other's assignment, so each
partition would be consumed twice. A member looks before it joins, and refuses to start. Members of
the other kind that come later are named in a warning, once a minute while they are there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

import attrs

from clients.cluster import Cluster
from clients.errors import (
    BrokerError,
    ClientError,
    MembershipConflict,
    ZooKeeperError,
    left_out,
)
from clients.transport.connection import Connection
from groups.group_event import TWO_MEMBERSHIPS, GroupEvent
from protocol.api_key import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.frozen import frozen
from protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseGroup,
)

logger = logging.getLogger(__name__)

LOOK_INTERVAL_S = 60.0
LOOK_TIMEOUT_S = 5.0
"""A member that cannot look joins: to consume twice is less than not to consume."""
MAX_NAMED = 3
FIRST_VERSION_WITH_TAGS = 5


@frozen
class Kind:
    """A kind of membership, and how a sentence names its members."""

    setting: str
    place: str


ZOOKEEPER_KIND = Kind("zookeeper", "in ZooKeeper")
COORDINATOR_KIND = Kind("coordinator", "at its coordinator")


@attrs.define(eq=False)
class OtherKind:
    """Looks for members of `kind` in a group whose member is of another.

    `find` returns the names of such members; what it raises counts as none. `on_seen(sentence)` is
    called when the first of them is seen after a start without any.
    """

    group_id: str
    kind: Kind
    find: Callable[[], Awaitable[Sequence[str]]]
    on_seen: Callable[[str], None]

    async def refuse(self) -> None:
        """Look once. Raises MembershipConflict if there are members of the other kind."""
        members = await self._look()
        if members:
            raise MembershipConflict(
                f"{self._describe(members)}; stop them, or set membership={self.kind.setting}"
            )

    async def watch(self) -> None:
        """Look once a minute, for as long as the member lives."""
        were_seen = False
        while True:
            await asyncio.sleep(LOOK_INTERVAL_S)
            members = await self._look()
            if members:
                sentence = self._describe(members)
                logger.warning("%s", sentence)
                if not were_seen:
                    self.on_seen(sentence)
            were_seen = bool(members)

    async def _look(self) -> Sequence[str]:
        try:
            async with asyncio.timeout(LOOK_TIMEOUT_S):
                return await self.find()
        except (ClientError, ZooKeeperError, ApiError, TimeoutError) as error:
            logger.debug("group %s: no look at its members: %s", self.group_id, error)
            return ()

    def _describe(self, members: Sequence[str]) -> str:
        names = ", ".join(members[:MAX_NAMED])
        if len(members) > MAX_NAMED:
            names += f" and {len(members) - MAX_NAMED} more"
        return (
            f"group {self.group_id} has members {self.kind.place} too ({names}), so that its "
            "partitions would be consumed twice"
        )


def conflict_event(
    group_id: str, coordination: str, sentence: str, now_ms: int, generation: int | None = None
) -> GroupEvent:
    """Return the event of a group that has members of both kinds."""
    return GroupEvent(
        group=group_id,
        coordination=coordination,
        generation_before=generation,
        generation_after=generation,
        trigger=TWO_MEMBERSHIPS,
        reason=sentence,
        started_ms=now_ms,
        ended_ms=now_ms,
    )


async def find_members_at_coordinator(cluster: Cluster, group_id: str) -> Sequence[str]:
    """Return the members that the coordinator knows, as `client_id on host`.

    Raises ClientError, ApiError.
    """
    group = await _describe_group(cluster, group_id, include_zookeeper_members=False)
    return sorted(f"{member.client_id} on {member.client_host}" for member in group.members)


async def find_members_in_zookeeper(cluster: Cluster, group_id: str) -> Sequence[str]:
    """Return the ids that are registered in ZooKeeper. Raises ClientError, ApiError.

    Only our brokers say it; of others' groups there are none.
    """
    group = await _describe_group(cluster, group_id, include_zookeeper_members=True)
    return group.zookeeper_members


async def _describe_group(
    cluster: Cluster, group_id: str, *, include_zookeeper_members: bool
) -> DescribeGroupsResponseGroup:
    async def send(connection: Connection) -> DescribeGroupsResponseGroup:
        has_tags = connection.version_of(ApiKey.DESCRIBE_GROUPS) >= FIRST_VERSION_WITH_TAGS
        request = DescribeGroupsRequest(
            groups=[group_id], include_zookeeper_members=include_zookeeper_members and has_tags
        )
        response: DescribeGroupsResponse = await connection.call(request)
        for group in response.groups:
            if group.group_id == group_id:
                return group
        raise left_out(group_id)

    async def ask() -> DescribeGroupsResponseGroup:
        group = await cluster.ask_coordinator(group_id, send)
        code = ErrorCode.of(group.error_code)
        if code is not ErrorCode.NONE:
            cluster.forget_coordinator(group_id)
            raise BrokerError(code, f"members of group {group_id}", ApiKey.DESCRIBE_GROUPS)
        return group

    return await cluster.retrying(ask, f"members of group {group_id}")
