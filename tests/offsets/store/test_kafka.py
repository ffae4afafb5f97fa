"""Offsets at a coordinator."""

import asyncio
from typing import Any

import pytest

from offsets.store import CoordinatorStore
from offsets.store_errors import CommitFailed, OffsetFetchFailed
from protocol.errors import ErrorCode
from protocol.messages.offset_fetch import OffsetFetchResponse
from protocol.topic_partition import OffsetAndMetadata
from tests.offsets.store.stores import GROUP, P0, P1, U0, Coordinator, at


def test_a_coordinator_is_committed_to_as_by_a_consumer_outside_of_generations() -> None:
    coordinator = Coordinator()
    offsets = {P0: OffsetAndMetadata(42, "note"), U0: OffsetAndMetadata(1)}
    asyncio.run(coordinator.store.commit(GROUP, offsets))
    (request,) = coordinator.requests
    assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == (
        GROUP,
        -1,
        "",
    )
    assert asyncio.run(coordinator.store.fetch(GROUP, [P0, P1, U0])) == offsets


def test_an_unchanged_offset_is_committed_to_the_coordinator_again() -> None:
    coordinator = Coordinator()
    for _ in range(2):
        asyncio.run(coordinator.store.commit(GROUP, at(p0=1)))
    assert len(coordinator.requests) == 2


@pytest.mark.parametrize("code", [code for code in ErrorCode if code is not ErrorCode.NONE])
def test_no_error_of_a_fetch_is_taken_for_no_offset(code: ErrorCode) -> None:
    coordinator = Coordinator(at(p0=5, p1=6))
    coordinator.codes[P1] = code
    with pytest.raises(OffsetFetchFailed) as failure:
        asyncio.run(coordinator.store.fetch(GROUP, [P0, P1]))
    assert failure.value.errors == {P1: code.name}
    assert failure.value.offsets == at(p0=5)


def test_an_error_of_the_whole_fetch_puts_every_partition_in_doubt() -> None:
    coordinator = Coordinator(at(p0=5))
    coordinator.top = ErrorCode.NOT_COORDINATOR
    with pytest.raises(OffsetFetchFailed) as failure:
        asyncio.run(coordinator.store.fetch(GROUP, [P0, P1]))
    assert failure.value.errors.keys() == {P0, P1}
    assert coordinator.forgotten


def test_a_partition_left_out_of_a_response_is_in_doubt() -> None:
    async def silence(request: Any) -> OffsetFetchResponse:
        return OffsetFetchResponse(topics=[], error_code=0)

    with pytest.raises(OffsetFetchFailed, match="left out"):
        asyncio.run(CoordinatorStore(silence).fetch(GROUP, [P0]))


def test_a_fetch_of_nothing_does_not_ask_for_everything() -> None:
    coordinator = Coordinator(at(p0=5))
    assert asyncio.run(coordinator.store.fetch(GROUP, [])) == {}
    assert coordinator.requests == []


def test_a_commit_that_failed_in_part_names_the_part() -> None:
    coordinator = Coordinator()
    coordinator.codes[P1] = ErrorCode.OFFSET_METADATA_TOO_LARGE
    with pytest.raises(CommitFailed) as failure:
        asyncio.run(coordinator.store.commit(GROUP, at(p0=1, p1=2)))
    assert failure.value.errors == {P1: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert not failure.value.retriable
    assert coordinator.committed == at(p0=1)
    assert not coordinator.forgotten


def test_refusals_name_the_rights_to_ask_for() -> None:
    coordinator = Coordinator(at(p0=5))
    coordinator.codes[P0] = ErrorCode.GROUP_AUTHORIZATION_FAILED
    coordinator.codes[P1] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    named = f"{P0}: GROUP_AUTHORIZATION_FAILED, {P1}: TOPIC_AUTHORIZATION_FAILED"
    with pytest.raises(CommitFailed) as commit:
        asyncio.run(coordinator.store.commit(GROUP, at(p0=1, p1=2)))
    rights = {"READ on the topic", "READ on the group"}
    assert set(str(commit.value).split("; ask for ")) == {named, *rights}
    with pytest.raises(OffsetFetchFailed) as fetch:
        asyncio.run(coordinator.store.fetch(GROUP, [P0, P1]))
    rights = {"DESCRIBE on the topic", "DESCRIBE on the group"}
    assert set(str(fetch.value).split("; ask for ")) == {named, *rights}


def test_a_group_with_members_at_its_coordinator_refuses_our_commit_for_good() -> None:
    async def scene() -> None:
        coordinator = Coordinator()
        coordinator.codes[P0] = ErrorCode.UNKNOWN_MEMBER_ID
        with pytest.raises(CommitFailed, match="UNKNOWN_MEMBER_ID") as failure:
            await coordinator.store.commit(GROUP, at(p0=5))
        assert not failure.value.retriable

    asyncio.run(scene())


def test_a_broker_that_is_not_the_coordinator_is_forgotten() -> None:
    coordinator = Coordinator()
    coordinator.codes[P0] = ErrorCode.NOT_COORDINATOR
    with pytest.raises(CommitFailed) as failure:
        asyncio.run(coordinator.store.commit(GROUP, at(p0=1)))
    assert failure.value.retriable
    assert coordinator.forgotten == 1
