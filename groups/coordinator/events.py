"""What can happen to a group: a request arrives, or something written came to its end.

A request that cannot be answered at once is known by its id, which the shell maps to whoever
asked; every id is answered exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from offsets.records import Record
from protocol.errors import ErrorCode

RequestId = int


@attrs.frozen
class CommitOffsets:
    """OffsetCommit, as records. Generation -1 and member "" mean a group without members."""

    request_id: RequestId
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    records: Sequence[Record]


@attrs.frozen
class Committed:
    """What was appended for a commit is replicated and replayed; or was not, because of `error`."""

    request_id: RequestId
    group_id: str
    error: ErrorCode = ErrorCode.NONE


Event = CommitOffsets | Committed
"""What `decide` takes."""
Ended = Committed
"""What may follow an append."""
