"""Which topics a command line is about: names, or one of Kafka's patterns."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import click

from broker.kbroker.cluster_access import ClusterAccess
from clients.admin.descriptions import TopicDescription
from groups.zookeeper.filters import Whitelist
from protocol.errors import ApiError, ErrorCode

T = TypeVar("T")


def require_name(name: str | None, pattern: str | None) -> str:
    """The one name of a command line that must have one."""
    if (name is None) == (pattern is None):
        raise click.UsageError("say which topic: NAME, or --topic NAME")
    return name or pattern or ""


def match_topics(
    names: Sequence[str], pattern: str | None, existing: Mapping[str, T]
) -> dict[str, T]:
    """Those of `existing` that are named, or allowed by the pattern. Raises ApiError for a name
    that is none, and for a pattern that allows none."""
    if pattern is not None and pattern not in existing:
        allows = Whitelist(pattern).allows
        found = {name: topic for name, topic in existing.items() if allows(name)}
        if not found:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic matches {pattern}")
        return found
    wanted = list(names) if pattern is None else [pattern]
    for name in wanted:
        if name not in existing:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    return {name: existing[name] for name in wanted}


async def choose_topics(
    cluster: ClusterAccess, names: Sequence[str], pattern: str | None, *, if_exists: bool = False
) -> dict[str, TopicDescription]:
    """The topics a command line is about; all of them if it names none."""
    existing = await cluster.describe_topics()
    if not names and pattern is None:
        return existing
    try:
        return match_topics(names, pattern, existing)
    except ApiError:
        if if_exists:
            return {}
        raise
