"""Elect leaders and in-sync replicas by Kafka's rules, on values.

The four selectors return the leader that Kafka's PartitionLeaderElectionAlgorithms would, or None
when no replica can lead. `first_state` is for a partition that never had a leader, `next_state` for
one whose replicas came or went. Both return the state to write, or None when nothing changes. Each
change raises the leader epoch by one, because brokers ignore a LeaderAndIsr with an epoch that they
have seen.

The ISR is never emptied. Its members have every committed record. So when all of them are gone, the
partition waits for one of them (leader -1), unless its topic allows an unclean election, which
loses the records that only they had.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

import attrs

from protocol.special_values import NO_LEADER
from zk.znodes import PartitionState

# --- selectors -----------------------------------------------------------------------------


def offline_leader(
    replicas: Sequence[int], isr: Container[int], live: Container[int], *, unclean: bool
) -> int | None:
    """Elect after a failure: the first live replica in sync; if `unclean`, else any live one."""
    clean = reassigned_leader(replicas, isr, live)
    return (
        next((replica for replica in replicas if replica in live), None)
        if unclean and clean is None
        else clean
    )


def reassigned_leader(
    target: Sequence[int], isr: Container[int], live: Container[int]
) -> int | None:
    """Elect in a reassignment: the first replica of its target that is live and in sync."""
    return next((replica for replica in target if replica in live and replica in isr), None)


def preferred_leader(
    replicas: Sequence[int], isr: Container[int], live: Container[int]
) -> int | None:
    """Elect the first replica, or none."""
    return reassigned_leader(replicas[:1], isr, live)


def shutdown_leader(
    replicas: Sequence[int],
    isr: Container[int],
    live: Container[int],
    shutting_down: Container[int],
) -> int | None:
    """Elect the first in-sync replica whose broker stays. `live` may contain brokers that stop."""
    staying = [replica for replica in replicas if replica not in shutting_down]
    return reassigned_leader(staying, isr, live)


# --- states --------------------------------------------------------------------------------


def first_state(
    replicas: Sequence[int], live: Container[int], controller_epoch: int
) -> PartitionState | None:
    """Return the first state: all live replicas are in sync, and the first of them leads."""
    # No replica has a record yet, so all that live are in sync.
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
    """Return the state that follows when the brokers in `live`, and no others, are there."""
    leader, isr = _leader_and_isr(current, replicas, live, unclean)
    assert isr or not current.isr, "the ISR is never emptied"
    if (leader, isr) == (current.leader, tuple(current.isr)):
        return None
    return under_next_epoch(current, leader, isr, controller_epoch)


def under_next_epoch(
    current: PartitionState, leader: int, isr: Sequence[int], controller_epoch: int
) -> PartitionState:
    """Return the state with this leader and ISR, under the next leader epoch."""
    return attrs.evolve(
        current,
        leader=leader,
        leader_epoch=current.leader_epoch + 1,
        isr=tuple(isr),
        controller_epoch=controller_epoch,
    )


def needs_unclean_election(
    current: PartitionState, replicas: Sequence[int], live: Container[int]
) -> bool:
    """True if a live replica could lead, but none that is in sync.

    Then the topic's `unclean.leader.election.enable` decides.
    """
    # A leader is there, or one can be elected that has all committed records.
    if current.leader in live or any(replica in live for replica in current.isr):
        return False
    return any(replica in live for replica in replicas)


def _leader_and_isr(
    current: PartitionState, replicas: Sequence[int], live: Container[int], unclean: bool
) -> tuple[int, tuple[int, ...]]:
    live_isr = tuple(replica for replica in current.isr if replica in live)

    # The leader stays as long as it lives.
    if current.leader in live:
        return current.leader, live_isr or tuple(current.isr)

    # Else elect, or wait for a member of the ISR: each of them has every committed record.
    leader = offline_leader(replicas, current.isr, live, unclean=unclean)
    if leader is None:
        return NO_LEADER, tuple(current.isr)

    # After an unclean election only the leader is in sync: other logs may differ from its own.
    return leader, live_isr if leader in live_isr else (leader,)
