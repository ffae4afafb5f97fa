"""The groups that one partition of `__consumer_offsets` keeps.

A shard knows no log, no network and no clock. Its state changes in `replay` alone, which sees
each record once, in log order, whether it was just replicated or is being loaded.
"""

from __future__ import annotations

import attrs

from offsets.committed import CommittedOffsets
from offsets.records import GroupMetadata, Key, OffsetKey, Value


@attrs.define(eq=False)
class Shard:
    """Offsets of all its groups, and the last record of those that have, or had, members."""

    offsets: CommittedOffsets = attrs.field(factory=CommittedOffsets)
    groups: dict[str, GroupMetadata] = attrs.field(factory=dict)

    def replay(self, key: Key, value: Value | None) -> None:
        """Apply one record; the value is of the kind its key names."""
        if isinstance(key, OffsetKey):
            assert not isinstance(value, GroupMetadata)
            self.offsets.replay(key, value)
        elif value is None:
            self.groups.pop(key.group, None)
        else:
            assert isinstance(value, GroupMetadata)
            self.groups[key.group] = value

    def knows(self, group_id: str) -> bool:
        """Whether anything is kept of the group."""
        return group_id in self.groups or group_id in self.offsets.groups()
