"""A stage plays the leader of a broker under measurement, and its probe adds up the waits."""

from __future__ import annotations

from benchmarks.probe import STOP_MS, Waits
from benchmarks.stage import LOCAL, VERSIONS, PlayedLeader
from benchmarks.turns import play_in_turns
from clients.transport.connection import Connection
from protocol.api_key import ApiKey
from protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
)


async def test_a_follower_hears_of_the_played_leader_where_its_log_is_to_end() -> None:
    epoch = OffsetForLeaderEpochRequestPartition(partition=3, leader_epoch=5)
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderEpochRequestTopic(topic="t", partitions=[epoch])]
    )
    with PlayedLeader() as leader:
        leader.end_offset = 70
        connection = await Connection.open(*leader.address)
        try:
            response = await connection.call(request)
        finally:
            await connection.close()
    ((end,),) = [topic.partitions for topic in response.topics]
    assert (end.partition, end.leader_epoch, end.end_offset) == (3, 5, 70)
    assert leader.connections == 1


async def test_the_played_leader_has_nothing_and_knows_what_it_was_asked_for() -> None:
    wanted = FetchRequestPartition(partition=3, fetch_offset=70, partition_max_bytes=100)
    fetch = FetchRequest(
        replica_id=LOCAL,
        max_wait_ms=0,
        min_bytes=1,
        topics=[FetchRequestTopic(topic="t", partitions=[wanted])],
    )

    with PlayedLeader() as leader:
        connection = await Connection.open(*leader.address)
        try:
            assert connection.version_of(ApiKey.FETCH) == VERSIONS[ApiKey.FETCH]
            response = await connection.call(fetch)
        finally:
            await connection.close()

    ((partition,),) = [topic.partitions for topic in response.responses]
    assert (partition.error_code, partition.high_watermark, bytes(partition.records)) == (
        0,
        70,
        b"",
    )
    assert (leader.fetched, leader.topics) == ({70}, {"t"})


def test_waits_that_are_stops_are_added_up_and_the_longest_is_kept() -> None:
    waits = Waits()
    for took_ms in (1.0, STOP_MS, STOP_MS + 1, STOP_MS + 2, 3.0):
        waits.note(took_ms)
    assert (waits.longest_ms, waits.stops_ms) == (STOP_MS + 2, 2 * STOP_MS + 3)


def test_contestants_take_turns_and_each_figure_has_its_own_list() -> None:
    played: list[str] = []

    def contestant(name: str, figure: float) -> tuple[float, float]:
        played.append(name)
        return figure, -figure

    longest, stops = play_in_turns(
        [lambda: contestant("ours", 1), lambda: contestant("before", 2)], 2
    )
    assert played == ["ours", "before"] * 2
    assert (longest, stops) == ([(1, 1), (2, 2)], [(-1, -1), (-2, -2)])
