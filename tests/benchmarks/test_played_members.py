"""Each question about the coordinator gets an answer, asked in little of a broker of ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import consumers, coordinator_failover, group_coordinator, large_transactions
from benchmarks.brokers import Broker, Side, make_our_side, start_broker, start_our_zookeeper
from benchmarks.group_coordinator import Live
from benchmarks.played_members import PlayedGroup, PlayedMember, found_groups, open_lines
from benchmarks.rounds import Rounds

ROUNDS = Rounds(1, 0.2, 0.1)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("played-members")


@pytest.fixture(scope="module")
def side(directory: Path) -> Iterator[Side]:
    zookeeper, address = start_our_zookeeper(directory / "zookeeper")
    yield make_our_side(address)
    zookeeper.stop(at_once=True)


@pytest.fixture(scope="module")
def broker(side: Side, directory: Path) -> Iterator[Broker]:
    broker = start_broker(side, directory / "broker", "played")
    yield broker
    broker.process.stop(at_once=True)


def test_members_that_join_at_once_are_all_synced(broker: Broker) -> None:
    (row,) = group_coordinator.measure_joins([broker], ROUNDS, 20)

    assert row.ours[0] > 0


def test_heartbeats_are_counted_while_the_members_live(broker: Broker) -> None:
    (row,) = group_coordinator.measure_heartbeats([broker], ROUNDS)

    assert row.ours[0] > 0


def test_a_static_restart_has_no_rebalance_and_a_dynamic_one_has(broker: Broker) -> None:
    static, stood, dynamic, stood_longer = group_coordinator.measure_restarts([broker], ROUNDS, 4)

    assert static.ours == (0,)
    assert dynamic.ours[0] >= 1
    assert 0 < stood.ours[0] < stood_longer.ours[0]


def test_live_groups_cost_the_broker_time_and_memory(side: Side, directory: Path) -> None:
    live = Live(groups=20, lines=4, warm_up_s=0.2, seconds=2.0)

    cores, memory = group_coordinator.measure_live_groups([side], directory, ROUNDS, live)

    assert cores.ours[0] >= 0
    assert len(memory.ours) == 1


def test_the_requests_of_all_members_are_repeated_until_they_are_accepted(broker: Broker) -> None:
    members: list[PlayedMember] = []

    def take(group: PlayedGroup) -> None:
        members.extend(group.members)

    broker.read_offsets("the first request creates the topic")
    with broker.create_topic() as topic, open_lines(broker.address) as lines:
        found_groups(lines, ["one", "two", "three"], 2, take)
        first_at_s, beaten_at_s = coordinator_failover.ask_until_accepted(
            lines, [(member.group.name, member.heartbeat()) for member in members]
        )
        _, committed_at_s = coordinator_failover.ask_until_accepted(
            lines,
            [
                (member.group.name, coordinator_failover.commit_request(member, topic))
                for member in members
            ],
        )
        committed = broker.read_offsets("three")

    assert sorted(member.group.name for member in members) == sorted(2 * ["one", "two", "three"])
    assert first_at_s <= beaten_at_s < committed_at_s
    assert [*committed.values()] == [coordinator_failover.OFFSET]


def test_transactions_are_compared_with_the_same_work_without_them(broker: Broker) -> None:
    written, read = large_transactions.measure([broker], ROUNDS, 8 * 1024 * 1024)

    assert written.ours[0] > 0
    assert read.ours[0] > 0


def test_a_fourth_member_of_ours_gets_its_part(broker: Broker) -> None:
    with broker.create_topic(12) as topic:
        consumers.fill_each(broker, topic, 12)

        (seconds,) = consumers.join_fourth(broker, topic, 12, consumers.OURS)

    assert seconds > 0


def test_streams_are_compared_with_both_memberships(broker: Broker) -> None:
    (row,) = consumers.measure_streams(broker, ROUNDS, 100_000)

    assert row.ours[0] > 0
    assert row.other[0] > 0
