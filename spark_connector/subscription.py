"""Choose what a query reads: `subscribe`, `subscribePattern` or `assign`."""

import json
from collections.abc import Iterable

from groups.zookeeper.filters import InvalidTopicFilter, compile_regex
from protocol.frozen import frozen
from protocol.settings import SettingError
from protocol.topic_partition import TopicPartition

SUBSCRIBE = "subscribe"
PATTERN = "subscribePattern"
ASSIGN = "assign"

_LIKE_ASSIGN = '{"topic": [0, 1]}'


@frozen
class Subscription:
    """The topics or partitions of a query. Exactly one of the three has something."""

    topics: tuple[str, ...] = ()
    regex: str = ""
    partitions: frozenset[TopicPartition] = frozenset()

    @property
    def option(self) -> str:
        """The option that says what is read."""
        if self.regex:
            return PATTERN
        return ASSIGN if self.partitions else SUBSCRIBE

    def matching(self, topics: Iterable[str]) -> list[str]:
        """Return those topics in which the pattern is found.

        As in Spark's source, that may be anywhere in the name: `^` and `$` bind it to the ends.
        """
        regex = compile_regex(self.regex)
        return sorted(topic for topic in topics if regex.search(topic))

    def includes(self, partition: TopicPartition) -> bool:
        """Return whether the query reads `partition`, if that exists."""
        if self.regex:
            return bool(self.matching([partition.topic]))
        return partition in self.partitions or partition.topic in self.topics

    def named_topics(self) -> tuple[str, ...]:
        """Return the topics that the option names; a pattern names none."""
        return self.topics or tuple(sorted({partition.topic for partition in self.partitions}))


def read_subscription(topics: tuple[str, ...] | None, regex: str, assign: str) -> Subscription:
    """Read the three options. Raises SettingError unless exactly one of them is given."""
    given = [
        name
        for name, value in ((SUBSCRIBE, topics is not None), (PATTERN, regex), (ASSIGN, assign))
        if value
    ]
    if not given:
        raise SettingError(SUBSCRIBE, f"is required, or {PATTERN} or {ASSIGN} in its place")
    if len(given) > 1:
        raise SettingError(given[1], f"is given with {given[0]}; a query has one of them")

    if regex:
        _check_regex(regex)
    return Subscription(topics or (), regex, _read_assign(assign) if assign else frozenset())


def _check_regex(regex: str) -> None:
    try:
        compile_regex(regex)
    except InvalidTopicFilter as error:
        raise SettingError(PATTERN, str(error)) from error


def _read_assign(text: str) -> frozenset[TopicPartition]:
    try:
        assigned = json.loads(text)
    except ValueError as error:
        raise SettingError(ASSIGN, f"is not like {_LIKE_ASSIGN}: {error}") from error

    partitions = set()
    for topic, ids in assigned.items() if isinstance(assigned, dict) else [("", None)]:
        # `isinstance` would take true for a number.
        if not isinstance(ids, list) or any(
            type(number) is not int or number < 0 for number in ids
        ):
            raise SettingError(ASSIGN, f"is not like {_LIKE_ASSIGN}: {text}")
        partitions |= {TopicPartition(topic, number) for number in ids}

    if not partitions:
        raise SettingError(ASSIGN, "names no partition")
    # Each of thousands is looked for in it, again and again
    # (fault scale-C8, was: tuple(sorted(partitions))).
    return frozenset(partitions)
