"""A running `kgroup serve`, what it responds, and groups for it to show."""

import asyncio
import json
import signal
import urllib.request
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clients.admin import Admin, NewTopic
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.cluster import DevCluster
from tests.stage.processes import first_line
from tests.stage.waiting import DEADLINE_S


@contextmanager
def serving(cluster: DevCluster, data: Path, *args: str, warns: str | None = None) -> Iterator[str]:
    """The address of a `kgroup serve`, which is stopped behind the block.

    It may warn only of `warns`, and of that once each time.
    """
    process = cluster.begin(
        "kgroup", "serve", "--port", "0", "--data", str(data), "--interval", "0.2", *args
    )
    try:
        yield first_line(process).removeprefix("serving ").strip()
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, errors
    lines = errors.splitlines()
    if warns is None:
        assert lines == []
    else:
        times = 1 + sum("everything is read again" in line for line in lines)
        assert 1 <= sum(warns in line for line in lines) <= times, errors
        assert all(line.startswith("warning: ") for line in lines), errors


def get(address: str, path: str) -> str:
    with urllib.request.urlopen(address + path, timeout=DEADLINE_S) as response:
        return response.read().decode()  # type: ignore[no-any-return]


def ask(address: str, path: str) -> Any:
    return json.loads(get(address, "api/v1/" + path))


def commit(bootstrap: str, topic: str, groups: list[str], offset: int = 0) -> None:
    async def run() -> None:
        async with Admin(bootstrap) as admin:
            if topic not in await admin.list_topics():
                assert await admin.create_topics([NewTopic(topic, 1, 1)]) == {topic: None}
            committed = {TopicPartition(topic, 0): OffsetAndMetadata(offset)}
            for start in range(0, len(groups), 50):
                some = groups[start : start + 50]
                await asyncio.gather(*(admin.commit_group_offsets(g, committed) for g in some))

    run_apart(run())


def run_apart(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on another thread: the browser's driver has a loop in this one."""
    with ThreadPoolExecutor(1) as other:
        other.submit(asyncio.run, work).result()


def shown(address: str) -> set[str]:
    return {item["group"] for item in ask(address, "groups")["items"]}
