"""Entries of the journal of resets, as records of `__kgroup_journal`. Pure.

A record's key is the entry's id, its value is JSON. The newest record of a key counts; a null value
deletes the entry. An entry with many partitions has more records, `ID/2`, `ID/3`, …, because a
broker takes no record of more than 1 MB. They are written before the record `ID`, so that an entry
that can be seen is whole.

Two commands may begin with the same id. Each has a token, and the first token of a key is its
owner's: the other command writes the owner's record again, and takes another id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import attrs

from clients.errors import ClientError
from clients.resets.offset_change import OffsetChange, stores_of_changes
from protocol.frozen import frozen
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

VERSION = 1
MAX_VALUE_BYTES = 900_000
"""Most bytes of a value; a broker's `message.max.bytes` is 1,048,588."""

_KEY = re.compile(r"(\d{1,18})(?:/(\d{1,9}))?")

Record = tuple[str, str | None]
"""Key and value; the value None deletes the key."""


class JournalUnreadable(ClientError):
    """The journal, or an entry of it, is not what this version writes."""


class Status(StrEnum):
    """The state of an entry."""

    BEGUN = "begun"
    """Written before the first offset is; a command that was killed leaves it."""
    DONE = "done"
    UNDONE = "undone"
    ABANDONED = "abandoned"
    """Nothing of it was written, or nothing is left of it."""


@frozen(kw_only=True)
class JournalEntry:
    """A change of a group's offsets: `action` is reset, undo, copy, import or delete.

    `who` is user@host, `cluster` the cluster's id. `undoes` is the id of the entry that an undo
    takes back, `undone_by` the id of the undo. `token` tells apart two commands that use one id.
    """

    id: int = 0
    at_ms: int
    who: str
    reason: str | None = None
    command: str
    cluster: str | None
    group: str
    action: str
    status: Status = Status.BEGUN
    undoes: int | None = None
    undone_by: int | None = None
    token: str
    changes: tuple[OffsetChange, ...]


# --- writing


def records_of(entry: JournalEntry, max_bytes: int = MAX_VALUE_BYTES) -> list[Record]:
    """Return the records of an entry in the order in which they are to be written."""
    head = _head(entry)
    parts = list(_parts(entry.changes, max_bytes - len(_text({**head, "parts": 0}).encode())))

    records: list[Record] = [
        (
            f"{entry.id}/{number}",
            _text({"version": VERSION, "id": entry.id, "token": entry.token, **_rows(part)}),
        )
        for number, part in enumerate(parts[1:], 2)
    ]
    first = parts[0] if parts else []
    return [*records, (str(entry.id), _text({**head, "parts": max(len(parts), 1), **_rows(first)}))]


def tombstones_of(entry: JournalEntry, log: Iterable[Record]) -> list[Record]:
    """Return the records that delete an entry from the log."""
    keys = {key for key, _ in log if (match := _KEY.fullmatch(key)) and int(match[1]) == entry.id}
    return [(key, None) for key in sorted(keys)]


def _head(entry: JournalEntry) -> dict[str, Any]:
    fields = attrs.asdict(entry, recurse=False, filter=lambda field, _: field.name != "changes")
    return {"version": VERSION, **fields, "stores": stores_of_changes(entry.changes)}


def _parts(changes: Sequence[OffsetChange], max_bytes: int) -> Iterable[list[OffsetChange]]:
    """Yield the changes in pieces whose JSON is no larger than `max_bytes`."""
    part: list[OffsetChange] = []
    size = 0
    for change in changes:
        change_bytes = len(_text(_rows([change])).encode())
        if part and size + change_bytes > max_bytes:
            yield part
            part, size = [], 0
        part.append(change)
        size += change_bytes
    if part:
        yield part


def _rows(changes: Sequence[OffsetChange]) -> dict[str, Any]:
    return {
        "old": [_row(change, change.old) for change in changes],
        "new": [_row(change, change.new) for change in changes],
    }


