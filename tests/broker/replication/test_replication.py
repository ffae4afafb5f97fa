"""Leaders and followers keep their promises through elections, crashes and bad luck.

The scenarios of Kafka's EpochDrivenReplicationProtocolAcceptanceTest, LeaderEpochIntegrationTest,
LogRecoveryTest and of KIP-101 and KIP-279.
"""

from __future__ import annotations

import asyncio
import random

import attrs
import pytest

from broker.replication.leader_fetcher import FetcherConfig
from core_log.config import LogConfig
from core_log.log_manager import LogManager
from protocol.errors import ErrorCode
from protocol.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tests.broker.small_cluster import SmallCluster, in_virtual_time, pass_time
from tests.stage.waiting import until

NONE = ErrorCode.NONE


def test_what_is_acknowledged_by_all_is_on_all() -> None:
    async def story() -> None:
        cluster = await SmallCluster(3).start()
        assert await cluster[0].produce(b"a", b"b", acks=-1) == NONE
        assert [cluster[n].values for n in range(3)] == [[b"a", b"b"]] * 3

    in_virtual_time(story)


def test_an_acknowledged_record_outlives_a_leader_whose_follower_bounced() -> None:
    """The first loss of KIP-101: the follower has a record, but does not know yet that it is
    committed. It bounces, and leads. Truncation at its watermark would have lost the record."""

    async def story() -> None:
        cluster = await SmallCluster().start()
        assert await cluster[0].produce(b"a", acks=-1) == NONE
        await cluster.in_step()
        assert await cluster[0].produce(b"b", acks=-1) == NONE
        assert (cluster[1].log_end, cluster[1].watermark) == (2, 1)
        cluster[1].checkpoint()
        cluster.kill(1)
        await cluster.start_broker(1)
        await cluster.elect(0)
        cluster.kill(0)
        await cluster.elect(1, (1,))
        assert (cluster[1].values, cluster[1].watermark) == ([b"a", b"b"], 2)

    in_virtual_time(story)


def test_logs_do_not_part_though_all_lost_their_power_at_once() -> None:
    """The second loss: the follower loses an unflushed record, leads, and writes another one at
    the same offset. The old leader must truncate its own."""

    async def story() -> None:
        cluster = await SmallCluster(config=LogConfig(flush_messages=2)).start()
        assert await cluster[0].produce(b"a", b"b", acks=-1) == NONE
        await cluster.in_step()
        assert await cluster[0].produce(b"c", acks=-1) == NONE
        cluster[0].partition.log.begin_flush().run()
        cluster.kill(0)
        cluster.lose_power(1)
        await cluster.start_broker(1)
        await cluster.elect(1, (1,))
        assert await cluster[1].produce(b"C") == NONE
        await cluster.start_broker(0)
        await cluster.elect(1, (1,))
        await cluster.in_step()
        assert cluster[0].records == cluster[1].records
        assert cluster[0].values == [b"a", b"b", b"C"]

    in_virtual_time(story)


def test_leaders_elected_without_each_others_records_end_with_one_log() -> None:
    """KIP-279: after unclean elections in turn each log has epochs that the other lacks."""

    async def story() -> None:
        cluster = await SmallCluster().start()
        assert await cluster[0].produce(b"both", acks=-1) == NONE
        await cluster.in_step()
        cluster.kill(1)
        await cluster.elect(0, (0,))
        assert await cluster[0].produce(b"0 alone") == NONE
        for leader in (1, 0, 1, 0, 1):
            cluster.kill(1 - leader)
            await cluster.start_broker(leader)
            await cluster.elect(leader, (leader,))
            for number in range(leader + 2):
                assert await cluster[leader].produce(b"%d alone, %d" % (leader, number)) == NONE
        await cluster.start_broker(0)
        await cluster.elect(1, (1,))
        await cluster.in_step()
        assert cluster[0].records == cluster[1].records
        assert cluster[0].values[0] == b"both"
        assert cluster[0].epochs == cluster[1].epochs[: len(cluster[0].epochs)]

    in_virtual_time(story)


def test_an_idle_partition_that_changes_hands_again_and_again_is_fetched_again() -> None:
    """Each leader has an epoch without records that no other broker knows."""

    async def story() -> None:
        cluster = await SmallCluster().start()
        assert await cluster[0].produce(b"a", acks=-1) == NONE
        await cluster.in_step()
        for leader in (1, 0, 1, 0):
            await cluster.elect(leader, (0, 1))
        await pass_time(1)
        asked = [e for e in cluster[0].asked if isinstance(e, OffsetForLeaderEpochRequest)]
        assert len(asked) <= 4
        assert await cluster[0].produce(b"b", acks=-1) == NONE
        await cluster.in_step()
        assert cluster[1].values == [b"a", b"b"]

    in_virtual_time(story)


