"""What the log says of things that a client goes on trying, and how often."""

import asyncio
from typing import Any

import pytest

from clients.cluster import Cluster
from clients.complaints import AGAIN_S, LEFT_OUT, MOST_KNOWN, MOST_TOLD, PATIENCE_S, Complaints
from clients.errors import ConnectionFailed, DeadlineExceeded
from clients.producer.producer import Producer
from clients.transport.connection import Connection
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition
from tests.clients.producer.running_producer import with_producer
from tests.clients.scripted_broker import ScriptedBroker
from tests.stage.clock import run_in_virtual_time
from tests.stage.waiting import until


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("clients")]


def test_what_passes_within_a_second_is_not_said(caplog: pytest.LogCaptureFixture) -> None:
    complaints = Complaints()
    for tenth in range(9):
        complaints.failed("topic t", "no leader", tenth / 10, tenth / 10)
    assert said(caplog) == []


def test_what_lasts_is_said_once_and_again_after_half_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    complaints = Complaints()
    for second in range(int(AGAIN_S)):
        complaints.failed("topic t", "no leader", second, second)
    assert said(caplog) == ["topic t: no leader; trying again"]
    for second in range(int(AGAIN_S), 2 * int(AGAIN_S)):
        complaints.failed("topic t", "no leader", second, second)
    assert said(caplog) == 2 * ["topic t: no leader; trying again"]


def test_one_attempt_that_took_long_is_said(caplog: pytest.LogCaptureFixture) -> None:
    complaints = Complaints()
    complaints.failed("broker 1", "no response", 100.0, 110.0)
    assert said(caplog) == ["broker 1: no response; trying again"]


def test_what_had_a_line_has_one_when_it_works_again(caplog: pytest.LogCaptureFixture) -> None:
    complaints = Complaints()
    complaints.succeeded("topic t", 0)
    for second in range(10):
        complaints.failed("topic t", "no leader", second, second)
    complaints.succeeded("topic t", 10)
    complaints.succeeded("topic t", 11)
    trouble = ["topic t: no leader; trying again", "topic t: works again, after 10 s"]
    assert said(caplog) == trouble

    # Another trouble is short, and has none.
    complaints.failed("topic t", "no leader", 60, 60)
    complaints.succeeded("topic t", 60.5)
    assert said(caplog) == trouble


def test_what_comes_and_goes_has_no_more_lines_than_what_lasts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    complaints = Complaints()
    for second in range(0, int(AGAIN_S), 2):
        complaints.failed("topic t", "no leader", second, second + 1)
        complaints.succeeded("topic t", second + 2)
    assert len(said(caplog)) == 2


def test_however_many_things_fail_they_have_a_bounded_number_of_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    complaints = Complaints()
    for second in range(2 * int(AGAIN_S)):
        for number in range(3 * MOST_KNOWN):
            complaints.failed(f"t-{number}", "no leader", 0, second)
    assert len(said(caplog)) == 2 * MOST_TOLD
    assert said(caplog)[MOST_TOLD - 1].endswith(LEFT_OUT)
    for number in range(3 * MOST_KNOWN):
        complaints.succeeded(f"t-{number}", 2 * AGAIN_S)
    assert len(said(caplog)) <= 3 * MOST_TOLD


def test_failures_far_apart_are_not_one_that_lasts(caplog: pytest.LogCaptureFixture) -> None:
    complaints = Complaints()
    for minute in range(10):
        complaints.failed("topic t", "no leader", 60 * minute, 60 * minute)
    assert said(caplog) == []


def test_things_that_failed_once_are_not_remembered_for_ever() -> None:
    complaints = Complaints()
    for number in range(2 * MOST_KNOWN):
        complaints.failed(f"topic {number}", "no leader", 0.0, 0.0)
    assert len(complaints._troubles) == MOST_KNOWN


@pytest.mark.fault("users-5")
def test_wrong_address_is_said_long_before_the_error(caplog: pytest.LogCaptureFixture) -> None:
    async def refuse(host: str, port: int, **_: Any) -> Connection:
        raise ConnectionFailed(host, port, "connection refused")

    async def scene() -> None:
        cluster = Cluster("nobody:9092", connect=refuse)
        waiting = asyncio.create_task(cluster.partitions("t", timeout_ms=20_000))
        await asyncio.sleep(3 * PATIENCE_S)
        assert said(caplog) == ["topic t: nobody:9092: connection refused; trying again"]
        assert not waiting.done()
        with pytest.raises(DeadlineExceeded):
            await waiting
        await cluster.close()

    run_in_virtual_time(scene())


@pytest.mark.fault("users-5")
def test_records_without_a_leader_are_said(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.leaders[TopicPartition("t", 0)] = -1
        delivery = await producer.send("t", b"a")
        expected = "topic t: a partition has records to send and no leader; trying again"
        await until(lambda: expected in said(caplog), "said")
        broker.leaders.clear()
        await delivery

    with_producer(scenario)


@pytest.mark.fault("users-5")
def test_batch_that_is_refused_for_a_second_is_said(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.produce_errors = [ErrorCode.NOT_ENOUGH_REPLICAS] * 1000
        delivery = await producer.send("t", b"a")
        await until(lambda: "t-0: NOT_ENOUGH_REPLICAS; trying again" in said(caplog), "said")
        broker.produce_errors.clear()
        await delivery

    with_producer(scenario)


@pytest.mark.fault("users-5")
def test_leader_that_cannot_be_reached_is_said(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        async with ScriptedBroker() as gone:
            broker.peers = {1: gone.port}
        broker.leaders[TopicPartition("t", 0)] = 1
        delivery = await producer.send("t", b"a")
        await until(lambda: any(line.startswith("broker 1: ") for line in said(caplog)), "said")
        broker.leaders.clear()
        broker.leader_epoch += 1
        await delivery
        assert broker.asked(ApiKey.PRODUCE)

    with_producer(scenario)


async def test_what_fails_in_two_parts_of_a_client_is_said_once_and_so_is_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = Cluster(["h:1"])
    second = Cluster(["h:1"], known=first.known)
    for at_s in range(10):
        for part in (first, second):
            part.complaints.failed("coordinator of group g", "no response", at_s, at_s)
    for part in (first, second):
        part.complaints.succeeded("coordinator of group g", 10)
    assert said(caplog) == [
        "coordinator of group g: no response; trying again",
        "coordinator of group g: works again, after 10 s",
    ]
