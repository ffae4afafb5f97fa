"""Decide where a follower ends its log before it fetches (KIP-101, KIP-279).

Truncating at the high watermark is wrong in two ways. A follower's own watermark lags behind, so it
would remove what was acknowledged and then might lead. And two logs that different brokers led may
differ below both their earlier watermarks. So a follower asks the leader where its own last epoch
ended in the leader's log, and goes back, epoch by epoch, until the two histories meet.
"""

from __future__ import annotations

from core_log.leader_epochs import UNDEFINED, LeaderEpochs
from protocol.frozen import frozen

UNDEFINED_EPOCH, UNDEFINED_OFFSET = UNDEFINED


@frozen
class Truncation:
    """Truncate the log to `offset`; unless `done`, ask again about the epoch that is last then."""

    offset: int
    done: bool


def decide_truncation(
    epoch: int,
    end_offset: int,
    own_epochs: LeaderEpochs,
    log_end_offset: int,
    high_watermark: int,
) -> Truncation:
    """Decide by the leader's response about our last epoch.

    The response names the largest epoch the leader knows that is not above ours, and where that
    epoch ended. Both are -1 where the leader does not know; brokers before 2.0 send an epoch of -1
    with an end.
    """
    # The leader does not know the epoch: only the watermark is left to go by.
    if end_offset == UNDEFINED_OFFSET:
        return Truncation(min(high_watermark, log_end_offset), done=True)
    # A leader before 2.0 names no epoch: one round has to do.
    if epoch == UNDEFINED_EPOCH:
        return Truncation(min(end_offset, log_end_offset), done=True)

    own_epoch, own_end_offset = own_epochs.end_offset_for(epoch, log_end_offset)
    # Our log has no epoch as old as the leader's.
    if own_end_offset == UNDEFINED_OFFSET:
        return Truncation(min(end_offset, log_end_offset), done=True)

    # Our log has an earlier epoch than the leader answered for: the leader must look further back.
    if own_epoch != epoch:
        return Truncation(min(own_end_offset, log_end_offset), done=False)

    # Both logs have the epoch: they agree to where it ended first.
    return Truncation(min(end_offset, own_end_offset, log_end_offset), done=True)
