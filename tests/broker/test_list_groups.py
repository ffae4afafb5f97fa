"""ListGroups through its handler."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from broker.handlers import list_groups
from broker.handlers.list_groups import GROUPS_A_TURN
from broker.network.deferred import Deferred
from broker.network.dispatch import Outcome
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from broker.network.response_parts import read_part, split_at_holes
from groups.coordinator.coordinator import GroupCoordinator
from groups.runtime.memory_partition_log import MemoryPartitionLog
from offsets.records import CommittedOffset
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.header import encode_response, read_response
from protocol.messages.list_groups import ListGroupsRequest
from tests.broker.spawning import Spawned
from tests.stage.coordinator import commit, coordinator_over, coordinator_still_loading

CONTEXT = RequestContext(2, "client", "PLAINTEXT", "127.0.0.1:1", 0)


def ask(
    coordinator: GroupCoordinator, request: ListGroupsRequest, deferred: Deferred | None = None
) -> Any:
    if deferred is None:
        deferred = Deferred(Spawned(), lambda key: None, ThreadPoolExecutor(1))
    return list_groups.handle(coordinator, deferred, request, CONTEXT)


def test_group_that_only_commits_is_listed_without_a_protocol_type() -> None:
    coordinator = coordinator_over(MemoryPartitionLog())
    commit(coordinator, "g", {("t", 0): CommittedOffset(42)})
    response = ask(coordinator, ListGroupsRequest())
    assert response.error_code == ErrorCode.NONE
    assert [(g.group_id, g.protocol_type) for g in response.groups] == [("g", "")]


def test_groups_are_listed_by_state_on_request() -> None:
    coordinator = coordinator_over(MemoryPartitionLog())
    commit(coordinator, "g", {("t", 0): CommittedOffset(42)})

    def listed(*states: str) -> list[tuple[str, str]]:
        request = ListGroupsRequest(states_filter=states)
        response = ask(coordinator, request)
        return [(g.group_id, g.group_state) for g in response.groups]

    assert listed() == listed("Stable", "Empty") == [("g", "Empty")]
    assert listed("Stable") == []


def test_while_a_partition_is_loaded_the_list_says_so() -> None:
    response = ask(coordinator_still_loading(), ListGroupsRequest())
    assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert response.groups == []


@pytest.mark.parametrize("count", [GROUPS_A_TURN - 1, GROUPS_A_TURN, 2 * GROUPS_A_TURN + 7])
def test_many_groups_are_listed_some_a_turn(count: int) -> None:
    coordinator = coordinator_over(MemoryPartitionLog())
    groups = [f"g{number}" for number in range(count)]
    for group in groups:
        commit(coordinator, group, {("t", 0): CommittedOffset(42)})
    taken = []

    async def ask_in_turns() -> Outcome:
        deferred = Deferred(Spawned(), lambda key: None, ThreadPoolExecutor(1))
        outcome: Outcome = ask(coordinator, ListGroupsRequest(), deferred)
        while isinstance(outcome, Wait):
            taken.append(outcome)
            await asyncio.sleep(0)
            outcome = outcome.try_complete(False) or outcome
        return outcome

    outcome = asyncio.run(ask_in_turns())
    assert (len(taken) > 0) == (count >= GROUPS_A_TURN)
    encoded, holes = encode_response(ApiKey.LIST_GROUPS, 2, 7, outcome)
    frame = b"".join(read_part(part) for part in split_at_holes(encoded, holes))
    _, response = read_response(ApiKey.LIST_GROUPS, 2, frame[4:])
    assert [group.group_id for group in response.groups] == groups
