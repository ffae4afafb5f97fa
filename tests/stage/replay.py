"""Records given to what replays them, as they are in the log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from offsets.committed import EncodedRecord
from offsets.records import Record, encode_key, encode_value


class Replays(Protocol):
    """A shard, or the offsets in it."""

    def replay(self, records: Iterable[EncodedRecord]) -> object:
        """Apply records."""


def replay(state: Replays, *records: Record) -> object:
    """Replay records that are written as this broker writes them."""
    return state.replay([(encode_key(key), encode_value(value)) for key, value in records])
