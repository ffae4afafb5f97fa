"""Ranges are converted while they are sent: in order, no faster than the client reads them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import attrs

from broker.network.down_conversion import Conversion, ConvertedRange
from core_log.memory_directory import MemoryDirectory
from core_log.storage import FileRange
from protocol.records.batch import decode_records, encode_batch
from tests.broker.network.file_responses import fetch, fetched, files
from tests.broker.served import Client, Server, ask, serving
from tests.stage.waiting import until

RECORD = b"." * 1000


def stored(batches: int) -> FileRange:
    """Write batches of ten records to a file."""
    file = MemoryDirectory("d").open_segment("file")
    for first in range(0, 10 * batches, 10):
        file.append([encode_batch([(5, None, RECORD, ())] * 10, base_offset=first)])
    return file.range(0, file.size)


@attrs.define(eq=False)
class Counted(ConvertedRange):
    """A range that counts its converted bytes."""

    converted_bytes: int = 0

    def pieces(self) -> Iterator[bytes]:
        for piece in ConvertedRange.pieces(self):
            self.converted_bytes += len(piece)
            yield piece


@asynccontextmanager
async def converting(
    source: FileRange, *others: Any
) -> AsyncIterator[tuple[Server, Client, Counted]]:
    """Serve a fetch whose response has the range in format 1, and then `others`."""
    with ThreadPoolExecutor(1) as threads:
        begun = Conversion(source, 1, 0, source.size, False).begin(threads)
        assert isinstance(begun, ConvertedRange)
        counted = Counted(begun.size, begun.first, begun.rest, threads)
        async with serving(files(counted, *others)) as server:
            yield server, await server.client(receive_buffer_bytes=4096), counted


async def test_converted_range_arrives_whole_between_others() -> None:
    source = stored(100)
    async with converting(source, b"behind", source) as (_, client, _counted):
        await client.send(fetch(1))
        correlation_id, (converted, behind, as_it_is) = await fetched(client)

    assert (correlation_id, behind, as_it_is) == (1, b"behind", source.read())
    assert len(converted) == source.size
    records = decode_records(converted)
    assert [record.offset for record in records] == list(range(len(records)))
    assert len(records) > 900


async def test_next_request_is_answered_behind_it() -> None:
    async with converting(stored(60)) as (_, client, _counted):
        await client.send(fetch(1), ask(2, "behind"))
        assert (await fetched(client))[0] == 1
        assert await client.answer() == (2, "behind")


async def test_no_more_is_converted_than_the_client_takes() -> None:
    source = stored(3000)
    async with converting(source) as (server, client, counted):
        await client.send(fetch(1))
        await client.receive_some()
        converted_bytes = -1
        while counted.converted_bytes != converted_bytes:
            converted_bytes = counted.converted_bytes
            for _ in range(50):
                await asyncio.sleep(0.002)
        assert converted_bytes < source.size / 2
        client.reset()
        await until(lambda: not server.listener.connections, "the client to be missed")


async def test_other_clients_are_served_while_one_does_not_read() -> None:
    async with converting(stored(3000)) as (server, client, _counted):
        await client.send(fetch(1))
        await client.receive_some()
        other = await server.client()
        assert await other.echo(7, "still here") == (7, "still here")
