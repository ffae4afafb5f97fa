"""Topic filters: subscribe to every topic a regular expression allows (Kafka's TopicFilter).

The pattern is Java's, read by Python's `re` over ASCII: character classes, look-around, possessive
quantifiers and counted repeats agree; `\\p{...}`, `\\Q..\\E` and class intersection do not exist
here and are refused, never read as something else.
"""

from __future__ import annotations

import re
from functools import lru_cache

import attrs

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})

_QUOTES = "'\""
_JAVA_ONLY = re.compile(r"(?:[^\\]|^)(?:\\\\)*(\\[pPQE]|&&)")


class InvalidTopicFilter(ValueError):
    """The pattern is no regular expression that we and a JVM member would read alike."""


@lru_cache(maxsize=256)
def _compiled(regex: str) -> re.Pattern[str]:
    if java_only := _JAVA_ONLY.search(regex):
        raise InvalidTopicFilter(f"{regex!r}: {java_only[1]} is not supported in a topic filter")
    try:
        return re.compile(regex, re.ASCII)
    except re.error as error:
        raise InvalidTopicFilter(f"{regex!r} is not a regular expression: {error}") from error


def _normalised(raw: str) -> str:
    """Kafka's clean-up: a comma means "or", spaces go, quotes around the whole go."""
    regex = raw.strip().replace(",", "|").replace(" ", "").lstrip(_QUOTES).rstrip(_QUOTES)
    _compiled(regex)
    return regex


@attrs.frozen
class Whitelist:
    """Allows the topics whose whole name matches. Raises InvalidTopicFilter."""

    regex: str = attrs.field(converter=_normalised)

    def allows(self, topic: str, *, exclude_internal_topics: bool = True) -> bool:
        """Whether a member with this filter consumes `topic`."""
        hidden = exclude_internal_topics and topic in INTERNAL_TOPICS
        return not hidden and _compiled(self.regex).fullmatch(topic) is not None


@attrs.frozen
class Blacklist:
    """Allows the topics whose whole name does not match. Raises InvalidTopicFilter."""

    regex: str = attrs.field(converter=_normalised)

    def allows(self, topic: str, *, exclude_internal_topics: bool = True) -> bool:
        """Whether a member with this filter consumes `topic`."""
        hidden = exclude_internal_topics and topic in INTERNAL_TOPICS
        return not hidden and _compiled(self.regex).fullmatch(topic) is None


TopicFilter = Whitelist | Blacklist
