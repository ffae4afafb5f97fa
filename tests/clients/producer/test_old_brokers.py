"""A producer and brokers that only know older record formats."""

import asyncio

import pytest

from clients.producer.producer import Producer
from protocol.api_key import ApiKey
from protocol.errors import ApiError
from tests.clients.producer.running_producer import P0, values, with_producer
from tests.clients.scripted_broker import ScriptedBroker, all_versions


@pytest.mark.parametrize(("version", "magic", "time_ms"), [(0, 0, -1), (1, 0, -1), (2, 1, 5)])
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_broker_gets_messages_of_the_newest_format_it_takes(
    version: int, magic: int, time_ms: int, codec: str
) -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.API_VERSIONS] = lambda request: all_versions(PRODUCE=(0, version))
        sent = [await producer.send("t", b"%d" % n, key=b"k", timestamp_ms=5) for n in range(20)]
        got = await asyncio.gather(*sent)
        assert [metadata.offset for metadata in got] == list(range(20))
        assert values(broker) == [b"%d" % n for n in range(20)]
        assert {record.timestamp_ms for record in broker.log[P0]} == {time_ms}
        for request in broker.asked(ApiKey.PRODUCE):
            assert request.topic_data[0].partition_data[0].records[16] == magic

    with_producer(scenario, compression_type=codec)


def test_headers_that_the_broker_would_lose_fail_their_batch_alone() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.API_VERSIONS] = lambda request: all_versions(PRODUCE=(0, 2))
        lossy = await producer.send("t", b"a", partition=0, headers=[("h", b"x")])
        plain = await producer.send("t", b"b", partition=1)
        assert (await plain).offset == 0
        with pytest.raises(ApiError, match="UNSUPPORTED_FOR_MESSAGE_FORMAT"):
            await lossy
        assert values(broker) == []

    with_producer(scenario, {"t": 2})
