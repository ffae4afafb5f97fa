"""ElectLeaders: requests to the controller, the response, and when the wait ends."""

from typing import Any

import pytest

from broker.cluster.metadata_cache import MetadataCache
from broker.controller.events import ElectionRequested
from broker.handlers import elect_leaders
from broker.network.purgatory import Purgatory
from broker.network.request_context import RequestContext
from protocol.errors import ApiError, ErrorCode
from protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersRequestTopicPartitions,
)
from protocol.special_values import UNCLEAN
from protocol.topic_partition import TopicPartition
from tests.broker.asked_controller import AskedController, served
from tests.broker.replication.replicas import update_metadata

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
ELECTED = (ErrorCode.NONE, "")
NOT_NEEDED = (ErrorCode.ELECTION_NOT_NEEDED, "led already")


def cache(leader: int = 1) -> MetadataCache:
    metadata = MetadataCache()
    tell(metadata, leader)
    return metadata


def tell(metadata: MetadataCache, leader: int) -> None:
    """Update the metadata: both partitions prefer broker 1 and are led by `leader`."""
    live = {1: 9092, 2: 9093}
    metadata.update(update_metadata("t", 2, leader=leader, isr=(1, 2), replicas=(1, 2), live=live))


def elect(
    controller: AskedController,
    metadata: MetadataCache,
    *partitions: int,
    version: int = 1,
    timeout_ms: int = 10_000,
    controller_ms: int = 10_000,
    election_type: int = 0,
    then: Any = lambda waiting: None,
) -> dict[TopicPartition, int]:
    topic_partitions = [ElectLeadersRequestTopicPartitions(topic="t", partitions=partitions)]
    request = ElectLeadersRequest(
        election_type=election_type,
        topic_partitions=topic_partitions if partitions else None,
        timeout_ms=timeout_ms,
    )
    context = RequestContext(version, "client", "PLAINTEXT", "1", 0)
    response = served(
        lambda deferred: elect_leaders.handle(
            controller.as_controller(), metadata, deferred, controller_ms, request, context
        ),
        then,
    )
    return {
        TopicPartition(topic.topic, result.partition_id): result.error_code
        for topic in response.replica_election_results
        for result in topic.partition_result
    }


def test_each_partition_has_its_result() -> None:
    refused = (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "broker 1 is not live")
    controller = AskedController({P0: ELECTED, P1: refused})
    assert elect(controller, cache(), 0, 1) == {P0: 0, P1: 80}
    assert controller.asked == [ElectionRequested((P0, P1), False)]


def test_answer_waits_until_this_broker_shows_the_leader() -> None:
    metadata = cache(leader=2)
    seen: list[int] = []

    def shown(waiting: Purgatory) -> None:
        seen.append(waiting.parked)
        tell(metadata, 1)
        waiting.touch(("topic", "t"))

    assert elect(AskedController({P0: ELECTED}), metadata, 0, then=shown) == {P0: 0}
    assert seen == [1]


def test_leader_that_is_not_shown_in_time_has_timed_out() -> None:
    controller = AskedController({P0: ELECTED, P1: NOT_NEEDED})
    assert elect(controller, cache(leader=2), 0, 1, timeout_ms=20) == {P0: 7, P1: 84}


def test_of_all_partitions_only_those_are_named_that_needed_it() -> None:
    controller = AskedController({P0: ELECTED, P1: NOT_NEEDED})
    assert elect(controller, cache()) == {P0: 0}
    assert controller.asked == [ElectionRequested(None, False)]


def test_old_client_does_not_hear_that_it_was_not_needed() -> None:
    assert elect(AskedController({P1: NOT_NEEDED}), cache(), 1, version=0) == {P1: 0}


def test_unclean_leader_may_be_any() -> None:
    controller = AskedController({P0: ELECTED})
    assert elect(controller, cache(leader=2), 0, election_type=UNCLEAN) == {P0: 0}
    assert controller.asked == [ElectionRequested((P0,), True)]


def test_unknown_kind_of_election_is_refused() -> None:
    with pytest.raises(ApiError) as refusal:
        elect(AskedController({}), cache(), 0, election_type=2)
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


def test_only_the_controller_elects() -> None:
    assert elect(AskedController(is_active=False), cache(), 0) == {P0: 41}


def test_controller_that_does_not_answer_in_time_has_timed_out() -> None:
    assert elect(AskedController(), cache(), 0, timeout_ms=20, controller_ms=20) == {P0: 7}


@pytest.mark.fault("outside-O9")
def test_controller_has_its_time_though_the_client_gives_none() -> None:
    """segmentio/kafka-go sends 0 unless it is told otherwise."""
    controller = AskedController({P0: ELECTED, P1: NOT_NEEDED})
    assert elect(controller, cache(leader=2), 0, 1, timeout_ms=0) == {P0: 7, P1: 84}
