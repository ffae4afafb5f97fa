"""The cluster as the controller described it."""

from __future__ import annotations

import attrs
import pytest

from broker.cluster.metadata_cache import MetadataCache
from protocol.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from protocol.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataRequestEndpoint,
    UpdateMetadataRequestLiveBroker,
)
from protocol.special_values import LEADER_DURING_DELETE
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import update_metadata
from zk.znodes import Endpoint

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def cache_of(*requests: UpdateMetadataRequest) -> MetadataCache:
    cache = MetadataCache()
    for request in requests:
        cache.update(request)
    return cache


def with_broker(broker: UpdateMetadataRequestLiveBroker) -> MetadataCache:
    return cache_of(
        UpdateMetadataRequest(controller_id=1, controller_epoch=1, live_brokers=[broker])
    )


def test_partitions_are_added_to_those_known() -> None:
    cache = cache_of(update_metadata("t", 2), update_metadata("u", 1))
    assert (sorted(cache.topics()), cache.partition_count("t")) == (["t", "u"], 2)
    assert [state.partition_index for state in cache.partitions("t")] == [0, 1]


def test_names_of_topics_come_and_go_with_them() -> None:
    cache = cache_of(update_metadata("a.b", 1))
    assert cache.names.find_colliding("a_b") == "a.b"
    cache.update(update_metadata("a.b", 1, leader=LEADER_DURING_DELETE))
    assert "a.b" not in cache.names


def test_topic_whose_name_is_none_is_passed_over() -> None:
    cache = cache_of(update_metadata("../t", 1), update_metadata("t", 1))
    assert cache.topics() == ["t"]


def test_live_brokers_are_replaced_as_a_whole() -> None:
    cache = cache_of(update_metadata(live={0: 1, 1: 2}), update_metadata(live={1: 3, 7: 4}))
    assert sorted(cache.brokers) == [1, 7]
    assert cache.endpoint(1, "PLAINTEXT") == Endpoint("PLAINTEXT", "h", 3)


def test_a_later_state_of_a_partition_replaces_the_one_before() -> None:
    cache = cache_of(update_metadata("t", leader=0), update_metadata("t", leader=1, epoch=1))
    state = cache.partition_state(T0)
    assert state is not None
    assert (state.leader, state.leader_epoch) == (1, 1)


def test_it_says_which_topics_were_touched_and_what_is_deleted() -> None:
    cache = cache_of(update_metadata("t", 2))
    assert cache.update(update_metadata("t", 1)) == ({"t"}, [])
    deleting = update_metadata("t", 1, leader=LEADER_DURING_DELETE)
    assert cache.update(deleting) == ({"t"}, [T0])


def test_a_topic_is_gone_with_the_last_of_its_partitions() -> None:
    cache = cache_of(update_metadata("t", 2), update_metadata("t", 1, leader=LEADER_DURING_DELETE))
    assert (cache.has_topic("t"), cache.partition_state(T0)) == (True, None)
    cache.update(update_metadata("t", 2, leader=LEADER_DURING_DELETE))
    assert (cache.has_topic("t"), cache.partition_count("t")) == (False, 0)


def test_a_partition_that_was_never_known_is_deleted_all_the_same() -> None:
    cache = MetadataCache()
    _, deleted = cache.update(update_metadata("t", 1, leader=LEADER_DURING_DELETE))
    assert (deleted, cache.topics()) == ([T0], [])


def test_the_endpoint_of_a_leader_is_that_of_the_listener_asked_for() -> None:
    cache = cache_of(update_metadata("t", leader=1))
    assert cache.leader_endpoint(T0, "PLAINTEXT") == (1, Endpoint("PLAINTEXT", "h", 9093))
    assert cache.leader_endpoint(T0, "OTHER") is None


@pytest.mark.parametrize("leader", [-1, 9])
def test_a_leader_that_does_not_live_has_no_endpoint(leader: int) -> None:
    assert cache_of(update_metadata("t", leader=leader)).leader_endpoint(T0, "PLAINTEXT") is None


def test_an_unknown_partition_has_no_endpoint() -> None:
    assert cache_of(update_metadata("t")).leader_endpoint(T1, "PLAINTEXT") is None


def test_the_oldest_version_has_one_endpoint_per_broker() -> None:
    broker = UpdateMetadataRequestLiveBroker(id=3, v0_host="h", v0_port=5)
    assert with_broker(broker).endpoint(3, "PLAINTEXT") == Endpoint("PLAINTEXT", "h", 5)


def test_where_listeners_have_no_name_they_are_called_by_their_protocol() -> None:
    plain = UpdateMetadataRequestEndpoint(port=5, host="h", security_protocol=0)
    tls = attrs.evolve(plain, port=6, security_protocol=1)  # type: ignore[misc]
    cache = with_broker(UpdateMetadataRequestLiveBroker(id=3, endpoints=[plain, tls]))
    assert cache.brokers[3].endpoints == {
        "PLAINTEXT": Endpoint("PLAINTEXT", "h", 5),
        "SSL": Endpoint("SSL", "h", 6, "SSL"),
    }


@pytest.mark.fault("groups-4")
@pytest.mark.parametrize("topic", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
def test_keys_stay_where_they_are_when_their_topic_grows_which_is_said(
    topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    cache = cache_of(update_metadata(topic, 5))
    assert cache.key_partition_count(topic) == 5
    cache.update(update_metadata(topic, 8))
    assert (cache.key_partition_count(topic), cache.partition_count(topic)) == (5, 8)
    assert f"{topic} has 8 partitions now, and had 5" in caplog.text


def test_a_topic_of_keys_that_is_made_again_has_its_own_number() -> None:
    cache = cache_of(update_metadata(OFFSETS_TOPIC, 5))
    cache.update(update_metadata(OFFSETS_TOPIC, 5, leader=LEADER_DURING_DELETE))
    assert cache.key_partition_count(OFFSETS_TOPIC) == 0
    cache.update(update_metadata(OFFSETS_TOPIC, 3))
    assert cache.key_partition_count(OFFSETS_TOPIC) == 3


def test_keys_are_shared_out_when_no_partition_between_is_missing() -> None:
    whole = update_metadata(OFFSETS_TOPIC, 3)
    (topic,) = whole.topic_states
    first, _, last = topic.partition_states
    part = attrs.evolve(topic, partition_states=[first, last])  # type: ignore[misc]
    cache = cache_of(attrs.evolve(whole, topic_states=[part]))  # type: ignore[misc]
    assert cache.key_partition_count(OFFSETS_TOPIC) == 0
    cache.update(whole)
    assert cache.key_partition_count(OFFSETS_TOPIC) == 3
