"""What a member says of itself in `/consumers/<group>/ids/<consumer id>`, and how peers read it.

A member is one consumer connector; its streams are threads, `<consumer id>-0`, `-1`, ... A thread
owns partitions. Names, JSON and their reading are those of Kafka's ZookeeperConsumerConnector and
TopicCount, because a JVM member of the same group must come to the same assignment.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping

import attrs

from groups.zookeeper.assignment import CLUSTERED
from groups.zookeeper.filters import (
    Blacklist,
    InvalidTopicFilter,
    TopicFilter,
    Whitelist,
    allowed_topics,
)
from protocol.topic_name import LEGAL, is_legal
from zk.znodes import ConsumerRegistration

STATIC, WHITE_LIST, BLACK_LIST = "static", "white_list", "black_list"
_FILTERS: dict[str, type[Whitelist] | type[Blacklist]] = {
    WHITE_LIST: Whitelist,
    BLACK_LIST: Blacklist,
}
STRATEGY_KEY = "strategy"
"""Written beside Kafka's keys, which JVM members skip over, by members with a strategy of ours: a
registration without it is a JVM member's, or of a member that might be one."""

MAX_STREAMS = 100_000  # of one topic in one member: a bound on what a peer can make us allocate
MAX_REGISTRATION_BYTES = 1_000_000  # ZooKeeper takes no node beyond jute.maxbuffer, 1 MiB

_PATH_PART = re.compile(
    r"(?!\.\.?$) [^/\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]+", re.VERBOSE
)
"""What ZooKeeper takes between two slashes of a path. JVM members look a topic up whatever its name
is, and where that is no path their rebalance fails, each time."""


class MalformedRegistration(ValueError):
    """A registration that is well-formed JSON, and still means nothing."""


@attrs.frozen
class StaticSubscription:
    """So many streams for each of these topics. No topics: a member that consumes nothing."""

    streams: Mapping[str, int]

    @property
    def key(self) -> Hashable:
        """Equal for members that want the same."""
        return frozenset(self.streams.items())

    def streams_of(
        self, all_topics: tuple[str, ...], exclude_internal_topics: bool
    ) -> dict[str, int]:
        """Topic -> number of streams; a topic need not exist."""
        return dict(self.streams)


@attrs.frozen
class FilterSubscription:
    """So many streams, each over all topics that the filter allows."""

    filter: TopicFilter
    num_streams: int = 1

    @property
    def key(self) -> Hashable:
        """Equal for members that want the same."""
        return self

    def streams_of(
        self, all_topics: tuple[str, ...], exclude_internal_topics: bool
    ) -> dict[str, int]:
        """Topic -> number of streams. Kafka applies the *reader's* exclude.internal.topics."""
        allowed = allowed_topics(self.filter, all_topics, exclude_internal_topics)
        return dict.fromkeys(allowed, self.num_streams)


Subscription = StaticSubscription | FilterSubscription


def new_consumer_id(group_id: str, host: str, now_ms: int, uuid_bits: int) -> str:
    """Kafka's form of an id: group, host, start time, high 32 bits of a random UUID of 128."""
    return f"{group_id}_{host}-{now_ms}-{uuid_bits >> 96:08x}"


def thread_ids(consumer_id: str, num_streams: int) -> list[str]:
    """The ids under which a member's streams own partitions of one topic."""
    return [f"{consumer_id}-{index}" for index in range(num_streams)]


def consumer_of(thread_id: str) -> str:
    """The consumer id inside a thread id: what stands before the last hyphen."""
    return thread_id.rpartition("-")[0]


def stream_index(thread_id: str) -> int:
    """Which of its member's streams a thread is, from 0."""
    return int(thread_id.rpartition("-")[2])


def register(
    subscription: Subscription, now_ms: int, strategy: str = "range"
) -> ConsumerRegistration:
    """Our own registration, as a value of the znode."""
    match subscription:
        case StaticSubscription(streams):
            wanted, pattern = dict(streams), STATIC
        case FilterSubscription(topic_filter, num_streams):
            wanted = {topic_filter.regex: num_streams}
            pattern = WHITE_LIST if isinstance(topic_filter, Whitelist) else BLACK_LIST
    extra = {STRATEGY_KEY: strategy} if strategy == CLUSTERED else {}
    return ConsumerRegistration(wanted, pattern, timestamp_ms=now_ms, extra=extra)


