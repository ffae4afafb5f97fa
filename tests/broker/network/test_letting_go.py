"""A request that names very many things is freed in many turns."""

from __future__ import annotations

import asyncio
import weakref

import pytest

from broker.network.letting_go import FREED_A_TURN, let_go_of
from protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)


def request_of(topics: int, partitions: int) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=-1,
        topics=tuple(
            ListOffsetsRequestTopic(
                name=f"t{number}",
                partitions=tuple(
                    ListOffsetsRequestPartition(partition_index=index, timestamp=-1)
                    for index in range(partitions)
                ),
            )
            for number in range(topics)
        ),
    )


@pytest.mark.parametrize(("topics", "partitions"), [(1, 10), (1, 5), (5, 2), (10, 1), (3, 0)])
async def test_no_turn_frees_many_of_the_things_of_a_request(topics: int, partitions: int) -> None:
    request = request_of(topics, partitions * FREED_A_TURN // 2)
    left = weakref.WeakSet(part for topic in request.topics for part in topic.partitions)
    most = 0

    async def watch() -> None:
        nonlocal most
        while left:
            before = len(left)
            await asyncio.sleep(0)
            most = max(most, before - len(left))

    watching = asyncio.create_task(watch())
    await let_go_of(request, ("topics", "partitions"))
    await watching

    assert not left
    assert list(request.topics) == []
    assert most <= 2 * FREED_A_TURN


async def test_arrays_that_are_null_are_no_matter() -> None:
    request = request_of(2, 1)
    request.topics[0].partitions = None  # type: ignore[misc, assignment]
    await let_go_of(request, ("topics", "partitions"))
    assert list(request.topics) == []
