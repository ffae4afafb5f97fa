"""The states of a group, and which may follow which."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class GroupState(Enum):
    """A state, under the name that ListGroups and DescribeGroups give it.

    `=>` names the state that may follow. A group that is deleted, expired or unloaded is gone, and
    in no state.
    """

    EMPTY = "Empty"
    """No members. Offsets may be there, and member ids that were handed out.

    A member joins => PREPARING_REBALANCE
    """

    PREPARING_REBALANCE = "PreparingRebalance"
    """Members have to join again. Their JoinGroup requests are parked until all of them have.

    All have joined, or the rebalance timeout is over => COMPLETING_REBALANCE
    ... and no member is left => EMPTY
    """

    COMPLETING_REBALANCE = "CompletingRebalance"
    """A generation has begun. SyncGroup requests are parked until the leader's is written.

    The assignments are written => STABLE
    They cannot be written, or are late, or the members change => PREPARING_REBALANCE
    """

    STABLE = "Stable"
    """Every member has its assignment.

    The members, or what they subscribe to, change => PREPARING_REBALANCE
    """


NEXT_STATES: Mapping[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.STABLE, GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE}),
}
