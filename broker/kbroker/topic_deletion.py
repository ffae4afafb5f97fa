"""Say what has become of topics that were deleted: a name stays taken until every replica is gone.

Brokers no longer show such a topic, so it is told by its name, which nobody can create (yet).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from broker.kbroker.cluster_access import ClusterAccess
from clients.admin.descriptions import TopicDescription
from clients.errors import KgroupError
from protocol.errors import ApiError

LOOK_AGAIN_S = 0.1


class Deletion(NamedTuple):
    """What is known of one topic's deletion: the brokers that it waits for, and whether it does."""

    waits: bool
    away: Sequence[int] = ()

    def sentence(self, name: str) -> str:
        """Say what has become of the topic of this name."""
        if not self.waits:
            return f"Deleted topic {name}."
        marked = f"Topic {name} is marked for deletion"
        if not self.away:
            return f"{marked}."
        brokers = ", ".join(map(str, self.away))
        if len(self.away) == 1:
            return f"{marked}; waits for broker {brokers}, which is not alive."
        return f"{marked}; waits for brokers {brokers}, which are not alive."


async def find_away(cluster: ClusterAccess) -> dict[str, list[int]]:
    """Return the brokers that are not alive, and have replicas, of each topic that has such."""
    topics = await cluster.describe_topics()
    live = await cluster.list_brokers()
    away = {name: replicas_away(topic, live) for name, topic in topics.items()}
    return {name: brokers for name, brokers in away.items() if brokers}


def replicas_away(topic: TopicDescription, live: Collection[int]) -> list[int]:
    """Return the brokers of a topic that are not alive."""
    replicas = {broker for partition in topic.partitions.values() for broker in partition.replicas}
    return sorted(replicas.difference(live))


async def follow_deletions(
    names: Iterable[str],
    away: Mapping[str, Sequence[int]],
    find_taken: Callable[[Sequence[str]], Awaitable[Collection[str]]],
    patience_s: float,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> dict[str, Deletion]:
    """Return what has become of topics whose deletion was accepted.

    Those that wait for a broker that is `away` are not waited for; others until nobody's name is
    taken, or for `patience_s`.
    """
    now = asyncio.get_running_loop().time
    until_s = now() + patience_s
    deletions = {name: Deletion(name in away, away.get(name, ())) for name in names}

    left = [name for name, deletion in deletions.items() if not deletion.waits]
    while left:
        try:
            left = list(await find_taken(left))
        except (ApiError, KgroupError):
            # Who may delete a topic may not always ask: then nobody knows better.
            break
        if now() >= until_s:
            deletions |= dict.fromkeys(left, Deletion(True))
            break
        if left:
            await pause(LOOK_AGAIN_S)
    return deletions
