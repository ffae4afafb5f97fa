"""Count what a partition of `__consumer_offsets` holds, and how far it can be clean. Pure.

The cleaner leaves one record of each key in the part that it has cleaned. So that part ends at the
latest where a key comes for the second time, and nothing that was written from then on has been
cleaned. That is all that a log tells of its cleaner, and it is the same with every broker.
"""

from __future__ import annotations

from collections import Counter

import attrs

from clients.groups.topic_batches import batches_behind
from offsets.records import OffsetKey, RecordError, decode_key


@attrs.define(eq=False)
class PartitionTally:
    """The records of a partition from its start to `positions`. Memory is that of its keys."""

    commits_since_ms: int | None = None
    """Commits behind this time are counted for each group; None: none are."""
    young_since_ms: int | None = None
    """Batches behind this time are not to be cleaned yet; None: all are."""
    positions: dict[int, int] = attrs.field(factory=dict)
    errors: dict[int, Exception] = attrs.field(factory=dict)
    records: int = 0
    size_bytes: int = 0
    clean_bytes: int = 0
    """Size of the batches before `repeated_since_ms`, which can have been cleaned."""
    repeated_since_ms: int | None = None
    """When the first record was written whose key was there before; None if none was."""
    young_bytes: int = 0
    last_written_ms: int | None = None
    # Key -> whether its last record has a value.
    _keys: dict[bytes, bool] = attrs.field(factory=dict)
    # Key -> its records since `commits_since_ms`.
    _commits: Counter[bytes] = attrs.field(factory=Counter)

    def feed(self, partition_id: int, batches: bytes | memoryview) -> None:
        """Count the batches behind the position. The last one may be incomplete.

        Raises CorruptRecord, CompressionUnavailable; the position is before that batch then.
        """
        for header, rows, start in batches_behind(self.positions, partition_id, batches):
            if not header.is_control:
                for offset, written_ms, key, value, _ in rows:
                    if offset >= start and key is not None:
                        self._count(key, written_ms, value is not None)

            self.size_bytes += header.size
            if rows:
                self.last_written_ms = rows[-1][1]
                if self.young_since_ms is not None and rows[-1][1] > self.young_since_ms:
                    self.young_bytes += header.size
            if self.repeated_since_ms is None:
                self.clean_bytes = self.size_bytes

    def _count(self, key: bytes, written_ms: int, has_value: bool) -> None:
        if key in self._keys and self.repeated_since_ms is None:
            self.repeated_since_ms = written_ms
        self._keys[key] = has_value
        self.records += 1
        if has_value and self.commits_since_ms is not None and written_ms > self.commits_since_ms:
            self._commits[key] += 1

    @property
    def keys(self) -> int:
        """The keys whose last record is no tombstone."""
        return sum(self._keys.values())

    def keys_by_group(self) -> Counter[str]:
        """Return how many offsets each group has."""
        return _by_group(Counter(key for key, has_value in self._keys.items() if has_value))

    def commits_by_group(self) -> Counter[str]:
        """Return how many offsets each group has committed since `commits_since_ms`."""
        return _by_group(self._commits)


def _by_group(counts: Counter[bytes]) -> Counter[str]:
    groups: Counter[str] = Counter()
    for key, count in counts.items():
        try:
            decoded = decode_key(key)
        except RecordError:
            continue
        # A group's own record is written at rebalances, and not by commits.
        if isinstance(decoded, OffsetKey):
            groups[decoded.group] += count
    return groups
