"""Settings of groups. Limits of members (KIP-62, KIP-134, KIP-389) come with membership."""

from __future__ import annotations

import attrs


@attrs.frozen
class GroupConfig:
    """Limits of a group. Groups that only commit have none beside those of their commits."""
