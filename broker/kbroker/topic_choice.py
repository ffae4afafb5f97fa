"""A command line chooses topics: by their names, or by one of Kafka's patterns."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import click

from broker.kbroker.cluster_access import ClusterAccess
from clients.admin.descriptions import TopicDescription
from groups.zookeeper.filters import Whitelist
from protocol.errors import ApiError, ErrorCode

T = TypeVar("T")


def require_name(name: str | None, pattern: str | None) -> str:
    """Return the topic that a command line names in one of two ways; UsageError unless in one."""
    if (name is None) == (pattern is None):
        raise click.UsageError("say which topic: NAME, or --topic NAME")
    return name or pattern or ""


def match_topics(
    names: Sequence[str], pattern: str | None, existing: Mapping[str, T]
) -> dict[str, T]:
    """Return the topics of `existing` with these names, or those that match the pattern.

    A pattern that is the exact name of a topic means that topic alone. Raises ApiError for a name
    that does not exist, and for a pattern that matches nothing.
    """
    # A pattern that is no exact name: all that match it.
    if pattern is not None and pattern not in existing:
        allows = Whitelist(pattern).allows
        matching = {name: topic for name, topic in existing.items() if allows(name)}
        if not matching:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic matches {pattern}")
        return matching

    # Names, all of which must exist.
    wanted = list(names) if pattern is None else [pattern]
    for name in wanted:
        if name not in existing:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    return {name: existing[name] for name in wanted}


async def choose_topics(
    cluster: ClusterAccess, names: Sequence[str], pattern: str | None, *, if_exists: bool = False
) -> dict[str, TopicDescription]:
    """Describe the topics that a command line names; all of them if it names none."""
    existing = await cluster.describe_topics()
    if not names and pattern is None:
        return existing

    try:
        return match_topics(names, pattern, existing)
    except ApiError as error:
        if if_exists:
            return {}
        if not await cluster.find_hidden_topics():
            raise
        # Brokers do not tell a topic that one may not describe from one that does not exist.
        text = f"{error.detail}, or you may not describe it (DESCRIBE on the topic)"
        raise ApiError(error.code, text) from None
