"""The broker that is fuzzed: a cluster of its own, with short waits and small limits."""

from __future__ import annotations

from pathlib import Path

from tests.stage.cluster import DevCluster

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1",
    "offsets.topic.num.partitions": "3",
    "socket.request.max.bytes": "1000000",
    # So that requests about ACLs are served, too.
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def fuzzed_cluster(directory: Path) -> DevCluster:
    """Return a cluster of one broker in a directory, to be started."""
    options = [
        option for name, value in SETTINGS.items() for option in ("--set", f"{name}={value}")
    ]
    return DevCluster(directory, tuple(options))
