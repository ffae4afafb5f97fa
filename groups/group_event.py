"""An event of the topic `__group_events`: one rebalance of a group, as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from protocol.frozen import frozen

VERSION = 1
COORDINATOR = "coordinator"
ZOOKEEPER = "zookeeper"
TWO_MEMBERSHIPS = "two_memberships"
"""The trigger of an event that is no rebalance: the group has members of both kinds."""


@frozen(kw_only=True)
class GroupEvent:
    """A rebalance. Times are in ms of the wall clock, None where nobody knows.

    - `coordination`: where the members register, COORDINATOR or ZOOKEEPER.
    - `generation_before`, `generation_after`: None for groups in ZooKeeper, which have none.
    - `trigger`: the cause in one word; `inferred` if no client has said it.
    - `member_id`, `client_id`, `reason`: the member that caused it, and what it said.
    - `members_added`, `members_gone`, `members_kept`: member ids, sorted.
    - `late`: the members for which the others waited, the latest first.
    - `partitions_moved`, `partitions_kept`: numbers of partitions with another and the same owner.
    """

    group: str
    coordination: str
    generation_before: int | None = None
    generation_after: int | None = None
    trigger: str
    member_id: str | None = None
    client_id: str | None = None
    reason: str | None = None
    started_ms: int
    ended_ms: int
    members_added: Sequence[str] = ()
    members_gone: Sequence[str] = ()
    members_kept: Sequence[str] = ()
    late: Sequence[Mapping[str, Any]] = ()
    partitions_moved: int | None = None
    partitions_kept: int | None = None
    inferred: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the fields of the JSON object."""
        return {"version": VERSION, **attrs.asdict(self)}
