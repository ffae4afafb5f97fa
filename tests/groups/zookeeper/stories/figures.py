"""The figures of a group's stories: who takes part, how long it lasts, how much goes wrong."""

from __future__ import annotations

GROUP = "g"
TOPICS = {"t": 16, "u": 5, "v": 3, "w": 4}
MORTAL = "w"
FIRST_MEMBERS = 5
MOST_MEMBERS = 8
SESSION_TIMEOUT_MS = 6000
BACKOFF_MS = 500
LATENCY_S = 0.02
SLOW = 25  # times the latency of a wire in trouble
TROUBLE_S = (2.5, 44.0)  # when it begins, at the earliest and at the latest
LENGTH_S = 60.0
LAST_MESSAGE_S = 52.0
LARGEST_EVERY = 5
FEWEST_FAULTS = 10
NOTICED_S = 16.0
"""Time until owners notice that their nodes were deleted. No watch tells them: they see it in their
next round, within 11 s, or a little later if something delays it."""
HEARD_S = 2.0  # from the end of a session for good until the application knows
OWNERS, OFFSETS = f"/consumers/{GROUP}/owners/", f"/consumers/{GROUP}/offsets/"
