"""Who leads a partition, and who is in sync: the rules of Kafka's OfflinePartition strategy.

`first_state` is for a partition that never had a leader, `next_state` for one whose replicas
came or went. Both return the state to write, or None when there is nothing to change. Each
change raises the leader epoch by one, because brokers ignore a LeaderAndIsr whose epoch they
have seen.

The in-sync set is never emptied: who is in it has every committed record, so when all of them
are gone the partition waits for one of them (leader -1), unless its topic allows an unclean
election, which loses what only they had.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

import attrs

from broker.controller.state import NO_LEADER
from zk.znodes import PartitionState


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
    return attrs.evolve(
        current,
        leader=leader,
        leader_epoch=current.leader_epoch + 1,
        isr=isr,
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
    in_sync = [replica for replica in replicas if replica in live_isr]
    if in_sync:
        return in_sync[0], live_isr
    live_replicas = [replica for replica in replicas if replica in live]
    if unclean and live_replicas:
        return live_replicas[0], (live_replicas[0],)
    return NO_LEADER, tuple(current.isr)