def test_epochs_are_written_with_the_records_and_grow_with_each_leader() -> None:
    async def story() -> None:
        cluster = await SmallCluster().start()
        for leader in (0, 1, 0):
            if leader != 0 or cluster.epoch:
                await cluster.elect(leader, (0, 1))
            assert await cluster[leader].produce(b"by %d" % leader, acks=-1) == NONE
        await cluster.in_step()
        assert cluster[0].records == [(b"by 0", 0), (b"by 1", 1), (b"by 0", 2)]
        assert cluster[1].records == cluster[0].records
        assert cluster[0].epochs == cluster[1].epochs == [(0, 0), (1, 1), (2, 2)]

    in_virtual_time(story)


def test_through_fast_changes_of_leaders_nothing_acknowledged_is_lost_and_order_is_kept() -> None:
    async def story() -> None:
        cluster, acked = await SmallCluster(3).start(), []
        for number in range(30):
            leader = cluster.state.leader
            if await cluster[leader].produce(b"%03d" % number, acks=-1, timeout_ms=40) == NONE:
                acked.append(b"%03d" % number)
            if number % 5 == 4:
                await cluster.elect(random.Random(number).choice(cluster.state.isr))
        assert len(acked) > 20
        await cluster.in_step()
        logs = [cluster[n].values for n in range(3)]
        assert logs[0] == logs[1] == logs[2] == sorted(logs[0])
        assert set(acked) <= set(logs[0])

    in_virtual_time(story)


@pytest.mark.parametrize("seed", range(30))
def test_whoever_crashes_what_all_in_sync_had_acknowledged_is_there_in_the_end(seed: int) -> None:
    """Processes end and come back, the controller elects from the ISR, and power stays on."""

    async def story() -> None:
        chance, acked = random.Random(seed), []
        cluster = await SmallCluster(3, LogConfig(min_insync_replicas=2)).start()
        for number in range(40):
            leader = cluster.state.leader
            if leader in cluster.brokers and (
                await cluster[leader].produce(b"%02d" % number, acks=-1, timeout_ms=50) == NONE
            ):
                acked.append(b"%02d" % number)
            what = chance.random()
            if what < 0.25 and len(cluster.brokers) > 1:
                killed = chance.choice(sorted(cluster.brokers))
                cluster.kill(killed)
                left = [n for n in cluster.state.isr if n in cluster.brokers]
                if left:
                    await cluster.elect(chance.choice(left), tuple(left))
            elif what < 0.6:
                for id in sorted({0, 1, 2} - set(cluster.brokers))[:1]:
                    await cluster.start_broker(id)
                left = [n for n in cluster.state.isr if n in cluster.brokers]
                if left:
                    await cluster.elect(chance.choice(left), tuple(left))
            elif what < 0.7:
                await pass_time(chance.random() / 10)
        for id in sorted({0, 1, 2} - set(cluster.brokers)):
            await cluster.start_broker(id)
        await cluster.elect(cluster.state.isr[0])
        await cluster.in_step()
        assert cluster[0].records == cluster[1].records == cluster[2].records
        assert [value for value in cluster[0].values if value in set(acked)] == acked

    in_virtual_time(story)


# ---- watermarks


def test_a_checkpoint_brings_the_watermark_back_on_both_sides() -> None:
    async def story() -> None:
        cluster = await SmallCluster().start()
        await cluster[0].produce(b"a", b"b", b"c", acks=-1)
        await cluster.in_step()
        for number in (0, 1):
            cluster[number].checkpoint()
            cluster.kill(number)
        for number in (0, 1):
            await cluster.start_broker(number)
            logs: LogManager = cluster[number].manager.logs
            assert list(logs.read_high_watermarks().values()) == [3]
        await cluster.elect(0)
        assert (cluster[0].watermark, cluster[1].watermark) == (3, 3)

    in_virtual_time(story)


def test_a_watermark_that_was_checkpointed_before_a_crash_grows_on() -> None:
    async def story() -> None:
        cluster = await SmallCluster(config=LogConfig(segment_bytes=200)).start()
        await cluster[0].produce(b"a", acks=-1)
        await cluster.in_step()
        cluster[0].checkpoint()
        for number in range(20):
            await cluster[0].produce(b"%d" % number, acks=-1)
        cluster.kill(0)
        await cluster.elect(1, (1,))
        await cluster[1].produce(b"z", acks=-1)
        await cluster.start_broker(0)
        await cluster.elect(1)
        assert cluster[0].watermark == 1
        await cluster.in_step()
        assert (cluster[0].watermark, len(cluster[0].partition.log.segments)) == (22, 11)

    in_virtual_time(story)


def test_a_follower_that_never_led_knows_no_more_than_it_was_told() -> None:
    async def story() -> None:
        cluster = await SmallCluster(3).start()
        cluster.part(2)
        assert await cluster[0].produce(b"a") == NONE
        await pass_time(0.1)
        assert (cluster[1].log_end, cluster[1].watermark, cluster[0].watermark) == (1, 0, 0)

    in_virtual_time(story)


# ---- in sync, and not


