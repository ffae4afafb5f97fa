"""Who leads a partition, and who is in sync: Kafka's rules, on values.

The four selectors name the leader that Kafka's PartitionLeaderElectionAlgorithms would, or None
when nobody can lead. `first_state` is for a partition that never had a leader, `next_state` for one
whose replicas came or went; both return the state to write, or None when there is nothing to
change. Each change raises the leader epoch by one, because brokers ignore a LeaderAndIsr whose
epoch they have seen.

The in-sync set is never emptied: who is in it has every committed record, so when all of them
are gone the partition waits for one of them (leader -1), unless its topic allows an unclean
election, which loses what only they had.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

import attrs

from broker.controller.state import NO_LEADER
from zk.znodes import PartitionState

# --- selectors -----------------------------------------------------------------------------


def offline_leader(
    replicas: Sequence[int], isr: Container[int], live: Container[int], *, unclean: bool
) -> int | None:
    """After a failure: the first live replica in sync; if `unclean`, else any live one."""
    clean = reassigned_leader(replicas, isr, live)
    return (
        next((each for each in replicas if each in live), None)
        if unclean and clean is None
        else clean
    )


def reassigned_leader(
    target: Sequence[int], isr: Container[int], live: Container[int]
) -> int | None:
    """In a reassignment: the first of its target that is live and in sync."""
    return next((each for each in target if each in live and each in isr), None)


def preferred_leader(
    replicas: Sequence[int], isr: Container[int], live: Container[int]
) -> int | None:
    """The first replica, and no other."""
    return reassigned_leader(replicas[:1], isr, live)


def shutdown_leader(
    replicas: Sequence[int],
    isr: Container[int],
    live: Container[int],
    shutting_down: Container[int],
) -> int | None:
    """The first in sync of those that will stay. `live` may have those that will not."""
    staying = [each for each in replicas if each not in shutting_down]
    return reassigned_leader(staying, isr, live)


# --- states --------------------------------------------------------------------------------


def first_state(
    replicas: Sequence[int], live: Container[int], controller_epoch: int
) -> PartitionState | None:
    """The first assigned replica that is live leads; all live ones start in sync."""
    isr = tuple(replica for replica in replicas if replica in live)
    if not isr:
        return None
    return PartitionState(leader=isr[0], leader_epoch=0, isr=isr, controller_epoch=controller_epoch)


def next_state(
    current: PartitionState,
    replicas: Sequence[int],
    live: Container[int],
    controller_epoch: int,
    *,
    unclean: bool = False,
) -> PartitionState | None:
    """What the state becomes now that the brokers in `live` are there and no others."""
    leader, isr = _leader_and_isr(current, replicas, live, unclean)
    if (leader, isr) == (current.leader, tuple(current.isr)):
        return None
    return under_next_epoch(current, leader, isr, controller_epoch)


def under_next_epoch(
    current: PartitionState, leader: int, isr: Sequence[int], controller_epoch: int
) -> PartitionState:
    """The state with this leader and in-sync set, which every replica will take for news."""
    return attrs.evolve(
        current,
        leader=leader,
        leader_epoch=current.leader_epoch + 1,
        isr=tuple(isr),
        controller_epoch=controller_epoch,
    )


def only_unclean(current: PartitionState, replicas: Sequence[int], live: Container[int]) -> bool:
    """Whether a live replica could lead, but none that is in sync: then the topic's
    `unclean.leader.election.enable` decides."""
    if current.leader in live or any(replica in live for replica in current.isr):
        return False
    return any(replica in live for replica in replicas)


def _leader_and_isr(
    current: PartitionState, replicas: Sequence[int], live: Container[int], unclean: bool
) -> tuple[int, tuple[int, ...]]:
    live_isr = tuple(replica for replica in current.isr if replica in live)
    if current.leader in live:
        return current.leader, live_isr or tuple(current.isr)
    leader = offline_leader(replicas, current.isr, live, unclean=unclean)
    if leader is None:
        return NO_LEADER, tuple(current.isr)
    return leader, live_isr if leader in live_isr else (leader,)
