"""Events of the runtime itself, which every shard's `decide` takes."""

from __future__ import annotations

from protocol.frozen import frozen


@frozen
class Unloaded:
    """Another broker leads the partition now. No effect but `Reply` can be performed any more.

    Appends that are in flight end after it, with NOT_COORDINATOR.
    """
