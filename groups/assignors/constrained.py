"""The sticky assignment of members with equal subscriptions, which Kafka calls constrained.

Of P partitions and n members, P % n members get P // n + 1 partitions and the others P // n. Which
members get more is decided in favour of those that own more already. No other balanced assignment
moves fewer partitions, and none needs more than sorting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from protocol.java_order import java_order
from protocol.topic_partition import TopicPartition

Shares = dict[str, list[TopicPartition]]


def share_evenly(
    partitions: Sequence[TopicPartition], owned_by: Mapping[str, Sequence[TopicPartition]]
) -> Shares:
    """Share out all `partitions`, sorted by topic and number, among the members in `owned_by`.

    `owned_by` has what each member owns. A share begins with what the member keeps.
    """
    quota, extra = divmod(len(partitions), len(owned_by))

    shares = _keep_owned(owned_by, quota, extra)
    kept = {partition for share in shares.values() for partition in share}
    unassigned = [partition for partition in partitions if partition not in kept]
    _fill(shares, unassigned, quota)

    return shares


def _keep_owned(owned_by: Mapping[str, Sequence[TopicPartition]], quota: int, extra: int) -> Shares:
    """Leave each member what it owns up to its quota; the first `extra` may keep one more."""
    shares: Shares = {}
    for member_id, owned in owned_by.items():
        # By number before topic: what is above the quota is taken from all topics alike.
        ordered = sorted(owned, key=lambda partition: (partition.partition, partition.topic))

        keeps_more = len(ordered) > quota and extra > 0
        extra -= keeps_more
        shares[member_id] = ordered[: quota + keeps_more]
    return shares


def _fill(shares: Shares, unassigned: Sequence[TopicPartition], quota: int) -> None:
    """Deal out what is left: in turn to members below the quota, then one to each at the quota."""
    ordered = sorted(shares, key=java_order)
    below = deque(member_id for member_id in ordered if len(shares[member_id]) < quota)
    at_quota = deque(member_id for member_id in ordered if len(shares[member_id]) == quota)

    for partition in unassigned:
        member_id = below.popleft() if below else at_quota.popleft()
        shares[member_id].append(partition)

        # A member that reaches its quota may be among those that get one more.
        if len(shares[member_id]) < quota:
            below.append(member_id)
        elif len(shares[member_id]) == quota:
            at_quota.append(member_id)
