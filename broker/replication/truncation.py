"""Where a follower ends its log before it fetches (KIP-101, KIP-279).

To cut at the high watermark is wrong twice over: a follower's own watermark lags behind, so it
would cut off what was acknowledged if it were to lead next; and two logs that were led by
different brokers may differ below both their watermarks of before. So a follower asks the leader
where its own last epoch ended in the leader's log, and goes back, epoch by epoch, until the two
histories meet.
"""

from __future__ import annotations

import attrs

from core_log.leader_epochs import UNDEFINED, LeaderEpochs

UNDEFINED_EPOCH, UNDEFINED_OFFSET = UNDEFINED


@attrs.frozen
class Truncation:
    """Cut the log at `offset`; unless `done`, ask again about the epoch that is the last then."""

    offset: int
    done: bool


def truncation(
    epoch: int, end_offset: int, own: LeaderEpochs, log_end_offset: int, high_watermark: int
) -> Truncation:
    """What follows from the leader's answer about our last epoch.

    The answer: the largest epoch the leader knows that is not above ours, and where it ended; -1
    where the leader does not know, an epoch of -1 alone from brokers before 2.0.
    """
    if end_offset == UNDEFINED_OFFSET:
        return Truncation(min(high_watermark, log_end_offset), True)
    if epoch == UNDEFINED_EPOCH:
        return Truncation(min(end_offset, log_end_offset), True)
    own_epoch, own_end = own.end_offset_for(epoch, log_end_offset)
    if own_end == UNDEFINED_OFFSET:
        return Truncation(min(end_offset, log_end_offset), True)
    if own_epoch != epoch:
        return Truncation(min(own_end, log_end_offset), False)
    return Truncation(min(end_offset, own_end, log_end_offset), True)
