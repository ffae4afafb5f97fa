"""The members that groups have in ZooKeeper, for members at the coordinator that ask for them.

A group of one id may have members of both kinds. Neither kind sees the other's assignment, so each
partition would be consumed twice. A member at the coordinator has no ZooKeeper of its own to look.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import attrs

from broker.network.deferred import Deferred
from broker.network.dispatch import Outcome
from broker.network.purgatory import Wait
from zk.api import NoNode, ZkError, ZkSession
from zk.znodes import ConsumerGroup

logger = logging.getLogger(__name__)

MAX_GROUPS = 100
"""Groups that are looked up for one request; the others have no members in its response."""
MAX_MEMBERS = 20
"""Members of a group that a response names."""

ZooKeeperMemberIds = Mapping[str, Sequence[str]]


@attrs.define(eq=False)
class ZooKeeperMembers:
    """The members below `/consumers`. A client waits at most `timeout_ms`."""

    zk: ZkSession
    deferred: Deferred
    timeout_ms: int

    def find(
        self, group_ids: Sequence[str], render: Callable[[ZooKeeperMemberIds], Outcome]
    ) -> Wait:
        """Read; `render` makes the response from the members of each group that has some."""

        async def read() -> Outcome:
            members: dict[str, Sequence[str]] = {}
            try:
                for group_id in group_ids[:MAX_GROUPS]:
                    if found := await self._read(group_id):
                        members[group_id] = found
            except ZkError as error:
                # The rest of the response is worth having.
                logger.info("cannot look for members of groups in ZooKeeper: %s", error)
            return render(members)

        return self.deferred.respond(read(), self.timeout_ms, lambda: render({}))

    async def _read(self, group_id: str) -> Sequence[str]:
        if not ConsumerGroup.can_hold(group_id):
            return ()
        try:
            member_ids, _ = await self.zk.children(ConsumerGroup.ids_path(group_id))
        except NoNode:
            return ()
        return sorted(member_ids)[:MAX_MEMBERS]
