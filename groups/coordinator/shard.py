"""The groups that one partition of `__consumer_offsets` keeps.

A shard knows no log, no network and no clock. Its state changes in `replay` alone, which sees
each record once, in log order, whether it was just replicated or is being loaded.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from offsets.committed import CommittedOffsets, EncodedRecord
from offsets.records import GroupKey, GroupMetadata, decode_key, decode_value


@attrs.define(eq=False)
class Shard:
    """Offsets of all its groups, and the last record of those that have, or had, members."""

    offsets: CommittedOffsets = attrs.field(factory=CommittedOffsets)
    groups: dict[str, GroupMetadata] = attrs.field(factory=dict)

    def replay(self, records: Iterable[EncodedRecord]) -> None:
        """Apply records, as they are in the log. Raises RecordError, and is then of no use."""
        for key, value in self.offsets.replay(records):
            decoded = decode_key(key)
            assert isinstance(decoded, GroupKey)
            metadata = decode_value(decoded, value)
            if metadata is None:
                self.groups.pop(decoded.group, None)
            else:
                assert isinstance(metadata, GroupMetadata)
                self.groups[decoded.group] = metadata

    def knows(self, group_id: str) -> bool:
        """Whether anything is kept of the group."""
        return group_id in self.groups or group_id in self.offsets.groups()
