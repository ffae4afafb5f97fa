"""Watching groups where `__consumer_offsets` may not be read."""

from typing import Any

import attrs
import pytest

from clients.admin import EARLIEST_TIME, Admin
from clients.command_line.sessions import Sessions
from clients.groups.group_facts import CoordinatorFacts, GroupFacts
from clients.groups.group_reader import GroupReader
from clients.groups.lag import Position, lag_of
from clients.watching.group_watch import GroupWatch
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.messages.find_coordinator import (
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)
from protocol.messages.list_groups import ListGroupsResponse, ListGroupsResponseGroup
from protocol.messages.list_offsets import (
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from protocol.messages.metadata import MetadataResponse
from protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from protocol.registry import API
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.clients.scripted_broker import ScriptedBroker, all_versions

REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUPS = ("a", "b", "c")
FLIGHTS = TopicPartition("flights", 0)


class RefusingBroker(ScriptedBroker):
    """Has three groups, and refuses the topic that tells of them at one API."""

    def __init__(self, refuses_at: ApiKey, offset_fetch_version: int) -> None:
        super().__init__({OFFSETS_TOPIC: 1, FLIGHTS.topic: 1})
        self.offset = 5
        self.has_leader = True
        self.ends = [9, 9]
        """The high watermark, and the last stable offset."""
        self.refuses_at_metadata = refuses_at is ApiKey.METADATA
        listed = [
            ListGroupsResponseGroup(group_id=name, protocol_type="consumer") for name in GROUPS
        ]
        versions = all_versions(OFFSET_FETCH=(0, offset_fetch_version))
        self.answers |= {
            ApiKey.API_VERSIONS: lambda request: versions,
            ApiKey.FETCH: lambda request: API[ApiKey.FETCH].error_response(request, REFUSED),
            ApiKey.LIST_GROUPS: lambda request: ListGroupsResponse(error_code=0, groups=listed),
            ApiKey.FIND_COORDINATOR: self.find,
            ApiKey.LIST_OFFSETS: self.list_offsets,
            ApiKey.OFFSET_FETCH: self.fetch_offsets,
        }

    def metadata(self, request: Any) -> MetadataResponse:
        response = super().metadata(request)
        topics = [
            attrs.evolve(topic, error_code=REFUSED, partitions=[])
            if topic.name == OFFSETS_TOPIC and self.refuses_at_metadata
            else topic
            for topic in response.topics
        ]
        return attrs.evolve(response, topics=topics)

    def find(self, request: Any) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(
            host="127.0.0.1",
            node_id=self.node_id,
            port=self.port,
            coordinators=[
                FindCoordinatorResponseCoordinator(
                    key=key, node_id=self.node_id, host="127.0.0.1", port=self.port
                )
                for key in request.coordinator_keys
            ],
        )

    def list_offsets(self, request: Any) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            partitions = [
                ListOffsetsResponsePartition(
                    partition_index=asked.partition_index,
                    error_code=0 if self.has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
                    offset=0
                    if asked.timestamp == EARLIEST_TIME
                    else self.ends[request.isolation_level],
                )
                for asked in topic.partitions
            ]
            topics.append(ListOffsetsResponseTopic(name=topic.name, partitions=partitions))
        return ListOffsetsResponse(topics=topics)

    def fetch_offsets(self, request: Any) -> OffsetFetchResponse:
        partition = OffsetFetchResponsePartition(
            partition_index=0, committed_offset=self.offset, metadata="", error_code=0
        )
        topics = [OffsetFetchResponseTopic(name=FLIGHTS.topic, partitions=[partition])]
        groups = [
            OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)
            for group in request.groups
        ]
        return OffsetFetchResponse(topics=topics, groups=groups)


@pytest.mark.parametrize("refuses_at", [ApiKey.METADATA, ApiKey.FETCH])
@pytest.mark.parametrize(("version", "requests"), [(8, 1), (7, 3)])
async def test_groups_are_asked_where_the_topic_is_refused(
    refuses_at: ApiKey, version: int, requests: int
) -> None:
    async with RefusingBroker(refuses_at, version) as broker, Admin(broker.bootstrap) as admin:
        watch = GroupWatch(admin)
        await watch.refresh()
        assert (watch.is_tailing, watch.failures, watch.new_commits) == (False, [], [])
        assert {name: group.offsets[FLIGHTS].offset for name, group in watch.groups.items()} == (
            dict.fromkeys(GROUPS, 5)
        )
        assert watch.logs[FLIGHTS].end == 9
        assert set(watch.group_read_at_ms) == set(GROUPS)
        assert len(broker.asked(ApiKey.OFFSET_FETCH)) == requests

        # Nobody tells of commits; what changed is one, at the time of the look.
        broker.offset = 7
        await watch.refresh()
        assert [(c.group, c.offset, c.end_offset) for c in watch.new_commits] == [
            (name, 7, 9) for name in GROUPS
        ]
        assert all(c.at_ms == watch.group_read_at_ms[c.group] for c in watch.new_commits)


async def test_groups_are_asked_at_the_rate_that_is_given() -> None:
    async with RefusingBroker(ApiKey.METADATA, 8) as broker, Admin(broker.bootstrap) as admin:
        await GroupWatch(admin, max_requests_per_second=2).refresh()
        asked = [len(request.groups) for request in broker.asked(ApiKey.OFFSET_FETCH)]
        assert asked == [2, 1]


async def test_a_commit_since_the_leader_went_is_not_beyond_the_end_that_was_seen_last() -> None:
    async with RefusingBroker(ApiKey.METADATA, 8) as broker, Admin(broker.bootstrap) as admin:
        watch = GroupWatch(admin)
        await watch.refresh()
        broker.has_leader, broker.offset = False, 12
        await watch.refresh()
        assert [failure.what for failure in watch.failures] == ["flights-0"]
        assert lag_of(12, watch.logs[FLIGHTS]).position is Position.IN_RANGE


@pytest.mark.parametrize(
    ("committed", "lag", "position"),
    [(6, 1, "in-range"), (9, 0, "in-range"), (10, -3, "beyond-log-end")],
)
async def test_a_commit_behind_the_last_stable_offset_alone_is_in_range(
    committed: int, lag: int, position: str
) -> None:
    # A transaction is open from 7 on, and the group reads what is not committed.
    at_coordinator = CoordinatorFacts("Empty", offsets={FLIGHTS: OffsetAndMetadata(committed)})
    async with RefusingBroker(ApiKey.METADATA, 8) as broker, Admin(broker.bootstrap) as admin:
        broker.ends = [9, 7]
        reader = GroupReader(Sessions(admin, None), isolation=1)
        logs = await reader.logs_of([GroupFacts("a", coordinator=at_coordinator)])
        judged = lag_of(committed, logs[FLIGHTS])
        assert (judged.lag, judged.position.value) == (lag, position)