def check_subscription(subscription: Subscription) -> None:
    """Raise ValueError for what other members could not read, which would stop the whole group."""
    registration = register(subscription, now_ms=0)

    for wanted, num_streams in registration.subscription.items():
        if not 1 <= num_streams <= MAX_STREAMS:
            raise ValueError(f"{wanted!r}: {num_streams} streams, not 1 to {MAX_STREAMS}")

    if isinstance(subscription, StaticSubscription):
        for topic in subscription.streams:
            if not is_legal(topic):
                raise ValueError(f"topic name {topic!r} is not {LEGAL}")

    size = len(registration.encode())
    if size > MAX_REGISTRATION_BYTES:
        raise ValueError(
            f"the subscription takes {size} bytes in ZooKeeper, more than {MAX_REGISTRATION_BYTES}"
        )


def subscription_of(registration: ConsumerRegistration) -> Subscription:
    """What a member's registration asks for: Kafka's reading of it.

    An empty subscription is static whatever its pattern says, as is an unknown pattern; of a
    filter only the first entry counts. Raises MalformedRegistration.
    """
    for wanted, num_streams in registration.subscription.items():
        if not 1 <= num_streams <= MAX_STREAMS:
            raise MalformedRegistration(f"{num_streams} streams of {wanted}")
    kind = _FILTERS.get(registration.pattern or "")
    if kind is None or not registration.subscription:
        for topic in registration.subscription:
            if not all(map(_PATH_PART.fullmatch, topic.split("/"))):
                raise MalformedRegistration(f"{topic!r} cannot be the name of a topic")
        return StaticSubscription(registration.subscription)
    regex, num_streams = next(iter(registration.subscription.items()))
    try:
        return FilterSubscription(kind(regex), num_streams)
    except InvalidTopicFilter as error:
        raise MalformedRegistration(str(error)) from error


def strategy_of(registration: ConsumerRegistration) -> str | None:
    """Return the strategy that a registration names; None for those of JVM members."""
    named = registration.extra.get(STRATEGY_KEY)
    return None if named is None else str(named)


def find_strategy_conflict(
    members: Iterable[str], strategies: Mapping[str, str], strategy: str
) -> str | None:
    """Return why a member with `strategy` cannot be in this group; None if it can.

    `strategies`: consumer id -> the strategy in its registration, where that names one.
    """
    for consumer_id in members:
        if conflict := strategy_conflict(strategies.get(consumer_id), strategy):
            return f"cannot rebalance with the member {consumer_id}: {conflict}"
    return None


def strategy_conflict(theirs: str | None, strategy: str) -> str | None:
    """Return why members with `theirs` and with `strategy` cannot share a group; None if they can.

    Only `clustered` is visible: nobody can tell range and roundrobin members apart, in Kafka
    either.
    """
    ours = CLUSTERED if strategy == CLUSTERED else None
    if theirs == ours:
        return None
    if ours is None:
        return f"it has partition.assignment.strategy={theirs}, we have {strategy}"
    return (
        f"its registration says nothing of a strategy, as those of JVM members: {ours} is for "
        f"groups whose members all have partition.assignment.strategy={ours}"
    )


def threads_by_topic(
    members: Mapping[str, Subscription], all_topics: tuple[str, ...], exclude_internal_topics: bool
) -> dict[str, tuple[str, ...]]:
    """Topic -> ids of all threads of all members that consume it: the input of an assignor.

    Members that subscribe alike are looked at once, and topics with the same consumers share one
    tuple, so that an assignor can see that they do.
    """
    alike: dict[Hashable, list[str]] = {}
    for consumer_id, subscription in members.items():
        alike.setdefault(subscription.key, []).append(consumer_id)

    parties: dict[str, list[tuple[int, int]]] = {}  # topic -> (which consumers, streams of each)
    for number, consumer_ids in enumerate(alike.values()):
        subscription = members[consumer_ids[0]]
        wanted = subscription.streams_of(all_topics, exclude_internal_topics)
        for topic, num_streams in wanted.items():
            parties.setdefault(topic, []).append((number, num_streams))

    consumers = [*alike.values()]
    threads: dict[tuple[tuple[int, int], ...], tuple[str, ...]] = {}
    by_topic: dict[str, tuple[str, ...]] = {}
    for topic, party in parties.items():
        if (key := tuple(party)) not in threads:
            threads[key] = tuple(
                thread
                for number, num_streams in party
                for consumer_id in consumers[number]
                for thread in thread_ids(consumer_id, num_streams)
            )
        by_topic[topic] = threads[key]
    return by_topic
