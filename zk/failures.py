"""Find the cause of an error of ZooKeeper, which says what the caller does next.

| cause | errors | what follows |
|---|---|---|
| CONFLICT | NodeExists, NoNode, BadVersion, NotEmpty | another client was faster: read again, at once |
| CONNECTION | ConnectionLoss | a write may have been applied or not: ask again when ZooKeeper answers |
| SESSION | SessionExpired | the call is not repeated in the next session, which begins with reading |
| REFUSAL | NoAuth, AuthFailed, RequestTooLarge, NoChroot, and any other error | report and count it, try again after a pause; it fails until an operator grants the right, or the room |

MultiFailed has the cause of the operation that failed.
"""  # noqa: E501

from __future__ import annotations

from enum import Enum

from protocol.zookeeper_security import DIGEST, JAAS
from zk.api import (
    BadVersion,
    ConnectionLoss,
    MultiFailed,
    NoAuth,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    ZkError,
)


class FailureCause(Enum):
    """The cause of an error of ZooKeeper."""

    CONFLICT = "conflict"
    CONNECTION = "connection"
    SESSION = "session"
    REFUSAL = "refusal"


CONFLICTS = (NodeExists, NoNode, BadVersion, NotEmpty)

_CAUSES: tuple[tuple[tuple[type[ZkError], ...], FailureCause], ...] = (
    (CONFLICTS, FailureCause.CONFLICT),
    ((ConnectionLoss,), FailureCause.CONNECTION),
    ((SessionExpired,), FailureCause.SESSION),
)


def find_cause(error: ZkError) -> FailureCause:
    """Return the cause of `error`."""
    if isinstance(error, MultiFailed):
        return find_cause(error.error)

    for kinds, cause in _CAUSES:
        if isinstance(error, kinds):
            return cause
    return FailureCause.REFUSAL


def describe(error: Exception) -> str:
    """Return the text of an error; of one for want of a right, with what gives it to people."""
    cause = error.error if isinstance(error, MultiFailed) else error
    if not isinstance(cause, NoAuth):
        return str(error)
    return (
        f"ACLs of ZooKeeper forbid {cause}: log in as somebody who may, by {JAAS}, {DIGEST} or "
        "zookeeper.ssl.keystore.location (commands read them from the file of --command-config)"
    )


def is_transient(error: ZkError) -> bool:
    """Return whether the same call may succeed as soon as ZooKeeper answers again."""
    return find_cause(error) in (FailureCause.CONNECTION, FailureCause.SESSION)
