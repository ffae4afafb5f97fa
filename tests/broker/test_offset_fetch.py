"""OffsetFetch through its handler."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from broker.handlers import offset_fetch
from broker.handlers.offset_fetch import OFFSETS_A_TURN
from broker.network import long_answers
from broker.network.long_answers import AnswerTooLarge
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from broker.network.response_parts import read_part, split_at_holes
from groups.coordinator.coordinator import GroupCoordinator
from groups.runtime.memory_partition_log import MemoryPartitionLog
from offsets.records import CommittedOffset
from protocol.encoding import Hole, decode, encode_into
from protocol.errors import ApiError, ErrorCode
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    error_response,
)
from tests.broker.zookeeper_twin import NO_ZOOKEEPER
from tests.stage.coordinator import commit, coordinator_over, coordinator_still_loading

CONTEXT = RequestContext(5, "client", "PLAINTEXT", "127.0.0.1:1", 0)
Row = tuple[str, int, int, int, str | None, int]
"""Topic, partition, offset, leader epoch, metadata, error."""


def coordinator() -> GroupCoordinator:
    made = coordinator_over(MemoryPartitionLog())
    offsets = {("t", 0): CommittedOffset(42, 3, "note"), ("u", 1): CommittedOffset(7)}
    commit(made, "g", offsets)
    return made


def fetch(group: str, topics: dict[str, Sequence[int]] | None) -> list[Row]:
    asked = (
        None
        if topics is None
        else [
            OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ]
    )
    request = OffsetFetchRequest(group_id=group, topics=asked)
    response = offset_fetch.handle(coordinator(), NO_ZOOKEEPER, request, CONTEXT)
    assert response.error_code == ErrorCode.NONE
    return [
        (
            topic.name,
            p.partition_index,
            p.committed_offset,
            p.committed_leader_epoch,
            p.metadata,
            p.error_code,
        )
        for topic in response.topics
        for p in topic.partitions
    ]


def test_committed_offset_comes_back_with_metadata_and_leader_epoch() -> None:
    assert fetch("g", {"t": [0]}) == [("t", 0, 42, 3, "note", 0)]


def test_partition_without_a_commit_has_offset_minus_one_and_no_error() -> None:
    assert fetch("g", {"t": [1], "none": [0]}) == [
        ("t", 1, -1, -1, "", 0),
        ("none", 0, -1, -1, "", 0),
    ]


def test_unknown_group_has_no_offsets() -> None:
    assert fetch("nobody", {"t": [0]}) == [("t", 0, -1, -1, "", 0)]
    assert fetch("nobody", None) == []


def test_null_topics_ask_for_everything() -> None:
    assert fetch("g", None) == [("t", 0, 42, 3, "note", 0), ("u", 1, 7, -1, "", 0)]


def test_no_topics_ask_for_nothing() -> None:
    assert fetch("g", {}) == []


def test_group_that_is_being_loaded_is_refused_at_the_top() -> None:
    request = OffsetFetchRequest(group_id="g", topics=None)
    response = offset_fetch.handle(coordinator_still_loading(), NO_ZOOKEEPER, request, CONTEXT)
    assert response == OffsetFetchResponse(
        topics=[], error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    )


def test_before_version_2_each_partition_of_a_group_that_is_being_loaded_is_refused() -> None:
    request = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
    )
    context = CONTEXT._replace(api_version=1)

    with pytest.raises(ApiError) as refused:
        offset_fetch.handle(coordinator_still_loading(), NO_ZOOKEEPER, request, context)

    response = error_response(request, refused.value.code)
    (topic,) = response.topics
    assert [p.error_code for p in topic.partitions] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2


# ---- all offsets of a group that has very many


def ask_in_turns(version: int, request: OffsetFetchRequest) -> tuple[Any, int]:
    """Return the response, read from its bytes, and the turns that it took."""
    made = coordinator()
    many = {("t", partition): CommittedOffset(partition) for partition in range(MANY)}
    for first in range(0, MANY, OFFSETS_A_TURN):
        part = [*many.items()][first : first + OFFSETS_A_TURN]
        commit(made, "many", dict(part))
    commit(made, "many", {("u", 1): CommittedOffset(7, 3, "note")})

    async def ask() -> tuple[OffsetFetchResponse, int]:
        context = CONTEXT._replace(api_version=version)
        wait = offset_fetch.handle(made, NO_ZOOKEEPER, request, context)
        assert isinstance(wait, Wait)
        for turns in range(100):
            response = wait.try_complete(False)
            if response is not None:
                return response, turns
            await asyncio.sleep(0)
        raise AssertionError("there is no response")

    response, turns = asyncio.run(ask())
    encoded, holes = bytearray(), list[Hole]()
    encode_into(encoded, response, version, holes)
    whole = b"".join(map(read_part, split_at_holes(encoded, holes)))
    return decode(OffsetFetchResponse, version, whole)[0], turns


def rows_of(topics: Sequence[Any]) -> dict[tuple[str, int], int]:
    rows = [((t.name, p.partition_index), p.committed_offset) for t in topics for p in t.partitions]
    assert len(dict(rows)) == len(rows), "each partition is there once"
    return dict(rows)


MANY = 3 * OFFSETS_A_TURN + 1
ALL_OF_MANY = {("t", partition): partition for partition in range(MANY)} | {("u", 1): 7}


@pytest.mark.fault("groups-8")
@pytest.mark.parametrize("version", [2, 7])
def test_very_many_offsets_of_a_group_are_read_a_part_in_each_turn(version: int) -> None:
    request = OffsetFetchRequest(group_id="many", topics=None)
    response, turns = ask_in_turns(version, request)
    assert rows_of(response.topics) == ALL_OF_MANY
    assert turns > MANY // OFFSETS_A_TURN


@pytest.mark.fault("groups-8")
def test_very_many_offsets_of_one_of_several_groups_are_read_so_too() -> None:
    asked = [
        OffsetFetchRequestGroup(group_id="g", topics=None),
        OffsetFetchRequestGroup(group_id="many", topics=None),
        OffsetFetchRequestGroup(
            group_id="g", topics=[OffsetFetchRequestTopic(name="u", partition_indexes=[1])]
        ),
        OffsetFetchRequestGroup(group_id="nobody", topics=None),
    ]
    response, turns = ask_in_turns(8, OffsetFetchRequest(groups=asked))
    assert [(answer.group_id, rows_of(answer.topics)) for answer in response.groups] == [
        ("g", {("t", 0): 42, ("u", 1): 7}),
        ("many", ALL_OF_MANY),
        ("g", {("u", 1): 7}),
        ("nobody", {}),
    ]
    assert turns > MANY // OFFSETS_A_TURN


@pytest.mark.fault("strangers-8")
def test_a_group_that_is_named_very_often_is_not_answered_beyond_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request of 10 KB would have an answer of 2 GB."""
    monkeypatch.setattr(long_answers, "MOST_ANSWER_BYTES", 200_000)
    often = [OffsetFetchRequestGroup(group_id="many", topics=None)] * 5
    assert len(ask_in_turns(8, OffsetFetchRequest(groups=often[:1]))[0].groups) == 1
    with pytest.raises(AnswerTooLarge, match="more than 200000 bytes"):
        ask_in_turns(8, OffsetFetchRequest(groups=often))


@pytest.mark.fault("strangers-8")
@pytest.mark.parametrize("place", [0, 1])
def test_a_group_of_another_coordinator_does_not_bring_all_others_into_one_turn(
    place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = GroupCoordinator.shard

    def shard(self: GroupCoordinator, group_id: str) -> Any:
        if group_id == "elsewhere":
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        return find(self, group_id)

    monkeypatch.setattr(GroupCoordinator, "shard", shard)
    asked = [OffsetFetchRequestGroup(group_id="many", topics=None)]
    asked.insert(place, OffsetFetchRequestGroup(group_id="elsewhere", topics=None))
    response, turns = ask_in_turns(8, OffsetFetchRequest(groups=asked))
    assert turns > MANY // OFFSETS_A_TURN
    assert response.groups[place].error_code == ErrorCode.NOT_COORDINATOR
    assert rows_of(response.groups[1 - place].topics) == ALL_OF_MANY
