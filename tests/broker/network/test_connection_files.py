"""File ranges over the loopback arrive whole and in order, and leave nothing when cut short."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path

import attrs
import pytest

from broker.network.connection import JOINED_BYTES
from broker.network.response_parts import SENDFILE_MAX_BYTES, SENDFILE_MIN_BYTES
from core_log.directory import LogDirectory
from core_log.memory_directory import Disk, MemoryDirectory, MemoryFile
from core_log.storage import FileRange, StorageFile
from tests.broker.network.file_responses import fetch, fetched, files
from tests.broker.served import Client, ask, serving
from tests.stage.waiting import until


@pytest.fixture(params=["disk", "memory"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> StorageFile:
    """A file of 3 MB, on disk or in memory, where sendfile cannot take it."""
    memory = request.param == "memory"
    directory = MemoryDirectory("d") if memory else LogDirectory(tmp_path)
    file = directory.open_segment("file")
    file.append([random.Random(5).randbytes(3 * SENDFILE_MAX_BYTES)])
    return file


def content(part: FileRange | bytes) -> bytes:
    return part if isinstance(part, bytes) else part.read()


@pytest.mark.parametrize(
    "sizes",
    [
        (1,),
        (SENDFILE_MIN_BYTES - 1,),
        (SENDFILE_MIN_BYTES,),
        (SENDFILE_MAX_BYTES,),
        (SENDFILE_MAX_BYTES + 1,),
        (2 * SENDFILE_MAX_BYTES + 12345,),
        (10, 20, 30),
        (10, 100_000, 20, 200_000, 30),
        (100_000, 10),
    ],
    ids=str,
)
async def test_ranges_arrive_as_they_are_in_the_file(
    stored: StorageFile, sizes: tuple[int, ...]
) -> None:
    ranges = [stored.range(17 * index + 3, size) for index, size in enumerate(sizes)]
    async with serving(files(*ranges)) as server:
        client = await server.client()
        await client.send(fetch(1))
        assert await fetched(client) == (1, [content(r) for r in ranges])


async def test_ranges_stand_beside_bytes_in_memory_and_nothing(stored: StorageFile) -> None:
    parts: list[FileRange | bytes] = [
        b"memory",
        stored.range(0, 50_000),
        b"",
        stored.range(9, 9),
        b"end",
    ]
    async with serving(files(*parts)) as server:
        client = await server.client()
        await client.send(fetch(1))
        assert await fetched(client) == (1, [content(part) for part in parts])


async def test_answers_around_a_file_keep_their_order(stored: StorageFile) -> None:
    large = stored.range(0, 2_000_000)
    async with serving(files(large)) as server:
        client = await server.client()
        await client.send(ask(1, "a"), fetch(2), ask(3, "b"), fetch(4), fetch(5), ask(6, "c"))
        assert await client.answer() == (1, "a")
        assert await fetched(client) == (2, [content(large)])
        assert await client.answer() == (3, "b")
        assert await fetched(client) == (4, [content(large)])
        assert await fetched(client) == (5, [content(large)])
        assert await client.answer() == (6, "c")


async def test_many_readers_of_one_file_do_not_disturb_each_other(stored: StorageFile) -> None:
    large = stored.range(1000, 2_500_000)
    expected = (1, [content(large)])
    async with serving(files(large)) as server:
        clients = [await server.client() for _ in range(8)]

        async def read(client: Client) -> bool:
            await client.send(fetch(1))
            return await fetched(client) == expected

        assert all(await asyncio.gather(*map(read, clients)))


@pytest.mark.parametrize("size", [100, 100_000])
async def test_a_file_shorter_than_was_announced_ends_the_connection(
    stored: StorageFile, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    beyond = FileRange(stored, stored.size - 10, size)
    async with serving(files(beyond)) as server:
        client = await server.client()
        await client.send(ask(1, "a"), fetch(2))
        assert await client.answer() == (1, "a")
        with pytest.raises(ConnectionError):
            await client.receive()
    assert f"only 10 of {size} bytes were in the file" in caplog.text


def endless(tmp_path: Path) -> FileRange:
    """Make a sparse file of more bytes than any kernel buffers."""
    file = LogDirectory(tmp_path).open_segment("endless")
    file.truncate(200_000_000)
    return file.range(0, 200_000_000)


async def test_a_client_that_vanishes_in_the_middle_of_a_file_leaves_nothing_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(files(endless(tmp_path))) as server:
        client = await server.client(receive_buffer_bytes=10_000)
        await client.send(fetch(1))
        await client.receive_some()
        # The broker waits until it may send more.
        for _ in range(200):
            await asyncio.sleep(0)
        client.reset()
        await until(lambda: not server.listener.connections, "the connection is forgotten")
        await server.spawned.ended()
        assert await (await server.client()).echo(2, "k") == (2, "k")
    # It is no failure of ours.
    assert {record.levelname for record in caplog.records} <= {"WARNING", "INFO"}


async def test_a_connection_cut_in_the_middle_of_a_file_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    """Nor in the event loop, where the next socket with the same number would find it."""
    async with serving(files(endless(tmp_path))) as server:
        client = await server.client()
        await client.send(fetch(1))
        await client.receive_some()
        (connection,) = server.listener.connections
        connection.close()
        await until(lambda: not server.listener.connections, "the connection is forgotten")
        with pytest.raises(asyncio.CancelledError):
            await server.spawned.ended()
        for n in range(5):
            assert await (await server.client()).echo(n, "k") == (n, "k")


# ---- memory, and the disk


async def test_small_ranges_of_many_partitions_are_sent_as_they_are_taken(
    stored: StorageFile,
) -> None:
    """A follower or a consumer fetches a thousand partitions with a little in each."""
    ranges = [stored.range(31_000 * n % stored.size, 30_000) for n in range(100)]
    # What the system holds is not counted.
    async with serving(files(*ranges), socket_send_buffer_bytes="10000") as server:
        slow, other = await server.client(receive_buffer_bytes=10_000), await server.client()
        await slow.send(fetch(1))
        for n in range(50):
            await other.echo(n)
            assert server.listener.queued.total <= 2 * JOINED_BYTES
        assert await fetched(slow) == (1, [content(r) for r in ranges])


@attrs.define(eq=False)
class ColdFile(MemoryFile):
    """A file that notes the threads that read it when it was not in the page cache."""

    read_cold_by: list[str] = attrs.field(factory=list)

    def read(self, start: int, size: int) -> bytes:
        if not self.is_cached(start, size):
            self.read_cold_by.append(threading.current_thread().name)
        return super().read(start, size)


@pytest.mark.parametrize("size", [10, SENDFILE_MIN_BYTES, 2 * SENDFILE_MAX_BYTES])
async def test_what_is_not_in_the_page_cache_is_read_in_off_the_loop(size: int) -> None:
    cold = ColdFile(Disk(), 0)
    cold.append([random.Random(5).randbytes(size)])
    cold.grow_cold()
    async with serving(files(cold.range(0, size))) as server:
        client = await server.client()
        await client.send(fetch(1))
        _, (received,) = await fetched(client)
    assert received == cold.read(0, size)
    assert len(cold.read_cold_by) == 1
    assert cold.read_cold_by != [threading.main_thread().name]
