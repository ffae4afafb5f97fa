"""Effects of a shard: values that it returns from `decide`, performed by the runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protocol.frozen import frozen

RequestId = int

ALL_IN_SYNC = -1
LEADER_ONLY = 1


@frozen
class Writer:
    """The producer that a transactional append is written for (KIP-98).

    `ends` makes the append a marker without records: protocol.records.control_record.COMMIT or
    ABORT, of the coordinator's epoch.
    """

    producer_id: int
    producer_epoch: int
    is_transactional: bool = True
    ends: int | None = None
    coordinator_epoch: int = 0


@frozen
class Append:
    """Write records, all or none of them; decide `then` when that has ended.

    `records` are in the form that `Shard.encode` takes. They are replayed before `then`, which is
    an event with a field `error`: NONE, or why nothing was written. acks -1 waits until all in-sync
    replicas have the records, 1 for the leader's log alone. After `timeout_ms` (None: never) `then`
    comes with REQUEST_TIMED_OUT. If the records are replicated later, they are replayed all the
    same, because the log is the truth.
    """

    records: Sequence[Any]
    then: Any
    writer: Writer | None = None
    acks: int = ALL_IN_SYNC
    timeout_ms: int | None = None


@frozen
class Reply:
    """Respond to a request. The first response to a request counts."""

    request_id: RequestId
    response: Any


@frozen
class SetTimer:
    """Decide `event` after `after_ms`. Equal events share one timer: setting it again moves it.

    A timer is never cancelled. Its event names its subject (a group, a member), and is ignored
    when that is gone.
    """

    event: Any
    after_ms: int


@frozen
class Publish:
    """Hand a value to whoever listens (`CoordinatorRuntime.on_published`). It is no state."""

    value: Any


Effect = Append | Reply | SetTimer | Publish