def test_a_follower_cut_off_leaves_the_isr_and_comes_back_into_it() -> None:
    async def story() -> None:
        cluster = await SmallCluster().start()
        cluster[0].manager.follower_progress.shrink_isrs(cluster.now_ms())
        cluster.part(1)
        assert await cluster[0].produce(b"a", acks=-1, timeout_ms=9_000) == (
            ErrorCode.REQUEST_TIMED_OUT
        )
        cluster[0].manager.follower_progress.shrink_isrs(cluster.now_ms())
        await pass_time(1.5)
        cluster[0].manager.follower_progress.shrink_isrs(cluster.now_ms())
        await until(lambda: cluster.state.isr == (0,), "it stays in the isr")
        assert cluster[0].watermark == 1
        cluster.cut.clear()
        await until(lambda: cluster.state.isr == (0, 1), "it does not come back")
        assert cluster[1].values == [b"a"]

    in_virtual_time(story)


def test_with_too_few_in_sync_a_write_under_way_is_answered_so_and_later_ones_are_refused() -> None:
    async def story() -> None:
        cluster = await SmallCluster(config=LogConfig(min_insync_replicas=2)).start()
        cluster[0].manager.follower_progress.shrink_isrs(cluster.now_ms())
        cluster.part(1)
        waits = asyncio.ensure_future(cluster[0].produce(b"a", acks=-1, timeout_ms=60_000))
        for _ in range(3):
            await pass_time(5)
            cluster[0].manager.follower_progress.shrink_isrs(cluster.now_ms())
        assert await waits == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert await cluster[0].produce(b"b", acks=-1) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert await cluster[0].produce(b"c", acks=1) == NONE
        assert cluster[0].values == [b"a", b"c"]

    in_virtual_time(story)


def test_a_leader_that_was_replaced_and_not_told_acknowledges_nothing() -> None:
    async def story() -> None:
        cluster = await SmallCluster().start()
        cluster[0].manager.follower_progress.shrink_isrs(cluster.now_ms())
        await cluster.elect(1, (0, 1), tell=(1,))
        produced = await cluster[0].produce(b"lost", acks=-1, timeout_ms=9_000)
        assert produced == ErrorCode.REQUEST_TIMED_OUT
        cluster[0].manager.follower_progress.shrink_isrs(cluster.now_ms())
        await pass_time(2)
        cluster[0].manager.follower_progress.shrink_isrs(cluster.now_ms())
        await until(lambda: cluster[0].partition.is_superseded, "it does not find out")
        assert (cluster.state.leader, cluster.state.isr) == (1, (0, 1))
        assert await cluster[0].produce(b"x", acks=-1) == ErrorCode.REQUEST_TIMED_OUT
        assert cluster[0].watermark == 0
        await cluster.elect(1)
        assert await cluster[1].produce(b"kept", acks=-1) == NONE
        assert cluster[0].values == [b"kept"]

    in_virtual_time(story)


# ---- the beginning of the log


def delete_up_to(offset: int) -> DeleteRecordsRequest:
    partition = DeleteRecordsRequestPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsRequestTopic(name="t", partitions=[partition])
    return DeleteRecordsRequest(topics=[topic], timeout_ms=5_000)


def test_deleted_records_are_given_up_by_all_before_the_answer() -> None:
    async def story() -> None:
        cluster = await SmallCluster().start()
        await cluster[0].produce(b"a", b"b", b"c", acks=-1)
        await cluster.in_step()
        answer = await cluster[0].ask(delete_up_to(2))
        assert answer.topics[0].partitions[0].low_watermark == 2
        assert cluster[1].partition.log.log_start_offset == 2

    in_virtual_time(story)


def test_a_replica_that_comes_after_a_deletion_within_a_batch_begins_with_that_batch() -> None:
    async def story() -> None:
        cluster = await SmallCluster().start()
        cluster.kill(1)
        await cluster.elect(0, (0,))
        await cluster[0].produce(b"a", b"b", b"c")
        await cluster[0].produce(b"d", b"e", b"f")
        await cluster[0].ask(delete_up_to(4))
        await cluster[0].produce(b"g")
        await cluster.start_broker(1)
        await cluster.elect(0)
        await cluster.in_step()
        assert cluster[1].values == [b"d", b"e", b"f", b"g"]
        assert cluster[1].partition.log.log_start_offset == 4

    in_virtual_time(story)


def test_with_a_flush_for_each_message_power_may_fail_everywhere() -> None:
    """Acknowledged records were on all disks, so an election loses nothing."""

    async def story() -> None:
        config = LogConfig(flush_messages=1)
        cluster = await SmallCluster(3, config, FetcherConfig(wait_max_ms=50)).start()
        for number in range(5):
            assert await cluster[0].produce(b"%d" % number, acks=-1) == NONE
        for number in range(3):
            cluster.lose_power(number)
        for number in range(3):
            await cluster.start_broker(number)
        await cluster.elect(2)
        await cluster.in_step()
        assert cluster[2].values == [b"0", b"1", b"2", b"3", b"4"]
        assert attrs.asdict(cluster.state)["leader"] == 2

    in_virtual_time(story)
