"""Settings of groups. Those that bound a member (KIP-62, KIP-134, KIP-389) come with membership."""

from __future__ import annotations

import attrs


@attrs.frozen
class GroupConfig:
    """What a group may be; groups that only commit know no bound but that of their commits."""
