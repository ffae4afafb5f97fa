"""Registrations: names of members and threads, and how a peer's registration is read."""

from typing import Any

import attrs
import pytest

from groups.zookeeper.filters import Blacklist, Whitelist
from groups.zookeeper.registration import (
    FilterSubscription,
    MalformedRegistration,
    StaticSubscription,
    build_registration,
    consumer_of,
    describe_missing,
    new_consumer_id,
    stream_index,
    subscription_of,
    thread_ids,
    threads_by_topic,
)
from zk.znodes import ConsumerRegistration


def registered(subscription: dict[str, int], pattern: str) -> ConsumerRegistration:
    return ConsumerRegistration(subscription=subscription, pattern=pattern, timestamp_ms=0)


def test_a_consumer_id_is_made_of_group_host_time_and_eight_hex_digits() -> None:
    uuid_bits = 0x1A2B3C4D5E6F70819203A4B5C6D7E8F9
    assert new_consumer_id("g", "host", 1418710530123, uuid_bits) == "g_host-1418710530123-1a2b3c4d"


def test_a_thread_id_gives_back_consumer_and_stream() -> None:
    (_, second) = thread_ids("g_my-host-1-1a2b3c4d", 2)
    assert second == "g_my-host-1-1a2b3c4d-1"
    assert consumer_of(second) == "g_my-host-1-1a2b3c4d"
    assert stream_index(second) == 1


def test_a_static_registration_is_written_as_kafka_writes_it() -> None:
    written = build_registration(StaticSubscription({"topic1": 2}), 1418710530123).encode()
    assert written == (
        b'{"version":1,"subscription":{"topic1":2},"pattern":"static","timestamp":"1418710530123"}'
    )


def test_a_filter_comes_back_from_its_registration() -> None:
    for topic_filter in (Whitelist(r"test-(?!bad\b)[\w]+"), Blacklist('a"/b')):
        wanted = FilterSubscription(topic_filter, 3)
        written = build_registration(wanted, 5).encode()
        assert subscription_of(ConsumerRegistration.decode(written)) == wanted


def test_an_empty_subscription_is_static_whatever_the_pattern() -> None:
    assert subscription_of(registered({}, "white_list")) == StaticSubscription({})


def test_an_unknown_pattern_is_static() -> None:
    assert subscription_of(registered({"t": 1}, "grey_list")) == StaticSubscription({"t": 1})


def test_only_the_first_entry_of_a_filter_counts() -> None:
    read = subscription_of(registered({"a.*": 2, "b.*": 7}, "white_list"))
    assert read == FilterSubscription(Whitelist("a.*"), 2)


@pytest.mark.parametrize(
    ("subscription", "pattern"),
    [({"t": 0}, "static"), ({"t": 2**31 - 1}, "static"), ({"(": 1}, "white_list")],
)
def test_a_registration_without_meaning_is_malformed(
    subscription: dict[str, int], pattern: str
) -> None:
    with pytest.raises(MalformedRegistration):
        subscription_of(registered(subscription, pattern))


def test_a_topic_that_can_never_be_is_consumed_by_a_member_like_any_other() -> None:
    wanted = {"no topic": 1, "a/b": 1, "...": 1, "t\N{LATIN SMALL LETTER O WITH DIAERESIS}": 1}
    assert subscription_of(registered(wanted, "static")) == StaticSubscription(wanted)


def test_threads_of_all_members_are_found_by_topic() -> None:
    members = {
        "c1": StaticSubscription({"a": 2, "missing": 1}),
        "c2": FilterSubscription(Whitelist(".*"), 1),
        "c3": StaticSubscription({}),
    }
    assert threads_by_topic(members, ("a", "b", "__consumer_offsets"), True) == {
        "a": ("c1-0", "c1-1", "c2-0"),
        "missing": ("c1-0",),
        "b": ("c2-0",),
    }


@attrs.frozen
class Counted:
    """A subscription to all topics that counts how often it is read."""

    looks: list[str]
    key: str = "all"

    def streams_of(self, all_topics: tuple[str, ...], exclude_internal_topics: bool) -> Any:
        self.looks.append(self.key)
        return dict.fromkeys(all_topics, 2)


@pytest.mark.parametrize("members", [50, 200, 1000])
def test_members_that_subscribe_alike_are_looked_at_once_however_many_they_are(
    members: int,
) -> None:
    subscription: Any = Counted([])
    other: Any = Counted(subscription.looks, "other")
    group = {f"g_{i}": other if i % 10 == 0 else subscription for i in range(members)}
    threads = threads_by_topic(group, tuple(f"t{i}" for i in range(100)), True)
    assert sorted(subscription.looks) == ["all", "other"]
    assert len({id(thread_ids) for thread_ids in threads.values()}) == 1
    assert set(threads["t0"]) == {f"g_{i}-{j}" for i in range(members) for j in range(2)}


def test_a_member_says_what_it_waits_for() -> None:
    named = StaticSubscription({"a": 1, "b": 1, "c": 1})
    counts = {"c": 0, "b": 2, "a": 0}
    assert describe_missing(named, counts) == "no partitions of a, c are known yet"
    assert describe_missing(named, {"a": 1, "b": 1, "c": 1}) == ""
    assert describe_missing(StaticSubscription({}), {}) == ""

    matching = FilterSubscription(Whitelist("x.*"))
    assert describe_missing(matching, {}) == "no topic passes the filter 'x.*' yet"
    assert describe_missing(matching, {"x1": 1}) == ""
