r"""Topic filters: subscribe to every topic a regular expression allows (Kafka's TopicFilter).

The pattern is Java's, and we read it with Python's `re`. Every member computes every other
member's share, so a pattern that two members read differently gives a partition two owners, or
none. Therefore we take only constructs that both languages are known to read alike:

    a  \.  .               a printable ASCII character, an escaped one, any
    \w \W \d \D \s \S      ASCII classes
    [a-z_.-]  [^...]       classes of these; there a hyphen makes a range or is first or last
    ^  $  \b  \B           anchors
    (...)  (?:...)         groups; nothing refers to them
    (?=...)  (?!...)       look-ahead, and look-behind (?<=...) (?<!...) of one width
    ?  *  +  {n}  {n,m}    repeats; with ? behind them, lazy
    |                      or; a comma becomes one
    (?i)                   at the start: letters of either case

Everything else is refused, and the error names it: constructs of one language alone (`\p{Alpha}`,
`\Q..\E`, `\z`), constructs with two meanings (`[a-z&&[^b]]`, `[[a]b]`, `\Z`, `(?<name>...)`), and
errors in one of them (`a{`; also `a{1,2}` in a filter, whose comma has become a bar).
"""

from __future__ import annotations

import re
from functools import lru_cache

import attrs

from protocol.frozen import frozen
from protocol.internal_topics import INTERNAL_TOPICS

_QUOTES = "'\""
_IGNORE_CASE = "(?i)"

# Any ASCII punctuation behind a backslash stands for itself, in both languages.
_ESCAPED = r"\\ [!-/:-@\[-`{-~]"
_CLASS = r"\\ [wWdDsS]"
# In a class && is an intersection in Java, and Python reserves ~~ and || too.
_IN_CLASS = rf"(?: {_ESCAPED} | (?! && | ~~ | \|\| ) [!-,./0-Z^-~] )"
_TOKEN = re.compile(
    rf"""
    (?P<repeatable> {_ESCAPED} | {_CLASS} | [!"%&',/0-9:;<=>@A-Z_`a-z~.#-]
      | \[ \^?+ (?: -? (?: {_CLASS} | {_IN_CLASS} (?: - {_IN_CLASS} )? )+ -? | - ) \] )
  | (?P<anchor> [$^|] | \\ [bB] )
  | (?P<look>   \( \? <? [=!] )
  | (?P<group>  \( (?: \?: | (?! \? ) ) )
  | (?P<end>    \) )
  | (?P<repeat> (?: [?*+] | \{{ [0-9]{{1,3}} (?: , [0-9]{{0,3}} )? \}} ) \?? )
    """,
    re.VERBOSE,
)


class InvalidTopicFilter(ValueError):
    """The pattern is no regular expression that Java and Python are known to read alike."""


@lru_cache(maxsize=256)
def compile_regex(regex: str) -> re.Pattern[str]:
    """Compile Java's regular expression as it is. Raises InvalidTopicFilter."""
    _check_alike(regex)

    # Java's classes are ASCII unless a flag says otherwise.
    try:
        return re.compile(regex, re.ASCII)
    except re.error as error:
        raise InvalidTopicFilter(f"{regex!r} is not a regular expression: {error}") from error


def _check_alike(regex: str) -> None:
    """Raise InvalidTopicFilter for a construct that the two languages may read differently."""
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

        # A repeat is for a character, a class or a group, and not for a repeat or an anchor.
        repeatable = kind == "repeatable"
        # If there is no open group, `re` reports what is unbalanced.
        if kind == "end" and open_groups:
            repeatable = open_groups.pop() == "group"
        position = token.end()


def _normalise(raw: str) -> str:
    """Clean up as Kafka does: a comma means "or", spaces and the quotes around the whole go."""
    regex = raw.strip().replace(",", "|").replace(" ", "").lstrip(_QUOTES).rstrip(_QUOTES)
    compile_regex(regex)
    return regex


@frozen
class Whitelist:
    """A filter that allows topics whose whole name matches. Raises InvalidTopicFilter."""

    regex: str = attrs.field(converter=_normalise)

    def allows(self, topic: str, *, exclude_internal_topics: bool = True) -> bool:
        """Return whether a member with this filter consumes `topic`."""
        is_hidden = exclude_internal_topics and topic in INTERNAL_TOPICS
        return not is_hidden and compile_regex(self.regex).fullmatch(topic) is not None


@frozen
class Blacklist:
    """A filter that allows topics whose whole name does not match. Raises InvalidTopicFilter."""

    regex: str = attrs.field(converter=_normalise)

    def allows(self, topic: str, *, exclude_internal_topics: bool = True) -> bool:
        """Return whether a member with this filter consumes `topic`."""
        is_hidden = exclude_internal_topics and topic in INTERNAL_TOPICS
        return not is_hidden and compile_regex(self.regex).fullmatch(topic) is None


TopicFilter = Whitelist | Blacklist


@lru_cache(maxsize=64)
def allowed_topics(
    topic_filter: TopicFilter, topics: tuple[str, ...], exclude_internal_topics: bool
) -> tuple[str, ...]:
    """Return those of `topics` that the filter allows.

    The result is cached, because members of one group mostly share one filter.
    """
    return tuple(
        topic
        for topic in topics
        if topic_filter.allows(topic, exclude_internal_topics=exclude_internal_topics)
    )
