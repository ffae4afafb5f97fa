"""Nodes edited by hand into nonsense: the log names each, and all other work goes on.

Tools' requests to the controller are in test_controller_at_work.
"""

import re
from collections.abc import Awaitable, Callable

import pytest

from protocol.topic_partition import TopicPartition
from tests.broker.controller.cluster import P0, Cluster, on_cluster
from zk.znodes import (
    BrokerId,
    Controller,
    ControllerEpoch,
    EntityConfig,
    IsrChange,
    PartitionState,
    TopicAssignment,
)

STATE = PartitionState.path(*P0)
OTHER = TopicPartition("other", 0)
AFTER = TopicPartition("after", 0)

Scenario = Callable[[Cluster], Awaitable[None]]

NONSENSE = [b"nonsense", b"", None, b"[]"]


def log_of(scenario: Scenario, caplog: pytest.LogCaptureFixture) -> str:
    """Return the log of the scenario; it has no tracebacks."""

    @on_cluster
    async def run(cluster: Cluster) -> None:
        await scenario(cluster)

    run()
    assert not any(record.exc_info for record in caplog.records)
    return caplog.text


async def check_goes_on(cluster: Cluster) -> None:
    """Check that a topic that is created now gets a leader."""
    await cluster.create("after", (1, 2))
    assert (await cluster.state(AFTER)).leader in (1, 2)


BAD_ASSIGNMENTS = {
    "no replica": b'{"partitions":{"0":[]}}',
    "a replica twice": b'{"partitions":{"0":[1,1]}}',
    "no broker": b'{"partitions":{"0":[-5]}}',
    "a number no request can hold": b'{"partitions":{"0":[99999999999]}}',
    "no partition": b'{"partitions":{"99999999999":[1]}}',
}


