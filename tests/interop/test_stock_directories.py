"""What a stock broker has left after a change of a setting is no damage, stopped or killed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import uuid4

import pytest

from clients.admin import Admin, ConfigResource
from clients.producer.producer import Producer
from protocol.topic_partition import TopicPartition
from tests.interop.handover import LATEST, NEWEST, OURS, Line, Site
from tests.stage.topic_contents import contents
from tests.stage.waiting import until

Configs = Mapping[str, str]
SMALL = {"segment.bytes": "2000"}
COMPACTED = {
    **SMALL,
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "100",
}
CHANGES: Mapping[str, Sequence[Configs]] = {
    "compact-to-delete": (COMPACTED, SMALL),
    "compact-to-both": (COMPACTED, {**COMPACTED, "cleanup.policy": "compact,delete"}),
    "delete-to-compact": (SMALL, COMPACTED),
    "format-0-to-2": ({**SMALL, "message.format.version": "0.9.0"}, SMALL),
    "format-1-to-2": ({**SMALL, "message.format.version": "0.10.2"}, SMALL),
    "format-0-to-1": (
        {**SMALL, "message.format.version": "0.9.0"},
        {**SMALL, "message.format.version": "0.10.2"},
    ),
    "format-2-to-1": (SMALL, {**SMALL, "message.format.version": "0.10.2"}),
    "old-and-compacted": (
        {**COMPACTED, "message.format.version": "0.10.2"},
        {**SMALL, "message.format.version": "2.8"},
    ),
    "codec": (
        {**SMALL, "compression.type": "gzip"},
        {**SMALL, "compression.type": "zstd"},
        {**SMALL, "compression.type": "uncompressed"},
    ),
    "smaller-segments": ({"segment.bytes": "100000"}, {"segment.bytes": "500"}),
    "larger-segments": ({"segment.bytes": "500"}, {"segment.bytes": "100000"}),
    "smaller-indexes": (
        {**SMALL, "segment.index.bytes": "4000", "index.interval.bytes": "0"},
        {**SMALL, "segment.index.bytes": "48", "index.interval.bytes": "0"},
    ),
    "no-index-entries": (SMALL, {**SMALL, "index.interval.bytes": "1000000"}),
    "append-time": (SMALL, {**SMALL, "message.timestamp.type": "LogAppendTime"}),
    "create-time": ({**SMALL, "message.timestamp.type": "LogAppendTime"}, SMALL),
    "short-segments": (SMALL, {**SMALL, "segment.ms": "1"}),
    "preallocated": (SMALL, {**SMALL, "preallocate": "true"}),
    "preallocated-once": ({**SMALL, "preallocate": "true"}, SMALL),
}
KEYS = (
    *("k0", "k1", "k2", "k3", "x", "x", "x"),  # a segment whose last records go
    *(f"b{number}" for number in range(7)),
    *("x", *(f"c{number}" for number in range(6)), "d0", "d1"),
)
FIRST_MS = 1_700_000_000_000


async def write(bootstrap: str, topic: str, word: str) -> None:
    """One record a batch. All but those of key `x` stay when the topic is compacted."""
    async with Producer(bootstrap_servers=bootstrap, acks="all") as producer:
        for number, key in enumerate(KEYS):
            await producer.send_and_wait(
                topic,
                f"{word} {number} ".encode() + b"." * 200,
                key=(key if key == "x" else f"{word} {key}").encode(),
                partition=0,
                # Times that stand still, go back and are far ahead.
                timestamp_ms=FIRST_MS + (0, 0, -5000, 10**10, 7)[number % 5],
            )


async def set_configs(admin: Admin, topic: str, configs: Configs) -> None:
    verdicts = await admin.alter_configs({ConfigResource.topic(topic): dict(configs)})
    assert not any(verdicts.values()), verdicts


async def fill(bootstrap: str, site: Site) -> None:
    async with Admin(bootstrap) as admin:
        for topic, states in CHANGES.items():
            await site.create(bootstrap, topic, **states[0])
        for turn in range(max(map(len, CHANGES.values()))):
            here = {topic: states for topic, states in CHANGES.items() if turn < len(states)}
            for topic, states in here.items():
                await set_configs(admin, topic, states[turn])
            for topic in here:
                await write(bootstrap, topic, f"turn {turn}")
            for topic, states in here.items():
                if states[turn].get("cleanup.policy") == "compact":
                    await until_cleaned(bootstrap, topic)


async def until_cleaned(bootstrap: str, topic: str) -> None:
    """Return when the first segment has lost its end."""

    async def is_cleaned() -> bool:
        records = await contents(bootstrap, TopicPartition(topic, 0))
        return not {4, 5, 6} & {record.offset for record in records}

    await until(is_cleaned, f"{topic} is cleaned")


async def read_all(bootstrap: str, site: Site) -> dict[str, list[Line]]:
    return {topic: await site.read(bootstrap, topic) for topic in CHANGES}


def bad_news(site: Site) -> list[str]:
    """What was said of logs; the room that a killed broker had reserved is no bad news."""
    lines = [line for line in site.complaints(OURS) if "offline" in line or "truncates" in line]
    return [line for line in lines if "size 0, magic 0" not in line]


@pytest.mark.parametrize("release", [LATEST, pytest.param(NEWEST, marks=pytest.mark.product)])
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_nothing_that_a_stock_broker_leaves_after_a_change_of_settings_is_damage(
    zookeeper: str, tmp_path: Path, killed: bool, release: str
) -> None:
    site = Site(f"{zookeeper}/stock-{uuid4().hex[:8]}", tmp_path)
    asyncio.run(site.found_cluster())
    with site.served_by(release, killed=killed) as bootstrap:
        asyncio.run(fill(bootstrap, site))
        before = asyncio.run(read_all(bootstrap, site))

    # Nothing more is cleaned, so all that is there stays.
    for _ in range(2):
        with site.served_by(OURS, {"log.cleaner.enable": "false"}, killed=killed) as bootstrap:
            assert asyncio.run(read_all(bootstrap, site)) == before
    assert bad_news(site) == []

    with site.served_by(OURS, {"log.cleaner.enable": "false"}) as bootstrap:
        for topic in CHANGES:
            asyncio.run(write(bootstrap, topic, "ours"))
        after = asyncio.run(read_all(bootstrap, site))
    assert {topic: lines[: len(before[topic])] for topic, lines in after.items()} == before
    with site.served_by(release, {"log.cleaner.enable": "false"}) as bootstrap:
        assert asyncio.run(read_all(bootstrap, site)) == after
