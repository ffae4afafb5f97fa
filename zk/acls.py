"""Decide who may read and change a znode.

With `zookeeper.set.acl` brokers keep what they create to themselves, and the world may read it, but
for nodes with passwords. These rules are Kafka's (`ZkData.defaultAcls`, `sensitivePath`).
"""

from __future__ import annotations

from typing import NamedTuple

READ = 1
ALL = 31


class Permission(NamedTuple):
    """The rights of an identity. The scheme `auth` stands for all identities of the session."""

    operations: int
    scheme: str
    identity: str


EVERYBODY_ALL = Permission(ALL, "world", "anyone")
EVERYBODY_READS = Permission(READ, "world", "anyone")
CREATOR_ALL = Permission(ALL, "auth", "")

OPEN = (EVERYBODY_ALL,)

CONSUMERS = "/consumers"
"""The node itself is open: consumers of 0.8 to 1.1 create their groups in it."""

SENSITIVE = ("/config/users", "/config/brokers", "/delegation_token/tokens")
"""Paths that begin so are not readable by others: they hold passwords."""

ROOTS = (
    "/admin",
    "/brokers",
    "/cluster",
    "/config",
    "/controller",
    "/controller_epoch",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/delegation_token",
    "/kafka-acl",
    "/kafka-acl-changes",
    "/kafka-acl-extended",
    "/kafka-acl-extended-changes",
    "/kgroup",
)
"""The nodes that are secured, or opened, with all below them. Consumers' own are left alone."""


def secure_acl(path: str) -> tuple[Permission, ...]:
    """Return the ACL of a node that a broker creates, below any chroot."""
    if path == CONSUMERS:
        return OPEN
    if path.startswith(SENSITIVE):
        return (CREATOR_ALL,)
    return (CREATOR_ALL, EVERYBODY_READS)
