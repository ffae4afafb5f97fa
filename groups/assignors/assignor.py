"""The contract of an assignor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum

from groups.assignors.claims import Claim
from groups.assignors.members import MemberSubscription
from protocol.consumer_protocol import Assignment
from protocol.frozen import frozen

PartitionCounts = Mapping[str, int]
"""Number of partitions of each topic. A topic that is not known is not in it."""

Assignments = dict[str, Assignment]
"""The assignment of every member, by its id. A member may have no partitions."""


class RebalanceProtocol(IntEnum):
    """The way in which members join a rebalance (KIP-429).

    With EAGER they release everything before they join. With COOPERATIVE they keep what they own,
    and join again after they have released what the assignment takes from them.
    """

    EAGER = 0
    COOPERATIVE = 1


@frozen
class Assignor:
    """An assignor, under its name on the wire.

    `assign(partition_counts, members)` shares out the partitions of the subscribed topics. The
    result depends on its arguments alone; the order of members may decide between equal choices.

    `user_data(claim)` makes the bytes that a member puts into its subscription. `claim` is the
    member's last assignment; None before the first.
    """

    name: str
    assign: Callable[[PartitionCounts, Sequence[MemberSubscription]], Assignments]
    user_data: Callable[[Claim | None], bytes | None]
    protocols: tuple[RebalanceProtocol, ...] = (RebalanceProtocol.EAGER,)


def make_no_user_data(claim: Claim | None) -> bytes | None:
    """Return no user data, for assignors that only look at topics."""
    return None
