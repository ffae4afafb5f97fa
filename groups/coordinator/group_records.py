"""The last record of each group of a shard.

The record of a group with members is kept as it is in the log, and only until the state of the live
group has what it says (`membership.group`): there are as many of them as groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from offsets.records import GroupKey, GroupMetadata, decode_value


@attrs.define(eq=False)
class GroupRecords(Mapping[str, GroupMetadata]):
    """Group id -> its record.

    That of a group with members is decoded at each access. Once it is `shed`, nobody reads it.
    """

    # None: shed.
    _with_members: dict[str, bytes | None] = attrs.field(factory=dict)
    _empty: dict[str, GroupMetadata] = attrs.field(factory=dict)
    # The record with members that was encoded last.
    _encoded: bytes | None = None

    def note_encoded(self, metadata: GroupMetadata, value: bytes) -> None:
        """Note how a record was encoded: to decode it again would only cost time."""
        if metadata.members:
            self._encoded = value

    def replay(self, key: GroupKey, value: bytes | None) -> None:
        """Apply a record; None removes the group's. Raises RecordError."""
        group_id = key.group
        # Of thousands of members this would take as long as all else that they need.
        if value is not None and value is self._encoded:
            self._encoded = None
            self._empty.pop(group_id, None)
            self._with_members[group_id] = value
            return

        metadata = decode_value(key, value)
        self._with_members.pop(group_id, None)
        if value is None or metadata is None:
            self._empty.pop(group_id, None)
            return

        assert isinstance(metadata, GroupMetadata), "a group's key has a group's value"
        if metadata.members:
            self._empty.pop(group_id, None)
            self._with_members[group_id] = value
        else:
            self._empty[group_id] = metadata

    def shed(self, group_id: str) -> None:
        """Keep of a group's record only that it has members: its live state has all it says."""
        if group_id in self._with_members:
            self._with_members[group_id] = None

    def sizes_with_members(self) -> dict[str, int]:
        """Return the groups whose record has members, and its bytes; 0 of one that was shed."""
        return {group_id: len(value or b"") for group_id, value in self._with_members.items()}

    def has_members(self, group_id: str) -> bool:
        """Return whether the record of a group has members."""
        return group_id in self._with_members

    def __getitem__(self, group_id: str) -> GroupMetadata:
        if group_id not in self._with_members:
            return self._empty[group_id]
        value = self._with_members[group_id]
        assert value is not None, "the record of a live group is not read"
        metadata = decode_value(GroupKey(group_id), value)
        assert isinstance(metadata, GroupMetadata), "it was decoded before"
        return metadata

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._with_members or group_id in self._empty

    def __iter__(self) -> Iterator[str]:
        yield from self._with_members
        yield from self._empty

    def __len__(self) -> int:
        return len(self._with_members) + len(self._empty)
