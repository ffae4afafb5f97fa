"""Failures of a member of a group in ZooKeeper."""

from protocol.errors import KgroupError


class ConsumerRebalanceFailed(KgroupError):
    """The first rebalance did not end within rebalance.max.retries; the member keeps trying."""


class MalformedMember(ConsumerRebalanceFailed):
    """A registration that nobody can read stops every member, on the JVM too, from rebalancing.

    The message names the node to remove. The member keeps what it owned, and keeps trying.
    """


class ConsumerIdInUse(KgroupError):
    """Another living member of the group has our consumer id; this one has not joined."""


class StrategyConflict(KgroupError):
    """Other members' partition.assignment.strategy conflicts with ours; this one has not joined."""


class MembershipLost(KgroupError):
    """A member's ZooKeeper session was closed under it.

    It has left the group for good, and committed nothing.
    """
