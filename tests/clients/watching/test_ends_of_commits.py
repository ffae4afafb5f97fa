"""The ends that logs had at the times of commits, looked up by those times."""

from typing import Any

import pytest

from clients.admin import Admin
from clients.admin.descriptions import ListedOffset
from clients.groups.group_facts import LogOffsets
from clients.watching.commit_history import Commit, choose_end, with_end
from clients.watching.history import with_ends
from protocol.api_key import ApiKey
from protocol.messages.list_offsets import (
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from protocol.topic_partition import TopicPartition
from tests.clients.scripted_broker import ScriptedBroker

T0 = TopicPartition("t", 0)
END = 90
NOW_MS = 1_000


async def ends_of(*commits: Commit, dated_ms: int = -1) -> tuple[list[int | None], list[int]]:
    """Return the ends of the commits, and the times that the leader was asked for."""

    def list_offsets(request: Any) -> ListOffsetsResponse:
        ((asked,),) = (topic.partitions for topic in request.topics)
        # The record at offset n is of ms n.
        partition = ListOffsetsResponsePartition(
            partition_index=0,
            error_code=0,
            offset=asked.timestamp if asked.timestamp >= 0 else END,
            timestamp=dated_ms,
        )
        return ListOffsetsResponse(
            topics=[ListOffsetsResponseTopic(name="t", partitions=[partition])]
        )

    async with ScriptedBroker({"t": 1}) as broker, Admin(broker.bootstrap) as admin:
        broker.answers[ApiKey.LIST_OFFSETS] = list_offsets
        logs = {T0: LogOffsets(0, END)}
        complete = await with_ends(admin, {"g": commits}, logs, 1_000, NOW_MS)
        asked = [
            partition.timestamp
            for request in broker.asked(ApiKey.LIST_OFFSETS)
            for topic in request.topics
            for partition in topic.partitions
        ]
        return [commit.end_offset for commit in complete["g"]], sorted(asked)


async def test_the_end_at_a_commit_is_the_first_record_of_its_time() -> None:
    assert await ends_of(Commit(40, "g", "t", 0, 30), Commit(50, "g", "t", 0, 45)) == (
        [40, 50],
        [40, 50],
    )


@pytest.mark.parametrize(("dated_ms", "end"), [(NOW_MS, 40), (10**9, None)])
async def test_a_record_of_the_future_is_no_end_at_a_commit(dated_ms: int, end: int | None) -> None:
    """A group that waits at it had all commits at what would pass for the log's end."""
    ends, _ = await ends_of(Commit(40, "g", "t", 0, 40), dated_ms=dated_ms)
    assert ends == [end]


async def test_an_end_before_what_was_committed_is_none() -> None:
    ends, _ = await ends_of(Commit(40, "g", "t", 0, 41), Commit(45, "g", "t", 0, 45))
    assert ends == [None, 45]


@pytest.mark.fault("tool-F1")
async def test_a_commit_of_which_nobody_knows_the_time_has_no_end() -> None:
    """Its time of -1 would ask for the end of now."""
    assert await ends_of(Commit(-1, "g", "t", 0, 30)) == ([None], [])


async def test_commits_before_a_deletion_have_no_end_in_the_log_of_now() -> None:
    before, deleted = Commit(40, "g", "t", 0, 30), Commit(45, "g", "t", 0, None)
    assert await ends_of(before, deleted, Commit(50, "g", "t", 0, 2)) == ([None, None, 50], [50])


@pytest.mark.fault("strangers-98")
@pytest.mark.parametrize(
    ("before", "after", "offset", "end"),
    [
        (100, 100, 90, 100),
        # Nothing came behind it up to the next look.
        (100, 200, 200, 200),
        # Who knows when the others came?
        (100, 200, 90, None),
        (100, 200, 150, None),
        # It was seen once.
        (None, 200, 90, None),
        (100, None, 90, None),
    ],
)
def test_two_looks_tell_the_end_of_a_log_that_did_not_grow_between_them(
    before: int | None, after: int | None, offset: int, end: int | None
) -> None:
    commit = Commit(2_000, "g", "t", 0, offset)
    assert with_end(commit, before, after).end_offset == end


@pytest.mark.fault("strangers-113")
@pytest.mark.parametrize("at_ms", [1_000, 9_990])
def test_what_was_not_looked_up_is_not_known_however_near(at_ms: int) -> None:
    """With the end of the look a lag seems to fall, where the next one is looked up exactly."""
    commit = Commit(at_ms, "g", "t", 0, 90)
    assert choose_end(commit, None, (100, 120), now_ms=10_000) is None


@pytest.mark.parametrize(
    ("at_ms", "listed", "end"),
    [
        (1_000, (105, 1_001), 105),
        # Nothing came later.
        (1_000, (-1, -1), 120),
        # Producers set the times.
        (1_000, (99, 1_001), None),
        (1_000, (105, 99_999), None),
        # Clocks differ a little.
        (9_990, (100, 9_991), 120),
    ],
)
def test_the_end_at_a_commit_is_chosen_within_what_two_looks_have_seen(
    at_ms: int, listed: tuple[int, int], end: int | None
) -> None:
    offset, timestamp_ms = listed
    found = ListedOffset(offset, timestamp_ms, leader_epoch=0)
    assert choose_end(Commit(at_ms, "g", "t", 0, 90), found, (100, 120), now_ms=10_000) == end
