"""WriteTxnMarkers through its handler: logs in memory, and the coordinator of groups over them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from broker.coordinators.replicated_log import ReplicatedLog
from broker.handlers import txn_offset_commit
from broker.handlers.write_txn_markers import MARKERS_A_TURN
from broker.network.purgatory import Wait
from core_log.config import LogConfig
from groups.coordinator.coordinator import GroupCoordinator
from offsets.config import OffsetsConfig
from offsets.records import OffsetKey
from protocol.errors import ErrorCode
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.messages.write_txn_markers import WriteTxnMarkersRequest, error_response
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import NOW_MS, Replicas, batch, context, follower_at
from tests.broker.test_produce_transactional import sent
from tests.broker.transactions import (
    P,
    commit_codes,
    commit_request,
    marker,
    marker_codes,
    write_markers,
)
from tests.stage.clock import run_in_virtual_time
from tests.stage.coordinator import coordinator_of_nothing
from tests.stage.waiting import until

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)
NOBODY = coordinator_of_nothing()
NONE = ErrorCode.NONE


def codes(replicas: Replicas, *markers: Any) -> list[ErrorCode]:
    return marker_codes(write_markers(replicas, NOBODY, *markers))


def test_markers_end_the_transactions_of_all_their_partitions() -> None:
    replicas = Replicas().lead("t", partitions=2)
    sent(replicas, b"a")
    response = write_markers(
        replicas,
        NOBODY,
        marker(T0, T1, coordinator_epoch=3),
        marker(T1, producer_id=P + 1, commits=False),
    )
    assert [result.producer_id for result in response.markers] == [P, P + 1]
    assert marker_codes(response) == [NONE] * 3
    assert replicas.manager.log(T1).log_end_offset == 2
    assert replicas.manager.log(T0).producers.producers[P].coordinator_epoch == 3
    assert replicas.manager.partition(T0).last_stable_offset == 2


def test_a_request_without_markers_gets_a_response_without_any() -> None:
    assert codes(Replicas()) == []


def test_partitions_that_are_not_here_or_led_elsewhere_are_looked_for_again() -> None:
    replicas = Replicas().lead("t")
    replicas.lead("f", leader=1, isr=(0, 1), replicas=(0, 1))
    elsewhere = marker(TopicPartition("f", 0), TopicPartition("none", 0), TopicPartition("t", -1))
    assert codes(replicas, elsewhere) == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_old_epochs_of_producers_and_coordinators_are_fenced() -> None:
    replicas = Replicas().lead("t")
    assert codes(replicas, marker(T0, epoch=2, coordinator_epoch=5)) == [NONE]
    assert codes(replicas, marker(T0, epoch=1, coordinator_epoch=5)) == [
        ErrorCode.INVALID_PRODUCER_EPOCH
    ]
    assert codes(replicas, marker(T0, epoch=2, coordinator_epoch=4)) == [
        ErrorCode.TRANSACTION_COORDINATOR_FENCED
    ]
    assert codes(replicas, marker(T0, epoch=2, coordinator_epoch=5)) == [NONE]
    assert codes(replicas, marker(T0, producer_id=-1)) == [ErrorCode.INVALID_PRODUCER_EPOCH]


def test_a_topic_in_an_old_format_can_have_no_transaction() -> None:
    replicas = Replicas(config=LogConfig(message_format_version="0.10.2")).lead("t")
    assert codes(replicas, marker(T0)) == [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT]


@pytest.mark.fault("strangers-68")
@pytest.mark.fault("strangers-69")
def test_a_transaction_from_before_the_format_was_lowered_ends() -> None:
    """Else it would be open for good, and the next one of its producer would decide on it."""
    replicas = Replicas().lead("t")
    sent(replicas, b"a")
    log = replicas.manager.log(T0)
    log.update_config(LogConfig(message_format_version="0.10.2"))
    assert codes(replicas, marker(T0, commits=False)) == [NONE]
    assert not log.producers.has_open(P)
    assert replicas.manager.partition(T0).last_stable_offset == log.log_end_offset == 2
    assert [aborted.producer_id for aborted in log.aborted_transactions(0, 2)] == [P]
    # There can be no other.
    assert codes(replicas, marker(T0)) == [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT]


def test_too_few_replicas_refuse_a_marker() -> None:
    config = LogConfig(min_insync_replicas=2)
    replicas = Replicas(config=config).lead("t", replicas=(0, 1))
    assert codes(replicas, marker(T0)) == [ErrorCode.NOT_ENOUGH_REPLICAS]


def test_an_error_that_coordinators_do_not_know_becomes_one_that_they_repeat_after() -> None:
    replicas = Replicas(config=LogConfig(segment_bytes=70)).lead("t")
    assert codes(replicas, marker(T0)) == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_what_is_not_replicated_in_time_is_to_be_repeated() -> None:
    replicas = Replicas().lead("t", isr=(0, 1), replicas=(0, 1)).lead("u")
    u0 = TopicPartition("u", 0)
    wait = write_markers(replicas, NOBODY, marker(T0, u0))
    assert isinstance(wait, Wait)
    assert wait.offsets == (((1, T0), 1),)
    assert wait.try_complete(False) is None
    assert marker_codes(wait.try_complete(True)) == [ErrorCode.REQUEST_TIMED_OUT, NONE]


def test_a_leader_that_is_replaced_meanwhile_says_so() -> None:
    replicas = Replicas().lead("t", isr=(0, 1), replicas=(0, 1))
    wait = write_markers(replicas, NOBODY, marker(T0))
    replicas.lead("t", leader=1, isr=(0, 1), replicas=(0, 1), epoch=1)
    assert marker_codes(wait.try_complete(False)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_log_that_must_be_flushed_first_gets_its_marker_then() -> None:
    async def play() -> list[ErrorCode]:
        replicas = Replicas(config=LogConfig(segment_bytes=300)).lead(
            "t", isr=(0, 1), replicas=(0, 1)
        )
        replicas.write(T0, batch(b"x" * 220))
        wait = write_markers(replicas, NOBODY, marker(T0))
        assert isinstance(wait, Wait)
        assert replicas.manager.log(T0).log_end_offset == 1
        responses: list[Any] = []
        replicas.purgatory.park(wait, responses.append)
        replicas.flush()
        assert replicas.manager.log(T0).log_end_offset == 2
        follower_at(replicas, T0, 2)
        return marker_codes(responses[0])

    assert run_in_virtual_time(play()) == [NONE]


def test_many_markers_are_written_in_several_turns() -> None:
    async def play() -> int:
        replicas = Replicas().lead("t", partitions=2)
        many = [marker(T0, T1, producer_id=n) for n in range(500)]
        wait = write_markers(replicas, NOBODY, *many)
        assert isinstance(wait, Wait)
        assert replicas.manager.log(T0).log_end_offset < 100
        response = await replicas.ended(wait)
        assert set(marker_codes(response)) == {NONE}
        return len(response.markers)

    assert run_in_virtual_time(play()) == 500


@pytest.mark.fault("strangers-48")
def test_what_comes_late_has_its_results_and_nothing_more_is_written() -> None:
    async def play() -> None:
        replicas = Replicas().lead("t")
        many = [marker(T0, producer_id=n) for n in range(10 * MARKERS_A_TURN)]
        wait = write_markers(replicas, NOBODY, *many)
        assert isinstance(wait, Wait)
        written = replicas.manager.log(T0).log_end_offset
        assert written < len(many)

        codes = marker_codes(wait.try_complete(True))
        assert codes[:written] == [NONE] * written
        assert set(codes[written:]) == {ErrorCode.REQUEST_TIMED_OUT}
        for _ in many:
            await asyncio.sleep(0)
        assert replicas.manager.log(T0).log_end_offset == written

    run_in_virtual_time(play())


# ---- offsets of groups


class Groups:
    """Broker 0 with the coordinator of groups over its replica of the offsets topic."""

    def __init__(self, replicas: Replicas) -> None:
        self.replicas = replicas
        self.coordinator = GroupCoordinator(
            ReplicatedLog(replicas.manager, OFFSETS_TOPIC),
            OffsetsConfig(),
            lambda: 1,
            lambda: NOW_MS,
            asyncio.ensure_future,
            on_response=replicas.purgatory.touch,
            on_served=replicas.manager.waits.wake_all,
        )
        self.coordinator.on_leadership({0}, set())

    async def served(self) -> Groups:
        await until(
            lambda: not self.coordinator.runtime.led_partitions()[0].refusal,
            "the groups are loaded",
        )
        return self

    def commit(self, *partitions: tuple[str, int, int], version: int = 3, **fields: Any) -> Any:
        request = commit_request(*partitions, **fields)
        return txn_offset_commit.handle(
            self.coordinator, lambda topic: range(10), request, context(version)
        )

    def end(self, **fields: Any) -> Any:
        return write_markers(self.replicas, self.coordinator, marker(OFFSETS, **fields))

    def offset(self, partition: int = 0, group_id: str = "g") -> int | None:
        committed = self.coordinator.shard(group_id).offsets.fetch(group_id, "t", partition)
        return None if committed is None else committed.offset

    def is_unstable(self, partition: int = 0) -> bool:
        return self.coordinator.shard("g").is_unstable(OffsetKey("g", "t", partition))


@pytest.mark.parametrize("commits", [True, False])
def test_offsets_count_once_the_marker_of_a_commit_is_there(commits: bool) -> None:
    async def play() -> int | None:
        groups = await Groups(Replicas().lead(OFFSETS_TOPIC)).served()
        assert commit_codes(groups.commit(("t", 0, 42))) == [NONE]
        assert (groups.offset(), groups.is_unstable()) == (None, True)
        assert marker_codes(groups.end(commits=commits)) == [NONE]
        assert not groups.is_unstable()

        # A coordinator that loads the same log knows the same.
        again = await Groups(groups.replicas).served()
        assert (again.offset(), again.is_unstable()) == (groups.offset(), False)
        return groups.offset()

    assert run_in_virtual_time(play()) == (42 if commits else None)


def test_commits_of_one_transaction_that_look_alike_are_all_in_the_log() -> None:
    async def play() -> tuple[int | None, int | None]:
        groups = await Groups(Replicas().lead(OFFSETS_TOPIC)).served()
        for offset in (1, 2):
            groups.commit(("t", 0, offset))
            groups.commit(("t", 1, offset))
        groups.end()
        again = await Groups(groups.replicas).served()
        return again.offset(0), again.offset(1)

    assert run_in_virtual_time(play()) == (2, 2)


def test_a_producer_that_was_replaced_neither_commits_nor_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play() -> None:
        groups = await Groups(Replicas().lead(OFFSETS_TOPIC)).served()
        groups.commit(("t", 0, 1))
        assert marker_codes(groups.end(commits=False, epoch=1, coordinator_epoch=2)) == [NONE]
        fenced = [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert commit_codes(groups.commit(("t", 0, 2))) == fenced
        assert marker_codes(groups.end()) == fenced
        stale = groups.end(epoch=1, coordinator_epoch=1)
        assert marker_codes(stale) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
        assert (groups.offset(), groups.is_unstable()) == (None, False)

    run_in_virtual_time(play())
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_marker_waits_while_the_groups_are_loading() -> None:
    async def play() -> list[ErrorCode]:
        replicas = Replicas().lead(OFFSETS_TOPIC)
        before = await Groups(replicas).served()
        before.commit(("t", 0, 42))

        groups = Groups(replicas)
        wait = groups.end()
        assert isinstance(wait, Wait)
        responses: list[Any] = []
        replicas.purgatory.park(wait, responses.append)
        await groups.served()
        assert groups.offset() == 42
        return marker_codes(responses[0])

    assert run_in_virtual_time(play()) == [NONE]


def test_a_marker_and_an_offset_wait_until_they_are_replicated() -> None:
    async def play() -> list[ErrorCode]:
        replicas = Replicas().lead(OFFSETS_TOPIC, isr=(0, 1), replicas=(0, 1))
        groups = await Groups(replicas).served()
        commit = groups.commit(("t", 0, 42))
        assert isinstance(commit, Wait)
        assert groups.is_unstable()
        end = groups.end()
        responses: list[Any] = []
        replicas.purgatory.park(end, responses.append)
        follower_at(replicas, OFFSETS, 1)
        assert commit_codes(commit.try_complete(False)) == [NONE]
        assert (groups.offset(), responses) == (None, [])
        follower_at(replicas, OFFSETS, 2)
        assert groups.offset() == 42
        return marker_codes(responses[0])

    assert run_in_virtual_time(play()) == [NONE]


def test_a_coordinator_of_groups_that_is_replaced_ends_the_wait_for_a_marker() -> None:
    async def play() -> list[ErrorCode]:
        replicas = Replicas().lead(OFFSETS_TOPIC, isr=(0, 1), replicas=(0, 1))
        groups = await Groups(replicas).served()
        responses: list[Any] = []
        replicas.purgatory.park(groups.end(), responses.append)
        groups.coordinator.on_leadership(set(), {0})
        replicas.manager.notify_change(OFFSETS)
        return marker_codes(responses[0])

    assert run_in_virtual_time(play()) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_an_error_of_the_whole_request_is_that_of_each_partition() -> None:
    request = WriteTxnMarkersRequest(markers=[marker(T0, T1)])
    response = error_response(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert marker_codes(response) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 2
