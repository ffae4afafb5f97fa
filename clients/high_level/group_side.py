"""The seam between a connector and the side that keeps its group: ZooKeeper, or a coordinator."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from clients.high_level.delivery import StreamDelivery
from groups.zookeeper.registration import Subscription
from offsets.requests import Committer
from offsets.store import OffsetStore
from protocol.topic_partition import TopicPartition

LEAVE_S = 7.0
CLOSE_S = 1.0
"""A process that is asked to stop is usually killed after 10 s. A shutdown has LEAVE_S of these to
commit and to leave the group, and twice CLOSE_S to leave the side itself. The application's
listener may take longer."""


class GroupSide(Protocol):
    """The membership of one connector, from its start to its end."""

    consumer_id: str
    """The name of the member, with which the ids of its streams begin."""

    @property
    def store(self) -> OffsetStore:
        """The store of committed offsets. A start that failed may replace it."""

    def is_entitled(self) -> bool:
        """Return whether nobody else can have our partitions yet, by the clock."""

    def may_commit(self) -> bool:
        """Return whether a commit of our partitions cannot meet one of their next owner."""

    async def start(self) -> None:
        """Start what needs no membership: commits and offsets. Called until it succeeds."""

    async def wait_until_ready(self) -> None:
        """Wait until the group can be joined. Raises if that takes too long."""

    async def join(self, subscription: Subscription, delivery: StreamDelivery) -> None:
        """Join the group; return when the first rebalance has ended. After `leave` it raises."""

    def committer(self) -> Committer:
        """Return with which identity offsets are committed now."""

    def refuse_transactions(self) -> None:
        """Raise SettingError if offsets in transactions are not those that the group reads."""

    @property
    def has_member(self) -> bool:
        """True if `join` has come so far that there is a member, which goes on trying."""

    def background(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Return what runs beside the member."""

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that are ours."""

    async def leave(self) -> None:
        """Commit (if auto.commit.enable) and leave the group."""

    async def close(self) -> None:
        """Close the side's own connections."""

    def explain_loss(self) -> str:
        """Return why partitions were last lost, in the user's words; "" if that is not known."""

    @property
    def is_called_by_listener(self) -> bool:
        """True if the caller is the application's rebalance listener, or a task it has started."""
