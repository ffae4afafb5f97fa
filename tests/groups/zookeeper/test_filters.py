"""Topic filters: Kafka's TopicFilterTest, and what Java and Python read differently."""

import pytest

from groups.zookeeper.filters import Blacklist, InvalidTopicFilter, Whitelist


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


@pytest.mark.parametrize("pattern", ["a(", "\\p{Alpha}+", "\\Qa.b\\E", "[a-z&&[^b]]"])
def test_a_pattern_that_python_and_java_read_differently_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidTopicFilter):
        Whitelist(pattern)


def test_an_escaped_backslash_before_a_p_is_no_character_class() -> None:
    assert Whitelist(r"a\\p").allows(r"a\p")
