"""Give a tree of znodes that exists other ACLs, as zookeeper-security-migration.sh does."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

from zk.acls import OPEN, ROOTS, Permission, secure_acl
from zk.api import NoNode, children_if_there
from zk.session import KazooSession

AclOf = Callable[[str], Sequence[Permission]]


def open_acl(path: str) -> Sequence[Permission]:
    """Return the ACL of a node that everybody may change."""
    return OPEN


async def change_acls(session: KazooSession, *, secure: bool) -> AsyncIterator[str]:
    """Secure, or open, all nodes of brokers; yield the path of each node that is done.

    Nodes that are deleted meanwhile are left out. Raises NoAuth for one that the session may not
    change, and ZkError.
    """
    acl_of = secure_acl if secure else open_acl

    # A broker that starts now finds the roots as they will be.
    with contextlib.suppress(NoNode):
        await session.set_acl("/", acl_of("/"))
        yield "/"

    left = list(reversed(ROOTS))
    while left:
        path = left.pop()
        with contextlib.suppress(NoNode):
            await session.set_acl(path, acl_of(path))
            yield path
        left += [f"{path}/{name}" for name in await children_if_there(session, path)]
