"""The in-sync replicas and the high watermark that follows from them.

The high watermark is the first offset that some in-sync replica lacks. It never goes back while
a broker leads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def next_high_watermark(
    current: int, log_end_offset: int, local_id: int, isr: Iterable[int], ends: Mapping[int, int]
) -> int:
    """The high watermark of a leader whose followers are known to have reached `ends`.

    A member of the ISR that has not fetched since this broker leads holds it where it is.
    """
    lowest = log_end_offset
    for replica in isr:
        if replica != local_id:
            lowest = min(lowest, ends.get(replica, current))
    return max(current, lowest)
