"""A member's registration, `/consumers/<group>/ids/<consumer id>`, and how peers read it.

A member is one consumer connector; its streams are threads, `<consumer id>-0`, `-1`, ... A thread
owns partitions. Names, JSON and the way to read it are those of Kafka's ZookeeperConsumerConnector
and TopicCount, because a JVM member of the same group must compute the same assignment.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping

from groups.zookeeper.assignment import CLUSTERED
from groups.zookeeper.filters import (
    Blacklist,
    InvalidTopicFilter,
    TopicFilter,
    Whitelist,
    allowed_topics,
)
from protocol.frozen import frozen
from protocol.topic_name import LEGAL, is_legal
from zk.consumer_znodes import ConsumerRegistration

STATIC = "static"
WHITE_LIST = "white_list"
BLACK_LIST = "black_list"
_FILTERS: dict[str, type[Whitelist] | type[Blacklist]] = {
    WHITE_LIST: Whitelist,
    BLACK_LIST: Blacklist,
}
STRATEGY_KEY = "strategy"
"""Key that members with a strategy of ours write beside Kafka's keys; JVM members skip it. A
registration without it is a JVM member's, or reads as one."""

MAX_STREAMS = 100_000  # of one topic in one member: a bound on what a peer can make us allocate
MAX_REGISTRATION_BYTES = 1_000_000  # ZooKeeper takes no node beyond jute.maxbuffer, 1 MiB

_PATH_PART = re.compile(
    r"(?!\.\.?$) [^/\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]+", re.VERBOSE
)
"""A name that ZooKeeper takes between two slashes of a path. JVM members look up every topic; if a
topic's name is no path their rebalance fails, each time."""


class MalformedRegistration(ValueError):
    """A registration is well-formed JSON, and still means nothing."""


@frozen
class StaticSubscription:
    """A number of streams for each of some topics; without topics the member consumes nothing."""

    streams: Mapping[str, int]

    @property
    def key(self) -> Hashable:
        """Key that is equal for members that subscribe alike."""
        return frozenset(self.streams.items())

    def streams_of(
        self, all_topics: tuple[str, ...], exclude_internal_topics: bool
    ) -> dict[str, int]:
        """Return topic -> number of streams; a topic need not exist."""
        return dict(self.streams)


@frozen
class FilterSubscription:
    """A number of streams, each over all topics that the filter allows."""

    filter: TopicFilter
    num_streams: int = 1

    @property
    def key(self) -> Hashable:
        """Key that is equal for members that subscribe alike."""
        return self

    def streams_of(
        self, all_topics: tuple[str, ...], exclude_internal_topics: bool
    ) -> dict[str, int]:
        """Return topic -> number of streams.

        `exclude_internal_topics` is the *reader's* setting, as in Kafka.
        """
        allowed = allowed_topics(self.filter, all_topics, exclude_internal_topics)
        return dict.fromkeys(allowed, self.num_streams)


Subscription = StaticSubscription | FilterSubscription


def describe_missing(subscription: Subscription, partitions: Mapping[str, int]) -> str:
    """Say what a member waits for: topics without partitions; "" if it waits for none.

    `partitions` has the number of partitions of each topic that it subscribes to.
    """
    if missing := sorted(topic for topic, count in partitions.items() if not count):
        return f"no partitions of {', '.join(missing)} are known yet"
    if isinstance(subscription, FilterSubscription) and not partitions:
        return f"no topic passes the filter {subscription.filter.regex!r} yet"
    return ""


def new_consumer_id(group_id: str, host: str, now_ms: int, uuid_bits: int) -> str:
    """Build an id in Kafka's form: group, host, start time, high 32 of a random UUID's 128 bits."""
    return f"{group_id}_{host}-{now_ms}-{uuid_bits >> 96:08x}"


def thread_ids(consumer_id: str, num_streams: int) -> list[str]:
    """Return the ids under which a member's streams own partitions of one topic."""
    return [f"{consumer_id}-{index}" for index in range(num_streams)]


def consumer_of(thread_id: str) -> str:
    """Return the consumer id in a thread id: the text before the last hyphen."""
    return thread_id.rpartition("-")[0]


def stream_index(thread_id: str) -> int:
    """Return the index of a thread among its member's streams, from 0."""
    return int(thread_id.rpartition("-")[2])


