"""Who a consumer says it is to transactions, and where it goes on when one was aborted."""

from typing import Any

import pytest

from clients.errors import OffsetFetchFailed, SettingError
from clients.group_metadata import ConsumerGroupMetadata
from clients.high_level.connector import ConsumerConnector
from clients.high_level.streams import Chunk
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from protocol.records.batch import Record
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.clients.high_level.deliveries import P0, P1, Scene, play
from tests.clients.scripted_broker import ScriptedBroker
from tests.stage.clock import run_in_own_time


def offsets(**of: int) -> dict[TopicPartition, OffsetAndMetadata]:
    return {{"p0": P0, "p1": P1}[name]: OffsetAndMetadata(offset) for name, offset in of.items()}


# ---- what has been handed out


def test_offsets_count_up_to_the_last_message_that_was_handed_out() -> None:
    async def scene() -> None:
        work = Scene()
        work.delivery.start({P0: ("0", 5), P1: ("1", 3)})
        await work.consume(P0, 5, 8)
        work.delivery.feed_of(P0).fetch_offset = 20
        # What is fetched and waits in the stream is not handed out.
        feed = work.delivery.feed_of(P0)
        waiting = [Record(offset, 0, None, None, ()) for offset in range(9, 20)]
        feed.stream.put(Chunk(feed, 9, 20, waiting))
        metadata = ConsumerGroupMetadata("g", handed_out=work.delivery.handed_out())
        assert metadata.foreign(offsets(p0=9, p1=3)) == []
        assert metadata.foreign(offsets(p0=10, p1=4)) == [P0, P1]

    play(scene)


def test_a_partition_that_went_and_came_back_begins_again() -> None:
    async def scene() -> None:
        work = Scene()
        work.delivery.start({P0: ("0", 5)})
        await work.consume(P0, 5, 8)
        work.delivery.stop({P0})
        assert ConsumerGroupMetadata("g", handed_out=work.delivery.handed_out()).foreign(
            offsets(p0=6)
        ) == [P0]

        # Another owner may have consumed up to 7 meanwhile; what we have in hand goes beyond it.
        work.delivery.start({P0: ("0", 7)})
        metadata = ConsumerGroupMetadata("g", handed_out=work.delivery.handed_out())
        assert metadata.foreign(offsets(p0=9)) == [P0]

    play(scene)


@pytest.mark.parametrize("is_paused", [True, False])
def test_nothing_is_ours_once_the_session_may_have_ended(is_paused: bool) -> None:
    async def scene() -> None:
        work = Scene()
        work.delivery.start({P0: ("0", 5)})
        await work.consume(P0, 5, 8)
        work.delivery.paused = is_paused
        work.delivery.entitled = lambda: is_paused
        assert work.delivery.handed_out() == {}

    play(scene)


def test_a_group_that_is_named_alone_is_checked_by_nobody() -> None:
    assert ConsumerGroupMetadata("g").foreign(offsets(p0=10**9)) == []


# ---- connectors

COORDINATED = {"membership": "coordinator", "group.id": "g", "group.instance.id": "i"}


async def test_a_member_that_has_not_joined_owns_nothing() -> None:
    connector = ConsumerConnector(
        {**COORDINATED, "bootstrap.servers": "h:1", "enable.auto.commit": "false"}
    )
    metadata = connector.group_metadata()
    assert metadata == ConsumerGroupMetadata("g", -1, "", "i")
    assert metadata.foreign(offsets(p0=0)) == [P0]
    await connector.shutdown()


async def test_a_consumer_that_commits_by_itself_is_not_for_transactions() -> None:
    connector = ConsumerConnector({**COORDINATED, "bootstrap.servers": "h:1"})
    with pytest.raises(SettingError, match=r"auto\.commit\.enable"):
        connector.group_metadata()
    await connector.shutdown()


def with_connector(codes: list[ErrorCode], timeout_ms: int = 10_000) -> Any:
    """Ask for the committed offset of a partition, at a coordinator with these errors first."""

    async def run() -> OffsetAndMetadata | None:
        async with ScriptedBroker({"t": 2}) as broker:

            def fetch(request: Any) -> OffsetFetchResponse:
                assert request.require_stable
                code = codes.pop(0) if codes else ErrorCode.NONE
                part = OffsetFetchResponsePartition(
                    partition_index=0,
                    committed_offset=-1 if code else 7,
                    metadata="",
                    error_code=code,
                )
                return OffsetFetchResponse(
                    topics=[OffsetFetchResponseTopic(name="t", partitions=[part])]
                )

            broker.answers[ApiKey.OFFSET_FETCH] = fetch
            settings = {
                **COORDINATED,
                "bootstrap.servers": broker.bootstrap,
                "retry.backoff.ms": 1,
                "request.timeout.ms": timeout_ms,
            }
            async with ConsumerConnector(settings) as connector:
                return await connector.committed(P0)

    return run_in_own_time(run())


def test_a_committed_offset_is_that_after_the_transaction_in_progress() -> None:
    assert with_connector([ErrorCode.UNSTABLE_OFFSET_COMMIT] * 3) == OffsetAndMetadata(7)


def test_other_errors_of_committed_offsets_are_raised_at_once() -> None:
    with pytest.raises(OffsetFetchFailed, match="GROUP_AUTHORIZATION_FAILED"):
        with_connector([ErrorCode.GROUP_AUTHORIZATION_FAILED])
