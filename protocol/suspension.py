"""The time for which the machine is suspended, which the clock of intervals leaves out.

On Linux CLOCK_MONOTONIC, which `time.monotonic` and the loops use, stands still while a laptop's
lid is closed. That is right for patience: nobody could have acted. It is wrong for what others
count meanwhile, as the session of a member.
"""

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
"""A clock that goes on. macOS has no other name for it; its `time.monotonic` is another clock."""


def machine_s() -> float:
    """Return a clock for intervals that goes on while the machine is suspended."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


def suspended_s() -> float:
    """Return for how long the machine has been suspended so far, to a millisecond."""
    return round(machine_s() - time.monotonic(), 3)
