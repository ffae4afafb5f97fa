"""Topic filters: Kafka's TopicFilterTest, and what Java and Python read differently."""

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from groups.zookeeper.filters import Blacklist, InvalidTopicFilter, Whitelist
from zk.embedded import find_java


def allowed(topic_filter: Whitelist | Blacklist, exclude_internal_topics: bool) -> list[str]:
    topics = ("white1", "white2", "black1", "test-topic", "alphabet", "__consumer_offsets")
    return [
        topic
        for topic in topics
        if topic_filter.allows(topic, exclude_internal_topics=exclude_internal_topics)
    ]


def test_a_comma_in_a_whitelist_means_or() -> None:
    assert allowed(Whitelist("white1,white2"), True) == ["white1", "white2"]


def test_a_whitelist_of_everything_leaves_out_internal_topics_when_told_to() -> None:
    assert "__consumer_offsets" not in allowed(Whitelist(".+"), True)
    assert "__consumer_offsets" in allowed(Whitelist(".+"), False)


def test_a_whitelist_matches_the_whole_name() -> None:
    assert allowed(Whitelist("white"), True) == []


def test_a_whitelist_may_look_ahead() -> None:
    look_ahead = Whitelist("test-(?!bad\\b)[\\w]+")
    assert look_ahead.allows("test-good")
    assert not look_ahead.allows("test-bad")


def test_a_blacklist_allows_what_does_not_match_and_is_not_internal() -> None:
    assert allowed(Blacklist("black1"), True) == ["white1", "white2", "test-topic", "alphabet"]
    assert "__consumer_offsets" in allowed(Blacklist("black1"), False)


def test_a_pattern_loses_spaces_and_the_quotes_around_it() -> None:
    assert Whitelist(" \"'fl.*, go.*'\" ") == Whitelist("fl.*|go.*")


def test_a_white_and_a_black_list_of_one_pattern_differ() -> None:
    assert Whitelist("a") != Blacklist("a")


ALIKE = [
    *("", "fl.*", "test-(?!bad\\b)[\\w]+", "white1,white2", "[a-z0-9_.-]+", "(?i)WHITE.", "a{2}"),
    *("(?:ab)+?c", "[^-a]+", "[\\w-]*", "a|b||", "(?<=w)h.*", ".*(?<!x)y", "\\]\\[", "#a", "a.b-c"),
    *("[\\]^]", "[&a]", "^a$", "(a|b)*", "\\d\\D\\s\\S\\W", "[a-c-]", "[-a-c]", "[-]", "(a)(b)?"),
]
REFUSED = [
    *(
        "a(",
        "a)",
        "\\p{Alpha}+",
        "\\Qa.b\\E",
        "[a-z&&[^b]]",
        "[[a]b]",
        "a{1,2}",
        "a{",
        "]",
        "}",
        "a++",
    ),
    *("*a", "(*a)", "a|*", "(?<n>a)", "(?P<n>a)", "(?>a)", "(a)\\1", "(?=a)*", "^*", "[]a]", "[^]"),
    *("[\\w-z]", "a\\Z", "\\x41", "\u00e9", "a(?i)b", "[a-c-e]", "[z-a]", "a**", "(?<=a+)b", "\\"),
    *(
        "[a",
        "{2}",
        "\\b+",
        "a\tb",
        "a{2}{3}",
        "\\h",
        "\\R",
        "\\G",
        "(?x)a",
        "[a||b]",
        "\\cA",
        "\\0",
    ),
]


@pytest.mark.parametrize("pattern", ALIKE)
def test_what_java_and_python_read_alike_is_a_pattern(pattern: str) -> None:
    Whitelist(pattern)


@pytest.mark.parametrize("pattern", REFUSED)
def test_what_they_may_read_differently_is_refused_and_named(pattern: str) -> None:
    with pytest.raises(InvalidTopicFilter, match=re.escape(repr(pattern.replace(",", "|")))):
        Whitelist(pattern)


def test_an_escaped_backslash_before_a_p_is_no_character_class() -> None:
    assert Whitelist(r"a\\p").allows(r"a\p")


PIECES = [
    *(
        "a",
        "b",
        "1",
        "-",
        "_",
        ".",
        "\\.",
        "\\w",
        "\\d",
        "\\W",
        "\\s",
        "\\-",
        "\\[",
        "[ab]",
        "[^ab]",
        "[a-c_]",
    ),
    *(
        "[\\w.-]",
        "[\\d-]",
        "[^\\w]",
        "[a&b]",
        "[\\]\\\\]",
        "^",
        "$",
        "\\b",
        "\\B",
        "|",
        "a?",
        "a*",
        "(?:b+)",
        "a{2}",
    ),
    *(
        ".*",
        ".+?",
        "(ab|b)*",
        "(?=a)",
        "(?!b)",
        "(?<=a)",
        "(?<!b)",
        "(a?)",
        "(a|)",
        "(?:)",
        "()",
        "~",
        "#",
        "&",
    ),
]
NAMES = [
    "a",
    "b",
    "ab",
    "aab",
    "abb",
    "a-b",
    "a_b",
    "a.b",
    "1",
    "b1",
    "A",
    "aB",
    "ba1-",
    "~",
    "]",
    "&a",
]


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    """Start a Java virtual machine, by the bridge that comes with Spark."""
    gateway = pytest.importorskip("py4j.java_gateway", reason="missing tool: py4j")
    pyspark = pytest.importorskip("pyspark", reason="missing tool: pyspark")
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    port = gateway.launch_gateway(jarpath=str(jar), die_on_exit=True, java_path=str(find_java()))
    opened = gateway.JavaGateway(gateway_parameters=gateway.GatewayParameters(port=port))
    yield opened.jvm
    opened.shutdown()


def test_java_itself_reads_random_patterns_as_we_do(java: Any) -> None:
    random = Random(7)
    read = 0
    patterns = [*ALIKE]
    patterns += ["".join(random.choices(PIECES, k=random.randint(1, 5))) for _ in range(400)]
    patterns += [f"(?i){pattern}" for pattern in patterns[-100:]]

    for pattern in patterns:
        try:
            topic_filter = Whitelist(pattern)
        except InvalidTopicFilter:
            continue
        read += 1
        compiled = java.java.util.regex.Pattern.compile(topic_filter.regex)
        theirs = [name for name in NAMES if compiled.matcher(name).matches()]
        assert [name for name in NAMES if topic_filter.allows(name)] == theirs, topic_filter.regex

    assert read > 250
