"""The leader's rules for the ISR and for the high watermark.

A follower that fetches from offset n has everything below n. Its fetches are all that a leader
knows of it. A follower is *caught up* at the time of a fetch that reached the end of the log. New
records keep coming, so a fetch that reaches the end at the previous fetch counts too: the follower
was caught up at the time of that previous fetch (KAFKA-4485). A follower is in sync if it was
caught up within `replica.lag.time.max.ms`.

The high watermark is the first offset that some replica lacks, of the replicas in the ISR and those
caught up in time. It waits for the latter too, so that a follower can join the ISR under steady
writing. It never goes back while a broker leads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from protocol.special_values import UNKNOWN_OFFSET

LONG_AGO_MS = -(2**62)
"""Before any time of the monotonic clock, which may begin anywhere."""

Isr = tuple[int, ...]


@attrs.define(eq=False)
class LastFetch:
    """The time of the last fetch of a session, whichever partitions it named."""

    ms: int = LONG_AGO_MS


@attrs.define(eq=False)
class Follower:
    """A follower's progress, as its leader knows it.

    Times are in ms of the monotonic clock; offsets are -1 before the first fetch. In a fetch
    session a follower names a partition again when something has changed. Until then, and while the
    leader's log does not grow, each fetch of the session counts as a fetch from the end of the log
    (`at_rest`): the follower stays caught up at no cost.
    """

    _caught_up_ms: int
    last_fetch_ms: int
    leader_end_at_last_fetch: int
    end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    at_rest: LastFetch | None = None

    @classmethod
    def at_epoch_start(cls, in_sync: bool, leader_end: int, monotonic_ms: int) -> Follower:
        """Return a follower that has not fetched in this epoch.

        One that is in the ISR counts as caught up now, so it has a lag time to fetch.
        """
        return cls(monotonic_ms if in_sync else LONG_AGO_MS, monotonic_ms, leader_end)

    @property
    def caught_up_ms(self) -> int:
        """The last time when the follower had the whole log."""
        return max(self._caught_up_ms, self.at_rest.ms if self.at_rest else LONG_AGO_MS)

    def end_rest(self) -> None:
        """Stop counting the session's fetches, because the leader's log grows."""
        if self.at_rest is not None:
            self._caught_up_ms = self.caught_up_ms
            self.last_fetch_ms = max(self.last_fetch_ms, self.at_rest.ms)
            self.at_rest = None

    def note_fetch(
        self,
        offset: int,
        log_start_offset: int,
        leader_end: int,
        monotonic_ms: int,
        session: LastFetch | None = None,
    ) -> None:
        """Note a fetch from `offset`, while the leader's log ends at `leader_end`.

        `session` has the time of the session's previous fetch, and will have that of later ones.
        """
        # First: `last_fetch_ms` must be the time of the session's last fetch.
        self.end_rest()

        # Caught up now, or at the time of the fetch before (KAFKA-4485).
        if offset >= leader_end:
            self._caught_up_ms = max(self._caught_up_ms, monotonic_ms)
        elif offset >= self.leader_end_at_last_fetch:
            self._caught_up_ms = max(self._caught_up_ms, self.last_fetch_ms)

        # At the end of the log the session's later fetches count for this one too.
        self.at_rest = session if offset >= leader_end else None
        self.end_offset = offset
        self.log_start_offset = log_start_offset
        self.last_fetch_ms = monotonic_ms
        self.leader_end_at_last_fetch = leader_end


def next_high_watermark(current: int, log_end_offset: int, ends: Iterable[int]) -> int:
    """Return a leader's high watermark, given the end offsets of the followers it waits for.

    A follower that has not fetched yet (-1) keeps it where it is.
    """
    # A follower that truncates its log does not take the watermark back.
    return max(current, min((log_end_offset, *ends)))


def find_lagging(
    isr: Isr, followers: Mapping[int, Follower], leader_end: int, lag_ms: int, monotonic_ms: int
) -> set[int]:
    """Return the followers in the ISR that have lacked records for longer than the lag time."""
    return {
        replica
        for replica in isr
        if (follower := followers.get(replica)) is not None
        # A follower of an idle partition lacks nothing, however old its last fetch (KAFKA-7152).
        and follower.end_offset != leader_end
        and monotonic_ms - follower.caught_up_ms > lag_ms
    }


def may_join(follower: Follower, high_watermark: int, epoch_start_offset: int) -> bool:
    """Return whether a follower has everything that was ever acknowledged.

    A new leader's high watermark may be below that, but the start of its epoch is not (KAFKA-7128).
    """
    return follower.end_offset >= max(high_watermark, epoch_start_offset)
