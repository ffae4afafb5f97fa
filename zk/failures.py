"""What an error of ZooKeeper speaks of, and what follows: one table for all who ask ZooKeeper.

| it speaks of | errors | then |
|---|---|---|
| a peer | NodeExists, NoNode, BadVersion, NotEmpty | somebody was faster: look again, at once |
| the connection | ConnectionLoss | a write may be done or not: ask again when ZooKeeper answers |
| the session | SessionExpired | what was meant for it is not done under the next, which begins with reading |
| ourselves | NoAuth, RequestTooLarge, NoChroot, and any other refusal | reported and counted, and tried again after a pause: it fails again until somebody gives the right, or the room |

A multi that failed says what the operation says that it failed for.
"""  # noqa: E501

from __future__ import annotations

from enum import Enum

from zk.api import (
    BadVersion,
    ConnectionLoss,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    ZkError,
)


class About(Enum):
    """Whom an error speaks of."""

    PEER = "a peer"
    CONNECTION = "the connection"
    SESSION = "the session"
    OURSELVES = "ourselves"


OVERTAKEN = (NodeExists, NoNode, BadVersion, NotEmpty)

ABOUT: tuple[tuple[tuple[type[ZkError], ...], About], ...] = (
    (OVERTAKEN, About.PEER),
    ((ConnectionLoss,), About.CONNECTION),
    ((SessionExpired,), About.SESSION),
)


def about(error: ZkError) -> About:
    """Say whom the error speaks of."""
    if isinstance(error, MultiFailed):
        return about(error.error)
    for kinds, whom in ABOUT:
        if isinstance(error, kinds):
            return whom
    return About.OURSELVES


def will_pass(error: ZkError) -> bool:
    """Whether it is over by itself: the same call may succeed when ZooKeeper answers again."""
    return about(error) in (About.CONNECTION, About.SESSION)