def build_registration(
    subscription: Subscription, now_ms: int, strategy: str = "range"
) -> ConsumerRegistration:
    """Build our own registration, as a value of the znode."""
    match subscription:
        case StaticSubscription(streams):
            streams_of_name = dict(streams)
            pattern = STATIC
        case FilterSubscription(topic_filter, num_streams):
            streams_of_name = {topic_filter.regex: num_streams}
            pattern = WHITE_LIST if isinstance(topic_filter, Whitelist) else BLACK_LIST

    # Members with Kafka's own strategies look like those on the JVM.
    extra = {STRATEGY_KEY: strategy} if strategy == CLUSTERED else {}
    return ConsumerRegistration(streams_of_name, pattern, timestamp_ms=now_ms, extra=extra)


def check_subscription(subscription: Subscription) -> None:
    """Raise ValueError or TypeError if other members could not read it.

    It would stop the whole group.
    """
    # The same bounds as for those who read it.
    registration = build_registration(subscription, now_ms=0)

    for topic_or_pattern, num_streams in registration.subscription.items():
        # True and 1.0 are 1, and no numbers of streams in JSON (fault strangers-166).
        if type(num_streams) is not int:
            raise TypeError(f"{topic_or_pattern!r}: {num_streams!r} streams: must be an int")
        if not 1 <= num_streams <= MAX_STREAMS:
            raise ValueError(f"{topic_or_pattern!r}: {num_streams} streams, not 1 to {MAX_STREAMS}")

    if isinstance(subscription, StaticSubscription):
        for topic in subscription.streams:
            if not is_legal(topic):
                raise ValueError(f"topic name {topic!r} is not {LEGAL}")

    # The node must also fit into one request.
    size = len(registration.encode())
    if size > MAX_REGISTRATION_BYTES:
        raise ValueError(
            f"the subscription takes {size} bytes in ZooKeeper, more than {MAX_REGISTRATION_BYTES}"
        )


def subscription_of(registration: ConsumerRegistration) -> Subscription:
    """Read a member's subscription from its registration, as Kafka does.

    An empty subscription, and one with an unknown pattern, is static. Only the first entry of a
    filter counts. Raises MalformedRegistration.
    """
    # Threads are listed by number: a huge one would take all our memory.
    for topic_or_pattern, num_streams in registration.subscription.items():
        if not 1 <= num_streams <= MAX_STREAMS:
            raise MalformedRegistration(f"{num_streams} streams of {topic_or_pattern}")

    kind = _FILTERS.get(registration.pattern or "")

    # Anything else counts as topics by name, as on the JVM.
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
    # They are clustered, and we are not.
    if ours is None:
        return f"it has partition.assignment.strategy={theirs}, we have {strategy}"

    # We are clustered, and they may be on the JVM.
    return (
        f"its registration names no strategy, as those of JVM members: {ours} is for "
        f"groups whose members all have partition.assignment.strategy={ours}"
    )


def threads_by_topic(
    members: Mapping[str, Subscription], all_topics: tuple[str, ...], exclude_internal_topics: bool
) -> dict[str, tuple[str, ...]]:
    """Return topic -> ids of all threads of all members that consume it: an assignor's input.

    Each distinct subscription is evaluated once. Topics with the same consumers share one tuple, so
    that an assignor sees that they are the same.
    """
    # Members by subscription: most members of a group subscribe alike.
    alike: dict[Hashable, list[str]] = {}
    for consumer_id, subscription in members.items():
        alike.setdefault(subscription.key, []).append(consumer_id)

    # Topic -> (index of the consumers that subscribe alike, streams of each of them).
    parties: dict[str, list[tuple[int, int]]] = {}
    for number, consumer_ids in enumerate(alike.values()):
        subscription = members[consumer_ids[0]]
        streams_by_topic = subscription.streams_of(all_topics, exclude_internal_topics)
        for topic, num_streams in streams_by_topic.items():
            parties.setdefault(topic, []).append((number, num_streams))

    # Each distinct party becomes one tuple of thread ids.
    consumers = [*alike.values()]
    threads: dict[tuple[tuple[int, int], ...], tuple[str, ...]] = {}
    by_topic: dict[str, tuple[str, ...]] = {}
    for topic, party in parties.items():
        if (key := tuple(party)) not in threads:
            threads[key] = tuple(
                thread_id
                for number, num_streams in party
                for consumer_id in consumers[number]
                for thread_id in thread_ids(consumer_id, num_streams)
            )
        by_topic[topic] = threads[key]
    return by_topic