@pytest.mark.parametrize("content", [*NONSENSE, *BAD_ASSIGNMENTS.values()])
def test_topic_is_named_and_left_out(
    content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.session.create(TopicAssignment.path("t"), content)
        await check_goes_on(cluster)
        assert await cluster.session.exists(STATE) is None

    assert "left out t: /brokers/topics/t: " in log_of(scenario, caplog)


BAD_STATES = {
    "no epoch": b'{"controller_epoch":1,"leader":1,"leader_epoch":-7,"isr":[1]}',
    "an epoch no request can hold": (
        b'{"controller_epoch":1,"leader":1,"leader_epoch":99999999999,"isr":[1]}'
    ),
    "no leader": b'{"controller_epoch":1,"leader":-2,"leader_epoch":0,"isr":[1]}',
    "no replica": b'{"controller_epoch":1,"leader":1,"leader_epoch":0,"isr":["1"]}',
}


@pytest.mark.parametrize("content", [*NONSENSE, *BAD_STATES.values()])
def test_state_is_named_and_its_partition_alone_stays_as_it_is(
    content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create("t", (1, 2))
        await cluster.create("other", (1, 2))
        good, _ = await cluster.session.get(STATE)
        await cluster.session.set(STATE, content)
        await cluster.kill(1)
        assert (await cluster.state(OTHER)).leader == 2
        assert (await cluster.session.get(STATE))[0] == content
        await check_goes_on(cluster)
        await cluster.session.set(STATE, good)  # mended, and read by the next controller
        await cluster.start(1)
        await cluster.kill(2)
        assert (await cluster.state()).leader == 1

    assert f"left out t-0: {STATE}: " in log_of(scenario, caplog)


def test_state_of_a_controller_that_never_was_is_passed_by_the_next_election() -> None:
    @on_cluster
    async def run(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create("t", (2, 1))
        future = PartitionState(2, 0, (2, 1), controller_epoch=2_000_000_000)
        await cluster.session.set(STATE, future.encode())
        await cluster.kill(2)
        assert cluster.controllers[1].epoch == 2_000_000_001
        assert (await cluster.state()).leader == 1

    run()


@pytest.mark.parametrize("content", NONSENSE)
def test_broker_is_named_and_counts_as_gone(
    content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create("t", (2, 1))
        await cluster.session.set(BrokerId.path(2), content)
        await check_goes_on(cluster)
        assert await cluster.state() == PartitionState(1, 1, (1,), 1)

    assert "left out 2: /brokers/ids/2: " in log_of(scenario, caplog)


@pytest.mark.parametrize("name", ["two", "-2", "2²"])
def test_child_of_brokers_whose_name_is_no_number_is_no_broker(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.session.create(f"{BrokerId.directory()}/{name}", b"{}")
        await check_goes_on(cluster)

    log_of(scenario, caplog)


@pytest.mark.parametrize("content", [*NONSENSE, b"-3", b"2147483647"])
def test_epoch_is_named_with_what_to_write_and_no_controller_is_elected_before(
    content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create("t", (1,))
        await cluster.session.set(ControllerEpoch.path(), content)
        await cluster.create("after", (1,))
        assert not any(controller.is_active for controller in cluster.controllers.values())
        await cluster.session.set(ControllerEpoch.path(), b"1")
        await cluster.settle()
        assert (await cluster.state(AFTER)).controller_epoch == 2

    log = log_of(scenario, caplog)
    assert re.search(r"/controller_epoch: .*; no controller is elected until it is as large", log)


@pytest.mark.parametrize("content", [*NONSENSE, b'{"brokerid":"one"}'])
def test_controller_nobody_is_is_named_until_it_is_deleted(
    content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.session.delete(Controller.path())
        await cluster.session.create(Controller.path(), content)
        await cluster.settle()
        assert not any(controller.is_active for controller in cluster.controllers.values())
        await cluster.session.delete(Controller.path())
        await check_goes_on(cluster)

    log = log_of(scenario, caplog)
    assert re.search(r"/controller: .*; no controller is elected until the node is deleted", log)


@pytest.mark.parametrize("content", NONSENSE)
def test_controllers_node_may_be_overwritten_while_it_is_active(content: bytes | None) -> None:
    @on_cluster
    async def run(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.session.set(Controller.path(), content)
        await check_goes_on(cluster)
        await cluster.kill(1)
        assert (await cluster.state(AFTER)).leader == 2

    run()


@pytest.mark.parametrize("content", NONSENSE)
def test_settings_of_a_topic_nobody_can_read_allow_no_unclean_election(
    content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        for topic in ("t", "other"):
            await cluster.create(topic, (2, 1))
            await cluster.leader_writes(2, partition=TopicPartition(topic, 0))
        await cluster.session.create(EntityConfig.path("topics", "t"), content)
        unclean = EntityConfig({"unclean.leader.election.enable": "true"})
        await cluster.session.create(EntityConfig.path("topics", "other"), unclean.encode())
        await cluster.kill(2)
        assert (await cluster.state()).leader == -1
        assert (await cluster.state(OTHER)).leader == 1

    assert "/config/topics/t: " in log_of(scenario, caplog)


@pytest.mark.parametrize("content", NONSENSE)
def test_change_of_an_in_sync_set_is_named_and_goes(
    content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.session.create(IsrChange.prefix(), content, sequence=True)
        await cluster.session.create(f"{IsrChange.directory()}/by-hand", content)
        await check_goes_on(cluster)
        assert (await cluster.session.children(IsrChange.directory()))[0] == []

    assert "/isr_change_notification/by-hand: " in log_of(scenario, caplog)


def test_preferred_leader_of_what_is_not_there_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create("t", (1,))
        wish = b'{"partitions":[{"topic":"t","partition":-1},{"topic":"no","partition":0}]}'
        await cluster.put("/admin/preferred_replica_election", wish)
        assert await cluster.session.exists("/admin/preferred_replica_election") is None

    log = log_of(scenario, caplog)
    assert "t--1: no preferred leader is elected: The partition does not exist." in log
    assert "no-0: no preferred leader is elected: The partition does not exist." in log
