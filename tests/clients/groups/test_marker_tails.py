"""Whether there are records behind small lags, or markers alone, and what it costs to know."""

from __future__ import annotations

from collections.abc import Callable, Collection

import attrs
import pytest

from clients.admin import Admin
from clients.groups.group_facts import LogOffsets
from clients.groups.lag import lag_of
from clients.groups.marker_tails import MOST_MARKERS, MarkerTails
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
)
from protocol.records.batch import encode_batch
from protocol.records.control_record import COMMIT, encode_marker
from protocol.topic_partition import TopicPartition
from tests.clients.scripted_broker import ScriptedBroker

T0 = TopicPartition("t", 0)
END = 100
RECORDS, MARKERS = "r", "m"
LARGE = b"v" * 20_000


def batch(kind: str, offset: int) -> bytes:
    """A batch of one record, larger than a first fetch, or a marker."""
    if kind == RECORDS:
        return encode_batch([(1_000, None, LARGE, ())], base_offset=offset)
    return encode_marker(
        COMMIT,
        producer_id=7,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp_ms=1_000,
        base_offset=offset,
    )


@attrs.define(eq=False)
class Logs:
    """Logs that end with these batches, one for each offset, as a broker sends them."""

    tail: str
    batches: list[bytes] = attrs.field(init=False)
    is_throttled: bool = False

    def __attrs_post_init__(self) -> None:
        start = END - len(self.tail)
        self.batches = [batch(kind, start + n) for n, kind in enumerate(self.tail)]

    def fetch(self, request: FetchRequest) -> FetchResponse:
        return FetchResponse(
            throttle_time_ms=int(self.is_throttled),
            responses=[]
            if self.is_throttled
            else [
                FetchResponseTopic(
                    topic=topic.topic,
                    partitions=[
                        FetchResponsePartition(
                            partition_index=asked.partition,
                            error_code=ErrorCode.NONE,
                            high_watermark=END,
                            last_stable_offset=END,
                            records=self.bytes_from(asked.fetch_offset, asked.partition_max_bytes),
                        )
                        for asked in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )

    def bytes_from(self, offset: int, limit: int) -> bytes:
        """Return whole batches alone, as brokers do since 0.10.1."""
        sent = b""
        for each in self.batches[offset - END + len(self.tail) :]:
            if len(sent) + len(each) > limit:
                break
            sent += each
        return sent


async def look(
    logs: Logs,
    committed: Collection[int],
    *,
    partitions: int = 1,
    times: int = 1,
    at_second: Callable[[Logs], None] = lambda logs: None,
) -> tuple[list[int | None], list[FetchRequest]]:
    """Return the lags on t-0 of groups with these offsets on each partition, and all fetches."""
    async with ScriptedBroker({"t": partitions}) as broker, Admin(broker.bootstrap) as admin:
        broker.answers[ApiKey.FETCH] = logs.fetch
        tails = MarkerTails()
        of_logs = {TopicPartition("t", n): LogOffsets(0, END) for n in range(partitions)}
        for number in range(times):
            seen = await tails.look(
                admin.cluster,
                of_logs,
                [(partition, offset) for partition in of_logs for offset in committed],
            )
            if number == 0:
                at_second(logs)
        lags = [lag_of(offset, seen[T0]).lag for offset in committed]
        return lags, broker.asked(ApiKey.FETCH)


@pytest.mark.fault("tool-F5")
@pytest.mark.parametrize(
    ("tail", "lags"),
    [
        # Of groups that are 4, 3, 2 and 1 behind.
        ("rmrm", [4, 3, 2, 0]),
        ("rrmm", [4, 3, 0, 0]),
        ("mmmm", [0, 0, 0, 0]),
        ("mmmr", [4, 3, 2, 1]),
    ],
)
async def test_a_lag_of_markers_alone_is_none_and_of_one_record_it_is_one(
    tail: str, lags: list[int]
) -> None:
    assert (await look(Logs(tail), [96, 97, 98, 99]))[0] == lags


async def test_more_than_a_few_are_counted_without_a_look() -> None:
    logs = Logs(MARKERS * 40)
    lags, fetches = await look(logs, [END - MOST_MARKERS - 1])
    assert (lags, fetches) == ([MOST_MARKERS + 1], [])
    # All that may be markers may take a second fetch.
    lags, fetches = await look(logs, [END - MOST_MARKERS])
    assert (lags, len(fetches)) == ([0], 2)


async def test_thousands_of_partitions_cost_a_few_small_requests() -> None:
    """Of several groups each, at several offsets, with batches larger than is asked for."""
    lags, fetches = await look(Logs(RECORDS * 16), range(END - 16, END), partitions=2000)
    assert lags == [*range(16, 0, -1)]
    assert len(fetches) == 4
    asked = [p for request in fetches for topic in request.topics for p in topic.partitions]
    assert sum(partition.partition_max_bytes for partition in asked) <= 2000 * 1024


async def test_what_was_seen_of_a_log_stays_while_it_stays() -> None:
    for tail in ("rrmm", "rrrr"):
        _, once = await look(Logs(tail), [96, 97, 98, 99])
        _, twice = await look(Logs(tail), [96, 97, 98, 99], times=2)
        assert len(once) == len(twice)


@pytest.mark.fault("tool-F5")
async def test_a_client_above_its_quota_learns_nothing_and_looks_again() -> None:
    def has_quota(logs: Logs) -> None:
        logs.is_throttled = False

    logs = Logs("rmmm", is_throttled=True)
    assert (await look(logs, [99]))[0] == [1]
    assert (await look(logs, [99], times=2, at_second=has_quota))[0] == [0]
