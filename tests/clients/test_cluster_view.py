"""A client's view, updated by metadata responses; and the reading of addresses."""

import attrs
import pytest

from clients.cluster_view import MOST_OLDER, ClusterView, parse_bootstrap
from protocol.errors import ErrorCode
from protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.settings import SettingError
from protocol.topic_partition import TopicPartition

BROKER = MetadataResponseBroker(node_id=1, host="h", port=9092)


def response(*topics: MetadataResponseTopic) -> MetadataResponse:
    return MetadataResponse(brokers=[BROKER], controller_id=1, topics=topics)


def topic(
    name: str, *leaders: int, error: ErrorCode = ErrorCode.NONE, epoch: int = -1
) -> MetadataResponseTopic:
    partitions = [
        MetadataResponsePartition(
            error_code=0,
            partition_index=index,
            leader_id=leader,
            leader_epoch=epoch,
            replica_nodes=[1],
            isr_nodes=[1],
        )
        for index, leader in enumerate(leaders)
    ]
    return MetadataResponseTopic(error_code=error, name=name, partitions=partitions)


def test_partition_without_leader_counts_but_is_not_led() -> None:
    view = ClusterView().updated(response(topic("t", 1, -1)), whole=False)
    assert len(view.topics["t"]) == 2
    assert view.leaders == {TopicPartition("t", 0): 1}


@pytest.mark.parametrize(
    ("in_sync", "reason"),
    [
        ([], "it has no leader"),
        ([1, 2], "it has no leader"),
        ([2], "it has no leader, as no broker that was in sync is there; start broker 2"),
        ([3, 2], "it has no leader, as no broker that was in sync is there; start broker 3 or 2"),
    ],
)
def test_brokers_that_a_partition_without_leader_waits_for_are_named(
    in_sync: list[int], reason: str
) -> None:
    leaderless = topic("t", -1)
    partitions = [attrs.evolve(partition, isr_nodes=in_sync) for partition in leaderless.partitions]
    leaderless = attrs.evolve(leaderless, partitions=partitions)
    view = ClusterView().updated(response(leaderless), whole=False)
    assert view.why_leaderless(TopicPartition("t", 0)) == reason
    assert view.why_leaderless(TopicPartition("t", 1)) == "it has no leader"


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    "error", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
)
def test_topic_that_answers_with_an_error_keeps_what_was_known_of_it(
    error: ErrorCode, whole: bool
) -> None:
    known = ClusterView().updated(response(topic("t", 1)), whole=False)
    view = known.updated(response(topic("t", error=error)), whole=whole)
    assert view.leaders == {TopicPartition("t", 0): 1}
    assert view.errors == {"t": error}


def test_topic_not_asked_for_is_kept_and_one_missing_from_the_whole_is_forgotten() -> None:
    known = ClusterView().updated(response(topic("t", 1)), whole=False)
    assert set(known.updated(response(topic("u", 1)), whole=False).topics) == {"t", "u"}
    assert set(known.updated(response(topic("u", 1)), whole=True).topics) == {"u"}


def test_error_is_forgotten_once_the_topic_is_well() -> None:
    ill = response(topic("t", error=ErrorCode.LEADER_NOT_AVAILABLE))
    view = ClusterView().updated(ill, whole=False).updated(response(topic("t", 1)), whole=False)
    assert view.errors == {}


def test_what_a_response_does_not_name_keeps_its_error_and_how_often_it_was_older() -> None:
    ill = topic("u", error=ErrorCode.LEADER_NOT_AVAILABLE)
    before, again = topic("t", 2, epoch=5), topic("t", 1, epoch=0)
    view = told(ill, before, *[again] * (MOST_OLDER - 1))
    assert view.errors == {"u": ErrorCode.LEADER_NOT_AVAILABLE}
    view = view.updated(response(topic("v", 1)), whole=False)
    assert view.find_doubtful() == frozenset()
    assert view.updated(response(again), whole=False).find_doubtful() == {"t"}
    assert view.updated(response(), whole=True) == ClusterView().updated(response(), whole=True)


def told(*states: MetadataResponseTopic) -> ClusterView:
    view = ClusterView()
    for state in states:
        view = view.updated(response(state), whole=False)
    return view


def test_a_broker_that_is_behind_does_not_bring_back_a_leader_that_was_deposed() -> None:
    view = told(topic("t", 2, epoch=5), topic("t", 1, epoch=4))
    assert view.leaders == {TopicPartition("t", 0): 2}


def test_a_broker_that_is_behind_does_not_take_partitions_away() -> None:
    """Keys choose partitions by their number, which never falls while a topic lives."""
    assert len(told(topic("t", 1, 2, epoch=0), topic("t", 1, epoch=0)).topics["t"]) == 2


def test_within_an_epoch_and_from_brokers_that_tell_none_the_last_word_counts() -> None:
    view = told(topic("t", 2, epoch=5), topic("t", -1, epoch=5))
    assert view.leaders == {}
    assert told(topic("t", 2, epoch=5), topic("t", 1)).leaders == {TopicPartition("t", 0): 1}


def test_a_topic_that_was_made_again_is_believed_when_it_has_been_told_often_enough() -> None:
    before, again = topic("t", 2, 2, epoch=5), topic("t", 1, epoch=0)
    view = told(before, *[again] * 10 * MOST_OLDER)
    assert (view.leaders[TopicPartition("t", 0)], view.find_doubtful()) == (2, {"t"})
    assert view.without({"t"}).updated(response(again), whole=False).leaders == {
        TopicPartition("t", 0): 1
    }
    assert not told(before, *[again] * (MOST_OLDER - 1), before, again).find_doubtful()


def test_bootstrap_servers_are_read_with_names_addresses_and_spaces() -> None:
    read = parse_bootstrap("a:1, 10.0.0.1:2,[::1]:3,")
    assert [(e.host, e.port) for e in read] == [("a", 1), ("10.0.0.1", 2), ("::1", 3)]
    assert len({e.node_id for e in read}) == 3
    assert all(e.node_id < 0 for e in read)


@pytest.mark.fault("broker-8")
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "sasl_ssl", "EXTERNAL"])
def test_a_protocol_before_the_host_is_taken_whatever_it_is(protocol: str) -> None:
    read = parse_bootstrap(f"{protocol}://a:1,{protocol}://[::1]:3, b:2")
    assert [e.address for e in read] == [("a", 1), ("::1", 3), ("b", 2)]


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "host",
        "PLAINTEXT://",
        "PLAINTEXT://:1",
        "PLAINTEXT://h",
        "PLAINTEXT://h:1/",
        "h:1://",
        "host:",
        ":9092",
        "host:port",
        "host:0",
        "h:99999",
        "a..b:1",
        "a\0b:1",
        "h:²",
    ],
)
def test_bootstrap_servers_that_name_no_address_are_refused(wrong: str) -> None:
    with pytest.raises(SettingError, match=r"bootstrap\.servers"):
        parse_bootstrap(wrong)


@pytest.mark.parametrize("whole", [False, True])
def test_a_topic_with_another_id_is_no_older_state_of_the_one_before(whole: bool) -> None:
    before, again = topic("t", 2, 2, epoch=5), topic("t", 1, epoch=0)
    before.topic_id, again.topic_id = b"1" * 16, b"2" * 16
    view = told(before).updated(response(again), whole=whole)
    assert (view.leaders, view.topic_ids) == ({TopicPartition("t", 0): 1}, {"t": b"2" * 16})
