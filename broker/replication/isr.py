"""Who is in sync, and the high watermark that follows from it, as a leader sees it.

A follower that asks for offset n has everything below n; its asking is all a leader knows of it.
It is *caught up* at the time of a fetch that reached the log's end, or, since new records keep
coming, at the time of the fetch before when it reached the end of then (KAFKA-4485). In sync is
who was caught up within `replica.lag.time.max.ms`.

The high watermark is the first offset that some replica lacks of those in sync or caught up:
waiting for the second kind too is what lets a follower come into the ISR under steady writing. It
never goes back while a broker leads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

UNKNOWN_OFFSET = -1

LONG_AGO_MS = -(2**62)
"""Before any time of the monotonic clock, which may begin anywhere."""

Isr = tuple[int, ...]


@attrs.define(eq=False)
class LastFetch:
    """When a fetch session last asked, for whatever partitions."""

    ms: int = LONG_AGO_MS


@attrs.define(eq=False)
class Follower:
    """What a leader knows of a follower. Times in ms by the monotonic clock, offsets -1 before its
    first fetch.

    A follower in a session names a partition again when something has changed. Until then, while
    the leader's log does not grow, each fetch of the session is one from the log's end (`at_rest`):
    it stays caught up at no cost.
    """

    _caught_up_ms: int
    last_fetch_ms: int
    leader_end_at_last_fetch: int
    end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    at_rest: LastFetch | None = None

    @classmethod
    def unheard(cls, in_sync: bool, leader_end: int, monotonic_ms: int) -> Follower:
        """A follower at the beginning of an epoch; one in sync has a lag time to show itself."""
        return cls(monotonic_ms if in_sync else LONG_AGO_MS, monotonic_ms, leader_end)

    @property
    def caught_up_ms(self) -> int:
        """When it last had all there was."""
        return max(self._caught_up_ms, self.at_rest.ms if self.at_rest else LONG_AGO_MS)

    def end_rest(self) -> None:
        """The leader's log is about to grow: what the session fetches from now on counts for a
        follower that is named alone."""
        if self.at_rest is not None:
            self._caught_up_ms = self.caught_up_ms
            self.last_fetch_ms = max(self.last_fetch_ms, self.at_rest.ms)
            self.at_rest = None

    def fetched(
        self,
        offset: int,
        log_start_offset: int,
        leader_end: int,
        monotonic_ms: int,
        session: LastFetch | None = None,
    ) -> None:
        """It asks for `offset`, while the leader's log ends at `leader_end`.

        `session` tells of the session's fetches before this one, and will tell of those after it.
        """
        self.end_rest()
        if offset >= leader_end:
            self._caught_up_ms = max(self._caught_up_ms, monotonic_ms)
        elif offset >= self.leader_end_at_last_fetch:
            self._caught_up_ms = max(self._caught_up_ms, self.last_fetch_ms)
        self.at_rest = session if offset >= leader_end else None
        self.end_offset, self.log_start_offset = offset, log_start_offset
        self.last_fetch_ms, self.leader_end_at_last_fetch = monotonic_ms, leader_end


def next_high_watermark(current: int, log_end_offset: int, ends: Iterable[int]) -> int:
    """The high watermark of a leader, given the ends of the followers that hold it.

    One not heard of (-1) holds it where it is.
    """
    return max(current, min((log_end_offset, *ends)))


def out_of_sync(
    isr: Isr, followers: Mapping[int, Follower], leader_end: int, lag_ms: int, monotonic_ms: int
) -> set[int]:
    """The followers in the ISR that lack something, and have for longer than the lag time."""
    return {
        replica
        for replica in isr
        if (known := followers.get(replica)) is not None
        and known.end_offset != leader_end
        and monotonic_ms - known.caught_up_ms > lag_ms
    }


def may_join(follower: Follower, high_watermark: int, epoch_start_offset: int) -> bool:
    """Whether it has all that was ever acknowledged: the high watermark of a leader that is new
    may lag behind that, but not the offset where its epoch began (KAFKA-7128)."""
    return follower.end_offset >= max(high_watermark, epoch_start_offset)
