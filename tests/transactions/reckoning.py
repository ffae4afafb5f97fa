"""The end of a story: all is read that is there, once everything is decided."""

from __future__ import annotations

import asyncio

from clients.fetch_requests import Isolation
from protocol.topic_partition import TopicPartition
from tests.transactions.workload import (
    ALL_PARTITIONS,
    FAILURES,
    Onlooker,
    Stage,
    consumer_of,
    read,
)

QUIET_S = 60.0


async def reckon(stage: Stage, onlooker: Onlooker) -> None:
    """Read all partitions, and wait until every reader is at the end of them."""
    loop = asyncio.get_running_loop()
    history = stage.history
    for partition in ALL_PARTITIONS:
        deadline = loop.time() + QUIET_S
        everything, end = await _read_to_end(stage, partition, Isolation.READ_UNCOMMITTED, deadline)
        committed, stable = await _read_to_end(
            stage, partition, Isolation.READ_COMMITTED, deadline, end
        )
        history.everything[partition] = everything
        history.committed[partition] = committed
        if stable < end:
            history.stuck.append(f"{partition} is stable to {stable}, and ends at {end}")

    deadline = loop.time() + QUIET_S
    while _behind(stage) and loop.time() < deadline:
        await asyncio.sleep(0.5)
    history.stuck += _behind(stage)
    await _look_once_more(stage, onlooker)


async def _look_once_more(stage: Stage, onlooker: Onlooker) -> None:
    client = stage.client()
    try:
        async with asyncio.timeout(QUIET_S):
            while True:
                try:
                    await onlooker.look(client)
                    break
                except FAILURES:
                    await asyncio.sleep(0.5)
    except TimeoutError:
        stage.history.stuck.append("the group's offsets are not decided")
    await client.close()


def _behind(stage: Stage) -> list[str]:
    return [
        f"{reading.reader} stands at {reading.position} of {reading.partition}"
        for reading in stage.history.readings
        if reading.rows[-1:] != sorted(stage.history.committed[reading.partition].items())[-1:]
        and reading.is_committed
    ]


async def _read_to_end(
    stage: Stage,
    partition: TopicPartition,
    isolation: Isolation,
    deadline: float,
    end: int | None = None,
) -> tuple[dict[int, bytes], int]:
    """Read a partition until nothing comes, or up to `end`; return the rows, and where that was."""
    rows: dict[int, bytes] = {}
    position = quiet = 0
    loop = asyncio.get_running_loop()
    while loop.time() < deadline:
        try:
            async with await consumer_of(stage, partition) as consumer:
                while loop.time() < deadline:
                    found, next_offset = await read(consumer, partition, position, isolation)
                    rows.update(found)
                    quiet = 0 if next_offset > position else quiet + 1
                    position = max(position, next_offset)
                    if (end is None and quiet > 3) or (end is not None and position >= end):
                        return rows, position
        except FAILURES:
            await asyncio.sleep(0.5)
    return rows, position
