"""Groups of the protocol `consumer` (KIP-848): on a stock Kafka of today, and asked for here."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from tests.interop.stock_consumers import java_driver
from tests.interop.traffic import new_topic, say
from tests.stage.cluster import DevCluster
from tests.stage.kraft_kafka import kraft_broker
from tests.stage.processes import ROOT, command_line
from tests.stage.waiting import DEADLINE_S, block_until


@pytest.fixture(scope="module")
def kraft(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kraft_broker(tmp_path_factory.mktemp("kraft")) as bootstrap:
        yield bootstrap


def kgroup(bootstrap: str, *args: str) -> subprocess.CompletedProcess[str]:
    command = command_line("kgroup", "-b", bootstrap, *args)
    return subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=DEADLINE_S)


def items_of(bootstrap: str, *args: str) -> list[dict[str, Any]]:
    ran = kgroup(bootstrap, *args, "-o", "json")
    assert ran.returncode == 0, ran.stderr
    items = json.loads(ran.stdout)["items"]
    assert isinstance(items, list)
    return items


async def test_a_consumer_group_is_listed_with_its_type_and_described_with_its_members(
    kraft: str,
) -> None:
    topic = await new_topic(kraft, partitions=2)
    await say(kraft, topic)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kraft,
            "group.id": "modern",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    try:
        messages: list[confluent_kafka.Message] = []

        def has_message() -> bool:
            message = consumer.poll(1.0)
            if message is not None and not message.error():
                messages.append(message)
            return bool(messages)

        block_until(has_message, "a message of the group's")
        consumer.commit(messages[0], asynchronous=False)

        (listed,) = items_of(kraft, "list", "--type", "consumer")
        assert (listed["group"], listed["type"], listed["state"]) == (
            "modern",
            "consumer",
            "Stable",
        )
        assert kgroup(kraft, "list", "--type", "classic").stdout == ""

        rows = items_of(kraft, "describe", "modern")
        assert [row["partition"] for row in rows] == [0, 1]
        (member,) = items_of(kraft, "describe", "modern", "--members")
        assert {row["consumer_id"] for row in rows} == {member["consumer_id"]}
        assert member["assignment"] == f"{topic}(0,1)"
        committed = [row for row in rows if row["current_offset"] is not None]
        assert [row["partition"] for row in committed] == [messages[0].partition()]
        (state,) = items_of(kraft, "describe", "modern", "--state")
        assert (state["assignment_strategy"], state["members"]) == ("uniform", 1)
    finally:
        consumer.close()


def test_javas_consumer_says_that_the_protocol_is_not_served_here(dev_cluster: DevCluster) -> None:
    bootstrap = dev_cluster.address("bootstrap")
    topic = asyncio.run(new_topic(bootstrap))
    command = [*java_driver("ModernMember", "3.9.1"), bootstrap, "modern", topic]
    ran = subprocess.run(command, text=True, capture_output=True, timeout=DEADLINE_S)
    assert ran.stdout.splitlines()[-1:] == ["UnsupportedVersionException"], ran.stderr
