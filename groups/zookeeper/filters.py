r"""Topic filters: subscribe to every topic a regular expression allows (Kafka's TopicFilter).

The pattern is Java's, and we read it with Python's `re`. Every member works out every other
member's share, so a pattern that two members read differently ends in two owners of a partition, or
in none. Therefore a pattern is made only of what both languages are known to read alike:

    a  \.  .               a printable ASCII character, an escaped one, any
    \w \W \d \D \s \S      ASCII classes
    [a-z_.-]  [^...]       classes of these; there a hyphen makes a range or is first or last
    ^  $  \b  \B           anchors
    (...)  (?:...)         groups; nothing refers to them
    (?=...)  (?!...)       look-ahead, and look-behind (?<=...) (?<!...) of one width
    ?  *  +  {n}           repeats; with ? behind them, lazy
    |                      or; a comma becomes one
    (?i)                   before all else: letters of either case

All else is refused, and named: what exists in one language alone (`\p{Alpha}`, `\Q..\E`, `\z`),
what means two things (`[a-z&&[^b]]`, `[[a]b]`, `\Z`, `(?<name>...)`), and what is an error in one
of them (`a{`, `a{1,2}` whose comma has become a bar).
"""

from __future__ import annotations

import re
from functools import lru_cache

import attrs

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})

_QUOTES = "'\""
_IGNORE_CASE = "(?i)"
_ESCAPED = r"\\ [!-/:-@\[-`{-~]"
_CLASS = r"\\ [wWdDsS]"
_IN_CLASS = rf"(?: {_ESCAPED} | (?! && | ~~ | \|\| ) [!-,./0-Z^-~] )"
_TOKEN = re.compile(
    rf"""
    (?P<repeatable> {_ESCAPED} | {_CLASS} | [!"%&',/0-9:;<=>@A-Z_`a-z~.#-]
      | \[ \^?+ (?: -? (?: {_CLASS} | {_IN_CLASS} (?: - {_IN_CLASS} )? )+ -? | - ) \] )
  | (?P<anchor> [$^|] | \\ [bB] )
  | (?P<look>   \( \? <? [=!] )
  | (?P<group>  \( (?: \?: | (?! \? ) ) )
  | (?P<end>    \) )
  | (?P<repeat> (?: [?*+] | \{{ [0-9]{{1,3}} \}} ) \?? )
    """,
    re.VERBOSE,
)


class InvalidTopicFilter(ValueError):
    """The pattern is no regular expression that Java and Python are known to read alike."""


@lru_cache(maxsize=256)
def _compiled(regex: str) -> re.Pattern[str]:
    _check_alike(regex)
    try:
        return re.compile(regex, re.ASCII)
    except re.error as error:
        raise InvalidTopicFilter(f"{regex!r} is not a regular expression: {error}") from error


def _check_alike(regex: str) -> None:
    position = len(_IGNORE_CASE) if regex.startswith(_IGNORE_CASE) else 0
    repeatable = False
    open_groups: list[str] = []
    while position < len(regex):
        token = _TOKEN.match(regex, position)
        kind = token.lastgroup if token else None
        if token is None or (kind == "repeat" and not repeatable):
            raise InvalidTopicFilter(
                f"{regex!r}: what begins with {regex[position : position + 8]!r} is not among the "
                "constructs that Java and Python are known to read alike"
            )
        if kind in ("look", "group"):
            open_groups.append(kind)
        repeatable = kind == "repeatable"
        if kind == "end" and open_groups:  # without: `re` says what is unbalanced
            repeatable = open_groups.pop() == "group"
        position = token.end()


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


@lru_cache(maxsize=64)
def allowed_topics(
    topic_filter: TopicFilter, topics: tuple[str, ...], exclude_internal_topics: bool
) -> tuple[str, ...]:
    """Those of `topics` that the filter allows. Members of one group mostly share one filter."""
    return tuple(
        topic
        for topic in topics
        if topic_filter.allows(topic, exclude_internal_topics=exclude_internal_topics)
    )
