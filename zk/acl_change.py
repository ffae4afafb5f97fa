"""Give a tree of znodes that exists other ACLs, as zookeeper-security-migration.sh does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

from zk.acls import OPEN, ROOTS, Permission, secure_acl
from zk.api import NoNode, children_if_there
from zk.session import KazooSession

AT_ONCE = 100
"""Nodes that are changed at the same time."""

AclOf = Callable[[str], Sequence[Permission]]


def open_acl(path: str) -> Sequence[Permission]:
    """Return the ACL of a node that everybody may change."""
    return OPEN


async def change_acls(session: KazooSession, *, secure: bool) -> AsyncIterator[str]:
    """Secure, or open, all nodes of brokers, many at once; yield the path of each that is done.

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
        paths = [left.pop() for _ in range(min(AT_ONCE, len(left)))]
        changes = [_change_acl(session, path, acl_of(path)) for path in paths]

        # All have ended before an error is raised: none goes on behind the caller's back.
        results = await asyncio.gather(*changes, return_exceptions=True)
        for path, result in zip(paths, results, strict=True):
            if isinstance(result, BaseException):
                raise result
            is_there, names = result
            if is_there:
                yield path
            left += [f"{path}/{name}" for name in names]


async def _change_acl(
    session: KazooSession, path: str, acl: Sequence[Permission]
) -> tuple[bool, Sequence[str]]:
    """Change the ACL of a node; return whether it is there, and its children."""
    try:
        stat = await session.set_acl(path, acl)
    except NoNode:
        return False, ()

    # Most nodes have none.
    names = await children_if_there(session, path) if stat.num_children else ()
    return True, names