def _row(change: OffsetChange, committed: OffsetAndMetadata | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "topic": change.partition.topic,
        "partition": change.partition.partition,
        "store": change.store,
        "offset": None if committed is None else committed.offset,
    }
    if committed is not None and change.store == "kafka":
        row |= {"metadata": committed.metadata, "leader_epoch": committed.leader_epoch}
    return row


def _text(content: Mapping[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"))


# --- reading


def read_entries(log: Iterable[Record]) -> dict[int, JournalEntry]:
    """Return the entries by id. Raises JournalUnreadable."""
    values = _values(log)
    return {
        int(key): _entry(int(key), values)
        for key in sorted(values, key=lambda key: (len(key), key))
        if "/" not in key
    }


def last_id(log: Iterable[Record]) -> int:
    """Return the largest id of the log, 0 without one; deleted entries and parts count."""
    matches = (_KEY.fullmatch(key) for key, _ in log)
    return max((int(match[1]) for match in matches if match), default=0)


def repairs(log: Sequence[Record], entry: JournalEntry) -> list[Record] | None:
    """Return None if the id is the entry's; else records that give it back to its owner."""
    written = [(key, value) for key, value in log if key == str(entry.id) and value is not None]
    if not written or _token(written[0][1]) == entry.token:
        return None

    others = [(key, value) for key, value in log if value is None or _token(value) != entry.token]
    right = _values(others)
    keys = {key for key, value in log if value is not None and _token(value) == entry.token}
    latest = dict(log)
    return [(key, right.get(key)) for key in sorted(keys) if latest[key] != right.get(key)]


def _values(log: Iterable[Record]) -> dict[str, str]:
    """Return the value of each key: the owner's newest one."""
    by_key: dict[str, list[str]] = {}
    for key, value in log:
        if not _KEY.fullmatch(key):
            continue
        if value is None:
            by_key.pop(key, None)
        else:
            by_key.setdefault(key, []).append(value)
    return {key: _newest(values) for key, values in by_key.items()}


def _newest(values: Sequence[str]) -> str:
    """Return what counts of a key's values.

    A command that gives an id back may write `begun` behind the owner's `done`.
    """
    owner = _token(values[0])
    own = [value for value in values if _token(value) == owner]
    ended = [value for value in own if _load(value).get("status") != Status.BEGUN]
    return (ended or own)[-1]


def _token(value: str) -> object:
    return _load(value).get("token")


def _load(value: str) -> dict[str, Any]:
    """Return the object of a value; an empty one if it is none."""
    try:
        content = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _entry(entry_id: int, values: Mapping[str, str]) -> JournalEntry:
    content = _checked(str(entry_id), values)
    try:
        parts = [content]
        for number in range(2, content["parts"] + 1):
            parts.append(_checked(f"{entry_id}/{number}", values))

        changes = tuple(change for part in parts for change in _changes(part))
        names = attrs.fields_dict(JournalEntry).keys() - {"changes", "status"}
        return JournalEntry(
            **{name: content[name] for name in names},
            status=Status(content["status"]),
            changes=changes,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise JournalUnreadable(f"journal entry {entry_id} is not whole: {error!r}") from None


def _checked(key: str, values: Mapping[str, str]) -> dict[str, Any]:
    """Return the content of a record. Raises JournalUnreadable for another version."""
    if key not in values:
        raise JournalUnreadable(f"journal entry {key} is missing")

    content = _load(values[key])
    if content.get("version") != VERSION:
        raise JournalUnreadable(
            f"journal entry {key} has version {content.get('version')!r}, and this kgroup reads "
            f"version {VERSION}: use the kgroup that wrote it"
        )
    return content


def _changes(part: Mapping[str, Any]) -> Iterable[OffsetChange]:
    for old, new in zip(part["old"], part["new"], strict=True):
        partition = TopicPartition(new["topic"], new["partition"])
        yield OffsetChange(partition, new["store"], _committed(old), _committed(new))


def _committed(row: Mapping[str, Any]) -> OffsetAndMetadata | None:
    if row["offset"] is None:
        return None
    return OffsetAndMetadata(row["offset"], row.get("metadata", ""), row.get("leader_epoch", -1))
